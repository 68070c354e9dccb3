/* common.cl: what attention.cl and attention_matrix.cl share: sizes, and the chunks of keys of attention_split, each a
 * work-group's own: what it leaves in memory, and how the last work-group of a key head merges all, so that no launch has to.
 *
 *     partials  f32 scratch [n_rows][N_HEAD][chunks][HEAD_DIM + 2]: a chunk's outputs, m and l
 *     arrived   uint [n_rows][N_HEAD_KV]: chunks whose partials are there; 0 before a launch and behind it
 *
 * Options: those of 3_kv.cl, -D N_HEAD=n, -D N_HEAD_KV=n, -D ROWS=n
 * Result: exactly cpu/ref's, whichever work-group is the last. */
#ifdef ROWS
#ifdef SUB_GROUP
#define WG (SUB_GROUP * 8)
#else
#define WG 128
#endif
#define SHARING     (N_HEAD / N_HEAD_KV) /* query heads of a key head */
#define QUERIES     (ROWS * SHARING)
#define MERGED      DIV_UP(SHARING * HEAD_DIM, WG) /* outputs of an item that merges */
#define MERGED_MOST 32                             /* chunks whose factors are made together */

#define FOR_ITEMS(i, n) for (uint i = get_local_id(0); i < (n); i += WG)

typedef struct {
    float chunk_m[SHARING][MERGED_MOST], chunk_l[SHARING][MERGED_MOST];
    float old[SHARING][MERGED_MOST], new[SHARING][MERGED_MOST]; /* factors of what is merged, and of the chunk */
    float m[SHARING], l[SHARING];                               /* of the chunks before */
    uint last;                                                  /* whether this work-group is */
} merging;

/* Where chunk `chunk` of the key head's query i leaves its outputs, then m, then l. */
static size_t partial_at(uint row, uint kv_head, uint i, uint chunks, uint chunk) {
    return (((size_t)row * N_HEAD + kv_head * SHARING + i) * chunks + chunk) * (HEAD_DIM + 2);
}

/* Partials, and whether this work-group, of the `end` whose partials are merged, arrives last; then it sees all of them, and
 * none is counted any more. OpenCL C 1.x has no order between work-groups, but its atomics are the whole device's: partials
 * that pass through them lie in no cache of a part of it, and fences keep a work-item's in their order. */
#if __OPENCL_C_VERSION__ == 200 || (defined(__opencl_c_atomic_order_acq_rel) && defined(__opencl_c_atomic_scope_device))
static void put_partial(global float *p, float x) {
    *p = x;
}
static float get_partial(global float *p) {
    return *p;
}
static bool arrives_last(global uint *arrived, uint end, local merging *s) {
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_device);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        volatile global atomic_uint *count = (volatile global atomic_uint *)arrived;
        s->last = atomic_fetch_add_explicit(count, 1, memory_order_acq_rel, memory_scope_device) == end - 1;
        if (s->last) atomic_store_explicit(count, 0, memory_order_relaxed, memory_scope_device);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_device);
    return s->last;
}
#else
static void put_partial(global float *p, float x) {
    atomic_xchg((volatile global float *)p, x);
}
static float get_partial(global float *p) {
    return as_float(atomic_or((volatile global uint *)p, 0u));
}
static bool arrives_last(global uint *arrived, uint end, local merging *s) {
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        s->last = atomic_inc((volatile global uint *)arrived) == end - 1;
        if (s->last) atomic_xchg((volatile global uint *)arrived, 0u);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    return s->last;
}
#endif

/* The factors of n chunks, of whose first query `partials` are, and what they make of m and l. */
static void make_factors(global float *partials, uint chunks, uint n, local merging *s) {
    FOR_ITEMS(at, SHARING * n) {
        global float *own = partials + ((size_t)(at / n) * chunks + at % n) * (HEAD_DIM + 2) + HEAD_DIM;
        s->chunk_m[at / n][at % n] = get_partial(own);
        s->chunk_l[at / n][at % n] = get_partial(own + 1);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(at, SHARING * n) {
        uint i = at / n, c = at % n;
        float m = s->m[i], own = s->chunk_m[i][c];
        for (uint before = 0; before < c; before++) m = fmax(m, s->chunk_m[i][before]);
        float most = fmax(m, own);
        s->old[i][c] = crumb_exp(m - most);
        s->new[i][c] = crumb_exp(own - most);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    FOR_ITEMS(i, SHARING)
        for (uint c = 0; c < n; c++) {
            s->m[i] = fmax(s->m[i], s->chunk_m[i][c]);
            s->l[i] = s->l[i] * s->old[i][c] + s->chunk_l[i][c] * s->new[i][c];
        }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* A row's outputs of a key head's queries, from `end` chunks of each; with all items of the work-group. */
static void merge_chunks(global float *partials, uint row, uint kv_head, uint chunks, uint end, global crumb_result *out,
                         local merging *s) {
    float o[MERGED];
    partials += partial_at(row, kv_head, 0, chunks, 0);
#pragma unroll
    for (uint k = 0; k < MERGED; k++) o[k] = 0;
    FOR_ITEMS(i, SHARING) {
        s->m[i] = -INFINITY;
        s->l[i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint first = 0; first < end; first += MERGED_MOST) {
        uint n = min((uint)MERGED_MOST, end - first);
        make_factors(partials + (size_t)first * (HEAD_DIM + 2), chunks, n, s);
        for (uint c = 0; c < n; c++)
#pragma unroll
            for (uint k = 0; k < MERGED; k++) {
                uint at = min(k * WG + (uint)get_local_id(0), (uint)(SHARING * HEAD_DIM - 1)), i = at / HEAD_DIM;
                float x = get_partial(partials + ((size_t)i * chunks + first + c) * (HEAD_DIM + 2) + at % HEAD_DIM);
                o[k] = fma(o[k], s->old[i][c], x * s->new[i][c]);
            }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#pragma unroll
    for (uint k = 0; k < MERGED; k++) {
        uint at = k * WG + get_local_id(0), i = at / HEAD_DIM;
        if (at < SHARING * HEAD_DIM)
            out[((size_t)row * N_HEAD + kv_head * SHARING) * HEAD_DIM + at] = TO_RESULT(o[k] * crumb_divide(1, s->l[i]));
    }
}

/* Behind a chunk's partials, where a row has several. */
static void meet(global float *partials, global uint *arrived, uint row, uint kv_head, uint chunks, uint end,
                 global crumb_result *out, local merging *s) {
    if (arrives_last(arrived + row * N_HEAD_KV + kv_head, end, s))
        merge_chunks(partials, row, kv_head, chunks, end, out, s);
}
#endif
