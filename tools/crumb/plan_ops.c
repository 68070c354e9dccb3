/* What a device reaches with dense weights and in attention: by plans of these ops, as sessions have them, since the
 * kernels that such a plan takes depend on the device. */
#include "tools/crumb/plan.h"

#include "host/base/memory.h"
#include "host/kernel/kv.h"

#include <stdlib.h>
#include <string.h>

/* Matrices and attention of Llama3-8B's sizes; so many that one row's run reads more than caches hold. */
enum { ROWS = 2048, COLUMNS = 4096, MATRICES = 8, HEADS = 32, KV_HEADS = 8, HEAD_DIM = 128, LAYERS = 16 };
enum { CONTEXT = 2048, MAX_ROUNDS = 15, MANY_ROWS_ROUNDS = 5, LINE_BYTES = 64 };
enum { DENSE, ATTENTION, KINDS };
enum { ONE_ROW, MANY_ROWS };

static const crumb_kv_params kv_params = {.n_layers = LAYERS,
                                          .n_sequences = 1,
                                          .n_ctx = CONTEXT,
                                          .n_head_kv = KV_HEADS,
                                          .head_dim = HEAD_DIM,
                                          .type = CRUMB_KV_F16};

typedef struct trial {
    const plan_bench *bench;
    crumb_device *device;
    crumb_buffer *weights;
    crumb_kv_cache *kv;
    crumb_matrix matrices[MATRICES];
    crumb_plan *plans[KINDS][2];
    float *x;        /* [many][COLUMNS] */
    crumb_row *rows; /* many, behind as many others */
} trial;

/* ---- data ---------------------------------------------------------------------------------------------------- */

static crumb_status make_weights(trial *t, crumb_error *err) {
    const crumb_backend *backend = t->bench->backend;
    const uint64_t each = (uint64_t)ROWS * COLUMNS * sizeof(uint16_t), all = MATRICES * each + LINE_BYTES;
    void *host;
    CRUMB_TRY(backend->device.buffer_create(t->device, all, "dense weights", &t->weights, &host, err));
    memset(host, 0x11, all);
    for (int i = 0; i < MATRICES; i++)
        t->matrices[i] =
            (crumb_matrix){.type = CRUMB_TYPE_F16, .m = ROWS, .k = COLUMNS, .codes = (const char *)host + i * each};
    return backend->device.buffer_commit(t->device, t->weights, 0, all, false, err);
}

/* Memory that nothing was written to is no memory yet. */
static crumb_status make_cache(trial *t, crumb_error *err) {
    const crumb_backend *backend = t->bench->backend;
    crumb_kv_range range = {.n_layers = 1, .n_heads = KV_HEADS, .n_positions = CONTEXT};
    const uint64_t n_bytes = crumb_kv_range_bytes(&kv_params, &range);
    uint64_t unused;
    void *pages;
    CRUMB_TRY(backend->device.kv_create(t->device, &kv_params, &t->kv, &unused, err));
    CRUMB_TRY(crumb_calloc(1, n_bytes, "keys and values", &pages, err));
    memset(pages, 0x11, n_bytes);
    crumb_status status = CRUMB_OK;
    for (; range.layer < LAYERS && status == CRUMB_OK; range.layer++)
        status = backend->device.kv_write(t->device, t->kv, &range, pages, err);
    free(pages);
    return status;
}

static crumb_status make_inputs(trial *t, crumb_error *err) {
    const uint32_t many = t->bench->many;
    void *memory;
    CRUMB_TRY(crumb_calloc((uint64_t)many * COLUMNS, sizeof *t->x, "activations", &memory, err));
    t->x = memory;
    for (uint64_t i = 0; i < (uint64_t)many * COLUMNS; i++) t->x[i] = (float)(i % 17) / 16 - 0.5f;
    CRUMB_TRY(crumb_calloc(many, sizeof *t->rows, "rows", &memory, err));
    t->rows = memory;
    for (uint32_t i = 0; i < many; i++) t->rows[i].position = many + i;
    return CRUMB_OK;
}

/* ---- plans --------------------------------------------------------------------------------------------------- */

static crumb_status record_dense(trial *t, uint32_t n_rows, int n_matrices, crumb_plan **out, crumb_error *err) {
    const crumb_value_info values[] = {{.width = COLUMNS, .slot = 0}, {.width = ROWS, .slot = 1}};
    crumb_op ops[1 + MATRICES] = {{.kind = CRUMB_OP_INPUT, .input = {.out = 0}}};
    for (int i = 0; i < n_matrices; i++)
        ops[1 + i] = (crumb_op){.kind = CRUMB_OP_LINEAR,
                                .layer = (uint16_t)i,
                                .linear = {.x = 0,
                                           .add = CRUMB_NO_VALUE,
                                           .n_parts = 1,
                                           .act = CRUMB_ACT_F32,
                                           .part = {{.w = &t->matrices[i], .m1 = ROWS, .out = 1, .out_scale = 1}}}};
    const crumb_plan_desc desc = {
        .ops = ops, .n_ops = (size_t)(1 + n_matrices), .values = values, .n_values = 2, .max_rows = n_rows};
    return t->bench->backend->plan.record(t->device, &desc, out, err);
}

static crumb_status record_attention(trial *t, uint32_t n_rows, int n_layers, crumb_plan **out, crumb_error *err) {
    const uint32_t width = HEADS * HEAD_DIM, kv_width = KV_HEADS * HEAD_DIM;
    const crumb_value_info values[] = {
        {.width = width, .slot = 0}, {.width = kv_width, .slot = 1}, {.width = kv_width, .slot = 2}, {width, 3, NULL}};
    crumb_op ops[3 + LAYERS];
    for (crumb_value i = 0; i < 3; i++) ops[i] = (crumb_op){.kind = CRUMB_OP_INPUT, .input = {.out = i}};
    for (int i = 0; i < n_layers; i++)
        ops[3 + i] = (crumb_op){.kind = CRUMB_OP_ATTENTION,
                                .layer = (uint16_t)i,
                                .attention = {.q = 0,
                                              .k = 1,
                                              .v = 2,
                                              .out = 3,
                                              .kv_layer = (uint32_t)i,
                                              .n_head = HEADS,
                                              .n_head_kv = KV_HEADS,
                                              .head_dim = HEAD_DIM,
                                              .scale = 0.1f}};
    const crumb_plan_desc desc = {
        .ops = ops, .n_ops = (size_t)(3 + n_layers), .values = values, .n_values = 4, .max_rows = n_rows, .kv = t->kv};
    return t->bench->backend->plan.record(t->device, &desc, out, err);
}

static crumb_status create(trial *t, crumb_error *err) {
    const uint32_t many = t->bench->many;
    CRUMB_TRY(make_weights(t, err));
    CRUMB_TRY(make_cache(t, err));
    CRUMB_TRY(make_inputs(t, err));
    CRUMB_TRY(record_dense(t, 1, MATRICES, &t->plans[DENSE][ONE_ROW], err));
    CRUMB_TRY(record_dense(t, many, 1, &t->plans[DENSE][MANY_ROWS], err));
    CRUMB_TRY(record_attention(t, 1, LAYERS, &t->plans[ATTENTION][ONE_ROW], err));
    return record_attention(t, many, 1, &t->plans[ATTENTION][MANY_ROWS], err);
}

static void destroy(trial *t) {
    const crumb_backend *backend = t->bench->backend;
    for (int kind = 0; kind < KINDS; kind++)
        for (int n = 0; n < 2; n++)
            if (t->plans[kind][n]) backend->plan.destroy(t->plans[kind][n]);
    if (t->kv) backend->device.kv_destroy(t->device, t->kv);
    if (t->weights) backend->device.buffer_destroy(t->device, t->weights);
    free(t->x);
    free(t->rows);
}

/* ---- time ---------------------------------------------------------------------------------------------------- */

/* Nanoseconds of the plan's ops, each device's launches or barriers apart. */
static crumb_status time_plan(const trial *t, int kind, int n, double *ns, crumb_error *err) {
    const crumb_backend *backend = t->bench->backend;
    const crumb_row last = {.position = CONTEXT - 1};
    const uint32_t n_rows = n == ONE_ROW ? 1 : t->bench->many;
    crumb_plan *timed = t->plans[kind][n];
    crumb_plan_times times = {.n_replays = 0};
    for (crumb_value v = 0, end = kind == DENSE ? 1 : 3; v < end; v++)
        CRUMB_TRY(backend->plan.write(timed, v, t->x, n_rows, err));
    backend->plan.measure(timed, &times);
    const crumb_status status = backend->plan.replay(timed, n == ONE_ROW ? &last : t->rows, n_rows, err);
    backend->plan.measure(timed, NULL);
    CRUMB_TRY(status);
    *ns = (double)(kind == DENSE ? times.linear_ns : times.attention_ns);
    return *ns > 0 ? CRUMB_OK : crumb_fail(err, CRUMB_ERR_DEVICE, "its driver tells no times");
}

/* One row beside what the memory gives in the same rounds, in medians. */
static crumb_status measure_shares(const trial *t, plan_ops_speeds *out, crumb_error *err) {
    const double bytes[KINDS] = {(double)MATRICES * ROWS * COLUMNS * sizeof(uint16_t),
                                 2.0 * LAYERS * CONTEXT * KV_HEADS * HEAD_DIM * sizeof(uint16_t)};
    const plan_bench *b = t->bench;
    const size_t rounds = b->rounds < MAX_ROUNDS ? b->rounds : MAX_ROUNDS;
    double times[KINDS][MAX_ROUNDS], reads[MAX_ROUNDS];
    for (int kind = 0; kind < KINDS; kind++) CRUMB_TRY(time_plan(t, kind, ONE_ROW, &times[kind][0], err));
    for (size_t i = 0; i < rounds; i++) {
        crumb_kernel_roofs roofs;
        for (int kind = 0; kind < KINDS; kind++) CRUMB_TRY(time_plan(t, kind, ONE_ROW, &times[kind][i], err));
        b->suite->machine_roofs(b->machine, 0, &roofs);
        reads[i] = roofs.read_gb_s;
    }
    const double gb_s = cli_median(reads, rounds), most = 1;
    for (int kind = 0; kind < KINDS && gb_s > 0; kind++) {
        const double share = bytes[kind] / cli_median(times[kind], rounds) / gb_s;
        *(kind == DENSE ? &out->dense_share : &out->attention_share) = share < most ? share : most;
    }
    return CRUMB_OK;
}

/* Many rows, in the least time: nothing but other programs makes such kernels slow. */
static crumb_status measure_gops(const trial *t, plan_ops_speeds *out, crumb_error *err) {
    const plan_bench *b = t->bench;
    const size_t rounds = b->rounds < MANY_ROWS_ROUNDS ? b->rounds : MANY_ROWS_ROUNDS;
    const double many = b->many, positions = many * many + many * (many + 1) / 2;
    const double macs[KINDS] = {many * ROWS * COLUMNS, 2 * positions * HEADS * HEAD_DIM};
    double least[KINDS], ns;
    for (size_t i = 0; i <= rounds; i++) /* the first warms up */
        for (int kind = 0; kind < KINDS; kind++) {
            CRUMB_TRY(time_plan(t, kind, MANY_ROWS, &ns, err));
            if (i < 2 || ns < least[kind]) least[kind] = ns;
        }
    out->dense_gops = 2 * macs[DENSE] / least[DENSE];
    out->attention_gops = 2 * macs[ATTENTION] / least[ATTENTION];
    return CRUMB_OK;
}

crumb_status plan_measure_ops(const plan_bench *bench, plan_ops_speeds *out, crumb_error *err) {
    trial t = {.bench = bench, .device = bench->suite->device(bench->machine)};
    *out = (plan_ops_speeds){.dense_gops = 0};
    if (!bench->backend->plan.measure) return crumb_fail(err, CRUMB_ERR_DEVICE, "its plans are not timed");
    crumb_status status = create(&t, err);
    if (status == CRUMB_OK) status = measure_shares(&t, out, err);
    if (status == CRUMB_OK) status = measure_gops(&t, out, err);
    destroy(&t);
    return status;
}
