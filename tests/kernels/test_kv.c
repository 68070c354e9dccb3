/* Keys and values that move between the caches of devices (kv_read, kv_write of host/backend.h), bit for bit, so that a
 * sequence goes on where another device has begun it.
 *
 * usage: test_kv [BACKEND [TARGET]]   the second device; the CPU without */
#include "host/kernel/kv.h"
#include "tests/kernels/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const crumb_backend *backend = &crumb_backend_cpu;
static const char *target;

enum { MOVED = 135, MORE = 5 }; /* positions before and after the move: more than a chunk, and no whole page */

static void open_pair(crumb_kv_type type, rig *cpu, rig *other) {
    const rig_params params = {.backend = &crumb_backend_cpu,
                               .act = CRUMB_ACT_GROUP,
                               .kv = type,
                               .n_threads = 2,
                               .max_rows = 64,
                               .f32_v = true};
    rig_params second = params;
    second.backend = backend;
    second.target = target;
    rig_open(cpu, &params);
    rig_open(other, &second);
}

/* Tokens [from, from + n) of a sequence, as that of number 0. */
static void feed(rig *r, uint32_t sequence, uint32_t from, uint32_t n, float *logits) {
    crumb_row rows[64];
    for (uint32_t t = 0, some; t < n; t += some) {
        some = n - t < 64 ? n - t : 64;
        for (uint32_t i = 0; i < some; i++)
            rows[i] = (crumb_row){.token = rig_token(0, from + t + i),
                                  .sequence = sequence,
                                  .position = from + t + i,
                                  .wants_output = true};
        rig_replay(r, rows, some, logits + (size_t)t * MINI_VOCAB);
    }
}

/* A sequence goes from one device to the other, where it gets another number. */
static void move(rig *from, uint32_t sequence, rig *to, uint32_t to_sequence) {
    crumb_kv_range range = {
        .n_layers = MINI_LAYERS, .sequence = sequence, .n_heads = MINI_KV_HEADS, .n_positions = MOVED};
    const uint64_t n_bytes = crumb_kv_range_bytes(&from->model.kv, &range);
    char *bytes = malloc(n_bytes), *again = malloc(n_bytes);
    rig_ok(from->backend->device.kv_read(from->device, from->kv, &range, bytes, &rig_error));
    range.sequence = to_sequence;
    rig_ok(to->backend->device.kv_write(to->device, to->kv, &range, bytes, &rig_error));
    rig_ok(to->backend->device.kv_read(to->device, to->kv, &range, again, &rig_error));
    assert_memory_equal(bytes, again, n_bytes);
    free(bytes);
    free(again);
}

static void sequences_go_on_elsewhere(void **state) {
    (void)state;
    static float prefix[MOVED * MINI_VOCAB], want[MORE * MINI_VOCAB], got[MORE * MINI_VOCAB];
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++)
        for (int there = 0; there < 2; there++) {
            rig cpu, other;
            open_pair((crumb_kv_type)type, &cpu, &other);
            rig *from = there ? &other : &cpu, *to = there ? &cpu : &other;
            double error = 0, power = 0;
            feed(from, 2, 0, MOVED, prefix);
            feed(to, 1, 0, 20, prefix); /* what it had is overwritten */
            move(from, 2, to, 1);
            feed(from, 2, MOVED, MORE, want);
            feed(to, 1, MOVED, MORE, got);
            for (size_t i = 0; i < MORE * MINI_VOCAB; i++) {
                error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
                power += (double)want[i] * (double)want[i];
            }
            assert_true(power > 10);
            if (backend == &crumb_backend_cpu) assert_true(error == 0);
            if (!(error <= 1e-6 * power)) fail_msg("the error is %g of the power", error / power);
            rig_close(&cpu);
            rig_close(&other);
        }
}

/* Some layers, heads and pages, to a cache of another shape and back. */
static void parts_fit_caches_of_other_shapes(void **state) {
    (void)state;
    static float prefix[MOVED * MINI_VOCAB];
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++) {
        rig cpu, other;
        crumb_kv_cache *small;
        uint64_t small_bytes;
        open_pair((crumb_kv_type)type, &cpu, &other);
        feed(&cpu, 1, 0, MOVED, prefix);
        const crumb_kv_params params = {.n_layers = 1,
                                        .n_sequences = 2,
                                        .n_ctx = 50,
                                        .n_head_kv = 1,
                                        .head_dim = MINI_DIM,
                                        .type = (crumb_kv_type)type};
        const crumb_kv_range from = {.layer = 1,
                                     .n_layers = 1,
                                     .sequence = 1,
                                     .head = 1,
                                     .n_heads = 1,
                                     .position = 64,
                                     .n_positions = 40},
                             to = {.n_layers = 1, .sequence = 1, .n_heads = 1, .n_positions = 40};
        const uint64_t n_bytes = crumb_kv_range_bytes(&params, &to);
        assert_int_equal(n_bytes, crumb_kv_range_bytes(&cpu.model.kv, &from));
        assert_int_equal(n_bytes, 2 * 3 * crumb_kv_page_bytes((crumb_kv_type)type, MINI_DIM));
        char *bytes = malloc(n_bytes), *again = malloc(n_bytes);
        rig_ok(backend->device.kv_create(other.device, &params, &small, &small_bytes, &rig_error));
        rig_ok(crumb_backend_cpu.device.kv_read(cpu.device, cpu.kv, &from, bytes, &rig_error));
        rig_ok(backend->device.kv_read(other.device, small, &to, again, &rig_error));
        for (uint64_t i = 0; i < n_bytes; i++) assert_int_equal(again[i], 0); /* a new cache is zeros */
        rig_ok(backend->device.kv_write(other.device, small, &to, bytes, &rig_error));
        rig_ok(backend->device.kv_read(other.device, small, &to, again, &rig_error));
        assert_memory_equal(bytes, again, n_bytes);
        memset(again, 0, n_bytes);
        rig_ok(crumb_backend_cpu.device.kv_write(cpu.device, cpu.kv, &from, bytes, &rig_error));
        rig_ok(crumb_backend_cpu.device.kv_read(cpu.device, cpu.kv, &from, again, &rig_error));
        assert_memory_equal(bytes, again, n_bytes);
        backend->device.kv_destroy(other.device, small);
        free(bytes);
        free(again);
        rig_close(&cpu);
        rig_close(&other);
    }
}

static void fill(char *bytes, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) bytes[i] = (char)(i * 131 >> 3);
}

/* Caches of two devices in one memory: what goes into one is in the other, and in one of only some of its heads. */
static void caches_may_be_in_one_memory(void **state) {
    (void)state;
    enum { HEADS = 3, CONTEXT = 50 };
    for (int type = CRUMB_KV_F16; type <= CRUMB_KV_Q8; type++) {
        rig cpu, other;
        crumb_kv_cache *here, *there, *some;
        uint64_t n_bytes = 1;
        void *memory;
        open_pair((crumb_kv_type)type, &cpu, &other);
        crumb_kv_params params = {.n_layers = 2,
                                  .n_sequences = 1,
                                  .n_ctx = CONTEXT,
                                  .n_head_kv = HEADS,
                                  .head_dim = MINI_DIM,
                                  .type = (crumb_kv_type)type};
        const crumb_kv_range all = {.n_layers = 2, .n_heads = HEADS, .n_positions = CONTEXT},
                             last = {.n_layers = 2, .head = HEADS - 1, .n_heads = 1, .n_positions = CONTEXT},
                             only = {.n_layers = 2, .n_heads = 1, .n_positions = CONTEXT};
        const uint64_t n_all = crumb_kv_range_bytes(&params, &all), n_last = crumb_kv_range_bytes(&params, &last);
        if (backend->device.shared_create(other.device, n_all, &memory, &rig_error) == CRUMB_ERR_UNSUPPORTED) {
            rig_close(&cpu);
            rig_close(&other);
            return;
        }
        char *const at = memory, *bytes = malloc(n_all), *again = malloc(n_all);
        void *pages[2][2] = {{at, at + n_all / 4}, {at + n_all / 2, at + n_all / 4 * 3}};
        params.pages = (void *const(*)[2])pages;
        rig_ok(crumb_backend_cpu.device.kv_create(cpu.device, &params, &here, &n_bytes, &rig_error));
        assert_int_equal(n_bytes, 0);
        rig_ok(backend->device.kv_create(other.device, &params, &there, &n_bytes, &rig_error));
        assert_int_equal(n_bytes, 0);
        void *pages_of_last[2][2];
        for (int i = 0; i < 4; i++)
            pages_of_last[i / 2][i % 2] = (char *)pages[i / 2][i % 2] + n_last / 4 * (HEADS - 1);
        params.n_head_kv = 1;
        params.pages = (void *const(*)[2])pages_of_last;
        rig_ok(backend->device.kv_create(other.device, &params, &some, &n_bytes, &rig_error));

        fill(bytes, n_all);
        rig_ok(crumb_backend_cpu.device.kv_write(cpu.device, here, &all, bytes, &rig_error));
        rig_ok(backend->device.kv_read(other.device, there, &all, again, &rig_error));
        assert_memory_equal(bytes, again, n_all);
        rig_ok(crumb_backend_cpu.device.kv_read(cpu.device, here, &last, bytes, &rig_error));
        rig_ok(backend->device.kv_read(other.device, some, &only, again, &rig_error));
        assert_memory_equal(bytes, again, n_last);
        memset(again, 7, n_last);
        rig_ok(backend->device.kv_write(other.device, some, &only, again, &rig_error));
        rig_ok(crumb_backend_cpu.device.kv_read(cpu.device, here, &last, bytes, &rig_error));
        assert_memory_equal(bytes, again, n_last);

        crumb_backend_cpu.device.kv_destroy(cpu.device, here);
        backend->device.kv_destroy(other.device, there);
        backend->device.kv_destroy(other.device, some);
        backend->device.shared_destroy(other.device, memory, n_all);
        free(bytes);
        free(again);
        rig_close(&cpu);
        rig_close(&other);
    }
}

/* A device that cannot read any memory of the host's says which it cannot. */
static void memory_of_nobody_is_refused(void **state) {
    (void)state;
    static char bytes[1 << 16];
    static void *pages[1][2] = {{bytes, bytes + (1 << 15)}};
    rig cpu, other;
    crumb_device_info info;
    crumb_kv_cache *kv;
    uint64_t n_bytes;
    open_pair(CRUMB_KV_F16, &cpu, &other);
    backend->device.get_info(other.device, &info);
    const crumb_kv_params params = {.n_layers = 1,
                                    .n_sequences = 1,
                                    .n_ctx = 32,
                                    .n_head_kv = 1,
                                    .head_dim = MINI_DIM,
                                    .type = CRUMB_KV_F16,
                                    .pages = (void *const(*)[2])pages};
    const crumb_status status = backend->device.kv_create(other.device, &params, &kv, &n_bytes, &rig_error);
    assert_int_equal(status, info.host_memory ? CRUMB_OK : CRUMB_ERR_ARGUMENT);
    if (status == CRUMB_OK)
        backend->device.kv_destroy(other.device, kv);
    else
        assert_non_null(strstr(rig_error.message, "does not share"));
    rig_close(&cpu);
    rig_close(&other);
}

static void ranges_are_checked(void **state) {
    (void)state;
    static const struct {
        crumb_kv_range range;
        const char *message;
    } cases[] = {
        {{.n_layers = 1, .n_heads = 1, .position = 8, .n_positions = 1}, "position 8 does not begin a page"},
        {{.n_layers = 1, .n_heads = 1, .position = 144, .n_positions = 17}, "17 positions from 144"},
        {{.n_layers = 1, .n_heads = 1, .position = UINT32_MAX - 15, .n_positions = 16}, "are not in a KV cache"},
        {{.n_layers = 1, .n_heads = 1}, "0 positions"},
        {{.layer = 2, .n_layers = 1, .n_heads = 1, .n_positions = 1}, "1 layers from 2"},
        {{.n_layers = 3, .n_heads = 1, .n_positions = 1}, "3 layers from 0"},
        {{.n_layers = 1, .head = 1, .n_heads = 2, .n_positions = 1}, "2 heads from 1"},
        {{.n_layers = 1, .sequence = 3, .n_heads = 1, .n_positions = 1}, "of sequence 3"},
    };
    rig cpu, other;
    open_pair(CRUMB_KV_F16, &cpu, &other);
    char bytes[16];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const crumb_kv_range *r = &cases[i].range;
        assert_int_equal(backend->device.kv_read(other.device, other.kv, r, bytes, &rig_error), CRUMB_ERR_ARGUMENT);
        if (!strstr(rig_error.message, cases[i].message)) fail_msg("case %zu: %s", i, rig_error.message);
        assert_int_equal(backend->device.kv_write(other.device, other.kv, r, bytes, &rig_error), CRUMB_ERR_ARGUMENT);
    }
    rig_close(&cpu);
    rig_close(&other);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_go_on_elsewhere),   cmocka_unit_test(parts_fit_caches_of_other_shapes),
        cmocka_unit_test(caches_may_be_in_one_memory), cmocka_unit_test(memory_of_nobody_is_refused),
        cmocka_unit_test(ranges_are_checked),
    };
    target = argc > 2 ? argv[2] : NULL;
    if (argc > 1 && !rig_find_device(argv[1], target, &backend)) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
