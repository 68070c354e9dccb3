/* Times the replay of a whole model's plan with random weights: bench_plan SHAPE ROWS POSITION THREADS [TARGET]
 *     SHAPE  smollm2 (135 M, 4 bits), smollm2-f16, ternary (1.26 B, 2 bits, f16 head), or tiny
 * Run by hand; pairs with perf to see what lies outside the linear layers. */
#include "host/backend.h"
#include "host/base/half.h"
#include "host/base/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    const char *name;
    uint32_t hidden, ff, n_layers, n_head, n_head_kv, head_dim, n_vocab;
    crumb_type type, head_type;
    crumb_act_quant act;
} shape;

static const shape shapes[] = {
    {"smollm2", 576, 1536, 30, 9, 3, 64, 49152, CRUMB_TYPE_Q4_1, CRUMB_TYPE_Q8_0, CRUMB_ACT_GROUP},
    {"ternary", 2048, 8192, 18, 8, 4, 256, 32000, CRUMB_TYPE_TQ2_0, CRUMB_TYPE_F16, CRUMB_ACT_ROW},
    {"smollm2-f16", 576, 1536, 30, 9, 3, 64, 49152, CRUMB_TYPE_F16, CRUMB_TYPE_F16, CRUMB_ACT_F32},
    {"tiny", 128, 256, 4, 4, 2, 32, 2048, CRUMB_TYPE_Q4_1, CRUMB_TYPE_Q8_0, CRUMB_ACT_GROUP},
};

enum { H, NORMED, Q, K, V, ATTENDED, GATE, UP, LAST, LAST_NORMED, LOGITS, N_VALUES };
enum { MAX_OPS = 512, MAX_MATRICES = 512 };

static const crumb_backend *const backend = &crumb_backend_cpu;
static crumb_error err;
static crumb_device *device;
static crumb_op ops[MAX_OPS];
static size_t n_ops;
static crumb_matrix matrices[MAX_MATRICES];
static size_t n_matrices;
static float *ones;
static float inv_freq[128];
static uint64_t weight_bytes;

static void check(crumb_status status) {
    if (status == CRUMB_OK) return;
    fprintf(stderr, "%s\n", err.message);
    exit(1);
}

static crumb_matrix *matrix(crumb_type type, uint32_t m, uint32_t k) {
    crumb_matrix *w = &matrices[n_matrices++];
    crumb_matrix_layout layout;
    crumb_buffer *buffer;
    void *host;
    check(crumb_matrix_plan(type, m, k, w, &layout, &err));
    check(backend->device.buffer_create(device, layout.total_bytes, "weights", &buffer, &host, &err));
    uint32_t *words = host, state = 1;
    for (uint64_t i = 0; i < layout.total_bytes / 4; i++)
        words[i] = (state = state * 1664525u + 1013904223u) & 0x1fff1fff;
    crumb_matrix_bind(w, &layout, host);
    weight_bytes += layout.total_bytes;
    return w;
}

static crumb_op *add(crumb_op_kind kind, uint32_t layer) {
    crumb_op *op = &ops[n_ops++];
    op->kind = kind;
    op->layer = (uint16_t)layer;
    return op;
}

static void add_norm(crumb_value x, crumb_value out) {
    crumb_op *op = add(CRUMB_OP_RMS_NORM, 0);
    op->norm.x = x;
    op->norm.out = out;
    op->norm.weight = ones;
    op->norm.eps = 1e-5f;
}

static crumb_op *add_linear(const shape *s, crumb_value x, crumb_value residual) {
    crumb_op *op = add(CRUMB_OP_LINEAR, 0);
    op->linear.x = x;
    op->linear.add = residual;
    op->linear.act = s->act;
    op->linear.act_group = 32;
    return op;
}

static void add_part(crumb_op *op, crumb_type type, uint32_t m, uint32_t k, crumb_value out) {
    op->linear.part[op->linear.n_parts++] =
        (crumb_linear_part){.w = matrix(type, m, k), .m1 = m, .out = out, .out_scale = 1};
}

static void add_layer(const shape *s, uint32_t layer) {
    uint32_t q = s->n_head * s->head_dim, kv = s->n_head_kv * s->head_dim;
    add_norm(H, NORMED);
    crumb_op *op = add_linear(s, NORMED, CRUMB_NO_VALUE);
    add_part(op, s->type, q, s->hidden, Q);
    add_part(op, s->type, kv, s->hidden, K);
    add_part(op, s->type, kv, s->hidden, V);
    op = add(CRUMB_OP_ROPE, layer);
    op->rope.q = Q;
    op->rope.k = K;
    op->rope.n_head = s->n_head;
    op->rope.n_head_kv = s->n_head_kv;
    op->rope.head_dim = op->rope.dims = s->head_dim;
    op->rope.inv_freq = inv_freq;
    op->rope.magnitude = 1;
    op = add(CRUMB_OP_ATTENTION, layer);
    op->attention.q = Q;
    op->attention.k = K;
    op->attention.v = V;
    op->attention.out = ATTENDED;
    op->attention.kv_layer = layer;
    op->attention.n_head = s->n_head;
    op->attention.n_head_kv = s->n_head_kv;
    op->attention.head_dim = s->head_dim;
    op->attention.scale = 1 / sqrtf((float)s->head_dim);
    add_part(add_linear(s, ATTENDED, H), s->type, s->hidden, q, H);
    add_norm(H, NORMED);
    op = add_linear(s, NORMED, CRUMB_NO_VALUE);
    add_part(op, s->type, s->ff, s->hidden, GATE);
    add_part(op, s->type, s->ff, s->hidden, UP);
    op = add(CRUMB_OP_GATED, layer);
    op->gated.gate = GATE;
    op->gated.up = UP;
    op->gated.out = GATE;
    add_part(add_linear(s, GATE, H), s->type, s->hidden, s->ff, H);
}

static void build(const shape *s) {
    uint32_t widest = s->ff > s->n_vocab ? s->ff : s->n_vocab;
    ones = calloc(widest, sizeof *ones);
    for (uint32_t i = 0; i < widest; i++) ones[i] = 1;
    for (uint32_t i = 0; i < s->head_dim / 2; i++) inv_freq[i] = powf(10000, -2.0f * (float)i / (float)s->head_dim);
    crumb_op *embed = add(CRUMB_OP_EMBED, 0);
    embed->embed.table = matrix(s->head_type, s->n_vocab, s->hidden);
    embed->embed.out = H;
    embed->embed.scale = 1;
    for (uint32_t i = 0; i < s->n_layers; i++) add_layer(s, i);
    crumb_op *op = add(CRUMB_OP_SELECT, 0);
    op->select.x = H;
    op->select.out = LAST;
    add_norm(LAST, LAST_NORMED);
    op = add_linear(s, LAST_NORMED, CRUMB_NO_VALUE);
    op->linear.n_parts = 1;
    op->linear.part[0] = (crumb_linear_part){.w = embed->embed.table, .m1 = s->n_vocab, .out = LOGITS, .out_scale = 1};
}

static crumb_plan *record(const shape *s, crumb_kv_cache *kv, uint32_t max_rows) {
    const uint32_t q = s->n_head * s->head_dim, kv_width = s->n_head_kv * s->head_dim;
    const uint32_t widths[N_VALUES] = {s->hidden, s->hidden, q,         kv_width,  kv_width,  q,
                                       s->ff,     s->ff,     s->hidden, s->hidden, s->n_vocab};
    crumb_value_info values[N_VALUES];
    for (uint32_t i = 0; i < N_VALUES; i++) values[i] = (crumb_value_info){.width = widths[i], .slot = i};
    crumb_plan_desc desc = {.ops = ops,
                            .n_ops = n_ops,
                            .values = values,
                            .n_values = N_VALUES,
                            .max_rows = max_rows,
                            .max_outputs = 1,
                            .kv = kv};
    crumb_plan *plan;
    check(backend->plan.record(device, &desc, &plan, &err));
    return plan;
}

static void print_log(void *user, crumb_log_level level, const char *line) {
    (void)user;
    (void)level;
    printf("%s\n", line);
}

static double median_ms(crumb_plan *plan, crumb_row *rows, uint32_t n_rows) {
    enum { MOST = 201 };
    double times[MOST];
    int n = 0;
    for (uint64_t begin = crumb_now_ns(); n < MOST && (n < 3 || crumb_now_ns() - begin < 3000000000u);) {
        uint64_t start = crumb_now_ns();
        check(backend->plan.replay(plan, rows, n_rows, &err));
        double ms = (double)(crumb_now_ns() - start) / 1e6;
        int i = n++;
        for (; i > 0 && times[i - 1] > ms; i--) times[i] = times[i - 1];
        times[i] = ms;
    }
    printf("fastest %.3f ms, ", times[0]);
    return times[n / 2];
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: bench_plan SHAPE ROWS POSITION THREADS [TARGET]\n");
        return 2;
    }
    const shape *s = NULL;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(shapes[i].name, argv[1]) == 0) s = &shapes[i];
    uint32_t n_rows = (uint32_t)atoi(argv[2]), position = (uint32_t)atoi(argv[3]);
    if (!s || n_rows < 1) return 2;
    crumb_device_params params = {.target = argc > 5 ? argv[5] : NULL, .n_threads = atoi(argv[4]), .log = print_log};
    check(backend->device.open(&params, &device, &err));
    build(s);
    crumb_kv_params kv_params = {.n_layers = s->n_layers,
                                 .n_sequences = 1,
                                 .n_ctx = position + n_rows,
                                 .n_head_kv = s->n_head_kv,
                                 .head_dim = s->head_dim,
                                 .type = CRUMB_KV_F16};
    crumb_kv_cache *kv;
    uint64_t kv_bytes;
    check(backend->device.kv_create(device, &kv_params, &kv, &kv_bytes, &err));
    crumb_plan *plan = record(s, kv, n_rows);
    crumb_row *rows = calloc(n_rows, sizeof *rows);
    for (uint32_t i = 0; i < n_rows; i++)
        rows[i] = (crumb_row){.token = (int32_t)i, .position = position + i, .wants_output = i + 1 == n_rows};
    double ms = median_ms(plan, rows, n_rows);
    printf("median %.3f ms, %.1f rows/s, weights %.1f GB/s, scratch %.1f MB\n", ms, 1000 * n_rows / ms,
           (double)weight_bytes / ms / 1e6, (double)backend->plan.scratch_bytes(plan) / 1e6);
    return 0;
}
