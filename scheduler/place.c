#include "scheduler/place_pattern.h"

#include "host/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PATTERNS = 3 * CRUMB_PROFILE_MAX_DEVICES * CRUMB_PROFILE_MAX_DEVICES,
    MAX_LAYERS = 1 << 16,
    MAX_COMPLEXITY = 8
};

/* Patterns for one phase, with what they cost. */
typedef struct pattern_list {
    crumb_pattern pattern[MAX_PATTERNS];
    crumb_cost sum[MAX_PATTERNS];
    size_t n;
} pattern_list;

typedef struct choice {
    crumb_pattern pattern[CRUMB_PHASE_COUNT];
    double total_ns;
    int complexity;
    bool fits;
} choice;

typedef struct search {
    const crumb_place_frame *f;
    crumb_placement *out;
    choice best, first; /* first: the best of all that do not fit, for the message */
    uint64_t least_excess;
    size_t fullest;
} search;

/* ---- candidates ---------------------------------------------------------------------------------------------- */

static bool usable(const crumb_place_frame *f, size_t device) {
    return device < f->p.machine->n_devices && (f->p.devices >> device & 1);
}

static void add(const crumb_place_frame *f, crumb_phase phase, const crumb_pattern *pattern, pattern_list *list) {
    if (list->n == MAX_PATTERNS) return;
    list->pattern[list->n] = *pattern;
    crumb_pattern_cost(f, pattern, phase, NULL, &list->sum[list->n++]);
}

static bool is_card(const crumb_place_frame *f, uint8_t device) {
    return f->p.machine->device[device].kind == CRUMB_PROFILE_DISCRETE;
}

static void add_split(const crumb_place_frame *f, crumb_phase phase, uint8_t a, uint8_t b, double share,
                      pattern_list *list) {
    const crumb_pattern q = {.kind = CRUMB_PATTERN_SPLIT, .a = a, .b = b, .share = share};
    if (share > 0 && share < 1) add(f, phase, &q, list);
}

/* With the part that balances the phase; a card's weights are divided for both phases, by the part of either. */
static void add_splits(const crumb_place_frame *f, crumb_phase phase, uint8_t a, uint8_t b, pattern_list *list) {
    const bool divided = is_card(f, a) || is_card(f, b);
    if (phase == CRUMB_PHASE_PREFILL && f->p.whole_prefill && !divided) return;
    if (f->p.split >= 0) return add_split(f, phase, a, b, f->p.split, list);
    const double of_prefill = crumb_pattern_balance(f, a, b, CRUMB_PHASE_PREFILL),
                 of_decode = crumb_pattern_balance(f, a, b, CRUMB_PHASE_DECODE);
    const bool differ = of_prefill < of_decode || of_prefill > of_decode;
    if (divided || phase == CRUMB_PHASE_DECODE) add_split(f, phase, a, b, of_decode, list);
    if ((divided && differ) || (!divided && phase == CRUMB_PHASE_PREFILL)) add_split(f, phase, a, b, of_prefill, list);
}

/* A GPU comes first in a pair, the processor last. */
static void add_pair(const crumb_place_frame *f, crumb_phase phase, uint8_t a, uint8_t b, pattern_list *list) {
    crumb_pattern q = {.kind = CRUMB_PATTERN_TURNS, .a = a, .b = b};
    add_splits(f, phase, a, b, list);
    if (f->p.split > 0) return;
    q.kind = CRUMB_PATTERN_TURNS;
    add(f, phase, &q, list);
}

static void list_patterns(const crumb_place_frame *f, crumb_phase phase, pattern_list *list) {
    const uint8_t n = (uint8_t)f->p.machine->n_devices;
    const bool whole = f->p.split <= 0 || (phase == CRUMB_PHASE_PREFILL && f->p.whole_prefill);
    list->n = 0;
    for (uint8_t d = 0; d < n && whole; d++)
        if (usable(f, d)) add(f, phase, &(crumb_pattern){.kind = CRUMB_PATTERN_ALL, .a = d, .b = d}, list);
    for (uint8_t a = 1; a < n; a++)
        for (uint8_t b = 0; b < a; b++)
            if (usable(f, a) && usable(f, b)) add_pair(f, phase, a, b, list);
}

/* Each phase's own, so that a phase is not made involved for what the other gains. */
static int complexity_of(const crumb_pattern *prefill, const crumb_pattern *decode) {
    static const int of_kind[] = {
        [CRUMB_PATTERN_ALL] = 0, [CRUMB_PATTERN_LAST] = 1, [CRUMB_PATTERN_SPLIT] = 3, [CRUMB_PATTERN_TURNS] = 4};
    const bool differ =
        prefill->kind == CRUMB_PATTERN_ALL && decode->kind == CRUMB_PATTERN_ALL && prefill->a != decode->a;
    return of_kind[prefill->kind] + of_kind[decode->kind] + differ;
}

static void name_choice(const crumb_place_frame *f, const choice *c, char out[CRUMB_PLACE_NAME_BYTES]) {
    char prefill[48], decode[48];
    crumb_pattern_name(f, &c->pattern[0], prefill, sizeof prefill);
    crumb_pattern_name(f, &c->pattern[1], decode, sizeof decode);
    if (strcmp(prefill, decode) == 0)
        snprintf(out, CRUMB_PLACE_NAME_BYTES, "%s", prefill);
    else
        snprintf(out, CRUMB_PLACE_NAME_BYTES, "prefill %s, decode %s", prefill, decode);
}

/* ---- comparing ------------------------------------------------------------------------------------------------ */

/* Keeps the fastest, those that fit first; earlier ones win ties. */
static void remember(search *s, const choice *c, double prefill_ns, double decode_ns) {
    crumb_placement *out = s->out;
    size_t at = out->n_considered;
    crumb_place_candidate candidate = {
        .prefill_ns = prefill_ns, .decode_ns = decode_ns, .total_ns = c->total_ns, .fits = c->fits};
    name_choice(s->f, c, candidate.name);
    for (; at > 0; at--) {
        const crumb_place_candidate *before = &out->considered[at - 1];
        if (before->fits == c->fits ? before->total_ns <= c->total_ns : before->fits) break;
    }
    if (at == CRUMB_PLACE_MAX_CONSIDERED) return;
    const size_t n =
        out->n_considered < CRUMB_PLACE_MAX_CONSIDERED ? out->n_considered : CRUMB_PLACE_MAX_CONSIDERED - 1;
    memmove(&out->considered[at + 1], &out->considered[at], (n - at) * sizeof candidate);
    out->considered[at] = candidate;
    out->n_considered = n + 1;
}

static void consider(search *s, const crumb_pattern *prefill, const crumb_cost *prefill_cost,
                     const crumb_pattern *decode, const crumb_cost *decode_cost) {
    uint64_t bytes[CRUMB_PROFILE_MAX_DEVICES], moved;
    size_t fullest = 0;
    choice c = {.pattern = {*prefill, *decode}, .complexity = complexity_of(prefill, decode)};
    if (!isfinite(prefill_cost->ns) || !isfinite(decode_cost->ns)) return;
    if (!s->f->p.copies && crumb_pattern_copies(s->f, prefill, decode)) return;
    crumb_pattern_memory(s->f, prefill, decode, bytes);
    const uint64_t excess = crumb_place_excess(s->f, bytes, &fullest);
    c.fits = excess == 0;
    c.total_ns =
        prefill_cost->ns + crumb_pattern_move(s->f, prefill, decode, &moved) + s->f->p.n_generate * decode_cost->ns;
    remember(s, &c, prefill_cost->ns, decode_cost->ns);
    if (!c.fits && (s->least_excess == 0 || excess < s->least_excess)) {
        s->least_excess = excess;
        s->fullest = fullest;
        s->first = c;
    }
    const double bar = c.complexity > s->best.complexity ? (1 - s->f->p.margin) * s->best.total_ns : s->best.total_ns;
    if (c.fits && (!s->best.fits || c.total_ns < bar)) s->best = c;
}

/* All pairs of a prefill and a decode pattern, the simple ones first. Turns, which only ever win by what was not
 * foreseen, go with turns. */
static void consider_pairs(search *s, const pattern_list lists[CRUMB_PHASE_COUNT]) {
    for (int complexity = 0; complexity <= MAX_COMPLEXITY; complexity++)
        for (size_t i = 0; i < lists[0].n; i++)
            for (size_t j = 0; j < lists[1].n; j++)
                if (complexity_of(&lists[0].pattern[i], &lists[1].pattern[j]) == complexity &&
                    (lists[0].pattern[i].kind == CRUMB_PATTERN_TURNS) ==
                        (lists[1].pattern[j].kind == CRUMB_PATTERN_TURNS))
                    consider(s, &lists[0].pattern[i], &lists[0].sum[i], &lists[1].pattern[j], &lists[1].sum[j]);
}

/* The last n layers on `gpu`, the others on the processor, in prefill; decoding alike, or all on the processor. */
static void consider_last(search *s, uint8_t gpu, uint32_t n, bool decode_alike) {
    const crumb_pattern last = {.kind = CRUMB_PATTERN_LAST, .a = gpu, .b = 0, .n = n};
    const crumb_pattern all = {.kind = CRUMB_PATTERN_ALL, .a = 0, .b = 0};
    crumb_cost prefill_cost, decode_cost;
    crumb_pattern_cost(s->f, &last, CRUMB_PHASE_PREFILL, NULL, &prefill_cost);
    crumb_pattern_cost(s->f, decode_alike ? &last : &all, CRUMB_PHASE_DECODE, NULL, &decode_cost);
    consider(s, &last, &prefill_cost, decode_alike ? &last : &all, &decode_cost);
}

/* The most layers that a GPU takes, where it does not take all. */
static void consider_overflow(search *s, uint8_t gpu, bool decode_alike) {
    const crumb_pattern all = {.kind = CRUMB_PATTERN_ALL, .a = 0, .b = 0};
    for (uint32_t n = s->f->p.n_layers; n > 0; n--) {
        const crumb_pattern last = {.kind = CRUMB_PATTERN_LAST, .a = gpu, .b = 0, .n = n};
        uint64_t bytes[CRUMB_PROFILE_MAX_DEVICES];
        crumb_pattern_memory(s->f, &last, decode_alike ? &last : &all, bytes);
        if (bytes[gpu] > crumb_place_limit(s->f, gpu)) continue;
        if (n == s->f->p.n_layers) return; /* that is all of them */
        consider_last(s, gpu, n, decode_alike);
        return;
    }
}

/* ---- constraints ---------------------------------------------------------------------------------------------- */

static int first_gpu(const crumb_place_frame *f) {
    for (int d = 1; d < (int)f->p.machine->n_devices; d++)
        if (usable(f, (size_t)d)) return d;
    return -1;
}

static crumb_status check(const crumb_place_frame *f, crumb_error *err) {
    const crumb_place_problem *p = &f->p;
    if (p->n_layers == 0 || p->n_layers > MAX_LAYERS)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%u layers cannot be placed", p->n_layers);
    if (!(p->split <= 1)) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a split of %g is not within 0..1", p->split);
    if (!usable(f, 0) && first_gpu(f) < 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "machine '%s' has none of the devices that may be used",
                          p->machine->name);
    if ((p->gpu_layers <= 0 && p->split <= 0) || (p->split >= 1 && p->gpu_layers < 0)) return CRUMB_OK;
    if (first_gpu(f) < 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "machine '%s': there is no GPU for layers to be on",
                          p->machine->name);
    if (!usable(f, 0) && (uint32_t)p->gpu_layers < p->n_layers)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "%d of %u layers on the GPU leave some for the processor, which may not be used",
                          p->gpu_layers, p->n_layers);
    if (p->gpu_layers >= 0 && p->split > 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "layers are counted out to devices (%d), or split (%g), not both",
                          p->gpu_layers, p->split);
    return CRUMB_OK;
}

static void consider_all(search *s) {
    const crumb_place_frame *f = s->f;
    pattern_list lists[CRUMB_PHASE_COUNT];
    if (f->p.gpu_layers >= 0) {
        const bool all = (uint32_t)f->p.gpu_layers >= f->p.n_layers;
        const crumb_pattern one = {.kind = CRUMB_PATTERN_ALL, .a = all ? (uint8_t)first_gpu(f) : 0};
        crumb_cost cost[CRUMB_PHASE_COUNT];
        if (!all && f->p.gpu_layers > 0)
            return consider_last(s, (uint8_t)first_gpu(f), (uint32_t)f->p.gpu_layers, true);
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            crumb_pattern_cost(f, &one, (crumb_phase)phase, NULL, &cost[phase]);
        return consider(s, &one, &cost[0], &one, &cost[1]);
    }
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) list_patterns(f, (crumb_phase)phase, &lists[phase]);
    consider_pairs(s, lists);
    for (uint8_t d = 1; d < (uint8_t)f->p.machine->n_devices && f->p.split <= 0 && usable(f, 0); d++)
        if (usable(f, d)) {
            consider_overflow(s, d, true);
            consider_overflow(s, d, false);
        }
}

/* ---- the result ------------------------------------------------------------------------------------------------ */

static crumb_status fail_to_fit(const search *s, crumb_error *err) {
    char name[CRUMB_PLACE_NAME_BYTES];
    if (s->least_excess == 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "machine '%s': no device has figures for all that this model computes",
                          s->f->p.machine->name);
    name_choice(s->f, &s->first, name);
    return crumb_fail(
        err, CRUMB_ERR_MEMORY,
        "the model fits no placement on '%s': with '%s' %s lacks %.2f GB of %.2f GB; a shorter context takes "
        "less",
        s->f->p.machine->name, name, s->f->p.machine->device[s->fullest].name, (double)s->least_excess * 1e-9,
        (double)crumb_place_limit(s->f, s->fullest) * 1e-9);
}

static crumb_status allocate(crumb_placement *out, uint32_t n_layers, crumb_error *err) {
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        void *parts, *costs;
        CRUMB_TRY(crumb_calloc(n_layers, sizeof *out->part[0], "a placement", &parts, err));
        out->part[phase] = parts;
        CRUMB_TRY(crumb_calloc(n_layers, sizeof *out->cost[0], "a placement", &costs, err));
        out->cost[phase] = costs;
    }
    return CRUMB_OK;
}

/* The candidate that is chosen stands first, though by less than `worth` others may be faster, and many may be. */
static void put_first(crumb_placement *out) {
    const crumb_place_candidate *list = out->considered;
    crumb_place_candidate chosen = {.prefill_ns = out->sum[CRUMB_PHASE_PREFILL].ns,
                                    .decode_ns = out->sum[CRUMB_PHASE_DECODE].ns,
                                    .total_ns = out->total_ns,
                                    .fits = true};
    size_t at = 0;
    memcpy(chosen.name, out->name, sizeof chosen.name);
    while (at < out->n_considered && strcmp(list[at].name, out->name) != 0) at++;
    if (at == out->n_considered && at < CRUMB_PLACE_MAX_CONSIDERED) out->n_considered++;
    if (at == CRUMB_PLACE_MAX_CONSIDERED) at--;
    memmove(&out->considered[1], &out->considered[0], at * sizeof chosen);
    out->considered[0] = chosen;
}

static size_t explain_phase(const search *s, crumb_phase phase, char *out, size_t size) {
    const crumb_place_frame *f = s->f;
    const crumb_cost *sum = &s->out->sum[phase];
    char name[48];
    crumb_pattern_name(f, &s->best.pattern[phase], name, sizeof name);
    size_t used = (size_t)snprintf(out, size, "%s on %s: %.2f ms%s, bound by %s", phase ? "; decode" : "prefill", name,
                                   sum->ns * 1e-6, phase ? " a token" : "", crumb_bound_name(sum->bound));
    const char *separator = " (";
    for (uint8_t d = 0; d < (uint8_t)f->p.machine->n_devices && used < size; d++) {
        const crumb_pattern all = {.kind = CRUMB_PATTERN_ALL, .a = d, .b = d};
        crumb_cost alone;
        if (!usable(f, d) || (s->best.pattern[phase].kind == CRUMB_PATTERN_ALL && s->best.pattern[phase].a == d))
            continue;
        crumb_pattern_cost(f, &all, phase, NULL, &alone);
        if (!isfinite(alone.ns)) continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s alone: %.2f ms", separator,
                                 f->p.machine->device[d].name, alone.ns * 1e-6);
        separator = ", ";
    }
    if (*separator == ',' && used < size) used += (size_t)snprintf(out + used, size - used, ")");
    return used < size ? used : size - 1;
}

static void explain_memory(const search *s, char *out, size_t size) {
    const crumb_pattern *q = &s->best.pattern[0];
    if (q->kind != CRUMB_PATTERN_LAST) return;
    snprintf(out, size, "; %s's %.1f GB hold %u of %u layers with their context", s->f->p.machine->device[q->a].name,
             (double)crumb_place_limit(s->f, q->a) * 1e-9, q->n, s->f->p.n_layers);
}

static void explain(const search *s) {
    char *out = s->out->why;
    const size_t size = sizeof s->out->why;
    size_t used = explain_phase(s, CRUMB_PHASE_PREFILL, out, size);
    used += explain_phase(s, CRUMB_PHASE_DECODE, out + used, size - used);
    explain_memory(s, out + used, size - used);
}

static void fill(const search *s) {
    crumb_placement *out = s->out;
    const crumb_pattern *q = s->best.pattern;
    out->n_layers = s->f->p.n_layers;
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        for (uint32_t i = 0; i < out->n_layers; i++)
            out->part[phase][i] = crumb_pattern_part(&q[phase], i, out->n_layers);
        crumb_pattern_cost(s->f, &q[phase], (crumb_phase)phase, out->cost[phase], &out->sum[phase]);
    }
    out->move_ns = crumb_pattern_move(s->f, &q[0], &q[1], &out->moved_bytes);
    out->ttft_ns = out->sum[CRUMB_PHASE_PREFILL].ns + out->move_ns;
    out->total_ns = s->best.total_ns;
    crumb_pattern_memory(s->f, &q[0], &q[1], out->memory_bytes);
    name_choice(s->f, &s->best, out->name);
    put_first(out);
    explain(s);
}

crumb_status crumb_place(const crumb_place_problem *problem, crumb_placement *out, crumb_error *err) {
    *out = (crumb_placement){.n_layers = 0};
    void *memory;
    CRUMB_TRY(crumb_calloc(1, sizeof(crumb_place_frame), "a placement", &memory, err));
    crumb_place_frame *f = memory;
    crumb_place_frame_make(problem, f);
    search s = {.f = f, .out = out};
    crumb_status status = check(f, err);
    if (status == CRUMB_OK) {
        consider_all(&s);
        status = s.best.fits ? allocate(out, problem->n_layers, err) : fail_to_fit(&s, err);
    }
    if (status == CRUMB_OK)
        fill(&s);
    else
        crumb_placement_free(out);
    free(f);
    return status;
}

void crumb_placement_free(crumb_placement *p) {
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        free(p->part[phase]);
        free(p->cost[phase]);
    }
    *p = (crumb_placement){.n_layers = 0};
}
