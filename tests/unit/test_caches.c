/* cpu/caches: what the system says of a core's caches, and block sizes that follow them. */
#include "cpu/caches.h"

#include "cpu/lowbit/gemm_shape.h"
#include "cpu/papers/qigen_blocks.h"
#include "host/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static const crumb_cpu_knobs no_knobs = {0};

/* A file that the system would have, and the folders above it. */
static void put(const char *root, int cpu, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/cpu%d/%s", root, cpu, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_cache(const char *root, int cpu, int index, const char *level, const char *type, const char *size,
                      const char *shared) {
    const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
    const char *const texts[] = {level, type, size, shared};
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "cache/index%d/%s", index, names[i]);
        put(root, cpu, name, texts[i]);
    }
}

/* A fast core with two threads and its own L2, four slow ones that share one, a processor that is off. */
static void a_core_has_its_part_of_a_cache(void **state) {
    (void)state;
    char root[] = "made-caches-XXXXXX";
    assert_non_null(mkdtemp(root));
    assert_int_equal(crumb_cache_core_bytes_by(root, 1), 0);
    for (int cpu = 0; cpu < 2; cpu++) {
        put(root, cpu, "topology/thread_siblings_list", "0-1\n");
        put_cache(root, cpu, 0, "1\n", "Data\n", "48K\n", "0-1\n");
        put_cache(root, cpu, 1, "1\n", "Instruction\n", "16K\n", "0-1\n");
        put_cache(root, cpu, 2, "2\n", "Unified\n", "2M\n", "0-1\n");
    }
    put(root, 2, "online", "0\n");
    assert_int_equal(crumb_cache_core_bytes_by(root, 1), 48 << 10);
    assert_int_equal(crumb_cache_core_bytes_by(root, 2), 2 << 20);
    for (int cpu = 3; cpu < 7; cpu++) {
        put(root, cpu, "topology/thread_siblings_list", cpu == 3 ? "3\n" : cpu == 4 ? "4\n" : cpu == 5 ? "5\n" : "6\n");
        put_cache(root, cpu, 0, "1\n", "Instruction\n", "64K\n", "3\n");
        put_cache(root, cpu, 1, "1\n", "Data\n", "32K\n", "3\n");
        put_cache(root, cpu, 2, "2\n", "Unified\n", "4096K\n", "3,4,5-6\n");
    }
    assert_int_equal(crumb_cache_core_bytes_by(root, 1), 32 << 10);
    assert_int_equal(crumb_cache_core_bytes_by(root, 2), 1 << 20);
    assert_int_equal(crumb_cache_all_bytes_by(root, 2), (2 + 4) << 20);
    assert_int_equal(crumb_cache_all_bytes_by(root, 1), (48 + 32) << 10); /* as these files have it */
    assert_int_equal(crumb_cache_all_bytes_by(root, 3), 0);
    put_cache(root, 6, 2, "2\n", "Unified\n", "many\n", "\n"); /* what cannot be read says nothing */
    assert_int_equal(crumb_cache_core_bytes_by(root, 2), 1 << 20);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void what_is_unknown_has_a_size_that_suits_most(void **state) {
    (void)state;
    const crumb_caches unknown = crumb_caches_of(0, 0), half = crumb_caches_of(0, 3 << 20);
    assert_int_equal(unknown.l1_bytes, 32 << 10);
    assert_int_equal(unknown.l2_bytes, 512 << 10);
    assert_int_equal(half.l1_bytes, 32 << 10);
    assert_int_equal(half.l2_bytes, 3 << 20);
    assert_true(crumb_caches_of(UINT64_MAX, UINT64_MAX).l2_bytes <= INT32_MAX);
    const crumb_caches said = crumb_caches_of(crumb_cache_core_bytes(1), crumb_cache_core_bytes(2));
    const crumb_caches machine = crumb_caches_get();
    assert_memory_equal(&machine, &said, sizeof said);
    const crumb_caches other = {.l1_bytes = 7 << 10, .l2_bytes = 77 << 10};
    crumb_caches_set(&other);
    assert_int_equal(crumb_caches_get().l1_bytes, 7 << 10);
    assert_int_equal(crumb_caches_get().l2_bytes, 77 << 10);
    crumb_caches_set(NULL);
    assert_int_equal(crumb_caches_get().l2_bytes, said.l2_bytes);
}

static uint32_t steps_of(uint32_t n_steps, uint32_t group_steps, uint32_t n_panels, bool trits) {
    return crumb_gemm_chunk_steps(n_steps, group_steps, n_panels, trits, &no_knobs);
}

/* A row is cut as evenly as whole 32-blocks, or groups where they are larger, allow. */
static void panels_are_even(void **state) {
    (void)state;
    const crumb_caches caches = {.l1_bytes = 32 << 10, .l2_bytes = 512 << 10};
    crumb_caches_set(&caches);
    assert_int_equal(steps_of(144, 8, 2, false), 144); /* K = 576: no second panel of 16 steps */
    assert_int_equal(steps_of(384, 8, 2, false), 128);
    assert_int_equal(steps_of(512, 4, 2, false), 128); /* of 4; groups of 16 are halves of a block */
    assert_int_equal(steps_of(512, 512, 2, false), 128);
    assert_int_equal(steps_of(512, 32, 2, false), 128); /* groups of 128 */
    assert_int_equal(steps_of(512, 512, 2, true), 160);
    assert_int_equal(steps_of(8, 8, 2, false), 8);
    crumb_caches_set(NULL);
}

/* Panels of one and of two tile-rows, for rows and for groups, and of ternary bytes. */
static void panels_follow_l1(void **state) {
    (void)state;
    static const struct {
        uint32_t l1_kb, one, two, trits_one, trits_two;
    } cases[] = {{4, 48, 32, 40, 40},      {8, 96, 48, 80, 40},      {16, 192, 96, 160, 80},
                 {32, 256, 160, 280, 160}, {48, 256, 160, 280, 160}, {192, 256, 160, 280, 160}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const crumb_caches caches = {.l1_bytes = cases[i].l1_kb << 10, .l2_bytes = 512 << 10};
        crumb_caches_set(&caches);
        const uint32_t row = 14000; /* steps, of which all panels below are parts */
        const uint32_t one = steps_of(row, row, 1, false), two = steps_of(row, row, 2, false);
        assert_in_range(one, cases[i].one - 8, cases[i].one);
        assert_in_range(two, cases[i].two - 8, cases[i].two);
        assert_in_range(steps_of(row, row, 1, true), cases[i].trits_one - 40, cases[i].trits_one);
        assert_in_range(steps_of(row, row, 2, true), cases[i].trits_two - 40, cases[i].trits_two);
        assert_in_range(steps_of(row, 8, 1, false), cases[i].one - 8, cases[i].one);
        assert_int_equal(steps_of(row, 24, 1, false) % 24, 0); /* whole groups */
        if (cases[i].l1_kb >= 8)                               /* smaller ones than any machine has get the least */
            assert_true(cases[i].two * 2 * GEMM_STEP_BYTES <= caches.l1_bytes / 4 * 3);
        assert_int_equal(crumb_gemm_chunk_steps(2048, 2048, 2, false, &(crumb_cpu_knobs){.steps = 128}), 128);
    }
    crumb_caches_set(NULL);
}

static void columns_follow_l2(void **state) {
    (void)state;
    static const struct {
        uint32_t l2_kb, at_2048, at_8192;
    } cases[] = {{64, 96, 96}, {256, 96, 96}, {512, 192, 96}, {1024, 384, 96}, {2560, 384, 240}, {65536, 384, 384}};
    size_t scratch = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const crumb_caches caches = {.l1_bytes = 32 << 10, .l2_bytes = cases[i].l2_kb << 10};
        crumb_caches_set(&caches);
        assert_int_equal(crumb_gemm_most_columns(2048, &no_knobs), cases[i].at_2048);
        assert_int_equal(crumb_gemm_most_columns(8192, &no_knobs), cases[i].at_8192);
        assert_int_equal(crumb_gemm_most_columns(2048, &(crumb_cpu_knobs){.columns = 132}), 132);
        assert_true(crumb_gemm_scratch_bytes(512, 8192, &no_knobs) >= scratch);
        scratch = crumb_gemm_scratch_bytes(512, 8192, &no_knobs);
        assert_true(crumb_gemm_scratch_bytes(32, 8192, &no_knobs) < scratch);
        assert_true(crumb_gemm_scratch_bytes(UINT32_MAX, 8192, &no_knobs) >= scratch);
    }
    crumb_caches_set(NULL);
}

/* QIGen's inequality (5) holds in each L1, and no block of another is left. */
static void qigen_follows_l1(void **state) {
    (void)state;
    const crumb_matrix w = {.bits = 4, .m = 8192, .k = 8192, .group = 128};
    uint64_t before = 0;
    for (uint32_t l1_kb = 16; l1_kb <= 128; l1_kb *= 2) {
        crumb_caches_set(&(crumb_caches){.l1_bytes = l1_kb << 10, .l2_bytes = 512 << 10});
        const crumb_qigen_blocks blocks = crumb_qigen_blocks_of(&w);
        const uint64_t bits = crumb_qigen_cache_bits(4, blocks.mb, blocks.tb);
        assert_true(blocks.mb % 128 == 0 && bits <= (uint64_t)l1_kb << 13);
        assert_true(bits > before * 3 / 2);
        before = bits;
    }
    crumb_caches_set(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_core_has_its_part_of_a_cache),
                                       cmocka_unit_test(what_is_unknown_has_a_size_that_suits_most),
                                       cmocka_unit_test(panels_are_even),
                                       cmocka_unit_test(panels_follow_l1),
                                       cmocka_unit_test(columns_follow_l2),
                                       cmocka_unit_test(qigen_follows_l1)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
