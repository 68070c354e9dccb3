/* Linear layers with dense f16, bf16 and f32 weights: the sums of cpu/ref/dense.c, a register block of four rows of
 * weights and up to three rows of activations at a time, or of eight or two rows of weights and one of activations. */
#include "cpu/kernels.h"

#include <immintrin.h>

/* Before loops over a register block: unrolled early, so that its sums live in registers and not in memory. */
#define UNROLLED _Pragma("GCC unroll 8")
#define INLINE   static inline __attribute__((always_inline))

enum { ROWS = 4, COLUMNS = 3, ROWS_ALONE = 8, ROWS_APART = 2 };
/* With one row of activations weights stream at the memory's speed. Lines of rows that are a multiple of this many
 * bytes apart compete for one set of a cache, so of such rows only 2 are read at once, a line of 16-bit weights of each
 * in turns: 28.7 GB/s where one core of a Zen 4 can read 32, and 4 and 8 rows reach 24. Intel's cores want them in L1
 * as well, as in a GEMV (gemv.h): rows of 4 and 8 KB 76 -> 90 and 82 -> 91 % of what two cores of a Golden Cove read.
 */
enum { LINE_WEIGHTS = 32, WAY_BYTES = 4096, APART_AHEAD_BYTES = 16384, INTEL_NEAR_BYTES = 1024 };
/* Activations that meet a tile of weights before the next tile does: half of a second-level cache of 256 KiB. */
enum { COLUMN_BLOCK_BYTES = 128 * 1024 };

INLINE __m256i first_lanes(uint32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE size_t weight_bytes(crumb_type type) {
    return type == CRUMB_TYPE_F32 ? 4 : 2;
}

/* Eight weights as floats. */
INLINE __m256 load8(crumb_type type, const char *p) {
    if (type == CRUMB_TYPE_F32) return _mm256_loadu_ps((const float *)(const void *)p);
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (type == CRUMB_TYPE_F16) return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* The last n < 8 weights of a row, and zeros: nothing behind the row is read. */
INLINE __m256 load_tail(crumb_type type, const char *p, uint32_t n) {
    if (type == CRUMB_TYPE_F32) return _mm256_maskload_ps((const float *)(const void *)p, first_lanes(n));
    uint16_t padded[8] = {0};
    for (uint32_t i = 0; i < n; i++) padded[i] = ((const uint16_t *)(const void *)p)[i];
    return load8(type, (const char *)padded);
}

INLINE float sum8(__m256 v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}

INLINE void finish(const crumb_linear_args *a, uint32_t n, uint64_t m, float y) {
    if (a->out_scale != 1.0f) y = y * a->out_scale;
    if (a->bias) y = y + a->bias[m];
    if (a->add) y = y + a->add[n * a->add_stride + m];
    a->y[n * a->y_stride + m] = y;
}

/* Adds the columns behind the last whole vector to the lanes of a block, and writes its results. Kept out of the loop
 * above it, whose sums fill all registers. */
static void finish_block(const crumb_linear_args *a, crumb_type type, uint32_t rows, uint32_t columns, uint64_t m,
                         uint32_t n, __m256 lanes[ROWS_ALONE][COLUMNS]) {
    const uint32_t k_end = a->w->k / 8 * 8, k_tail = a->w->k % 8;
    const size_t unit = weight_bytes(type), row_bytes = a->w->k * unit;
    for (uint32_t r = 0; r < rows; r++) {
        const char *tail = (const char *)a->w->codes + (m + r) * row_bytes + k_end * unit;
        __m256 ws = k_tail ? load_tail(type, tail, k_tail) : _mm256_setzero_ps();
        for (uint32_t c = 0; c < columns; c++) {
            __m256 sum = lanes[r][c];
            if (k_tail) {
                const float *x = a->xf + (n + c) * a->xf_stride + k_end;
                sum = _mm256_fmadd_ps(ws, _mm256_maskload_ps(x, first_lanes(k_tail)), sum);
            }
            finish(a, n + c, m + r, sum8(sum));
        }
    }
}

/* While a block of rows is read, the block behind it is asked for, each line once. */
INLINE void prefetch_next(const char *p, size_t n_bytes) {
    UNROLLED for (size_t i = 0; i < n_bytes; i += 64) _mm_prefetch(p + i, _MM_HINT_T1);
}

/* acc[r][0] += the products of whole lines of `rows` rows of weights at w; returns the first column that is left. Where
 * nothing is wanted near, the line that is read next is asked for, which costs no more than a branch. */
INLINE uint32_t add_lines(crumb_type type, const uint32_t rows, const char *w, size_t row_bytes, uint32_t k_end,
                          const float *x, __m256 acc[ROWS_ALONE][COLUMNS]) {
    const size_t unit = weight_bytes(type), block = rows * row_bytes;
    const size_t near = crumb_core_is_intel() ? INTEL_NEAR_BYTES : 0;
    const size_t ahead = block > APART_AHEAD_BYTES ? block : APART_AHEAD_BYTES;
    uint32_t k = 0;
    for (; k + LINE_WEIGHTS <= k_end; k += LINE_WEIGHTS) {
        __m256 xs[LINE_WEIGHTS / 8];
        prefetch_next(w + ahead + k * rows * unit, LINE_WEIGHTS * rows * unit);
        UNROLLED for (uint32_t i = 0; i < LINE_WEIGHTS / 8; i++) xs[i] = _mm256_loadu_ps(x + k + (size_t)8 * i);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            const char *at = w + r * row_bytes + k * unit;
            UNROLLED for (size_t i = 0; i < LINE_WEIGHTS * unit; i += 64) _mm_prefetch(at + near + i, _MM_HINT_T0);
            UNROLLED for (uint32_t i = 0; i < LINE_WEIGHTS / 8; i++) acc[r][0] =
                _mm256_fmadd_ps(load8(type, at + 8 * i * unit), xs[i], acc[r][0]);
        }
    }
    return k;
}

/* Weights' rows m .. m + rows - 1 against activations' rows n .. n + columns - 1. */
INLINE void block(const crumb_linear_args *a, crumb_type type, const uint32_t rows, const uint32_t columns, uint64_t m,
                  uint32_t n) {
    const uint32_t k_end = a->w->k / 8 * 8;
    const size_t unit = weight_bytes(type), row_bytes = a->w->k * unit;
    const char *w = (const char *)a->w->codes + m * row_bytes;
    const float *x = a->xf + n * a->xf_stride;
    __m256 acc[ROWS_ALONE][COLUMNS], lanes[ROWS_ALONE][COLUMNS];
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t c = 0; c < columns; c++) acc[r][c] = _mm256_setzero_ps();
    }
    uint32_t k = rows == ROWS_APART ? add_lines(type, rows, w, row_bytes, k_end, x, acc) : 0;
    for (; k < k_end; k += 8) {
        if (columns == 1) prefetch_next(w + rows * row_bytes + k * rows * unit, 8 * rows * unit);
        __m256 xs[COLUMNS];
        UNROLLED for (uint32_t c = 0; c < columns; c++) xs[c] = _mm256_loadu_ps(x + c * a->xf_stride + k);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            const char *at = w + r * row_bytes + k * unit;
            __m256 ws = load8(type, at);
            UNROLLED for (uint32_t c = 0; c < columns; c++) acc[r][c] = _mm256_fmadd_ps(ws, xs[c], acc[r][c]);
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t c = 0; c < columns; c++) lanes[r][c] = acc[r][c];
    }
    finish_block(a, type, rows, columns, m, n, lanes);
}

INLINE void rows_of(const crumb_linear_args *a, crumb_type type, const uint32_t rows, uint64_t m, uint32_t n0,
                    uint32_t n1) {
    uint32_t n = n0;
    for (; n + COLUMNS <= n1; n += COLUMNS) block(a, type, rows, COLUMNS, m, n);
    for (; n + 2 <= n1; n += 2) block(a, type, rows, 2, m, n);
    for (; n < n1; n++) block(a, type, rows, 1, m, n);
}

/* Weights' rows from m on against one row of activations; returns the first row that is left. */
INLINE uint64_t rows_alone(const crumb_linear_args *a, crumb_type type, uint64_t m, uint64_t stop, uint32_t n) {
    if (a->w->k * weight_bytes(type) % WAY_BYTES == 0)
        for (; m + ROWS_APART <= stop; m += ROWS_APART) block(a, type, ROWS_APART, 1, m, n);
    else
        for (; m + ROWS_ALONE <= stop; m += ROWS_ALONE) block(a, type, ROWS_ALONE, 1, m, n);
    return m;
}

INLINE void linear(const crumb_linear_args *a, crumb_type type) {
    uint64_t end = (uint64_t)a->tile1 * CRUMB_TILE_ROWS < a->w->m ? (uint64_t)a->tile1 * CRUMB_TILE_ROWS : a->w->m;
    uint32_t step = (uint32_t)(COLUMN_BLOCK_BYTES / sizeof(float)) / (a->w->k + 1) / COLUMNS * COLUMNS;
    if (step < 2 * COLUMNS) step = 2 * COLUMNS;
    for (uint64_t tile = (uint64_t)a->tile0 * CRUMB_TILE_ROWS; tile < end; tile += CRUMB_TILE_ROWS)
        for (uint32_t n0 = 0; n0 < a->n; n0 += step) {
            uint32_t n1 = a->n - n0 < step ? a->n : n0 + step;
            uint64_t m = tile, stop = end - tile < CRUMB_TILE_ROWS ? end : tile + CRUMB_TILE_ROWS;
            if (n1 - n0 == 1) m = rows_alone(a, type, m, stop, n0);
            for (; m + ROWS <= stop; m += ROWS) rows_of(a, type, ROWS, m, n0, n1);
            for (; m < stop; m++) rows_of(a, type, 1, m, n0, n1);
        }
}

void crumb_linear_f32__avx2(const crumb_linear_args *a) {
    linear(a, CRUMB_TYPE_F32);
}
void crumb_linear_f16__avx2(const crumb_linear_args *a) {
    linear(a, CRUMB_TYPE_F16);
}
void crumb_linear_bf16__avx2(const crumb_linear_args *a) {
    linear(a, CRUMB_TYPE_BF16);
}
