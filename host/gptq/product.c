#include "host/gptq/product.h"

#include <stdbool.h>
#include <string.h>

enum { ROWS = 4, COLUMNS = 8 };       /* of C that are in registers at a time */
enum { PART_ROWS = 64, DEPTH = 256 }; /* rows and terms that are packed at a time: half of a second-level cache */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* One element after the other: what is left beside whole blocks, and other processors. */
static void subtract_any(uint64_t m, uint64_t n, uint64_t k, crumb_doubles a, const double *b, uint64_t b_row,
                         double *c, uint64_t c_row) {
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t j = 0; j < n; j++) {
            double sum = 0;
            for (uint64_t p = 0; p < k; p++) sum += a.at[i * a.row + p * a.column] * b[p * b_row + j];
            c[i * c_row + j] -= sum;
        }
}

/* A part of A as blocks of ROWS rows, and one of B as COLUMNS columns: what one loop reads lies side by side, where
 * lines a power of two apart would push each other out of the cache. */
typedef struct packed {
    double a[PART_ROWS / ROWS][DEPTH][ROWS], b[DEPTH][COLUMNS];
} packed;

static void pack_rows(packed *p, uint64_t m, uint64_t k, crumb_doubles a) {
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t d = 0; d < k; d++) p->a[i / ROWS][d][i % ROWS] = a.at[i * a.row + d * a.column];
}

static void pack_columns(packed *p, uint64_t k, const double *b, uint64_t b_row) {
    for (uint64_t d = 0; d < k; d++) memcpy(p->b[d], b + d * b_row, sizeof p->b[d]);
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx2,fma"))) static void subtract_block(uint64_t k, const double a[][ROWS],
                                                               const double b[][COLUMNS], double *c, uint64_t c_row) {
    __m256d sums[ROWS][2];
    for (int i = 0; i < ROWS; i++) sums[i][0] = sums[i][1] = _mm256_setzero_pd();
    for (uint64_t d = 0; d < k; d++) {
        const __m256d left = _mm256_loadu_pd(b[d]), right = _mm256_loadu_pd(b[d] + 4);
#pragma GCC unroll 4
        for (int i = 0; i < ROWS; i++) {
            const __m256d factor = _mm256_broadcast_sd(a[d] + i);
            sums[i][0] = _mm256_fmadd_pd(factor, left, sums[i][0]);
            sums[i][1] = _mm256_fmadd_pd(factor, right, sums[i][1]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i++)
        for (int half = 0; half < 2; half++) {
            double *at = c + (uint64_t)i * c_row + 4 * half;
            _mm256_storeu_pd(at, _mm256_sub_pd(_mm256_loadu_pd(at), sums[i][half]));
        }
}

static bool has_blocks(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static void subtract_block(uint64_t k, const double a[][ROWS], const double b[][COLUMNS], double *c, uint64_t c_row) {
    subtract_any(ROWS, COLUMNS, k, (crumb_doubles){a[0], 1, ROWS}, b[0], COLUMNS, c, c_row);
}

static bool has_blocks(void) {
    return true;
}
#endif

/* Whole blocks of at most PART_ROWS rows and DEPTH terms. */
static void subtract_part(uint64_t m, uint64_t n, uint64_t k, crumb_doubles a, const double *b, uint64_t b_row,
                          double *c, uint64_t c_row) {
    packed p;
    pack_rows(&p, m, k, a);
    for (uint64_t j = 0; j < n; j += COLUMNS) {
        pack_columns(&p, k, b + j, b_row);
        for (uint64_t i = 0; i < m; i += ROWS) subtract_block(k, p.a[i / ROWS], p.b, c + i * c_row + j, c_row);
    }
}

void crumb_product_subtract(uint64_t m, uint64_t n, uint64_t k, crumb_doubles a, const double *b, uint64_t b_row,
                            double *c, uint64_t c_row) {
    const bool blocks = has_blocks();
    const uint64_t whole_m = blocks ? m / ROWS * ROWS : 0, whole_n = blocks ? n / COLUMNS * COLUMNS : 0;
    for (uint64_t i = 0; i < whole_m; i += PART_ROWS)
        for (uint64_t d = 0; d < k; d += DEPTH)
            subtract_part(least(PART_ROWS, whole_m - i), whole_n, least(DEPTH, k - d),
                          (crumb_doubles){a.at + i * a.row + d * a.column, a.row, a.column}, b + d * b_row, b_row,
                          c + i * c_row, c_row);
    const crumb_doubles rest = {a.at + whole_m * a.row, a.row, a.column};
    subtract_any(whole_m, n - whole_n, k, a, b + whole_n, b_row, c + whole_n, c_row);
    subtract_any(m - whole_m, n, k, rest, b, b_row, c + whole_m * c_row, c_row);
}
