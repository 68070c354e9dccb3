/* GEMV on the index layout: sums are looked up (tables.h), 32 bytes of weights at once, without any product.
 *
 * Where 1-bit and ternary codes as operands of vpmaddubsw take 4 vector operations for 32 weights, the look-ups
 * take 1.6 for 1 bit; for ternary as many, but from a fifth fewer bytes, which is what a GEMV from memory waits for.
 */
#include "cpu/avx2/simd.h"

#include "cpu/avx2/tables.h"
#include "cpu/lowbit/gemv.h"
#include "cpu/lowbit/trits.h"

enum { HALF_BYTES = CRUMB_INDEX_LINE_BYTES };

/* Digits of 16 rows, first bytes' in the lower half: low + base * high of the rows, added to acc, 8 rows each. Of the
 * two factors of vpmaddubsw the digits are the one that can hold them. */
SIMD_INLINE void add_digits(vint low, vint high, const int base, const bool signed_digits, vint acc[2]) {
    const vint weights = _mm256_set1_epi16((short)(base << 8 | 1));
    const vint pairs[2] = {_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)};
    for (int i = 0; i < 2; i++)
        acc[i] = _mm256_add_epi16(acc[i], signed_digits ? _mm256_maddubs_epi16(weights, pairs[i])
                                                        : _mm256_maddubs_epi16(pairs[i], weights));
}

/* The sums of 8 rows, of which acc has two parts. */
SIMD_INLINE vint add_halves(vint acc) {
    return v_add(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(acc)),
                 _mm256_cvtepi16_epi32(_mm256_extracti128_si256(acc, 1)));
}

/* The digits that one line of 1-bit weights adds. */
SIMD_INLINE void bit_digits(vint indices, const uint8_t *tables, vint *low, vint *high) {
    const vint first = v_and(indices, v_broadcast_bytes(15)),
               second = v_and(v_shift_right(indices, 4), v_broadcast_bytes(15));
    *low = _mm256_add_epi8(*low, v_lookup(v_load(tables), first));
    *low = v_pin(_mm256_add_epi8(*low, v_lookup(v_load(tables + 2 * HALF_BYTES), second)));
    *high = _mm256_add_epi8(*high, v_lookup(v_load(tables + HALF_BYTES), first));
    *high = v_pin(_mm256_add_epi8(*high, v_lookup(v_load(tables + 3 * HALF_BYTES), second)));
}

/* The digits that one line of ternary weights adds; `two` is trit_indices'. Bytes are negative where
 * sums are to be negated, and never 0. */
SIMD_INLINE void trit_digits(vint indices, vint two, const uint8_t *tables, vint *low, vint *high) {
    vint a, b; /* a b with bit 7 finds 0 */
    trit_indices(indices, two, &a, &b);
    const vint low_sum = _mm256_add_epi8(v_lookup(v_load(tables), a), v_lookup(v_load(tables + 2 * HALF_BYTES), b));
    *low = v_pin(_mm256_add_epi8(*low, _mm256_sign_epi8(low_sum, indices)));
    const vint high_sum =
        _mm256_add_epi8(v_lookup(v_load(tables + HALF_BYTES), a), v_lookup(v_load(tables + 3 * HALF_BYTES), b));
    *high = v_pin(_mm256_add_epi8(*high, _mm256_sign_epi8(high_sum, indices)));
}

/* Lines whose digits fit into bytes. */
SIMD_INLINE uint32_t few_lines(const int bits) {
    return bits == 1 ? 4 : 5; /* 8 x 31; 5 x (12 + 12) and 5 x (15 + 10) */
}
/* Lines whose sums fit into int16, exactly, modulo 2^16: 256 x 128 or 250 x 128 in each half. */
SIMD_INLINE uint32_t span_lines(const int bits) {
    return bits == 1 ? 32 : 50;
}

/* The cache lines that few lines take, ahead by the knobs' distances. */
SIMD_INLINE void fetch_few(const uint8_t *codes, size_t near, size_t far, const int bits) {
    const size_t n_bytes = few_lines(bits) * CRUMB_INDEX_LINE_BYTES;
    UNROLL for (size_t at = 0; at < n_bytes; at += 64) _mm_prefetch((const char *)codes + near + at, _MM_HINT_T0);
    if (!far) return;
    UNROLL for (size_t at = 0; at < n_bytes; at += 64) _mm_prefetch((const char *)codes + far + at, _MM_HINT_T1);
}

/* The digits that line i adds to every stream. */
SIMD_INLINE void add_line(const uint8_t *const *codes, const uint8_t *tables, uint32_t i, vint two, const int bits,
                          const int streams, vint *low, vint *high) {
    tables += (size_t)i * TABLES_LINE_BYTES;
    UNROLL for (int t = 0; t < streams; t++) {
        const vint indices = v_load(codes[t] + (size_t)i * CRUMB_INDEX_LINE_BYTES);
        if (bits == 1)
            bit_digits(indices, tables, &low[t], &high[t]);
        else
            trit_digits(indices, two, tables, &low[t], &high[t]);
    }
}

/* What n lines, up to few_lines, add to the sums of every stream. */
SIMD_INLINE void add_few(const uint8_t *const *codes, const uint8_t *tables, uint32_t n, vint two, const int bits,
                         const int streams, vint *acc) {
    vint low[GEMV_MAX_STREAMS], high[GEMV_MAX_STREAMS];
    UNROLL for (int t = 0; t < streams; t++) low[t] = high[t] = v_zero();
    if (n == few_lines(bits))
        UNROLL for (uint32_t i = 0; i < few_lines(bits); i++) add_line(codes, tables, i, two, bits, streams, low, high);
    else
        for (uint32_t i = 0; i < n; i++) add_line(codes, tables, i, two, bits, streams, low, high);
    UNROLL for (int t = 0; t < streams; t++)
        add_digits(low[t], high[t], bits == 1 ? TABLES_BIT_BASE : TABLES_TRIT_BASE, bits != 1, &acc[2 * t]);
}

/* gemv_sums_fn for index lines: o->q are the tables. */
SIMD_INLINE void index_sums(gemv_operands *o, uint32_t line, uint32_t end, const int bits, const int streams) {
    const uint8_t *codes[GEMV_MAX_STREAMS], *tables = (const uint8_t *)o->q + (size_t)line * TABLES_LINE_BYTES;
    const size_t near = o->near, far = o->far;
    const uint32_t few = few_lines(bits);
    const vint two = v_pin(v_broadcast_bytes(CRUMB_INDEX_FIRST));
    UNROLL for (int t = 0; t < streams; t++) codes[t] = o->codes[t] + (size_t)line * CRUMB_INDEX_LINE_BYTES;
    for (bool first = true; line < end; first = false) {
        const uint32_t span = span_lines(bits), n = end - line > span ? span : end - line;
        /* Every look-up of 1 bit adds BASE * BIAS too much, two in a line. */
        const int bias = bits == 1 ? -2 * TABLES_BIT_BASE * TABLES_BIT_BIAS * (int)n : 0;
        vint acc[2 * GEMV_MAX_STREAMS];
        UNROLL for (int i = 0; i < 2 * streams; i++) acc[i] = _mm256_set1_epi16((short)bias);
        for (uint32_t i = 0; i < n; i += few) {
            UNROLL for (int t = 0; t < streams; t++) fetch_few(codes[t], near, far, bits);
            add_few(codes, tables, n - i < few ? n - i : few, two, bits, streams, acc);
            tables += few * TABLES_LINE_BYTES;
            UNROLL for (int t = 0; t < streams; t++) codes[t] += few * CRUMB_INDEX_LINE_BYTES;
        }
        line += n;
        UNROLL for (int i = 0; i < 2 * streams; i++) {
            vint sum = add_halves(acc[i]);
            if (bits == 1) sum = v_mul(sum, v_broadcast(o->mul));
            o->sums[i] = first ? sum : v_add(o->sums[i], sum);
        }
    }
}

#define INDEX_SUMS(bits, streams)                                                                                      \
    static void index_sums_##bits##_s##streams(gemv_operands *o, uint32_t line, uint32_t end) {                        \
        index_sums(o, line, end, bits, streams);                                                                       \
    }
INDEX_SUMS(1, 1)
INDEX_SUMS(1, 2)
INDEX_SUMS(1, 4)
INDEX_SUMS(2, 1)
INDEX_SUMS(2, 2)
INDEX_SUMS(2, 4)

/* Ternary weights are looked up as -1, 0, 1: no zero point is left. */
static void gemv_index(const crumb_linear_args *a, int bits, gemv_sums_fn *const variants[3]) {
    shape s = shape_of(a, bits);
    const uint32_t n_lines = crumb_index_lines(a->w);
    s.tile_bytes = (size_t)n_lines * CRUMB_INDEX_LINE_BYTES;
    gemv_pass pass = {.zero = bits == 1 ? zero_point(a->w) : 0,
                      .table = v_zero(),
                      .columns = 1,
                      .streams = a->knobs.streams ? (int)a->knobs.streams : 2,
                      .group_lines = n_lines / s.n_groups,
                      .q = a->prepared,
                      .q_stride = (size_t)n_lines * TABLES_LINE_BYTES};
    pass.sums = variants[pass.streams / 2];
    gemv_run_streams(a, &s, &pass, a->n);
}

void crumb_gemv_b8_i8__avx2(const crumb_linear_args *a) {
    static gemv_sums_fn *const variants[] = {index_sums_1_s1, index_sums_1_s2, index_sums_1_s4};
    gemv_index(a, 1, variants);
}

void crumb_gemv_t5_i8__avx2(const crumb_linear_args *a) {
    static gemv_sums_fn *const variants[] = {index_sums_2_s1, index_sums_2_s2, index_sums_2_s4};
    gemv_index(a, 2, variants);
}
