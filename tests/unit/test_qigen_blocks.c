/* cpu/papers/qigen_blocks: QIGen's model of registers and cache, and the walk along the Z curve. */
#include "cpu/papers/qigen_blocks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void micro_kernel_is_what_the_registers_ask_for(void **state) {
    (void)state;
    assert_int_equal(crumb_qigen_registers(2, 4), 2 + 8 + 4);
    const crumb_qigen_micro compiled = crumb_qigen_choose_micro(CRUMB_QIGEN_REGISTERS);
    assert_int_equal(compiled.mu, CRUMB_QIGEN_MU);
    assert_int_equal(compiled.tu, CRUMB_QIGEN_TU);
    const crumb_qigen_micro avx512 = crumb_qigen_choose_micro(32);
    assert_int_equal(avx512.mu, 2);
    assert_int_equal(avx512.tu, 10); /* to the last register */
    assert_int_equal(crumb_qigen_choose_micro(4).tu, 0);
    for (uint32_t registers = 5; registers <= 64; registers++) {
        const crumb_qigen_micro chosen = crumb_qigen_choose_micro(registers);
        const uint32_t used = crumb_qigen_registers(chosen.mu, chosen.tu);
        assert_true(chosen.tu > 0 && chosen.tu % 2 == 0 && 8 % chosen.mu == 0 && used <= registers);
        for (uint32_t mu = 1; mu <= 8; mu *= 2)
            for (uint32_t tu = 2; tu <= registers; tu += 2) {
                const uint32_t other = crumb_qigen_registers(mu, tu);
                assert_true(other > registers || other < used || (other == used && tu <= chosen.tu));
            }
    }
}

/* 32 KiB of L1: both fill it to the last bit. */
static void blocks_fill_the_cache(void **state) {
    (void)state;
    crumb_qigen_blocks two = crumb_qigen_choose(2, 8192, 8192, 32, 32, 262144);
    assert_int_equal(two.mb, 416);
    assert_int_equal(two.tb, 288);
    assert_int_equal(crumb_qigen_cache_bits(2, 416, 288), 262144);
    crumb_qigen_blocks four = crumb_qigen_choose(4, 8192, 8192, 32, 32, 262144);
    assert_int_equal(four.mb, 320);
    assert_int_equal(four.tb, 192);
    assert_int_equal(crumb_qigen_cache_bits(4, 320, 192), 262144);
}

static void no_other_blocks_are_better(void **state) {
    (void)state;
    static const uint32_t sizes[] = {32, 100, 576, 4096}, steps[] = {32, 64, 256};
    for (unsigned bits = 1; bits <= 8; bits++)
        for (int k = 0; k < 4; k++)
            for (int m = 0; m < 4; m++)
                for (int step = 0; step < 3; step++) {
                    const uint64_t cache_bits = 48 * 1024 * 8;
                    crumb_qigen_blocks b = crumb_qigen_choose(bits, sizes[k], sizes[m], steps[step], 32, cache_bits);
                    assert_true(b.mb > 0 && b.mb % steps[step] == 0 && b.mb < sizes[k] + steps[step]);
                    assert_true(b.tb > 0 && b.tb % 32 == 0 && b.tb < sizes[m] + 32);
                    uint64_t chosen = crumb_qigen_cache_bits(bits, b.mb, b.tb);
                    assert_true(chosen <= cache_bits);
                    for (uint32_t mb = steps[step]; mb < sizes[k] + steps[step]; mb += steps[step])
                        for (uint32_t tb = 32; tb < sizes[m] + 32; tb += 32) {
                            uint64_t other = crumb_qigen_cache_bits(bits, mb, tb);
                            if (other <= cache_bits) assert_true(other <= chosen);
                        }
                }
}

static void nothing_fits_a_cache_that_is_too_small(void **state) {
    (void)state;
    assert_int_equal(crumb_qigen_choose(4, 4096, 4096, 32, 32, 32 * 32).mb, 0);
    assert_int_equal(crumb_qigen_choose(4, 4096, 4096, 4096, 32, 262144).mb, 0);
}

/* Groups that are blocks of their own, and one that is larger than any block. */
static void blocks_hold_whole_groups_where_they_can(void **state) {
    (void)state;
    crumb_matrix w = {.bits = 4, .m = 4096, .k = 16384, .group = 256};
    assert_int_equal(crumb_qigen_blocks_of(&w).mb % 256, 0);
    w.group = 8192;
    assert_in_range(crumb_qigen_blocks_of(&w).mb, 32, 8191);
}

static void walks_the_z_curve(void **state) {
    (void)state;
    static const uint32_t order[12][2] = {/* column in k, row in m */
                                          {0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 0}, {3, 0},
                                          {2, 1}, {3, 1}, {0, 2}, {1, 2}, {2, 2}, {3, 2}};
    const crumb_matrix w = {.bits = 2, .m = 160 + 1, .k = 4 * 96 - 32, .group = 352};
    const crumb_qigen_blocks blocks = {96, 64};
    crumb_qigen_walk walk;
    size_t i = 0, n_bytes = 0;
    for (crumb_qigen_walk_begin(&w, blocks, &walk); crumb_qigen_walk_next(&walk); i++) {
        assert_true(i < 12);
        assert_int_equal(walk.k, order[i][0] * 96);
        assert_int_equal(walk.m, order[i][1] * 64);
        assert_int_equal(walk.n_k, order[i][0] < 3 ? 96 : 64);
        assert_int_equal(walk.n_m, 64);
        assert_int_equal(walk.at, n_bytes);
        n_bytes += (size_t)walk.n_k * walk.n_m / 4;
    }
    assert_int_equal(i, 12);
    assert_int_equal(n_bytes, 192 * 352 / 4);
}

/* Long and narrow grids, whose squares lie outside for the most part: each block once, and no time lost. */
static void visits_every_block_once(void **state) {
    (void)state;
    static const uint32_t shapes[][2] = {{32, 32}, {32, 65536}, {1 << 20, 64}, {1 << 17, 2048}, {1000, 3000}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const crumb_matrix w = {
            .bits = 1, .m = shapes[s][0], .k = shapes[s][1], .group = (shapes[s][1] + 31) / 32 * 32};
        const crumb_qigen_blocks blocks = {64, 96};
        const uint32_t columns = (w.group + 63) / 64, rows = (w.m + 31) / 32 * 32;
        const uint32_t n_blocks = columns * ((rows + 95) / 96);
        uint8_t *seen = calloc(n_blocks, 1);
        assert_non_null(seen);
        uint32_t n = 0;
        uint64_t n_codes = 0;
        crumb_qigen_walk walk;
        for (crumb_qigen_walk_begin(&w, blocks, &walk); crumb_qigen_walk_next(&walk); n++) {
            uint32_t block = walk.m / 96 * columns + walk.k / 64;
            assert_true(block < n_blocks && !seen[block]);
            seen[block] = 1;
            n_codes += (uint64_t)walk.n_k * walk.n_m;
        }
        assert_int_equal(n, n_blocks);
        assert_int_equal(n_codes, (uint64_t)rows * w.group);
        free(seen);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_kernel_is_what_the_registers_ask_for),
        cmocka_unit_test(blocks_fill_the_cache),
        cmocka_unit_test(no_other_blocks_are_better),
        cmocka_unit_test(nothing_fits_a_cache_that_is_too_small),
        cmocka_unit_test(blocks_hold_whole_groups_where_they_can),
        cmocka_unit_test(walks_the_z_curve),
        cmocka_unit_test(visits_every_block_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
