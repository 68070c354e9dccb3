#include "host/gptq/solve.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/gptq/product.h"

#include <stdlib.h>

enum { ROWS = 32, COLUMNS = 64 }; /* rows of an item, and columns whose errors reach the columns behind them at once */

typedef struct solving {
    const float *weights;
    const crumb_hessian *h;
    crumb_gptq_order order;
    double *importance; /* [k] of columns, as they stand when grids are fitted to them */
    crumb_coded *out;
} solving;

/* Some rows on their way; columns stand in the order that they are rounded in. */
typedef struct rows {
    const solving *s;
    uint64_t first, n;
    double *w;      /* [n][k]: the weights as errors of earlier columns have changed them */
    double *errors; /* [n][COLUMNS] of the columns in hand, each over its diagonal of U */
} rows;

static void load(const rows *r) {
    const solving *s = r->s;
    const uint64_t k = s->out->k;
    for (uint64_t i = 0; i < r->n; i++)
        for (uint64_t c = 0; c < k; c++) {
            const uint32_t column = s->h->order[c];
            r->w[i * k + c] = s->h->dead[column] ? 0 : (double)s->weights[(r->first + i) * k + column];
        }
}

/* The grids of all groups, of the weights as they are in the matrix. */
static crumb_status fit_all(const rows *r, crumb_error *err) {
    const solving *s = r->s;
    const uint64_t k = s->out->k;
    double *row;
    CRUMB_TRY(crumb_calloc(k, sizeof *row, "a row of weights", (void **)&row, err));
    for (uint64_t i = 0; i < r->n; i++) {
        crumb_grid *grids = s->out->grids + (r->first + i) * s->out->n_groups;
        for (uint64_t c = 0; c < k; c++) row[s->h->order[c]] = r->w[i * k + c];
        for (uint64_t g = 0; g < s->out->n_groups; g++)
            grids[g] = crumb_grid_fit_best(row + g * s->out->group, s->importance + g * s->out->group,
                                           crumb_coded_group_size(s->out, g), s->out->bits);
    }
    free(row);
    return CRUMB_OK;
}

static void fit_group(const rows *r, uint64_t begin) {
    const solving *s = r->s;
    const uint64_t k = s->out->k, group = begin / s->out->group, n = crumb_coded_group_size(s->out, group);
    for (uint64_t i = 0; i < r->n; i++)
        s->out->grids[(r->first + i) * s->out->n_groups + group] =
            crumb_grid_fit_best(r->w + i * k + begin, s->importance + begin, n, s->out->bits);
}

/* Rounds column c, and takes what that loses to the columns up to `end`. */
static void round_column(const rows *r, uint64_t begin, uint64_t c, uint64_t end) {
    const solving *s = r->s;
    const uint64_t k = s->out->k, column = s->h->order[c];
    const double *u = s->h->h + c * k;
    for (uint64_t i = 0; i < r->n; i++) {
        double *w = r->w + i * k;
        const uint64_t row = r->first + i;
        const crumb_grid *grid = &s->out->grids[row * s->out->n_groups + s->out->group_of[column]];
        const unsigned code = crumb_grid_code(grid, w[c]);
        const double error = (w[c] - (double)crumb_grid_value(grid, code)) / u[c];
        s->out->codes[row * k + column] = (uint8_t)code;
        r->errors[i * COLUMNS + c - begin] = error;
        for (uint64_t j = c + 1; j < end; j++) w[j] -= error * u[j];
    }
}

/* Where the block of columns ends that begins at `begin`: no group begins in one whose end is behind it, so that a
 * group's weights are up to date when its grid is fitted. */
static uint64_t block_end(const solving *s, uint64_t begin) {
    const uint64_t k = s->out->k, group = s->out->group;
    uint64_t end = group <= COLUMNS ? begin + COLUMNS / group * group : begin + COLUMNS;
    if (group > COLUMNS && end > (begin / group + 1) * group) end = (begin / group + 1) * group;
    return end < k ? end : k;
}

static crumb_status solve_rows(const rows *r, crumb_error *err) {
    const solving *s = r->s;
    const uint64_t k = s->out->k;
    load(r);
    if (s->order == CRUMB_GPTQ_ORDER_STATIC) CRUMB_TRY(fit_all(r, err));
    for (uint64_t begin = 0, end; begin < k; begin = end) {
        end = block_end(s, begin);
        for (uint64_t c = begin; c < end; c++) {
            if (s->order != CRUMB_GPTQ_ORDER_STATIC && c % s->out->group == 0) fit_group(r, c);
            round_column(r, begin, c, end);
        }
        crumb_product_subtract(r->n, k - end, end - begin, (crumb_doubles){r->errors, COLUMNS, 1},
                               s->h->h + begin * k + end, k, r->w + end, k);
    }
    return CRUMB_OK;
}

static crumb_status solve_item(void *ctx, uint64_t item, crumb_error *err) {
    const solving *s = ctx;
    rows r = {.s = s, .first = item * ROWS};
    r.n = s->out->m - r.first < ROWS ? s->out->m - r.first : ROWS;
    CRUMB_TRY(crumb_calloc(r.n * (s->out->k + COLUMNS), sizeof *r.w, "rows of weights", (void **)&r.w, err));
    r.errors = r.w + r.n * s->out->k;
    const crumb_status status = solve_rows(&r, err);
    free(r.w);
    return status;
}

crumb_status crumb_gptq_solve(const float *weights, const crumb_hessian *h, crumb_gptq_order order, int n_threads,
                              crumb_coded *out, crumb_error *err) {
    solving s = {.weights = weights, .h = h, .order = order, .out = out};
    CRUMB_TRY(crumb_calloc(out->k, sizeof *s.importance, "columns' importance", (void **)&s.importance, err));
    for (uint64_t c = 0; c < out->k; c++) {
        s.importance[c] = h->diagonal[order == CRUMB_GPTQ_ORDER_STATIC ? c : h->order[c]];
        out->group_of[order == CRUMB_GPTQ_ORDER_FREE ? h->order[c] : c] = (uint32_t)(c / out->group);
    }
    const crumb_status status = crumb_parallel_for(n_threads, crumb_div_up(out->m, ROWS), solve_item, &s, err);
    free(s.importance);
    return status;
}
