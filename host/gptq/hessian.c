#include "host/gptq/hessian.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/gptq/product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64, SAMPLES = 256 }; /* rows and columns of a block; samples that are added at a time */

crumb_status crumb_hessian_alloc(uint64_t k, crumb_hessian *out, crumb_error *err) {
    *out = (crumb_hessian){.k = k};
    CRUMB_TRY(crumb_pages_alloc(k * k * sizeof *out->h, "a layer's second derivatives", (void **)&out->h, err));
    CRUMB_TRY(crumb_calloc(k, sizeof *out->order, "an order of columns", (void **)&out->order, err));
    CRUMB_TRY(crumb_calloc(k, sizeof *out->diagonal, "an order of columns", (void **)&out->diagonal, err));
    return crumb_calloc(k, sizeof *out->dead, "an order of columns", (void **)&out->dead, err);
}

void crumb_hessian_free(crumb_hessian *h) {
    if (h->h) crumb_pages_free(h->h, h->k * h->k * sizeof *h->h);
    free(h->order);
    free(h->diagonal);
    free(h->dead);
    *h = (crumb_hessian){0};
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* ---- X^T X --------------------------------------------------------------------------------------------------- */

typedef struct adding {
    crumb_hessian *h;
    const double *x, *minus_x; /* [n][k] */
    uint64_t n;
} adding;

/* A block of rows of the lower triangle. */
static crumb_status add_rows(void *ctx, uint64_t item, crumb_error *err) {
    const adding *a = ctx;
    const uint64_t k = a->h->k, i = item * BLOCK, m = least(BLOCK, k - i);
    const crumb_doubles left = {a->minus_x + i, 1, k};
    (void)err;
    for (uint64_t j = 0; j <= i; j += BLOCK)
        crumb_product_subtract(m, least(BLOCK, k - j), a->n, left, a->x + j, k, a->h->h + i * k + j, k);
    return CRUMB_OK;
}

crumb_status crumb_hessian_add(crumb_hessian *h, const float *x, uint64_t n, int n_threads, crumb_error *err) {
    const uint64_t k = h->k, room_bytes = 2 * SAMPLES * k * sizeof(double);
    double *room;
    crumb_status status = crumb_pages_alloc(room_bytes, "a part of the calibration's inputs", (void **)&room, err);
    if (status != CRUMB_OK) return status;
    for (uint64_t first = 0; first < n && status == CRUMB_OK; first += SAMPLES) {
        const adding a = {h, room, room + SAMPLES * k, least(SAMPLES, n - first)};
        for (uint64_t i = 0; i < a.n * k; i++) {
            room[i] = (double)x[first * k + i];
            room[SAMPLES * k + i] = -room[i];
        }
        status = crumb_parallel_for(n_threads, crumb_div_up(k, BLOCK), add_rows, (void *)(uintptr_t)&a, err);
    }
    crumb_pages_free(room, room_bytes);
    return status;
}

/* ---- order and damping --------------------------------------------------------------------------------------- */

static _Thread_local const crumb_hessian *sorted; /* for the comparison, which qsort() gives no argument */

static int compare_diagonals(const void *a, const void *b) {
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const double x = sorted->diagonal[i], y = sorted->diagonal[j];
    return x > y ? -1 : x < y ? 1 : i < j ? -1 : i > j;
}

/* The diagonal without zeros, then damped; the order before that. */
static crumb_status prepare(crumb_hessian *h, double damping, bool act_order, crumb_error *err) {
    const uint64_t k = h->k;
    double sum = 0;
    for (uint64_t i = 0; i < k; i++) {
        double *d = &h->h[i * k + i];
        h->order[i] = (uint32_t)i;
        h->dead[i] = *d == 0;
        if (*d == 0) *d = 1;
        h->diagonal[i] = *d;
        sum += *d;
    }
    if (!isfinite(sum))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "what the layer gets as input is not finite: the model is damaged");
    sorted = h;
    if (act_order) qsort(h->order, k, sizeof *h->order, compare_diagonals);
    for (uint64_t i = 0; i < k; i++) h->h[i * k + i] += damping * sum / (double)k;
    return CRUMB_OK;
}

/* ---- H = L L^T ----------------------------------------------------------------------------------------------- */

typedef struct factoring {
    double *a;            /* [k][k]: the lower triangle of a matrix, from which that of its factor is made */
    uint64_t k, first, n; /* the block on the diagonal in hand: n rows and columns from `first` on */
    double *room;         /* [BLOCK][k] */
} factoring;

/* The block itself; false where it is not positive. */
static bool factor_block(const factoring *f, double smallest) {
    double *a = f->a + f->first * f->k + f->first;
    for (uint64_t i = 0; i < f->n; i++)
        for (uint64_t j = 0; j <= i; j++) {
            double sum = a[i * f->k + j];
            for (uint64_t p = 0; p < j; p++) sum -= a[i * f->k + p] * a[j * f->k + p];
            if (i == j && !(sum > smallest)) return false;
            a[i * f->k + j] = i == j ? sqrt(sum) : sum / a[j * f->k + j];
        }
    return true;
}

/* Rows below the block become those of the factor, and columns of f->room. */
static crumb_status solve_rows(void *ctx, uint64_t item, crumb_error *err) {
    const factoring *f = ctx;
    const uint64_t begin = f->first + f->n + item * BLOCK, end = least(begin + BLOCK, f->k);
    const double *diagonal = f->a + f->first * f->k + f->first;
    (void)err;
    for (uint64_t i = begin; i < end; i++) {
        double *row = f->a + i * f->k + f->first;
        for (uint64_t j = 0; j < f->n; j++) {
            double sum = row[j];
            for (uint64_t p = 0; p < j; p++) sum -= row[p] * diagonal[j * f->k + p];
            row[j] = sum / diagonal[j * f->k + j];
            f->room[j * f->k + i] = row[j];
        }
    }
    return CRUMB_OK;
}

/* What is below and right of the block, without what the block explains. */
static crumb_status update_rows(void *ctx, uint64_t item, crumb_error *err) {
    const factoring *f = ctx;
    const uint64_t begin = f->first + f->n, i = begin + item * BLOCK, m = least(BLOCK, f->k - i);
    const crumb_doubles left = {f->a + i * f->k + f->first, f->k, 1};
    (void)err;
    for (uint64_t j = begin; j <= i; j += BLOCK)
        crumb_product_subtract(m, least(BLOCK, f->k - j), f->n, left, f->room + j, f->k, f->a + i * f->k + j, f->k);
    return CRUMB_OK;
}

static crumb_status factor(factoring *f, int n_threads, crumb_error *err) {
    double largest = 0;
    for (uint64_t i = 0; i < f->k; i++) largest = fmax(largest, f->a[i * f->k + i]);
    for (f->first = 0; f->first < f->k; f->first += f->n) {
        f->n = least(BLOCK, f->k - f->first);
        if (!factor_block(f, largest * 1e-15))
            return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                              "the calibration's inputs do not determine this layer (their second derivatives are "
                              "singular): give more text, or more damping");
        const uint64_t n_below = crumb_div_up(f->k - f->first - f->n, BLOCK);
        CRUMB_TRY(crumb_parallel_for(n_threads, n_below, solve_rows, f, err));
        CRUMB_TRY(crumb_parallel_for(n_threads, n_below, update_rows, f, err));
    }
    return CRUMB_OK;
}

/* ---- inverse(L) ---------------------------------------------------------------------------------------------- */

/* The block on the diagonal becomes its inverse. */
static void invert_block(const factoring *f) {
    double *a = f->a + f->first * f->k + f->first;
    for (uint64_t i = 0; i < f->n; i++) {
        const double inverse = 1 / a[i * f->k + i];
        for (uint64_t j = 0; j < i; j++) {
            double sum = 0;
            for (uint64_t p = j; p < i; p++) sum += a[i * f->k + p] * a[p * f->k + j];
            a[i * f->k + j] = -sum * inverse;
        }
        a[i * f->k + i] = inverse;
    }
}

/* The block of columns `item` left of the diagonal, whose rows above are inverted already: -inverse(D) (L above), with
 * the rows of L in f->room. */
static crumb_status invert_columns(void *ctx, uint64_t item, crumb_error *err) {
    const factoring *f = ctx;
    const uint64_t j = item * BLOCK, n = least(BLOCK, f->first - j);
    const double *diagonal = f->a + f->first * f->k + f->first;
    double sums[BLOCK * BLOCK] = {0};
    double *out = f->a + f->first * f->k + j;
    (void)err;
    crumb_product_subtract(f->n, n, f->first - j, (crumb_doubles){f->room + j, f->k, 1}, f->a + j * f->k + j, f->k,
                           sums, BLOCK);
    for (uint64_t i = 0; i < f->n; i++)
        for (uint64_t c = 0; c < n; c++) {
            double sum = 0;
            for (uint64_t p = 0; p <= i; p++) sum += diagonal[i * f->k + p] * sums[p * BLOCK + c];
            out[i * f->k + c] = sum;
        }
    return CRUMB_OK;
}

static crumb_status invert(factoring *f, int n_threads, crumb_error *err) {
    for (uint64_t i = 0; i < f->k; i++) memset(f->a + i * f->k + i + 1, 0, (f->k - i - 1) * sizeof *f->a);
    for (f->first = 0; f->first < f->k; f->first += f->n) {
        f->n = least(BLOCK, f->k - f->first);
        for (uint64_t i = 0; i < f->n; i++)
            memcpy(f->room + i * f->k, f->a + (f->first + i) * f->k, f->first * sizeof *f->room);
        invert_block(f);
        CRUMB_TRY(crumb_parallel_for(n_threads, f->first / BLOCK, invert_columns, f, err));
    }
    return CRUMB_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------------------- */

/* Rows and columns in the order that they are rounded in, turned round. */
static void permute(const crumb_hessian *h, double *out) {
    const uint64_t k = h->k;
    for (uint64_t i = 0; i < k; i++)
        for (uint64_t j = 0; j <= i; j++) {
            const uint64_t a = h->order[k - 1 - i], b = h->order[k - 1 - j];
            out[i * k + j] = a > b ? h->h[a * k + b] : h->h[b * k + a];
        }
}

/* With rows and columns turned round H = L L^T makes inverse(H) = U^T U of U = inverse(L), turned back. */
crumb_status crumb_hessian_factor(crumb_hessian *h, double damping, bool act_order, int n_threads, crumb_error *err) {
    const uint64_t k = h->k, n_bytes = k * k * sizeof *h->h;
    factoring f = {.k = k};
    CRUMB_TRY(prepare(h, damping, act_order, err));
    CRUMB_TRY(crumb_pages_alloc(n_bytes, "a layer's second derivatives", (void **)&f.a, err));
    permute(h, f.a);
    crumb_status status =
        crumb_calloc(BLOCK * k, sizeof *f.room, "a layer's second derivatives", (void **)&f.room, err);
    if (status == CRUMB_OK) status = factor(&f, n_threads, err);
    if (status == CRUMB_OK) status = invert(&f, n_threads, err);
    for (uint64_t i = 0; i < k * k && status == CRUMB_OK; i++) h->h[i] = f.a[k * k - 1 - i];
    free(f.room);
    crumb_pages_free(f.a, n_bytes);
    return status;
}
