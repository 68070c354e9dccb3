#include "cpu/divide.h"

#include "host/base/memory.h"
#include "scheduler/choice.h"

#include <stdlib.h>
#include <string.h>

/* A linear step's shares, kept until the ratios change: who only reads them has them in its own cache. */
typedef struct shares {
    const crumb_balance *balance; /* by which they were cut; NULL: not yet */
    const crumb_chunks *chunks;   /* in place of which: for as many threads */
    uint32_t version, items;      /* of the balance; what the walk is told */
} shares;

struct crumb_divider {
    crumb_choice *choices; /* of each shape of the plan, for few rows and for many */
    uint32_t n_choices;
    shares *shares;   /* of each linear step */
    uint32_t *bounds; /* [linear steps][n_threads + 1] */
    /* The linear step under way, where its time is of interest; else NULL. */
    const crumb_step *step;
    crumb_way way;
    uint64_t began;                                       /* ticks */
    _Alignas(64) uint32_t ticks[CRUMB_BALANCE_MAX_CORES]; /* of its shares */
};

/* ---- recording --------------------------------------------------------------------------------------------- */

static bool same_shape(const crumb_step *a, const crumb_step *b) {
    if (a->linear.n_parts != b->linear.n_parts || a->linear.gated != b->linear.gated) return false;
    for (uint32_t i = 0; i < a->linear.n_parts; i++) {
        const crumb_linear_range *x = &a->linear.parts[i], *y = &b->linear.parts[i];
        if (x->tile1 - x->tile0 != y->tile1 - y->tile0 || x->part.w->k != y->part.w->k) return false;
        if (x->part.w->type != y->part.w->type || x->kernel[1] != y->kernel[1]) return false;
        if (memcmp(x->knobs, y->knobs, sizeof x->knobs) != 0) return false;
    }
    return true;
}

/* Numbers the linear steps and the choices that they share; returns how many steps. */
static uint32_t number_steps(crumb_plan *p, uint32_t *n_choices) {
    uint32_t n = 0;
    *n_choices = 0;
    for (crumb_step *s = p->steps; s < p->steps + p->n_steps; s++) {
        if (s->kind != &crumb_step_linear) continue;
        const crumb_step *like = p->steps;
        while (like < s && !(like->kind == s->kind && same_shape(like, s))) like++;
        s->linear.number = n++;
        s->linear.choice = like < s ? like->linear.choice : 2 * (*n_choices)++;
    }
    *n_choices *= 2;
    return n;
}

crumb_status crumb_divider_create(crumb_plan *p, crumb_error *err) {
    const int n_threads = p->n_threads;
    void *memory;
    if (n_threads < 2 || n_threads > CRUMB_BALANCE_MAX_CORES || n_threads > CRUMB_WALK_MAX_SHARES) return CRUMB_OK;
    crumb_divider *d = aligned_alloc(_Alignof(crumb_divider), sizeof *d);
    if (!d) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a plan");
    memset(d, 0, sizeof *d);
    p->divider = d;
    const uint32_t n_steps = number_steps(p, &d->n_choices);
    CRUMB_TRY(crumb_calloc(d->n_choices, sizeof *d->choices, "a plan", &memory, err));
    d->choices = memory;
    CRUMB_TRY(crumb_calloc(n_steps, sizeof *d->shares, "a plan", &memory, err));
    d->shares = memory;
    CRUMB_TRY(crumb_calloc(n_steps * ((uint64_t)n_threads + 1), sizeof *d->bounds, "a plan", &memory, err));
    d->bounds = memory;
    for (uint32_t i = 0; i < d->n_choices; i++) crumb_choice_init(&d->choices[i], p->device->way);
    return CRUMB_OK;
}

void crumb_divider_destroy(crumb_divider *d) {
    if (!d) return;
    free(d->choices);
    free(d->shares);
    free(d->bounds);
    free(d);
}

/* ---- replaying --------------------------------------------------------------------------------------------- */

/* Ratios are kept apart by what limits a core: the kernel's kind of work and the number of rows. */
static crumb_balance *balance_of(const crumb_plan *p, const crumb_step *s) {
    const uint32_t n = crumb_step_n(p, s);
    const crumb_cpu_kernel *kernel = s->linear.parts[0].kernel[n <= CRUMB_SMALL_N ? n : 0];
    const int phase = n == 1 ? 0 : n <= CRUMB_SMALL_N ? 1 : 2;
    const int class = kernel->layout ? CRUMB_LOOKUP_CLASS : kernel->bits < CRUMB_LOOKUP_CLASS ? kernel->bits : 0;
    crumb_balance *b = &p->device->balances[class][phase];
    if (b->n_cores == 0) crumb_balance_init(b, crumb_pool_threads(p->device->pool));
    return b;
}

static const crumb_chunks *chunks_of(const crumb_plan *p, const crumb_step *s) {
    const uint32_t n = crumb_step_n(p, s), many = n > CRUMB_SMALL_N;
    return n <= s->linear.few_rows[many] ? &s->linear.few[many] : &s->linear.chunks[many];
}

static uint32_t *bounds_of(const crumb_plan *p, const crumb_step *s) {
    return p->divider->bounds + (size_t)s->linear.number * ((size_t)p->n_threads + 1);
}

static crumb_choice *choice_of(const crumb_plan *p, const crumb_step *s) {
    return &p->divider->choices[s->linear.choice + (crumb_step_n(p, s) > CRUMB_SMALL_N)];
}

/* The step's shares by the ratios of now. */
static uint32_t cut_shares(const crumb_plan *p, const crumb_step *s) {
    shares *have = &p->divider->shares[s->linear.number];
    const crumb_balance *b = balance_of(p, s);
    const crumb_chunks *chunks = chunks_of(p, s);
    if (have->balance == b && have->chunks == chunks && have->version == b->version) return have->items;
    uint32_t *bounds = bounds_of(p, s);
    crumb_balance_split(b, chunks->n_threads, p->chunk_bounds[chunks->first + chunks->n], bounds);
    *have = (shares){.balance = b, .chunks = chunks, .version = b->version, .items = CRUMB_WALK_SHARES};
    for (int i = 0; i < chunks->n_threads; i++)
        if (bounds[i] < bounds[i + 1]) have->items |= 1u << i;
    return have->items;
}

void crumb_divide_round(crumb_plan *p) {
    if (!p->divider) return;
    for (uint32_t i = 0; i < p->divider->n_choices; i++) crumb_choice_round(&p->divider->choices[i]);
}

static uint32_t chunk_items(const crumb_plan *p, const crumb_step *s) {
    const crumb_chunks *chunks = chunks_of(p, s);
    return crumb_walk_items(chunks->n, chunks->n_threads, p->n_threads);
}

uint32_t crumb_divide_items(const crumb_plan *p, const crumb_step *s) {
    crumb_divider *d = p->divider;
    if (!d || chunks_of(p, s)->n_threads == 1) return chunk_items(p, s); /* of one thread there is nothing to learn */
    crumb_choice *choice = choice_of(p, s);
    if (!choice->trying && choice->way == CRUMB_WAY_CHUNKS) return chunk_items(p, s);
    d->step = s;
    d->way = crumb_choice_next(choice);
    if (choice->trying) d->began = crumb_ticks();
    return d->way == CRUMB_WAY_SPLIT ? cut_shares(p, s) : chunk_items(p, s);
}

/* From the threads that had shares: of those that were to wait nothing is known. */
static void learn(const crumb_plan *p, const crumb_step *s) {
    uint32_t units[CRUMB_BALANCE_MAX_CORES];
    const uint32_t *bounds = bounds_of(p, s);
    const int n_threads = chunks_of(p, s)->n_threads;
    for (int i = 0; i < n_threads; i++) units[i] = bounds[i + 1] - bounds[i];
    crumb_balance_learn(balance_of(p, s), n_threads, units, p->divider->ticks);
}

void crumb_divide_over(crumb_plan *p) {
    crumb_divider *d = p->divider;
    if (!d || !d->step) return;
    const crumb_step *s = d->step;
    crumb_choice *choice = choice_of(p, s);
    if (choice->trying) {
        const uint64_t now = crumb_ticks(); /* maybe of another core, whose count may be behind a little */
        crumb_choice_measured(choice, d->way, now > d->began ? (double)(now - d->began) / crumb_step_n(p, s) : 1);
    }
    if (d->way == CRUMB_WAY_SPLIT) learn(p, s);
    d->step = NULL;
}

crumb_units crumb_divide_units(const crumb_plan *p, const crumb_step *s, uint32_t item) {
    const uint32_t *bounds;
    if (item & CRUMB_WALK_SHARES) {
        bounds = bounds_of(p, s) + (item ^ CRUMB_WALK_SHARES);
    } else { /* the highest item is taken first: the first chunk, and the largest */
        const crumb_chunks *chunks = chunks_of(p, s);
        bounds = p->chunk_bounds + chunks->first + chunks->n - 1 - item;
    }
    return (crumb_units){bounds[0], bounds[1]};
}

void crumb_divide_took(const crumb_plan *p, uint32_t item, int thread, uint64_t ticks) {
    const uint32_t owner = item ^ CRUMB_WALK_SHARES;
    const uint32_t longest = CRUMB_BALANCE_NOT_COME - 1, own = ticks < longest ? (uint32_t)ticks : longest;
    p->divider->ticks[owner] = owner == (uint32_t)thread ? own : CRUMB_BALANCE_NOT_COME;
}
