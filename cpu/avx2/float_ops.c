/* The float kernels of cpu/float.h with AVX2, FMA and F16C: the same operations per element as cpu/ref/float_ops.c. */
#include "cpu/float.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* Before loops over a register block: unrolled early, so that its sums live in registers and not in memory. */
#define UNROLLED _Pragma("GCC unroll 8")
#define INLINE   static inline __attribute__((always_inline))

/* All ones in the first n (0 to 8) lanes. */
INLINE __m256i lanes_below(uint32_t n) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), index);
}

/* ---- norm, rotation, activation ---------------------------------------------------------------------------- */

static void rms_norm(const float *x, const float *weight, uint32_t n, float eps, float *out) {
    __m256d acc[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int v = 0; v < 4; v++) {
            __m256d d = _mm256_cvtps_pd(_mm_loadu_ps(x + i + 4 * v));
            acc[v] = _mm256_fmadd_pd(d, d, acc[v]);
        }
    double lanes[16];
    for (int v = 0; v < 4; v++) _mm256_storeu_pd(lanes + 4 * v, acc[v]);
    for (; i < n; i++) lanes[i % 16] = fma(x[i], x[i], lanes[i % 16]);
    for (int step = 8; step > 0; step /= 2)
        for (int lane = 0; lane < step; lane++) lanes[lane] += lanes[lane + step];
    float r = (float)(1 / sqrt(lanes[0] / n + (double)eps));
    __m256 factor = _mm256_set1_ps(r);
    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i,
                         _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor), _mm256_loadu_ps(weight + i)));
    for (; i < n; i++) out[i] = x[i] * r * weight[i];
}

static void rope(float *head, const float *cosines, const float *sines, uint32_t dims, crumb_rope_pairing pairing) {
    uint32_t half = dims / 2, i = 0;
    bool halves = pairing == CRUMB_ROPE_HALVES;
    for (; halves && i + 8 <= half; i += 8) {
        __m256 a = _mm256_loadu_ps(head + i), b = _mm256_loadu_ps(head + half + i);
        __m256 c = _mm256_loadu_ps(cosines + i), s = _mm256_loadu_ps(sines + i);
        _mm256_storeu_ps(head + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        _mm256_storeu_ps(head + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
    const __m256i pairs = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    for (; !halves && i + 4 <= half; i += 4) {
        __m256 x = _mm256_loadu_ps(head + 2 * i), swapped = _mm256_permute_ps(x, 0xb1);
        __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cosines + i)), pairs);
        __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sines + i)), pairs);
        _mm256_storeu_ps(head + 2 * i, _mm256_fmaddsub_ps(x, c, _mm256_mul_ps(swapped, s)));
    }
    for (; i < half; i++) {
        float *a = halves ? head + i : head + 2 * i, *b = halves ? a + half : a + 1, x = *a, y = *b;
        *a = fmaf(x, cosines[i], -(y * sines[i]));
        *b = fmaf(y, cosines[i], x * sines[i]);
    }
}

INLINE __m256 exp8(__m256 x) {
    x = _mm256_max_ps(_mm256_set1_ps(CRUMB_EXP_MIN), x); /* this order of operands keeps NaN */
    x = _mm256_min_ps(_mm256_set1_ps(CRUMB_EXP_MAX), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(CRUMB_EXP_LOG2E)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(CRUMB_EXP_LN2_HI), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(CRUMB_EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(CRUMB_EXP_C5), r, _mm256_set1_ps(CRUMB_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CRUMB_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CRUMB_EXP_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CRUMB_EXP_C1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(CRUMB_EXP_C0));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

static float exp_one(float x) {
    return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x)));
}

INLINE __m256 activate8(__m256 g, crumb_activation_fn fn) {
    if (fn == CRUMB_ACT_FN_SILU) {
        __m256 e = exp8(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)));
        return _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
    }
    __m256 positive = _mm256_max_ps(g, _mm256_setzero_ps());
    return _mm256_mul_ps(positive, positive);
}

INLINE void gated_by(const float *gate, const float *up, uint32_t n, crumb_activation_fn fn, float *out) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(activate8(_mm256_loadu_ps(gate + i), fn), _mm256_loadu_ps(up + i)));
    if (i == n) return;
    __m256i mask = lanes_below(n - i);
    __m256 g = _mm256_maskload_ps(gate + i, mask), u = _mm256_maskload_ps(up + i, mask);
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(activate8(g, fn), u));
}

static void gated(const float *gate, const float *up, uint32_t n, crumb_activation_fn fn, float *out) {
    if (fn == CRUMB_ACT_FN_SILU)
        gated_by(gate, up, n, CRUMB_ACT_FN_SILU, out);
    else
        gated_by(gate, up, n, CRUMB_ACT_FN_RELU2, out);
}

static void store_f16(const float *x, uint32_t n, uint16_t *out, size_t stride) {
    for (uint32_t i = 0; i < n; i += 8) {
        uint32_t count = n - i < 8 ? n - i : 8;
        uint16_t halves[8];
        __m256 v = count == 8 ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, lanes_below(count));
        v = _mm256_max_ps(_mm256_set1_ps(-65504.0f), v);
        v = _mm256_min_ps(_mm256_set1_ps(65504.0f), v);
        _mm_storeu_si128((__m128i *)(void *)halves, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
        if (stride == 1)
            memcpy(out + i, halves, count * sizeof *halves);
        else
            for (uint32_t j = 0; j < count; j++) out[(i + j) * stride] = halves[j];
    }
}

/* ---- attention --------------------------------------------------------------------------------------------- */

INLINE __m256 load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Both products below go by register blocks of rows x vectors: 8 to 12 independent sums hide the latency of the
 * multiply-add, and with the operands they fit in 16 registers. What is left at the end is taken 2 and 1 at a time. */
enum { MAX_TILE_ROWS = 6, MAX_VECTORS = 4 };

INLINE uint32_t tile_rows(uint32_t left) {
    return left < MAX_TILE_ROWS ? left : MAX_TILE_ROWS;
}
INLINE uint32_t tile_vectors(uint32_t rows, uint32_t left) {
    uint32_t widest = rows <= 2 ? 4 : rows == 3 ? 3 : 2;
    return left >= widest ? widest : left >= 2 ? 2 : 1;
}

/* Calls TILE(rows, vectors) with both as constants. */
#define TILE_CASE(r, v)                                                                                                \
    case (r) * 8 + (v): TILE(r, v); break
#define SELECT_TILE(rows, vectors)                                                                                     \
    switch ((rows) * 8 + (vectors)) {                                                                                  \
        TILE_CASE(1, 4);                                                                                               \
        TILE_CASE(2, 4);                                                                                               \
        TILE_CASE(3, 3);                                                                                               \
        TILE_CASE(1, 2);                                                                                               \
        TILE_CASE(2, 2);                                                                                               \
        TILE_CASE(3, 2);                                                                                               \
        TILE_CASE(4, 2);                                                                                               \
        TILE_CASE(5, 2);                                                                                               \
        TILE_CASE(6, 2);                                                                                               \
        TILE_CASE(1, 1);                                                                                               \
        TILE_CASE(2, 1);                                                                                               \
        TILE_CASE(3, 1);                                                                                               \
        TILE_CASE(4, 1);                                                                                               \
        TILE_CASE(5, 1);                                                                                               \
        TILE_CASE(6, 1);                                                                                               \
    default: break;                                                                                                    \
    }

/* Scores of `rows` queries against the keys of vectors first .. first + vectors - 1, two of which make a block. */
INLINE void scores_tile(const uint32_t rows, const uint32_t vectors, uint32_t first, const float *q, uint32_t head_dim,
                        const uint16_t *blocks, float *s) {
    __m256 acc[MAX_TILE_ROWS][MAX_VECTORS];
    const uint16_t *k[MAX_VECTORS];
    UNROLLED for (uint32_t v = 0; v < vectors; v++) {
        k[v] = blocks + ((size_t)((first + v) / 2) * head_dim) * CRUMB_KEY_BLOCK + (first + v) % 2 * 8;
        UNROLLED for (uint32_t r = 0; r < rows; r++) acc[r][v] = _mm256_setzero_ps();
    }
    for (uint32_t d = 0; d < head_dim; d++) {
        __m256 x[MAX_VECTORS];
        UNROLLED for (uint32_t v = 0; v < vectors; v++) x[v] = load_f16(k[v] + (size_t)d * CRUMB_KEY_BLOCK);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            __m256 weight = _mm256_broadcast_ss(q + (size_t)r * head_dim + d);
            UNROLLED for (uint32_t v = 0; v < vectors; v++) acc[r][v] = _mm256_fmadd_ps(weight, x[v], acc[r][v]);
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t v = 0; v < vectors; v++)
            _mm256_storeu_ps(s + (size_t)r * CRUMB_ATTENTION_CHUNK + 8 * (first + v), acc[r][v]);
    }
}

static void attention_scores(const float *q, uint32_t n_rows, uint32_t head_dim, const uint16_t *blocks,
                             uint32_t n_blocks, float *s) {
    uint32_t n_vectors = n_blocks * (CRUMB_KEY_BLOCK / 8);
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = tile_rows(n_rows - row);
        const float *x = q + (size_t)row * head_dim;
        float *to = s + (size_t)row * CRUMB_ATTENTION_CHUNK;
        for (uint32_t first = 0, vectors; first < n_vectors; first += vectors) {
            vectors = tile_vectors(rows, n_vectors - first);
#define TILE(r, v) scores_tile(r, v, first, x, head_dim, blocks, to)
            SELECT_TILE(rows, vectors)
#undef TILE
        }
    }
}

INLINE float reduce_max(__m256 v) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps(x, x, 1)));
}
INLINE float reduce_sum(__m256 v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}

static float attention_softmax(float *s, uint32_t n, float scale, float *sum) {
    uint32_t whole = n / 8 * 8;
    __m256 tail = _mm256_castsi256_ps(lanes_below(n - whole)), factor = _mm256_set1_ps(scale);
    __m256 max = _mm256_set1_ps(-INFINITY), total = _mm256_setzero_ps();
    for (uint32_t j = 0; j < n; j += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(s + j), factor);
        if (j == whole) v = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), v, tail);
        _mm256_storeu_ps(s + j, v);
        max = _mm256_max_ps(v, max);
    }
    float m = reduce_max(max);
    for (uint32_t j = 0; j < n; j += 8) {
        __m256 p = exp8(_mm256_sub_ps(_mm256_loadu_ps(s + j), _mm256_set1_ps(m)));
        if (j == whole) p = _mm256_and_ps(p, tail);
        _mm256_storeu_ps(s + j, p);
        total = _mm256_add_ps(total, p);
    }
    *sum = reduce_sum(total);
    return m;
}

/* Columns [0, 8 * vectors) of the output of `rows` rows: first the keys that all rows have, then each row's others. */
INLINE void values_tile(const uint32_t rows, const uint32_t vectors, const float *p, const uint32_t *n_keys,
                        uint32_t n_common, uint32_t head_dim, const uint16_t *v, float *o) {
    __m256 acc[MAX_TILE_ROWS][MAX_VECTORS];
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] = _mm256_setzero_ps();
    }
    for (uint32_t j = 0; j < n_common; j++) {
        __m256 x[MAX_VECTORS];
        UNROLLED for (uint32_t i = 0; i < vectors; i++) x[i] = load_f16(v + (size_t)j * head_dim + 8 * i);
        UNROLLED for (uint32_t r = 0; r < rows; r++) {
            __m256 weight = _mm256_broadcast_ss(p + (size_t)r * CRUMB_ATTENTION_CHUNK + j);
            UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] = _mm256_fmadd_ps(weight, x[i], acc[r][i]);
        }
    }
    UNROLLED for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t j = n_common; j < n_keys[r]; j++) {
            __m256 weight = _mm256_broadcast_ss(p + (size_t)r * CRUMB_ATTENTION_CHUNK + j);
            UNROLLED for (uint32_t i = 0; i < vectors; i++) acc[r][i] =
                _mm256_fmadd_ps(weight, load_f16(v + (size_t)j * head_dim + 8 * i), acc[r][i]);
        }
        UNROLLED for (uint32_t i = 0; i < vectors; i++) _mm256_storeu_ps(o + (size_t)r * head_dim + 8 * i, acc[r][i]);
    }
}

/* The last head_dim % 8 columns, one at a time. */
static void values_tail(uint32_t rows, uint32_t first, const float *p, const uint32_t *n_keys, uint32_t head_dim,
                        const uint16_t *v, float *o) {
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t d = first; d < head_dim; d++) {
            float sum = 0;
            for (uint32_t j = 0; j < n_keys[r]; j++)
                sum = fmaf(p[(size_t)r * CRUMB_ATTENTION_CHUNK + j], _cvtsh_ss(v[(size_t)j * head_dim + d]), sum);
            o[(size_t)r * head_dim + d] = sum;
        }
}

static void attention_values(const float *p, uint32_t n_rows, const uint32_t *n_keys, uint32_t head_dim,
                             const uint16_t *v, float *o) {
    for (uint32_t row = 0, rows; row < n_rows; row += rows) {
        rows = tile_rows(n_rows - row);
        const float *weights = p + (size_t)row * CRUMB_ATTENTION_CHUNK;
        const uint32_t *counts = n_keys + row;
        float *to = o + (size_t)row * head_dim;
        uint32_t n_common = counts[0], n_vectors = head_dim / 8;
        for (uint32_t i = 1; i < rows; i++) n_common = counts[i] < n_common ? counts[i] : n_common;
        for (uint32_t first = 0, vectors; first < n_vectors; first += vectors) {
            vectors = tile_vectors(rows, n_vectors - first);
#define TILE(r, n) values_tile(r, n, weights, counts, n_common, head_dim, v + 8 * first, to + 8 * first)
            SELECT_TILE(rows, vectors)
#undef TILE
        }
        values_tail(rows, 8 * n_vectors, weights, counts, head_dim, v, to);
    }
}

static void attention_merge(float *o, float a, const float *chunk, float b, uint32_t n) {
    __m256 va = _mm256_set1_ps(a), vb = _mm256_set1_ps(b);
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(o + i,
                         _mm256_fmadd_ps(_mm256_loadu_ps(o + i), va, _mm256_mul_ps(_mm256_loadu_ps(chunk + i), vb)));
    for (; i < n; i++) o[i] = fmaf(o[i], a, chunk[i] * b);
}

const crumb_float_ops crumb_float_ops__avx2 = {
    .rms_norm = rms_norm,
    .rope = rope,
    .gated = gated,
    .store_f16 = store_f16,
    .attention_scores = attention_scores,
    .attention_softmax = attention_softmax,
    .attention_values = attention_values,
    .attention_merge = attention_merge,
    .exp = exp_one,
};
