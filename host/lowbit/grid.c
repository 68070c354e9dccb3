#include "host/lowbit/grid.h"

#include "host/base/checked.h"
#include "host/base/half.h"
#include "host/base/memory.h"

#include <stdlib.h>

enum { N_STEPS = 24, N_WIDTHS = 19 }; /* widths that are tried: 24/24 of the range, 23/24 ... 6/24 */

static crumb_grid grid_of(double low, double high, unsigned bits) {
    crumb_grid g = {.max_code = (uint8_t)((1u << bits) - 1)};
    g.scale = crumb_f16_to_f32(crumb_f32_to_f16((float)((high - low) / g.max_code)));
    const double at = g.scale > 0 ? round(-low / (double)g.scale) : 1;
    g.zero = at < 1 ? 1 : at > g.max_code ? g.max_code : (uint8_t)at;
    return g;
}

static void find_range(const double *w, uint64_t n, double *low, double *high) {
    *low = *high = 0;
    for (uint64_t i = 0; i < n; i++) {
        *low = w[i] < *low ? w[i] : *low;
        *high = w[i] > *high ? w[i] : *high;
    }
}

crumb_grid crumb_grid_fit(const double *w, uint64_t n, unsigned bits) {
    double low, high;
    find_range(w, n, &low, &high);
    return grid_of(low, high, bits);
}

static double error_of(const crumb_grid *g, const double *w, const double *importance, uint64_t n) {
    const double scale = (double)g->scale, inverse = 1 / scale, shift = g->zero + 0.5, most = g->max_code + 0.5;
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        double code = w[i] * inverse + shift;
        code = code < 0 ? 0 : code > most ? most : code;
        const double error = w[i] - scale * ((int)code - g->zero);
        sum += importance[i] * error * error;
    }
    return sum;
}

crumb_grid crumb_grid_fit_best(const double *w, const double *importance, uint64_t n, unsigned bits) {
    double low, high, least = INFINITY;
    find_range(w, n, &low, &high);
    crumb_grid best = grid_of(low, high, bits);
    for (int i = 0; i < N_WIDTHS; i++) {
        const double part = (double)(N_STEPS - i) / N_STEPS;
        const crumb_grid g = grid_of(low * part, high * part, bits);
        if (!(g.scale > 0)) break;
        const double error = error_of(&g, w, importance, n);
        if (error < least) least = error, best = g;
    }
    return best;
}

crumb_status crumb_coded_alloc(uint64_t m, uint64_t k, uint64_t group, unsigned bits, crumb_coded *out,
                               crumb_error *err) {
    *out = (crumb_coded){.m = m, .k = k, .group = group, .n_groups = crumb_div_up(k, group), .bits = bits};
    CRUMB_TRY(crumb_pages_alloc(m * k, "a matrix's codes", (void **)&out->codes, err));
    CRUMB_TRY(crumb_calloc(m * out->n_groups, sizeof *out->grids, "a matrix's scales", (void **)&out->grids, err));
    CRUMB_TRY(crumb_calloc(k, sizeof *out->group_of, "a matrix's groups", (void **)&out->group_of, err));
    for (uint64_t i = 0; i < k; i++) out->group_of[i] = (uint32_t)(i / group);
    return CRUMB_OK;
}

void crumb_coded_free(crumb_coded *c) {
    if (c->codes) crumb_pages_free(c->codes, c->m * c->k);
    free(c->grids);
    free(c->group_of);
    *c = (crumb_coded){0};
}

void crumb_coded_round_row(crumb_coded *c, uint64_t row, const float *weights, double *room) {
    crumb_grid *grids = c->grids + row * c->n_groups;
    for (uint64_t i = 0; i < c->k; i++) room[i] = (double)weights[i];
    for (uint64_t g = 0; g < c->n_groups; g++)
        grids[g] = crumb_grid_fit(room + g * c->group, crumb_coded_group_size(c, g), c->bits);
    for (uint64_t i = 0; i < c->k; i++)
        c->codes[row * c->k + i] = (uint8_t)crumb_grid_code(&grids[c->group_of[i]], room[i]);
}

void crumb_coded_row(const crumb_coded *c, uint64_t row, float *out) {
    const crumb_grid *grids = c->grids + row * c->n_groups;
    for (uint64_t i = 0; i < c->k; i++) out[i] = crumb_grid_value(&grids[c->group_of[i]], c->codes[row * c->k + i]);
}
