/* Keys and values that go from one device to another where the phase changes, by the engine: every bit of every layer,
 * there and back, for both types of cache. Devices that see the same memory have one cache, of which nothing moves;
 * where they are said not to, everything does, once.
 *
 * usage: test_cl_moves TARGET   with CRUMB_PLACE in the environment; the embedded model */
#include "host/engine/pipeline_parts.h"
#include "host/kernel/kv.h"
#include "tests/cl/model_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCH = 32, PAST = 10 * CRUMB_KV_PAGE, MAX_LAYERS = 16 };

static uint32_t n_vocab;

static void run(crumb_pipeline *p, crumb_phase phase, uint32_t from, uint32_t n) {
    crumb_row rows[BATCH];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (crumb_row){.token = (int32_t)(((from + i) * 7919 + 13) % n_vocab), .position = from + i};
    rows[n - 1].wants_output = true;
    PAIR_OK(crumb_pipeline_run(p, phase, n == 1 ? CRUMB_BUCKET_ONE : CRUMB_BUCKET_BATCH, rows, n, &pair_err));
}

/* What the unit that a layer belongs to in this phase has of its first PAST positions. */
static char *read_layer(const crumb_pipeline *p, crumb_phase phase, uint32_t layer, uint64_t *n_bytes) {
    const size_t unit = p->model->places[layer].unit[phase];
    const kv_store *kv = &p->kv[unit];
    const crumb_engine_unit *u = &p->model->units[unit];
    const crumb_kv_range range = {
        .layer = kv->index[layer], .n_layers = 1, .n_heads = kv->params.n_head_kv, .n_positions = PAST};
    *n_bytes = crumb_kv_range_bytes(&kv->params, &range);
    char *bytes = malloc(*n_bytes);
    assert_non_null(bytes);
    PAIR_OK(u->backend->device.kv_read(u->device, kv->cache, &range, bytes, &pair_err));
    return bytes;
}

/* How many bytes of layers belong to another unit in the other phase. */
static uint64_t compare(const crumb_pipeline *p, char *const before[], crumb_phase phase) {
    uint64_t n_moved = 0, n;
    for (uint32_t i = 0; i < pipeline_n_layers(p); i++) {
        char *after = read_layer(p, phase, i, &n);
        assert_memory_equal(before[i], after, n);
        if (p->model->places[i].unit[CRUMB_PHASE_PREFILL] != p->model->places[i].unit[CRUMB_PHASE_DECODE]) n_moved += n;
        free(after);
    }
    return n_moved;
}

static bool is_zero(const char *bytes, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (bytes[i]) return false;
    return true;
}

static void check(crumb_model *m, crumb_kv_type type, bool is_shared) {
    crumb_session_params params = crumb_session_params_default();
    crumb_pipeline *p;
    char *before[MAX_LAYERS];
    uint64_t n;
    params.kv_type = type;
    params.n_ctx = 2 * PAST;
    params.n_batch = BATCH;
    params.n_threads = params.n_threads_batch = 2;
    PAIR_OK(crumb_pipeline_create(m, &params, &p, &pair_err));
    assert_in_range(pipeline_n_layers(p), 1, MAX_LAYERS);
    assert_int_equal(p->pages.at != NULL, is_shared);
    for (uint32_t at = 0; at < PAST; at += BATCH) run(p, CRUMB_PHASE_PREFILL, at, BATCH);
    for (uint32_t i = 0; i < pipeline_n_layers(p); i++) {
        before[i] = read_layer(p, CRUMB_PHASE_PREFILL, i, &n);
        assert_false(is_zero(before[i], n));
    }
    run(p, CRUMB_PHASE_DECODE, PAST, 1);
    const uint64_t n_changed = compare(p, before, CRUMB_PHASE_DECODE), n_moved = is_shared ? 0 : n_changed;
    assert_true(n_changed > 0);
    assert_int_equal(crumb_pipeline_get_stats(p).moved_bytes, n_moved);
    run(p, CRUMB_PHASE_DECODE, PAST + 1, 1);
    assert_int_equal(crumb_pipeline_get_stats(p).moved_bytes, n_moved); /* once */
    run(p, CRUMB_PHASE_PREFILL, PAST + 2, BATCH);
    compare(p, before, CRUMB_PHASE_PREFILL);
    assert_int_equal(crumb_pipeline_get_stats(p).moved_bytes > n_moved, !is_shared);
    printf("cache %s: %llu of %llu bytes moved, and back\n", type == CRUMB_KV_Q8 ? "q8" : "f16",
           (unsigned long long)n_moved, (unsigned long long)n_changed);
    for (uint32_t i = 0; i < pipeline_n_layers(p); i++) free(before[i]);
    crumb_pipeline_destroy(p);
}

static void every_bit_arrives(void **state) {
    crumb_model *m = pair_open(NULL, "gpu0");
    crumb_model_info info;
    (void)state;
    crumb_model_get_info(m, &info);
    n_vocab = info.n_vocab;
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++) check(m, (crumb_kv_type)type, true);
    m->units[0].info.shared_weight_bytes = 0; /* it no longer says that it sees the CPU's memory */
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++) check(m, (crumb_kv_type)type, false);
    crumb_model_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_bit_arrives)};
    if (argc < 2 || !pair_place()) {
        fprintf(stderr, "usage: CRUMB_PLACE=... test_cl_moves TARGET\n");
        return 2;
    }
    pair_set_target(argv[1]);
    if (!pair_find_device()) return 1;
    return cmocka_run_group_tests_name("cl_moves", tests, NULL, NULL);
}
