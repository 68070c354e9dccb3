/* host/base: half formats, checked sizes, errors, file guards, parallel loops. */
#include "host/base/checked.h"
#include "host/base/file.h"
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void half_round_trips(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h & 0x7c00) == 0x7c00 && (h & 0x3ff)) continue; /* NaN payloads may change */
        assert_int_equal(crumb_f32_to_f16(crumb_f16_to_f32((uint16_t)h)), h);
        if ((h & 0x7f80) == 0x7f80 && (h & 0x7f)) continue;
        assert_int_equal(crumb_f32_to_bf16(crumb_bf16_to_f32((uint16_t)h)), h);
    }
    assert_int_equal(crumb_f32_to_f16(1.00048828125f), 0x3c00); /* a tie goes to the even mantissa */
    assert_int_equal(crumb_f32_to_f16(1.00146484375f), 0x3c02);
    assert_int_equal(crumb_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(crumb_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(crumb_f32_to_f16(0x1p-25f), 0);
    assert_int_equal(crumb_f32_to_f16(0x1.8p-25f), 1);
}

static void errors_name_and_escape(void **state) {
    (void)state;
    crumb_error err = {0};
    assert_int_equal(crumb_fail(&err, CRUMB_ERR_FORMAT, "key '%s'", "a\x1b[31m\nb"), CRUMB_ERR_FORMAT);
    assert_string_equal(err.message, "key 'a\\x1b[31m\\x0ab'");
    crumb_fail_prefix(&err, CRUMB_ERR_FORMAT, "%s", "model.gguf");
    assert_string_equal(err.message, "model.gguf: key 'a\\x1b[31m\\x0ab'");
    assert_int_equal(crumb_fail(NULL, CRUMB_ERR_IO, "nobody reads this"), CRUMB_ERR_IO);
    for (int s = 0; s < CRUMB_STATUS_COUNT; s++) {
        assert_non_null(crumb_status_name((crumb_status)s));
        assert_true(strlen(crumb_status_description((crumb_status)s)) > 10);
    }
    assert_string_equal(crumb_status_name((crumb_status)999), "internal");
}

typedef struct shrinking {
    const char *path;
    crumb_file_map map;
} shrinking;

static crumb_status read_after_truncation(void *ctx, crumb_error *err) {
    (void)err;
    shrinking *s = ctx;
    if (truncate(s->path, 1) != 0) return CRUMB_ERR_INTERNAL;
    volatile uint8_t last = s->map.data[s->map.size - 1];
    (void)last;
    return CRUMB_OK;
}

static void guard_turns_a_shrunk_file_into_an_error(void **state) {
    (void)state;
    char path[] = "/tmp/crumb-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    close(fd);
    shrinking s = {.path = path};
    crumb_error err = {0};
    assert_int_equal(crumb_file_map_open(path, &s.map, &err), CRUMB_OK);
    assert_int_equal(crumb_file_guard(path, read_after_truncation, &s, &err), CRUMB_ERR_IO);
    assert_non_null(strstr(err.message, path));
    crumb_file_map_close(&s.map);
    unlink(path);
}

static void mapping_refuses_what_is_not_a_file(void **state) {
    (void)state;
    crumb_file_map map;
    crumb_error err = {0};
    assert_int_equal(crumb_file_map_open("/nonexistent/x", &map, &err), CRUMB_ERR_IO);
    assert_non_null(strstr(err.message, "/nonexistent/x"));
    assert_int_equal(crumb_file_map_open("/tmp", &map, &err), CRUMB_ERR_IO);
    assert_non_null(strstr(err.message, "directory"));
    assert_int_equal(crumb_file_map_open("/dev/null", &map, &err), CRUMB_ERR_IO);
}

static atomic_int n_done;
static crumb_status count_or_fail(void *ctx, uint64_t i, crumb_error *err) {
    atomic_fetch_add(&n_done, 1);
    return i == *(uint64_t *)ctx ? crumb_fail(err, CRUMB_ERR_VERIFY, "item %d", (int)i) : CRUMB_OK;
}

static void parallel_for_runs_all_and_stops_on_error(void **state) {
    (void)state;
    uint64_t never = UINT64_MAX, seventh = 7;
    crumb_error err = {0};
    atomic_store(&n_done, 0);
    assert_int_equal(crumb_parallel_for(4, 1000, count_or_fail, &never, &err), CRUMB_OK);
    assert_int_equal(atomic_load(&n_done), 1000);
    assert_int_equal(crumb_parallel_for(4, 1000000, count_or_fail, &seventh, &err), CRUMB_ERR_VERIFY);
    assert_string_equal(err.message, "item 7");
    assert_true(atomic_load(&n_done) < 1001000);
}

static void memory_fails_with_a_message(void **state) {
    (void)state;
    void *p;
    crumb_error err = {0};
    assert_int_equal(crumb_pages_alloc(UINT64_C(1) << 60, "the context", &p, &err), CRUMB_ERR_MEMORY);
    assert_non_null(strstr(err.message, "the context"));
    assert_int_equal(crumb_calloc(UINT64_MAX, 16, "x", &p, &err), CRUMB_ERR_MEMORY);
    assert_int_equal(crumb_pages_alloc(3 << 20, "a buffer", &p, &err), CRUMB_OK);
    assert_int_equal((uintptr_t)p % (2u << 20), 0);
    memset(p, 1, 3 << 20);
    crumb_pages_free(p, 3 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_round_trips),
        cmocka_unit_test(errors_name_and_escape),
        cmocka_unit_test(guard_turns_a_shrunk_file_into_an_error),
        cmocka_unit_test(mapping_refuses_what_is_not_a_file),
        cmocka_unit_test(parallel_for_runs_all_and_stops_on_error),
        cmocka_unit_test(memory_fails_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
