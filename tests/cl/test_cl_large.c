/* Allocations of more than 4 GiB on a device of the OpenCL backend: what lies behind the first 4 GiB must not be taken
 * from, or put, 4 GiB before it. Linear layers and embeddings whose weights are one such allocation, and a cache whose
 * keys and values are one each, against the CPU, which has only the rows that are compared.
 *
 * usage: test_cl_large TARGET   as in --target: cl:RUNG. Exits with 77 where the device does not allocate so much, or
 * the machine has not so much memory free. */
#include "host/base/half.h"
#include "host/kernel/kv.h"
#include "tests/kernels/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t gib = 1ull << 30;
enum {
    MANY = 17,
    TOGETHER = 4, /* tile-rows that follow each other */
    FEW_TILES = 3 * TOGETHER,
    MARKED = FEW_TILES * CRUMB_TILE_ROWS
};

static const crumb_backend *backend;
static const char *target;
static uint64_t at_once; /* bytes that the device allocates */
static bool exact;       /* no 16-bit floats on matrix instructions: equal bits are wanted */

static float noise(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608 - 1;
}

/* ---- one op on a device -------------------------------------------------------------------------------------- */

enum { MOST_VALUES = 4 };

/* A plan of inputs and what is made of them. */
typedef struct scene {
    crumb_op ops[6];
    crumb_value_info values[MOST_VALUES];
    size_t n_ops, n_values;
    crumb_value out;
} scene;

/* The rows of `out`: [n][width], until the plan is destroyed. */
static const float *run(const crumb_backend *b, crumb_plan *plan, const scene *s, float *const inputs[],
                        const crumb_row *rows, uint32_t n) {
    const float *got;
    uint32_t n_got;
    for (size_t i = 0; i < s->n_ops && s->ops[i].kind == CRUMB_OP_INPUT; i++)
        rig_ok(b->plan.write(plan, s->ops[i].input.out, inputs[i], n, &rig_error));
    rig_ok(b->plan.replay(plan, rows, n, &rig_error));
    rig_ok(b->plan.read(plan, s->out, &got, &n_got, &rig_error));
    assert_int_equal(n_got, n);
    return got;
}

static crumb_plan *record(const crumb_backend *b, crumb_device *d, const scene *s, crumb_kv_cache *kv,
                          uint32_t max_rows) {
    crumb_plan *plan;
    const crumb_plan_desc desc = {.ops = s->ops,
                                  .n_ops = s->n_ops,
                                  .values = s->values,
                                  .n_values = s->n_values,
                                  .max_rows = max_rows,
                                  .max_outputs = max_rows,
                                  .kv = kv};
    rig_ok(b->plan.record(d, &desc, &plan, &rig_error));
    return plan;
}

static crumb_device *open_on(const crumb_backend *b, const char *with) {
    crumb_device *d;
    const crumb_device_params params = {.target = with, .n_threads = 2};
    rig_ok(b->device.open(&params, &d, &rig_error));
    return d;
}

static void check_near(float got, float want, float scale, const char *what, uint64_t place) {
    const float limit = exact ? 0 : 1e-4f * scale;
    if (!(fabsf(got - want) <= limit))
        fail_msg("%s, row %llu: %g, not %g", what, (unsigned long long)place, (double)got, (double)want);
}

static float largest_of(const float *x, size_t n) {
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    assert_true(most > 0);
    return most;
}

/* ---- weights ------------------------------------------------------------------------------------------------- */

/* A matrix of which some tile-rows are not zero: its first, those around `limit` bytes, its last. */
typedef struct weights {
    crumb_matrix large, few; /* few: those tile-rows alone */
    uint32_t tiles[FEW_TILES];
    uint64_t n_bytes; /* of the large one's codes, then of them and the scales */
    crumb_buffer *buffer;
    char *few_memory;
} weights;

static uint64_t tile_bytes(const crumb_matrix *w) {
    return (uint64_t)CRUMB_TILE_ROWS * w->k * (w->bits ? w->bits : 16) / 8;
}

static void fill_tile(const crumb_matrix *w, char *codes, float *scales, uint32_t *seed) {
    for (uint64_t i = 0; i < tile_bytes(w) / 2; i++) {
        const float x = noise(seed);
        ((uint16_t *)codes)[i] = w->bits ? (uint16_t)*seed ^ (uint16_t)(*seed >> 16) : crumb_f32_to_f16(x);
    }
    for (int i = 0; i < CRUMB_TILE_ROWS; i++) scales[i] = 0.01f + fabsf(noise(seed)) / 100;
}

static void create_weights(crumb_device *d, uint8_t bits, uint32_t k, uint64_t limit, weights *out) {
    void *host;
    uint32_t seed = 5 + bits;
    *out = (weights){.few = {.type = bits ? CRUMB_TYPE_F32 : CRUMB_TYPE_F16,
                             .bits = bits,
                             .max_code = (uint8_t)((1u << bits) - 1),
                             .scales_f32 = true,
                             .mul = 1,
                             .sub = (int16_t)(bits ? 1 << (bits - 1) : 0),
                             .k = k,
                             .m = MARKED,
                             .group = k}};
    const uint64_t each = tile_bytes(&out->few), n_tiles = (limit + gib / 4) / each;
    const uint32_t at_limit = (uint32_t)(limit / each), ends[] = {0, at_limit - 2, (uint32_t)n_tiles - 4};
    out->large = out->few;
    out->large.m = (uint32_t)n_tiles * CRUMB_TILE_ROWS;
    out->n_bytes = n_tiles * each;
    for (uint32_t i = 0; i < FEW_TILES; i++) out->tiles[i] = ends[i / TOGETHER] + i % TOGETHER;
    const uint64_t scales = out->n_bytes, all = scales + n_tiles * CRUMB_TILE_ROWS * sizeof(float);
    rig_ok(backend->device.buffer_create(d, all + 64, "large weights", &out->buffer, &host, &rig_error));
    out->few_memory = calloc(1, FEW_TILES * (each + CRUMB_TILE_ROWS * sizeof(float)) + 64);
    assert_non_null(out->few_memory);
    float *few_scales = (float *)(out->few_memory + FEW_TILES * each);
    for (uint32_t i = 0; i < FEW_TILES; i++) {
        char *codes = (char *)host + out->tiles[i] * each;
        float *own = (float *)((char *)host + scales) + (uint64_t)out->tiles[i] * CRUMB_TILE_ROWS;
        fill_tile(&out->few, codes, own, &seed);
        memcpy(out->few_memory + i * each, codes, each);
        memcpy(few_scales + i * CRUMB_TILE_ROWS, own, CRUMB_TILE_ROWS * sizeof *own);
    }
    out->few.codes = out->few_memory;
    out->large.codes = host;
    if (bits) {
        out->few.scales = few_scales;
        out->large.scales = (char *)host + scales;
    }
    rig_ok(backend->device.buffer_commit(d, out->buffer, 0, scales, false, &rig_error)); /* the codes: one allocation */
    rig_ok(backend->device.buffer_commit(d, out->buffer, scales, all - scales, false, &rig_error));
}

static uint32_t row_of(const weights *w, uint32_t marked) {
    return w->tiles[marked / CRUMB_TILE_ROWS] * CRUMB_TILE_ROWS + marked % CRUMB_TILE_ROWS;
}

/* Rows of tile-rows [tile0, tile0 + n_tiles), or all where n_tiles is 0. */
static scene linear_scene(const crumb_matrix *w, uint32_t tile0, uint32_t n_tiles) {
    scene s = {.n_ops = 2, .n_values = 2, .out = 1};
    const uint32_t m0 = tile0 * CRUMB_TILE_ROWS, m1 = n_tiles ? m0 + n_tiles * CRUMB_TILE_ROWS : w->m;
    s.values[0] = (crumb_value_info){.width = w->k, .slot = 0};
    s.values[1] = (crumb_value_info){.width = w->m, .slot = 1};
    s.ops[0] = (crumb_op){.kind = CRUMB_OP_INPUT, .input.out = 0};
    s.ops[1] = (crumb_op){.kind = CRUMB_OP_LINEAR,
                          .linear = {.x = 0,
                                     .add = CRUMB_NO_VALUE,
                                     .n_parts = 1,
                                     .act = w->bits ? CRUMB_ACT_ROW : CRUMB_ACT_F32,
                                     .part[0] = {.w = w, .m0 = m0, .m1 = m1, .out = 1, .out_scale = 1}}};
    return s;
}

/* The rows that the CPU has: [2][MARKED]. */
static void make_expected(crumb_device *cpu, const weights *w, float *const inputs[], const crumb_row rows[2],
                          float *want) {
    const scene few = linear_scene(&w->few, 0, 0);
    crumb_plan *plan = record(&crumb_backend_cpu, cpu, &few, NULL, 2);
    memcpy(want, run(&crumb_backend_cpu, plan, &few, inputs, rows, 2), 2ull * MARKED * sizeof *want);
    crumb_backend_cpu.plan.destroy(plan);
}

/* Marked tile-rows [first, first + n_tiles), of which alone the device computes rows, or where n_tiles is 0 all of
 * them, in the whole matrix; with the kernel that a plan for max_rows takes, of which two rows at most are enough to
 * compare. */
static void compare_rows(crumb_device *d, const weights *w, uint32_t max_rows, uint32_t first, uint32_t n_tiles,
                         float *const inputs[], const float *want) {
    const uint32_t n = max_rows < 2 ? max_rows : 2, last = n_tiles ? first + n_tiles : FEW_TILES;
    const scene large = linear_scene(&w->large, n_tiles ? w->tiles[first] : 0, n_tiles);
    const crumb_row rows[2] = {{.position = 0, .wants_output = true}, {.position = 1, .wants_output = true}};
    const float most = largest_of(want, 2ull * MARKED);
    char what[64];
    crumb_plan *plan = record(backend, d, &large, NULL, max_rows);
    const float *got = run(backend, plan, &large, inputs, rows, n);
    snprintf(what, sizeof what, "%u bits, a plan for %u rows", w->large.bits, max_rows);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = first * CRUMB_TILE_ROWS; i < last * CRUMB_TILE_ROWS; i++)
            check_near(got[(size_t)t * w->large.m + row_of(w, i)], want[t * MARKED + i], most, what, row_of(w, i));
    backend->plan.destroy(plan);
}

/* The kernels of one row and of many, on the tile-rows at the limit and at the end; of the widest codes, which are the
 * fewest, on the whole matrix too. */
static void compare_linear(crumb_device *d, crumb_device *cpu, const weights *w) {
    const crumb_row rows[2] = {{.position = 0, .wants_output = true}, {.position = 1, .wants_output = true}};
    float *x = malloc(2ull * w->large.k * sizeof *x), *inputs[] = {x}, want[2 * MARKED];
    uint32_t seed = 77;
    assert_non_null(x);
    for (uint32_t i = 0; i < 2 * w->large.k; i++) x[i] = noise(&seed);
    make_expected(cpu, w, inputs, rows, want);
    for (uint32_t first = TOGETHER; first < FEW_TILES; first += TOGETHER) {
        compare_rows(d, w, 1, first, TOGETHER, inputs, want);
        compare_rows(d, w, MANY, first, TOGETHER, inputs, want);
    }
    if (w->large.bits == 8) compare_rows(d, w, 1, 0, 0, inputs, want);
    free(x);
}

static void compare_embedding(crumb_device *d, const weights *w) {
    scene s = {.n_ops = 1, .n_values = 1, .out = 0};
    crumb_row rows[MARKED];
    s.values[0] = (crumb_value_info){.width = w->large.k, .slot = 0};
    s.ops[0] = (crumb_op){.kind = CRUMB_OP_EMBED, .embed = {.table = &w->large, .out = 0, .scale = 1}};
    for (uint32_t i = 0; i < MARKED; i++)
        rows[i] = (crumb_row){.token = (int32_t)row_of(w, i), .position = i, .wants_output = true};
    crumb_plan *plan = record(backend, d, &s, NULL, MARKED);
    const float *got = run(backend, plan, &s, NULL, rows, MARKED);
    float *want = malloc(((uint64_t)w->large.k + CRUMB_TILE_K) * sizeof *want);
    assert_non_null(want);
    for (uint32_t i = 0; i < MARKED; i++) {
        crumb_matrix_row_to_f32(&w->few, i, want);
        largest_of(want, w->large.k);
        for (uint32_t j = 0; j < w->large.k; j++)
            if (got[(size_t)i * w->large.k + j] != want[j])
                fail_msg("%u bits: token %d, column %u", w->large.bits, rows[i].token, j);
    }
    free(want);
    backend->plan.destroy(plan);
}

/* Numbers of two bytes are counted beyond 32 bits behind 8 GiB. */
static void weights_behind_4_gib(void **state) {
    (void)state;
    static const struct {
        uint8_t bits;
        uint32_t k;
    } forms[] = {{2, 16384}, {4, 8192}, {8, 4096}, {0, 4096}};
    crumb_device *cpu = open_on(&crumb_backend_cpu, NULL);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        crumb_device *d = open_on(backend, target);
        weights w;
        create_weights(d, forms[i].bits, forms[i].k, (!forms[i].bits && at_once > 9 * gib ? 8 : 4) * gib, &w);
        compare_linear(d, cpu, &w);
        compare_embedding(d, &w);
        printf("%u bits: %u rows of %u columns, %.2f GiB\n", w.large.bits, w.large.m, w.large.k,
               (double)w.n_bytes / (double)gib);
        free(w.few_memory);
        backend->device.buffer_destroy(d, w.buffer);
        backend->device.close(d);
    }
    crumb_backend_cpu.device.close(cpu);
}

/* ---- the cache ----------------------------------------------------------------------------------------------- */

enum { KV_HEADS = 8, HEADS = 16, DIM = 128, SEQUENCES = 16, PROMPT = 40 };

static scene attention_scene(const float *inv_freq) {
    static const uint32_t widths[] = {HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM, HEADS * DIM};
    scene s = {.n_ops = 5, .n_values = 4, .out = 3};
    for (uint32_t i = 0; i < 4; i++) s.values[i] = (crumb_value_info){.width = widths[i], .slot = i};
    for (crumb_value i = 0; i < 3; i++) s.ops[i] = (crumb_op){.kind = CRUMB_OP_INPUT, .input.out = i};
    s.ops[3] = (crumb_op){.kind = CRUMB_OP_ROPE,
                          .rope = {.q = 0,
                                   .k = 1,
                                   .n_head = HEADS,
                                   .n_head_kv = KV_HEADS,
                                   .head_dim = DIM,
                                   .dims = DIM,
                                   .inv_freq = inv_freq,
                                   .magnitude = 1}};
    s.ops[4] = (crumb_op){.kind = CRUMB_OP_ATTENTION,
                          .attention = {.q = 0,
                                        .k = 1,
                                        .v = 2,
                                        .out = 3,
                                        .n_head = HEADS,
                                        .n_head_kv = KV_HEADS,
                                        .head_dim = DIM,
                                        .scale = 0.088f}};
    return s;
}

/* A device with its cache, and plans for a prompt and for one row. */
typedef struct side {
    const crumb_backend *backend;
    crumb_device *device;
    crumb_kv_params params;
    crumb_kv_cache *kv;
    crumb_plan *prompt, *one;
    uint32_t last; /* sequence */
} side;

static void open_side(side *s, const scene *ops, const crumb_backend *b, const char *with, uint32_t n_ctx,
                      uint32_t n_sequences) {
    uint64_t n_bytes;
    *s = (side){.backend = b, .device = open_on(b, with), .last = n_sequences - 1};
    s->params = (crumb_kv_params){
        .n_layers = 1, .n_sequences = n_sequences, .n_ctx = n_ctx, .n_head_kv = KV_HEADS, .head_dim = DIM};
    rig_ok(b->device.kv_create(s->device, &s->params, &s->kv, &n_bytes, &rig_error));
    s->prompt = record(b, s->device, ops, s->kv, PROMPT);
    s->one = record(b, s->device, ops, s->kv, 1);
}

static void close_side(side *s) {
    s->backend->plan.destroy(s->prompt);
    s->backend->plan.destroy(s->one);
    s->backend->device.kv_destroy(s->device, s->kv);
    s->backend->device.close(s->device);
}

/* Rows of a sequence from a position on, with queries, keys and values of their own; their outputs. */
static void attend(const side *s, const scene *ops, bool last, uint32_t from, uint32_t n, float *out) {
    crumb_row rows[PROMPT];
    float *inputs[3] = {0};
    uint32_t seed = from + 1000 * last + 1;
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t width = ops->values[i].width;
        inputs[i] = malloc((size_t)n * width * sizeof *inputs[i]);
        assert_non_null(inputs[i]);
        for (uint32_t j = 0; j < n * width; j++) inputs[i][j] = noise(&seed);
    }
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (crumb_row){.sequence = last ? s->last : 0, .position = from + i, .wants_output = true};
    memcpy(out, run(s->backend, n == 1 ? s->one : s->prompt, ops, inputs, rows, n),
           (size_t)n * HEADS * DIM * sizeof *out);
    for (uint32_t i = 0; i < 3; i++) free(inputs[i]);
}

static void compare_attention(const side *device, const side *cpu, const scene *ops, bool last, uint32_t from,
                              uint32_t n) {
    static float got[PROMPT * HEADS * DIM], want[PROMPT * HEADS * DIM];
    attend(device, ops, last, from, n, got);
    attend(cpu, ops, last, from, n, want);
    const float most = largest_of(want, (size_t)n * HEADS * DIM);
    for (uint32_t i = 0; i < n * HEADS * DIM; i++)
        check_near(got[i], want[i], most, last ? "the last sequence" : "the first", i / (HEADS * DIM));
}

/* What the last sequence's heads hold, byte for byte. */
static void compare_pages(const side *device, const side *cpu) {
    crumb_kv_range range = {.n_layers = 1, .sequence = device->last, .n_heads = KV_HEADS, .n_positions = PROMPT};
    const uint64_t n_bytes = crumb_kv_range_bytes(&device->params, &range);
    char *got = malloc(n_bytes), *want = malloc(n_bytes);
    assert_true(got && want);
    rig_ok(device->backend->device.kv_read(device->device, device->kv, &range, got, &rig_error));
    range.sequence = cpu->last;
    rig_ok(cpu->backend->device.kv_read(cpu->device, cpu->kv, &range, want, &rig_error));
    assert_memory_equal(got, want, n_bytes);
    free(got);
    free(want);
}

static void a_cache_behind_4_gib(void **state) {
    (void)state;
    const uint64_t per_position = 2ull * DIM * KV_HEADS;
    const uint32_t n_ctx = (uint32_t)((4 * gib + gib / 4) / (SEQUENCES * per_position));
    float inv_freq[DIM / 2];
    side device, cpu;
    for (int i = 0; i < DIM / 2; i++) inv_freq[i] = powf(10000.0f, -2.0f * (float)i / DIM);
    const scene ops = attention_scene(inv_freq);
    open_side(&device, &ops, backend, target, n_ctx, SEQUENCES);
    open_side(&cpu, &ops, &crumb_backend_cpu, NULL, 256, 2);
    compare_attention(&device, &cpu, &ops, false, 0, PROMPT);
    compare_attention(&device, &cpu, &ops, true, 0, PROMPT);
    compare_pages(&device, &cpu);
    compare_attention(&device, &cpu, &ops, false, PROMPT, 1); /* nothing has been written over it */
    compare_attention(&device, &cpu, &ops, true, PROMPT, 1);
    printf("a cache of %d sequences of %u positions: keys and values take %.2f GiB each\n", SEQUENCES, n_ctx,
           (double)(SEQUENCES * n_ctx * per_position) / (double)gib);
    close_side(&device);
    close_side(&cpu);
}

/* ---- whether they can run ------------------------------------------------------------------------------------ */

static uint64_t free_bytes(void) {
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1) break;
    if (f) fclose(f);
    return kib * 1024;
}

static bool has_room(void) {
    crumb_device_listing listing = {0};
    char note[1024];
    const uint64_t needed = 10 * gib + gib / 2;
    backend->device.list(&listing, 1, note, sizeof note);
    printf("%s, kernels %s: at most %.2f GiB at once\n", listing.detail, target,
           (double)listing.max_alloc_bytes / (double)gib);
    at_once = listing.max_alloc_bytes;
    if (at_once < 4 * gib + gib / 2 || listing.memory_bytes < needed)
        return fprintf(stderr,
                       "skipped: the device allocates %.1f GiB at once, of %.1f in all; 4.5 of 10.5 are needed\n",
                       (double)at_once / (double)gib, (double)listing.memory_bytes / (double)gib),
               false;
    if (free_bytes() >= needed) return true;
    fprintf(stderr, "skipped: %.1f GiB of memory are free, 10.5 are needed\n", (double)free_bytes() / (double)gib);
    return false;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: test_cl_large TARGET\n");
        return 2;
    }
    target = argv[1];
    exact = !strstr(target, "dpas") || strstr(target, "+exact");
    if (!rig_find_device("cl", target, &backend)) return 1;
    if (!has_room()) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_behind_4_gib), cmocka_unit_test(a_cache_behind_4_gib)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
