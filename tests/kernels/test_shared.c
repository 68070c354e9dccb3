/* Layers that two devices work on together (shared values, PLACE, SIGNAL and WAIT of host/backend.h): each has its own
 * heads with their own keys and values, and its own rows of the other matrices. Four exchanges a layer, and the same
 * bits as from one device.
 *
 * usage: test_shared [BACKEND [TARGET]]   the second device; the CPU without */
#include "host/base/thread.h"
#include "host/kernel/kv.h"
#include "tests/kernels/rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 40, HIDDEN = 128, KV_HEADS = 2, SHARING = 2, DIM = 32, FF = 256, LAYERS = 2, CTX = 64, MAX_ROWS = 20 };
enum { Q_WIDTH = KV_HEADS * SHARING * DIM, KV_WIDTH = KV_HEADS * DIM, EXCHANGES = 4 * LAYERS };

static const crumb_backend *backend = &crumb_backend_cpu;
static const char *target;

typedef struct layer_weights {
    mini_weights q, k, v, o, gate, up, down;
    float norm[HIDDEN], ff_norm[HIDDEN], q_bias[Q_WIDTH];
} layer_weights;

static mini_weights embedding;
static layer_weights layers[LAYERS];
static float inv_freq[DIM / 2];

static void make_model(void) {
    uint32_t state = 11;
    mini_weights_create(&state, CRUMB_TYPE_F16, VOCAB, HIDDEN, &embedding);
    for (int i = 0; i < LAYERS; i++) {
        layer_weights *l = &layers[i];
        mini_weights_create(&state, i ? CRUMB_TYPE_Q8_0 : CRUMB_TYPE_Q4_1, Q_WIDTH, HIDDEN, &l->q);
        mini_weights_create(&state, CRUMB_TYPE_Q4_1, KV_WIDTH, HIDDEN, &l->k);
        mini_weights_create(&state, CRUMB_TYPE_F32, KV_WIDTH, HIDDEN, &l->v);
        mini_weights_create(&state, CRUMB_TYPE_Q8_0, HIDDEN, Q_WIDTH, &l->o);
        mini_weights_create(&state, CRUMB_TYPE_Q4_0, FF, HIDDEN, &l->gate);
        mini_weights_create(&state, i ? CRUMB_TYPE_Q4_1 : CRUMB_TYPE_Q4_0, FF, HIDDEN, &l->up);
        mini_weights_create(&state, i ? CRUMB_TYPE_TQ2_0 : CRUMB_TYPE_Q4_1, HIDDEN, FF, &l->down);
        for (int j = 0; j < HIDDEN; j++) {
            l->norm[j] = 0.5f + (float)(j * 7 % 16) / 16;
            l->ff_norm[j] = 1.5f - (float)(j * 5 % 16) / 16;
            l->q_bias[j] = (float)(j % 9) / 9 - 0.5f;
        }
    }
    for (int i = 0; i < DIM / 2; i++) inv_freq[i] = powf(10000.0f, -2.0f * (float)i / DIM);
}

static void free_model(void) {
    free(embedding.memory);
    for (int i = 0; i < LAYERS; i++) {
        mini_weights *all[] = {&layers[i].q,    &layers[i].k,  &layers[i].v,   &layers[i].o,
                               &layers[i].gate, &layers[i].up, &layers[i].down};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) free(all[j]->memory);
    }
}

/* ---- one device's share ----------------------------------------------------------------------------------------- */

/* What is shared: attention's and the gate's results, and the residual stream, twice, since everyone adds to the one
 * and writes the other. */
enum { ATTENDED, GATED, STREAM_1, STREAM_2, N_SHARED };
static const uint32_t shared_widths[N_SHARED] = {Q_WIDTH, FF, HIDDEN, HIDDEN};

typedef struct share {
    const crumb_backend *backend;
    crumb_device *device;
    crumb_kv_cache *kv;
    crumb_plan *plan;
    uint32_t head0, head1;           /* key heads */
    uint32_t row0, row1, ff0, ff1;   /* of the stream, of the feed-forward layer */
    float *shared[N_SHARED];         /* NULL: the device is alone */
    uint32_t *own_flags, *its_flags; /* [EXCHANGES][16]: a line each */

    crumb_matrix views[LAYERS][5]; /* q, k, v, gate, up: own rows */
    crumb_op ops[96];
    size_t n_ops;
    crumb_value_info values[16];
    size_t n_values, n_exchanges;

    const crumb_row *rows; /* of a replay */
    uint32_t n_rows;
    crumb_status status;
    crumb_error err;
} share;

static crumb_value add_value(share *s, uint32_t width, float *shared) {
    s->values[s->n_values] = (crumb_value_info){.width = width, .slot = (uint32_t)s->n_values, .shared = shared};
    return (crumb_value)s->n_values++;
}

static crumb_op *add(share *s, crumb_op_kind kind, int layer) {
    crumb_op *op = &s->ops[s->n_ops++];
    *op = (crumb_op){.kind = kind, .layer = (uint16_t)layer};
    return op;
}

/* Own columns are there for the other device, and the other's for this one. */
static void exchange(share *s, int layer) {
    if (!s->own_flags) return;
    add(s, CRUMB_OP_SIGNAL, layer)->rendezvous.flag = s->own_flags + 16 * s->n_exchanges;
    add(s, CRUMB_OP_WAIT, layer)->rendezvous.flag = s->its_flags + 16 * s->n_exchanges++;
}

/* `own` is what the device has made of columns [column, ...) of the shared `out`; alone they are one. */
static crumb_value place(share *s, int layer, crumb_value own, crumb_value out, uint32_t column) {
    if (!s->own_flags) return own;
    add(s, CRUMB_OP_PLACE, layer)->place.x = own;
    s->ops[s->n_ops - 1].place.out = out;
    s->ops[s->n_ops - 1].place.column = column;
    exchange(s, layer);
    return out;
}

static void add_norm(share *s, int layer, crumb_value x, const float *weight, crumb_value out) {
    crumb_op *op = add(s, CRUMB_OP_RMS_NORM, layer);
    op->norm.x = x;
    op->norm.out = out;
    op->norm.weight = weight;
    op->norm.eps = 1e-5f;
}

static crumb_op *add_linear(share *s, int layer, crumb_value x, crumb_value residual) {
    crumb_op *op = add(s, CRUMB_OP_LINEAR, layer);
    op->linear.x = x;
    op->linear.add = residual;
    op->linear.act = CRUMB_ACT_GROUP;
    op->linear.act_group = 32;
    return op;
}

static void add_part(crumb_op *op, const crumb_matrix *w, uint32_t m0, uint32_t m1, crumb_value out) {
    op->linear.part[op->linear.n_parts++] = (crumb_linear_part){.w = w, .m0 = m0, .m1 = m1, .out = out, .out_scale = 1};
}

/* Rows [m0, m1) as a matrix that makes a value of its own. */
static void add_view(share *s, crumb_op *op, int layer, int which, const mini_weights *w, uint32_t m0, uint32_t m1,
                     crumb_value out) {
    s->views[layer][which] = crumb_matrix_rows(&w->matrix, m0, m1);
    add_part(op, &s->views[layer][which], 0, m1 - m0, out);
}

typedef struct locals {
    crumb_value x, normed, q, k, v, attended, gate, up, shared[N_SHARED];
} locals;

static void add_attention(share *s, int layer, const locals *l, crumb_value x) {
    const layer_weights *w = &layers[layer];
    const uint32_t n_kv = s->head1 - s->head0, n_q = n_kv * SHARING;
    add_norm(s, layer, x, w->norm, l->normed);
    crumb_op *op = add_linear(s, layer, l->normed, CRUMB_NO_VALUE);
    add_view(s, op, layer, 0, &w->q, s->head0 * SHARING * DIM, s->head1 * SHARING * DIM, l->q);
    add_view(s, op, layer, 1, &w->k, s->head0 * DIM, s->head1 * DIM, l->k);
    add_view(s, op, layer, 2, &w->v, s->head0 * DIM, s->head1 * DIM, l->v);
    op->linear.part[0].bias = w->q_bias + s->head0 * SHARING * DIM;
    op = add(s, CRUMB_OP_ROPE, layer);
    op->rope.q = l->q;
    op->rope.k = l->k;
    op->rope.n_head = n_q;
    op->rope.n_head_kv = n_kv;
    op->rope.head_dim = op->rope.dims = DIM;
    op->rope.inv_freq = inv_freq;
    op->rope.magnitude = 1;
    op = add(s, CRUMB_OP_ATTENTION, layer);
    op->attention.q = l->q;
    op->attention.k = l->k;
    op->attention.v = l->v;
    op->attention.out = l->attended;
    op->attention.kv_layer = (uint32_t)layer;
    op->attention.n_head = n_q;
    op->attention.n_head_kv = n_kv;
    op->attention.head_dim = DIM;
    op->attention.scale = 0.2f;
}

/* From the stream x to STREAM_2, by way of STREAM_1. */
static void add_layer(share *s, int layer, const locals *l, crumb_value x) {
    const layer_weights *w = &layers[layer];
    add_attention(s, layer, l, x);
    crumb_value in = place(s, layer, l->attended, l->shared[ATTENDED], s->head0 * SHARING * DIM);
    add_part(add_linear(s, layer, in, x), &w->o.matrix, s->row0, s->row1, l->shared[STREAM_1]);
    exchange(s, layer);
    add_norm(s, layer, l->shared[STREAM_1], w->ff_norm, l->normed);
    crumb_op *op = add_linear(s, layer, l->normed, CRUMB_NO_VALUE);
    add_view(s, op, layer, 3, &w->gate, s->ff0, s->ff1, l->gate);
    add_view(s, op, layer, 4, &w->up, s->ff0, s->ff1, l->up);
    op = add(s, CRUMB_OP_GATED, layer);
    op->gated.gate = op->gated.out = l->gate;
    op->gated.up = l->up;
    in = place(s, layer, l->gate, l->shared[GATED], s->ff0);
    add_part(add_linear(s, layer, in, l->shared[STREAM_1]), &w->down.matrix, s->row0, s->row1, l->shared[STREAM_2]);
    exchange(s, layer);
}

static void add_ops(share *s) {
    const uint32_t kv = (s->head1 - s->head0) * DIM;
    locals l = {.x = add_value(s, HIDDEN, NULL),
                .normed = add_value(s, HIDDEN, NULL),
                .q = add_value(s, kv * SHARING, NULL),
                .k = add_value(s, kv, NULL),
                .v = add_value(s, kv, NULL),
                .attended = add_value(s, kv * SHARING, NULL),
                .gate = add_value(s, s->ff1 - s->ff0, NULL),
                .up = add_value(s, s->ff1 - s->ff0, NULL)};
    for (int i = 0; i < N_SHARED; i++) l.shared[i] = add_value(s, shared_widths[i], s->shared[i]);
    crumb_op *op = add(s, CRUMB_OP_EMBED, 0);
    op->embed.table = &embedding.matrix;
    op->embed.out = l.x;
    op->embed.scale = 1;
    for (int i = 0; i < LAYERS; i++) add_layer(s, i, &l, i ? l.shared[STREAM_2] : l.x);
}

static crumb_value result_of(const share *s) {
    return (crumb_value)(s->n_values - N_SHARED + STREAM_2);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------
 */

static void open_share(share *s, const crumb_backend *of, const char *its_target) {
    const crumb_device_params params = {.target = its_target, .n_threads = 1};
    *s = (share){.backend = of, .head1 = KV_HEADS, .row1 = HIDDEN, .ff1 = FF};
    rig_ok(of->device.open(&params, &s->device, &rig_error));
}

static void record_share(share *s) {
    uint64_t n_bytes;
    const crumb_kv_params kv = {
        .n_layers = LAYERS, .n_sequences = 1, .n_ctx = CTX, .n_head_kv = s->head1 - s->head0, .head_dim = DIM};
    rig_ok(s->backend->device.kv_create(s->device, &kv, &s->kv, &n_bytes, &rig_error));
    add_ops(s);
    const crumb_plan_desc desc = {.ops = s->ops,
                                  .n_ops = s->n_ops,
                                  .values = s->values,
                                  .n_values = s->n_values,
                                  .max_rows = MAX_ROWS,
                                  .kv = s->kv};
    rig_ok(s->backend->plan.record(s->device, &desc, &s->plan, &rig_error));
}

static void close_share(share *s) {
    s->backend->plan.destroy(s->plan);
    s->backend->device.kv_destroy(s->device, s->kv);
    s->backend->device.close(s->device);
}

static void replay(void *arg) {
    share *s = arg;
    s->status = s->backend->plan.replay(s->plan, s->rows, s->n_rows, &s->err);
}

/* n tokens from position `at` on through both shares, each in a thread of its own as an engine does it. */
static void replay_both(share *a, share *b, const crumb_row *rows, uint32_t n) {
    crumb_thread *thread;
    a->rows = b->rows = rows;
    a->n_rows = b->n_rows = n;
    rig_ok(crumb_thread_start(replay, b, &thread, &rig_error));
    replay(a);
    crumb_thread_join(thread);
    if (a->status != CRUMB_OK) fail_msg("%s", a->err.message);
    if (b->status != CRUMB_OK) fail_msg("%s", b->err.message);
}

static const float *read_stream(share *s, uint32_t n) {
    const float *out;
    uint32_t n_out;
    rig_ok(s->backend->plan.read(s->plan, result_of(s), &out, &n_out, &rig_error));
    assert_int_equal(n_out, n);
    return out;
}

/* The keys and values of the device that is alone are those of the two, put together. */
static void same_cache(const share *alone, const share *part, uint32_t n) {
    crumb_kv_range range = {.n_layers = LAYERS,
                            .head = part->head0,
                            .n_heads = part->head1 - part->head0,
                            .n_positions = n / CRUMB_KV_PAGE * CRUMB_KV_PAGE};
    const crumb_kv_params params = {.n_head_kv = KV_HEADS, .head_dim = DIM};
    const uint64_t n_bytes = crumb_kv_range_bytes(&params, &range);
    char *want = malloc(n_bytes), *got = malloc(n_bytes);
    rig_ok(alone->backend->device.kv_read(alone->device, alone->kv, &range, want, &rig_error));
    range.head = 0;
    rig_ok(part->backend->device.kv_read(part->device, part->kv, &range, got, &rig_error));
    assert_memory_equal(got, want, n_bytes);
    free(want);
    free(got);
}

/* The first takes rows [0, row) of the stream and [0, ff) of the feed-forward layer, and the first key head. */
static void compare(uint32_t row, uint32_t ff) {
    static const uint32_t batches[] = {MAX_ROWS, 1, 1, 5, 1, 3, 17, 1};
    static uint32_t flags[2][16 * EXCHANGES];
    share alone, first, second;
    void *memory;
    size_t floats = 0;
    memset(flags, 0, sizeof flags);
    open_share(&alone, &crumb_backend_cpu, NULL);
    open_share(&first, &crumb_backend_cpu, NULL);
    open_share(&second, backend, target);
    for (int i = 0; i < N_SHARED; i++) floats += MAX_ROWS * shared_widths[i];
    rig_ok(backend->device.shared_create(second.device, floats * sizeof(float), &memory, &rig_error));
    float *at = memory;
    for (int i = 0; i < N_SHARED; at += MAX_ROWS * shared_widths[i++]) first.shared[i] = second.shared[i] = at;
    first.head1 = second.head0 = 1;
    first.row1 = second.row0 = row;
    first.ff1 = second.ff0 = ff;
    first.own_flags = second.its_flags = flags[0];
    first.its_flags = second.own_flags = flags[1];
    record_share(&alone);
    record_share(&first);
    record_share(&second);
    uint32_t position = 0;
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; position += batches[b++]) {
        crumb_row rows[MAX_ROWS];
        for (uint32_t i = 0; i < batches[b]; i++)
            rows[i] = (crumb_row){.token = (int32_t)((position + i) * 13 % VOCAB), .position = position + i};
        rig_ok(alone.backend->plan.replay(alone.plan, rows, batches[b], &rig_error));
        replay_both(&first, &second, rows, batches[b]);
        const float *want = read_stream(&alone, batches[b]);
        assert_memory_equal(read_stream(&first, batches[b]), want, batches[b] * HIDDEN * sizeof(float));
        assert_memory_equal(read_stream(&second, batches[b]), want, batches[b] * HIDDEN * sizeof(float));
    }
    for (int i = 0; i < EXCHANGES; i++) assert_int_equal(flags[1][16 * i], sizeof batches / sizeof batches[0]);
    same_cache(&alone, &first, position);
    same_cache(&alone, &second, position);
    close_share(&alone);
    close_share(&first);
    backend->plan.destroy(second.plan);
    backend->device.shared_destroy(second.device, memory, floats * sizeof(float));
    backend->device.kv_destroy(second.device, second.kv);
    backend->device.close(second.device);
}

/* A device without memory of that kind works alone; of that there is nothing to test here. */
static void need_shared_memory(void) {
    crumb_device *d;
    void *memory;
    const crumb_device_params params = {.target = target};
    rig_ok(backend->device.open(&params, &d, &rig_error));
    const crumb_status status = backend->device.shared_create(d, 64, &memory, &rig_error);
    if (status == CRUMB_OK) backend->device.shared_destroy(d, memory, 64);
    backend->device.close(d);
    if (status == CRUMB_OK) return;
    assert_int_equal(status, CRUMB_ERR_UNSUPPORTED);
    print_message("SKIPPED: devices that share memory: %s\n", rig_error.message);
    skip();
}

static void two_devices_are_one(void **state) {
    (void)state;
    need_shared_memory();
    compare(HIDDEN / 2, FF / 2);
    compare(16, FF - 16);
    compare(HIDDEN - 16, 32);
}

/* Memory that the device cannot reach, and values of one slot in two places, are refused. */
static void shared_memory_is_checked(void **state) {
    (void)state;
    static float elsewhere[MAX_ROWS * HIDDEN];
    const bool cpu = backend == &crumb_backend_cpu;
    share s;
    void *memory;
    crumb_plan *plan = NULL;
    need_shared_memory();
    open_share(&s, backend, target);
    rig_ok(backend->device.shared_create(s.device, sizeof elsewhere, &memory, &rig_error));
    assert_int_equal((uintptr_t)memory % 64, 0);
    for (size_t i = 0; i < sizeof elsewhere; i++) assert_int_equal(((char *)memory)[i], 0);
    crumb_value_info values[2] = {{.width = HIDDEN, .slot = 0, .shared = memory},
                                  {.width = HIDDEN, .slot = 0, .shared = NULL}};
    const crumb_op op = {.kind = CRUMB_OP_EMBED, .embed = {.table = &embedding.matrix, .out = 0, .scale = 1}};
    crumb_plan_desc desc = {.ops = &op, .n_ops = 1, .values = values, .n_values = 2, .max_rows = MAX_ROWS};
    assert_int_equal(backend->plan.record(s.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, "one slot"));
    values[1].slot = 1;
    rig_ok(backend->plan.record(s.device, &desc, &plan, &rig_error));
    rig_ok(backend->plan.replay(plan, &(crumb_row){.token = 3}, 1, &rig_error));
    assert_true(((float *)memory)[5] != 0);
    backend->plan.destroy(plan);
    plan = NULL;
    desc.max_rows = MAX_ROWS + 1; /* more than there is room for */
    if (!cpu) assert_int_equal(backend->plan.record(s.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    desc.max_rows = MAX_ROWS;
    values[0].shared = elsewhere;
    if (!cpu) assert_int_equal(backend->plan.record(s.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_null(plan);
    backend->device.shared_destroy(s.device, memory, sizeof elsewhere);
    backend->device.close(s.device);
}

static void columns_are_checked(void **state) {
    (void)state;
    crumb_value_info values[2] = {{.width = HIDDEN, .slot = 0}, {.width = HIDDEN + 10, .slot = 1}};
    crumb_op ops[2] = {{.kind = CRUMB_OP_EMBED, .embed = {.table = &embedding.matrix, .out = 0, .scale = 1}},
                       {.kind = CRUMB_OP_PLACE, .place = {.x = 0, .out = 1, .column = 11}}};
    const crumb_plan_desc desc = {.ops = ops, .n_ops = 2, .values = values, .n_values = 2, .max_rows = 1};
    share s;
    crumb_plan *plan = NULL;
    open_share(&s, backend, target);
    assert_int_equal(backend->plan.record(s.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, "op 1 (place, layer 0): columns 11 to 139 of an out that is 138 wide"));
    ops[1].place.column = 10;
    values[1].slot = 0;
    assert_int_equal(backend->plan.record(s.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    ops[1] = (crumb_op){.kind = CRUMB_OP_GATHER, .gather = {.x = 0, .out = 1, .from = (const uint32_t[]){0}}};
    assert_int_equal(backend->plan.record(s.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, "op 1 (gather, layer 0): x and out differ in width"));
    values[1].width = HIDDEN;
    assert_int_equal(backend->plan.record(s.device, &desc, &plan, &rig_error), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(rig_error.message, "out overwrites x"));
    assert_null(plan);
    backend->device.close(s.device);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_devices_are_one),
        cmocka_unit_test(shared_memory_is_checked),
        cmocka_unit_test(columns_are_checked),
    };
    target = argc > 2 ? argv[2] : NULL;
    if (argc > 1 && !rig_find_device(argv[1], target, &backend)) return 1;
    make_model();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free_model();
    return failed;
}
