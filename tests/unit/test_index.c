/* The index layout: made of tiles, in place as well, it says the same codes. */
#include "host/lowbit/index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_matrix random_tiles(unsigned bits, uint32_t m, uint32_t k, uint32_t *tiles, uint64_t *seed) {
    const crumb_matrix w = {.bits = (uint8_t)bits,
                            .max_code = (uint8_t)bits,
                            .mul = bits == 1 ? 2 : 1,
                            .sub = 1,
                            .m = m,
                            .k = k,
                            .group = (k + CRUMB_TILE_K - 1) / CRUMB_TILE_K * CRUMB_TILE_K,
                            .codes = tiles};
    const size_t n_tiles = crumb_matrix_codes_bytes(&w) / (bits * 64);
    memset(tiles, 0, crumb_matrix_codes_bytes(&w));
    for (size_t i = 0; i < n_tiles; i++)
        for (unsigned lane = 0; lane < CRUMB_TILE_ROWS; lane++)
            for (unsigned linear = 0; linear < CRUMB_TILE_K; linear++) {
                *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
                crumb_tile_set_code(tiles + i * bits * CRUMB_TILE_ROWS, bits, lane, linear,
                                    (unsigned)(*seed >> 33) % (bits + 1));
            }
    return w;
}

static void indices_say_the_codes_of_tiles(void **state) {
    (void)state;
    static const uint32_t shapes[][2] = {{1, 32}, {16, 64}, {17, 96}, {48, 160}, {5, 352}, {33, 2048}, {16, 100}};
    uint64_t seed = 1;
    for (unsigned bits = 1; bits <= 2; bits++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            uint32_t *tiles = malloc((size_t)64 * 64 * 64 * 4);
            uint8_t *indices = malloc((size_t)64 * 64 * 64 * 4);
            assert_true(tiles && indices);
            crumb_matrix w = random_tiles(bits, shapes[s][0], shapes[s][1], tiles, &seed), indexed = w;
            assert_true(crumb_index_fits(&w));
            indexed.codes = indices;
            indexed.indexed = true;
            const uint64_t n_bytes = crumb_index_bytes(&w);
            assert_true(n_bytes == crumb_matrix_codes_bytes(&indexed) && n_bytes <= crumb_matrix_codes_bytes(&w));
            crumb_index_from_tiles(&w, indices);
            for (uint32_t m = 0; m < w.m; m++)
                for (uint32_t k = 0; k < w.k; k++)
                    if (crumb_matrix_code(&w, m, k) != crumb_matrix_code(&indexed, m, k))
                        fail_msg("bits %u, %u x %u: codes of row %u, column %u differ", bits, w.m, w.k, m, k);
            crumb_index_from_tiles(&w, (uint8_t *)tiles);
            assert_memory_equal(tiles, indices, n_bytes);
            free(tiles);
            free(indices);
        }
}

/* What kernels rely on: ternary bytes are negative or positive. */
static void no_ternary_byte_is_zero(void **state) {
    (void)state;
    static uint32_t tiles[2 * 2 * 16];
    uint8_t indices[7 * CRUMB_INDEX_LINE_BYTES];
    for (unsigned value = 0; value < 243; value++) {
        crumb_matrix w = {.bits = 2, .max_code = 2, .mul = 1, .sub = 1, .m = 16, .k = 64, .group = 64, .codes = tiles};
        memset(tiles, 0, sizeof tiles);
        for (uint32_t k = 0; k < 64; k++) {
            const unsigned power[] = {1, 3, 9, 27, 81};
            const unsigned at = k / 32 * 32 + crumb_tile_plane_position(2, k % 32);
            for (unsigned lane = 0; lane < 16; lane++)
                crumb_tile_set_code(tiles + k / 32 * 32, 2, lane, crumb_tile_linear_of(k % 32),
                                    value / power[at % 5] % 3);
        }
        crumb_index_from_tiles(&w, indices);
        for (uint32_t position = 0; position < 60; position += 5)
            assert_true((indices[position / 10 * 32 + position % 10 / 5 * 16] & 127) != 0);
    }
}

static void other_weights_stay_in_tiles(void **state) {
    (void)state;
    const crumb_matrix ternary = {.bits = 2, .max_code = 2, .mul = 1, .sub = 1, .m = 16, .k = 256, .group = 256};
    crumb_matrix w = ternary;
    assert_true(crumb_index_fits(&w));
    w.group = 128;
    assert_false(crumb_index_fits(&w));
    w = ternary;
    w.max_code = 3;
    assert_false(crumb_index_fits(&w));
    w.max_code = 2;
    w.mul = 2;
    assert_false(crumb_index_fits(&w));
    w = ternary;
    w.bits = 4;
    assert_false(crumb_index_fits(&w));
    w.bits = 1;
    w.group = 32;
    assert_true(crumb_index_fits(&w));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_say_the_codes_of_tiles),
        cmocka_unit_test(no_ternary_byte_is_zero),
        cmocka_unit_test(other_weights_stay_in_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
