#include "cpu/avx2/tables.h"

#include "cpu/avx2/simd256.h"

#include "host/base/checked.h"

static uint32_t lines_of(const crumb_linear_args *a, unsigned bits) {
    return (uint32_t)crumb_div_up(a->x.k_padded, crumb_index_line_positions(bits));
}

size_t crumb_tables_b8_bytes(const crumb_linear_args *a) {
    return (size_t)a->n * lines_of(a, 1) * TABLES_LINE_BYTES;
}

size_t crumb_tables_t5_bytes(const crumb_linear_args *a) {
    return (size_t)a->n * lines_of(a, 2) * TABLES_LINE_BYTES;
}

/* 16 bytes of two neighbouring activations each. */
static inline vint pair(const int8_t *q) {
    int16_t two;
    memcpy(&two, q, sizeof two);
    return _mm256_set1_epi16(two);
}

/* Entries of the tables for the first and second byte of a line, as bytes: those of the first in the lower half. */
static inline void store_digits(vint first, vint second, uint8_t *out) {
    v_store(out, _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xd8));
}

/* ---- 1 bit --------------------------------------------------------------------------------------------------- */

/* Entry i is the sum of those of four activations whose bit i has. Patterns are bits 0 and 1, and bits 2 and 3. */
static inline vint bit_entries(const int8_t *q) {
    const vint low = _mm256_setr_epi8(0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1,
                                      0, 0, 1, 1, 1);
    const vint high = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1,
                                       1, 1, 1, 1, 1);
    return _mm256_add_epi16(_mm256_maddubs_epi16(low, pair(q)), _mm256_maddubs_epi16(high, pair(q + 2)));
}

void crumb_tables_b8__avx2(const crumb_linear_args *a, void *tables) {
    const vint low_mask = _mm256_set1_epi16(TABLES_BIT_BASE - 1), bias = _mm256_set1_epi16(TABLES_BIT_BIAS);
    uint8_t *out = tables;
    for (uint32_t n = 0; n < a->n; n++) {
        const int8_t *q = a->x.q + (size_t)n * a->x.k_padded;
        for (uint32_t k = 0; k < a->x.k_padded; k += 16)
            for (int nibble = 0; nibble < 2; nibble++, out += TABLES_LINE_BYTES / 2) {
                vint first = bit_entries(q + k + 4 * nibble), second = bit_entries(q + k + 8 + 4 * nibble);
                store_digits(v_and(first, low_mask), v_and(second, low_mask), out);
                store_digits(_mm256_add_epi16(_mm256_srai_epi16(first, 5), bias),
                             _mm256_add_epi16(_mm256_srai_epi16(second, 5), bias), out + CRUMB_INDEX_LINE_BYTES);
            }
    }
}

/* ---- ternary ------------------------------------------------------------------------------------------------- */

/* The trits of an entry + 1, as operands of vpmaddubsw: t0 and t1 of an a, its t2 (and nothing), t0 and t1 of a b. Of
 * indices that stand for nothing all are 1. */
typedef struct trit_patterns {
    uint8_t a01[32], a2[32], b01[32];
} trit_patterns;

/* Index i stands for a = i - 2, from 0 on; index 2i for b = i - 4 or, from 4 on, i - 3. */
#define A01(i)     ((i) < 2 ? 1 : ((i) + 11) % 3), ((i) < 2 ? 1 : ((i) + 11) / 3 % 3)
#define A2(i)      ((i) < 2 ? 1 : ((i) + 11) / 9), 0
#define B(i)       ((i) / 2 < 4 ? (i) / 2 : (i) / 2 + 1)
#define B01(i)     B(i) % 3, B(i) / 3
#define ENTRIES(X) X(0), X(1), X(2), X(3), X(4), X(5), X(6), X(7), X(8), X(9), X(10), X(11), X(12), X(13), X(14), X(15)
static const trit_patterns patterns = {{ENTRIES(A01)}, {ENTRIES(A2)}, {ENTRIES(B01)}};

static inline vint a_entries(const int8_t *q) {
    vint sum = _mm256_add_epi16(_mm256_maddubs_epi16(v_load(patterns.a01), pair(q)),
                                _mm256_maddubs_epi16(v_load(patterns.a2), pair(q + 2)));
    return _mm256_sub_epi16(sum, _mm256_set1_epi16((short)(q[0] + q[1] + q[2])));
}

static inline vint b_entries(const int8_t *q) {
    return _mm256_sub_epi16(_mm256_maddubs_epi16(v_load(patterns.b01), pair(q + 3)),
                            _mm256_set1_epi16((short)(q[3] + q[4])));
}

/* x / 25, rounded: exact for |x| <= 512, since x * 1311 / 2^15 is off by less than 0.005, and x / 25 by at least 0.02
 * from where rounding changes. */
static inline vint high_digit(vint x) {
    return _mm256_mulhrs_epi16(x, _mm256_set1_epi16(1311));
}
static inline vint low_digit(vint x, vint high) {
    return _mm256_sub_epi16(x, _mm256_mullo_epi16(high, _mm256_set1_epi16(TABLES_TRIT_BASE)));
}

static inline void store_trit_tables(vint first, vint second, uint8_t *out) {
    vint first_high = high_digit(first), second_high = high_digit(second);
    store_digits(low_digit(first, first_high), low_digit(second, second_high), out);
    store_digits(first_high, second_high, out + CRUMB_INDEX_LINE_BYTES);
}

static inline void trit_line(const int8_t *q, uint8_t *out) {
    store_trit_tables(a_entries(q), a_entries(q + 5), out);
    store_trit_tables(b_entries(q), b_entries(q + 5), out + TABLES_LINE_BYTES / 2);
}

void crumb_tables_t5__avx2(const crumb_linear_args *a, void *tables) {
    const uint32_t k_padded = a->x.k_padded, whole = k_padded / 10 * 10;
    uint8_t *out = tables;
    for (uint32_t n = 0; n < a->n; n++) {
        const int8_t *q = a->x.q + (size_t)n * k_padded;
        for (uint32_t k = 0; k < whole; k += 10, out += TABLES_LINE_BYTES) trit_line(q + k, out);
        if (whole < k_padded) {
            int8_t last[10] = {0};
            memcpy(last, q + whole, k_padded - whole);
            trit_line(last, out);
            out += TABLES_LINE_BYTES;
        }
    }
}

/* ---- ternary, for products ----------------------------------------------------------------------------------- */

size_t crumb_trits_order_row(const crumb_linear_args *a) {
    return crumb_round_up(crumb_div_up(a->x.k_padded, TRITS_UNIT_BYTES) * TRITS_UNIT_BYTES, 64);
}

size_t crumb_trits_order_bytes(const crumb_linear_args *a) {
    return a->n * crumb_trits_order_row(a);
}

/* 20 positions at q. */
static inline void order_unit(const int8_t *q, int8_t *out) {
    const __m128i of_first = _mm_setr_epi8(0, 5, 10, 15, 1, 6, 11, -1, 2, 7, 12, -1, 3, 8, 13, -1);
    const __m128i of_last = _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, 12, -1, -1, -1, 13, -1, -1, -1, 14);
    const __m128i first = _mm_loadu_si128((const __m128i *)(const void *)q);      /* 0 to 15 */
    const __m128i last = _mm_loadu_si128((const __m128i *)(const void *)(q + 4)); /* 4 to 19 */
    const __m128i four = _mm_or_si128(_mm_shuffle_epi8(first, of_first), _mm_shuffle_epi8(last, of_last));
    const __m128i fifth = _mm_shuffle_epi8(last, _mm_set1_epi32(0x0f0a0500)); /* 4, 9, 14, 19 */
    const int32_t fifths = _mm_cvtsi128_si32(fifth);
    _mm_storeu_si128((__m128i *)(void *)out, four);
    memcpy(out + 16, &fifths, sizeof fifths);
}

void crumb_trits_order__avx2(const crumb_linear_args *a, void *ordered) {
    const uint32_t k_padded = a->x.k_padded, whole = k_padded / TRITS_UNIT_BYTES * TRITS_UNIT_BYTES;
    for (uint32_t n = 0; n < a->n; n++) {
        const int8_t *q = a->x.q + (size_t)n * k_padded;
        int8_t *out = (int8_t *)ordered + n * crumb_trits_order_row(a);
        for (uint32_t k = 0; k < whole; k += TRITS_UNIT_BYTES) order_unit(q + k, out + k);
        if (whole < k_padded) {
            int8_t last[TRITS_UNIT_BYTES] = {0};
            memcpy(last, q + whole, k_padded - whole);
            order_unit(last, out + whole);
        }
    }
}
