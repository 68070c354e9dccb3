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
#define OUTPUTS     DIV_UP(SHARING * HEAD_DIM, WG)     /* of an item that merges */
#define LOADS       (OUTPUTS < 16 ? 16 / OUTPUTS : 1) /* chunks that it loads together */
#define MOST_CHUNKS 32                                /* whose factors are made together */

#define FOR_ITEMS(i, n) for (uint i = get_local_id(0); i < (n); i += WG)

typedef struct {
    float chunk_m[SHARING][MOST_CHUNKS], chunk_l[SHARING][MOST_CHUNKS];
    float old[SHARING][MOST_CHUNKS], new[SHARING][MOST_CHUNKS]; /* factors of what is merged, and of the chunk */
    float m[SHARING], l[SHARING];                               /* of the chunks before */
    uint last;                                                  /* whether this work-group is */
} merging; /* it lies where `work` was, so that as many work-groups fit an Xe-core */

/* Where chunk `chunk` of the key head's query i leaves its outputs, then m, then l. */
static size_t partial_at(uint row, uint kv_head, uint i, uint chunks, uint chunk) {
    return (((size_t)row * N_HEAD + kv_head * SHARING + i) * chunks + chunk) * (HEAD_DIM + 2);
}

/* Partials, and whether this work-group, of the `end` whose partials are merged, arrives last; then it sees all of them, and
 * none is counted any more. OpenCL C 1.x, and 3.0 without these features, promises no order between work-groups; but devices
 * do atomics of global memory where all work-groups see them. So partials pass through these, and each is waited for. */
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
    if (as_uint(atomic_xchg((volatile global float *)p, x)) == 0) mem_fence(CLK_GLOBAL_MEM_FENCE); /* to ask is to wait */
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
    FOR_ITEMS(i, SHARING) {
        float m = s->m[i], l = s->l[i];
        for (uint c = 0; c < n; c++) {
            m = fmax(m, s->chunk_m[i][c]);
            l = l * s->old[i][c] + s->chunk_l[i][c] * s->new[i][c];
        }
        s->m[i] = m;
        s->l[i] = l;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Which of the queries' outputs is the item's number k; the last one's where it has none. */
static uint output_of(uint k) {
    return min(k * WG + (uint)get_local_id(0), (uint)(SHARING * HEAD_DIM - 1));
}

/* o: the item's outputs of chunks before; after that, with these n, whose factors are made. */
static void add_outputs(global float *partials, uint chunks, uint n, local const merging *s, float o[OUTPUTS]) {
    for (uint c = 0; c < n; c += LOADS) {
        float x[LOADS][OUTPUTS];
#pragma unroll
        for (uint j = 0; j < LOADS; j++)
#pragma unroll
            for (uint k = 0; k < OUTPUTS; k++) {
                size_t chunk = (size_t)(output_of(k) / HEAD_DIM) * chunks + min(c + j, n - 1);
                x[j][k] = get_partial(partials + chunk * (HEAD_DIM + 2) + output_of(k) % HEAD_DIM);
            }
#pragma unroll
        for (uint j = 0; j < LOADS; j++)
#pragma unroll
            for (uint k = 0; k < OUTPUTS; k++) {
                uint i = output_of(k) / HEAD_DIM;
                if (c + j < n) o[k] = fma(o[k], s->old[i][c + j], x[j][k] * s->new[i][c + j]);
            }
    }
}

/* A row's outputs of a key head's queries, from `end` chunks of each; with all items of the work-group. */
static void merge_chunks(global float *partials, uint row, uint kv_head, uint chunks, uint end, global crumb_result *out,
                         local merging *s) {
    float o[OUTPUTS];
    partials += partial_at(row, kv_head, 0, chunks, 0);
    out += ((size_t)row * N_HEAD + kv_head * SHARING) * HEAD_DIM;
#pragma unroll
    for (uint k = 0; k < OUTPUTS; k++) o[k] = 0;
    FOR_ITEMS(i, SHARING) {
        s->m[i] = -INFINITY;
        s->l[i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint first = 0; first < end; first += MOST_CHUNKS) {
        uint n = min((uint)MOST_CHUNKS, end - first);
        make_factors(partials + (size_t)first * (HEAD_DIM + 2), chunks, n, s);
        add_outputs(partials + (size_t)first * (HEAD_DIM + 2), chunks, n, s, o);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#pragma unroll
    for (uint k = 0; k < OUTPUTS; k++)
        if (k * WG + get_local_id(0) < SHARING * HEAD_DIM)
            out[output_of(k)] = TO_RESULT(o[k] * crumb_divide(1, s->l[output_of(k) / HEAD_DIM]));
}

/* Behind a chunk's partials, where a row has several: s is what the work-group needs for nothing else any more. */
static void join_chunks(global float *partials, global uint *arrived, uint row, uint kv_head, uint chunks, uint end,
                        global crumb_result *out, local merging *s) {
    if (arrives_last(arrived + row * N_HEAD_KV + kv_head, end, s))
        merge_chunks(partials, row, kv_head, chunks, end, out, s);
}
#endif
