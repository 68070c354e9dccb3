/* ParetoQ's stretched levels (Liu and others, 2025) in types of GGUF: a weight becomes -3, -1, 1 or 3 times a unit, a
 * quarter of what ParetoQ calls the scale. A model trained so keeps its scale; for others the unit is the one with the
 * least squared error. */
#include "host/lowbit/encode_internal.h"

#include "host/base/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q2_K_GROUP = 16, Q2_K_GROUPS = 16, MOST = 5 }; /* MOST: three times as much fits 4 bits */

static float as_f16(double value) {
    return crumb_f16_to_f32(crumb_f32_to_f16((float)value));
}

static int compare_magnitudes(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The unit with the least squared error. Of the n magnitudes, sorted, some first ones are at the inner level and the
 * others at the outer one; for each place to cut there is one best unit, sum(level * |x|) / sum(level^2), and what it
 * takes off the error is the numerator squared by the denominator. */
static double best_unit(const float *x, int n) {
    float sorted[CRUMB_BLOCK_MAX];
    double sum = 0, best = 0, most = -1;
    for (int i = 0; i < n; i++) sorted[i] = fabsf(x[i]);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_magnitudes);
    for (int i = 0; i < n; i++) sum += (double)sorted[i];
    for (int inner = n; inner >= 0; inner--) {
        if (inner < n) sum += 2 * (double)sorted[inner];
        const double squares = inner + 9.0 * (n - inner), gain = sum * sum / squares;
        if (gain > most) most = gain, best = sum / squares;
    }
    return best;
}

/* Whether all weights are levels of a unit that an f16 is near, which needs no search then. */
static bool on_levels(const float *x, int n, float *unit) {
    float least = INFINITY;
    for (int i = 0; i < n; i++) least = fabsf(x[i]) < least ? fabsf(x[i]) : least;
    *unit = least;
    if (!(least > 0) || !crumb_f16_is_near(least)) return false;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) != least && fabsf(x[i]) != 3 * least) return false;
    return true;
}

/* 0 to 3 for -3, -1, 1, 3. What lies on a border goes the way of ParetoQ's rounding. */
static uint8_t seq_code(float x, float unit) {
    const float border = 2 * unit;
    if (x >= 0) return x > border ? 3 : 2;
    return x <= -border ? 0 : 1;
}

static double error_at(const float *x, int n, float unit) {
    double error = 0;
    for (int i = 0; i < n; i++) {
        const double off = (double)x[i] - (double)unit * (2 * seq_code(x[i], unit) - 3);
        error += off * off;
    }
    return error;
}

void crumb_encode_seq_q4_0(const float *x, uint8_t *out) {
    uint8_t codes[32];
    float unit;
    if (!on_levels(x, 32, &unit)) unit = as_f16(best_unit(x, 32));
    crumb_put_f16(out, unit);
    for (int i = 0; i < 32; i++) codes[i] = (uint8_t)(8 + 2 * seq_code(x[i], unit) - 3);
    crumb_put_nibbles(codes, out + 2);
}

/* Each group's unit as a multiple of the block's, 0 to MOST; returns the block's squared error. */
static double fit_groups(const float *x, float unit, const double wanted[Q2_K_GROUPS], int multiples[Q2_K_GROUPS]) {
    double error = 0;
    for (int g = 0; g < Q2_K_GROUPS; g++) {
        double least = INFINITY;
        const double near = unit > 0 ? floor(wanted[g] / (double)unit) : 0;
        const int low = near < MOST - 1 ? (int)near : MOST - 1;
        for (int m = low; m <= low + 1; m++) {
            const double e = error_at(x + (ptrdiff_t)g * Q2_K_GROUP, Q2_K_GROUP, unit * (float)m);
            if (e < least) least = e, multiples[g] = m;
        }
        error += least;
    }
    return error;
}

/* The unit of a block and its groups' multiples of it: of the units that have the whole block's best one as a multiple,
 * and some that have the largest group's, shortened by up to 4 tenths, the best. */
static float search_unit(const float *x, int best[Q2_K_GROUPS]) {
    enum { N_SHORTER = 9 };
    double wanted[Q2_K_GROUPS], largest = 0, least = INFINITY;
    const double whole = best_unit(x, 256);
    int tried[Q2_K_GROUPS] = {0};
    float unit = 0;
    for (int g = 0; g < Q2_K_GROUPS; g++) {
        wanted[g] = best_unit(x + (ptrdiff_t)g * Q2_K_GROUP, Q2_K_GROUP);
        if (wanted[g] > largest) largest = wanted[g];
    }
    for (int i = 0; i < MOST + N_SHORTER; i++) {
        const float u = as_f16(i < MOST ? whole / (i + 1) : largest * (1 - (i - MOST) * 0.05) / MOST);
        const double error = fit_groups(x, u, wanted, tried);
        if (error < least) least = error, unit = u, memcpy(best, tried, sizeof tried);
    }
    return unit;
}

/* scale * code - min with scale = 2m and min = 3m units is m units at each of the four levels. */
void crumb_encode_seq_q2_k(const float *x, uint8_t *out) {
    int multiples[Q2_K_GROUPS];
    uint8_t codes[256];
    float unit;
    for (int g = 0; g < Q2_K_GROUPS; g++) multiples[g] = 1;
    if (!on_levels(x, 256, &unit)) unit = search_unit(x, multiples);
    for (int i = 0; i < 256; i++) {
        const int multiple = multiples[i / Q2_K_GROUP];
        codes[i] = seq_code(x[i], unit * (float)multiple);
    }
    for (int g = 0; g < Q2_K_GROUPS; g++) out[g] = (uint8_t)(2 * multiples[g] | 3 * multiples[g] << 4);
    crumb_put_bit_pairs(codes, out + 16);
    crumb_put_bit_pairs(codes + 128, out + 48);
    crumb_put_f16(out + 80, unit);
    crumb_put_f16(out + 82, unit);
}
