/* Single kernels from memory, one row of activations, against the memory's bandwidth. */
#include "cpu/suite.h"
#include "host/engine/engine.h"
#include "tools/crumb/suite_kernels.h"

#include <string.h>

static const char *const model_shapes[] = {"falcon3-1b", "mobilellm-1.5b", "llama3-8b"};
enum { N_MODEL_SHAPES = sizeof model_shapes / sizeof model_shapes[0] };

/* Whether a plan of the tier may take kernels of `target`. */
static bool usable(const char *target, const char *tier) {
    crumb_isa plan, code;
    return !tier || (crumb_isa_parse(tier, &plan) && crumb_isa_parse(target, &code) && crumb_isa_includes(plan, code));
}

/* The kernel of the highest rank, of one of crumb's own layouts and tiers (NULL: any). SIZE_MAX: none. */
static size_t pick_in(const suite_state *s, const crumb_kernel_problem *p, const char *tier, const char *layout) {
    const crumb_kernel_suite *suite = s->choice.suite;
    size_t best = SIZE_MAX;
    int rank = 0;
    for (size_t i = 0; i < suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(&s->choice, i);
        if (!info.available || info.rank < 0 || info.max_n < p->n || !usable(info.target, tier)) continue;
        if (strcmp(info.layout, layout) != 0 || !kernels_takes(&s->choice, i, p)) continue;
        if (best == SIZE_MAX || info.rank > rank) best = i, rank = info.rank;
    }
    return best;
}

/* Times one kernel in both ways of dividing rows among threads, chunks and equal shares, of which a plan takes the one
 * that it finds faster (cpu/divide.h). *way: the series of that one. The caller destroys *out in any case. */
static crumb_status take_ways(const suite_state *s, const crumb_kernel_problem *p, size_t kernel, kernels_turns *out,
                              size_t *way, crumb_error *err) {
    CRUMB_TRY(kernels_turns_create(&s->choice, p, s->rounds, true, out, err));
    CRUMB_TRY(kernels_turns_add(out, kernel, "", err));
    CRUMB_TRY(kernels_turns_add(out, kernel, "share=1", err));
    CRUMB_TRY(kernels_turns_run(out, err));
    *way = kernels_turns_median(out, 1, TURNS_NS) < kernels_turns_median(out, 0, TURNS_NS);
    return CRUMB_OK;
}

enum { LEAST_BYTES = 4000000, MAX_MATRICES = CLI_LIST_MAX };
static const char not_judged[] = "not judged: 4 MB or less";

/* What is wanted of the chosen kernel, and of the tiers that owners of Arc cards have, forced. */
typedef struct gemv_target {
    const char *format;
    double wanted, wanted_ymm, wanted_avx2;
} gemv_target;

static const gemv_target gemv_targets[] = {
    {"1", 0.90, 0, 0}, {"1.58", 0.95, 0.92, 0.85}, {"2", 0.95, 0.92, 0.85}, {"4", 0.97, 0, 0}, {"8", 0.97, 0, 0},
};

/* One case: the matrices of a model, in one format. */
typedef struct gemv_case {
    const char *model;
    kernels_shape shapes[MAX_MATRICES];
    size_t n_shapes;
    bool all; /* those of LEAST_BYTES and less are timed as well, and not judged either */
} gemv_case;

static double wanted_of(const suite_state *s, const gemv_target *t, const char *forced) {
    const char *tier = forced ? forced : s->tier;
    if (tier && t->wanted_avx2 > 0 && strcmp(tier, "avx2") == 0) return t->wanted_avx2;
    if (tier && t->wanted_ymm > 0 && (strcmp(tier, "avxvnni") == 0 || strcmp(tier, "avx512ymm") == 0))
        return t->wanted_ymm;
    return t->wanted;
}

static uint64_t code_bytes(const char *format, kernels_shape shape) {
    return (uint64_t)shape.m * shape.k * crumb_kernel_format_find(format)->bits / 8;
}

static crumb_status gemv_row(suite_state *s, const char *model, const gemv_target *t, kernels_shape shape,
                             const char *forced, crumb_error *err) {
    const crumb_kernel_problem p = suite_usual_problem(s, t->format, shape);
    const size_t kernel = suite_pick(s, &p, forced ? forced : s->tier);
    suite_row row = {.section = "gemv", .unit = "GB/s", .baseline_name = "read"};
    kernels_turns turns = {0};
    char name[16];
    const bool large = code_bytes(t->format, shape) > LEAST_BYTES;
    const bool dense = kernel != SIZE_MAX && strcmp(kernels_info(&s->choice, kernel).layout, "tile") != 0;
    if (large && (!dense || strcmp(t->format, "1.58") != 0)) row.wanted = wanted_of(s, t, forced);
    snprintf(row.what, sizeof row.what, "%s %u x %u, %s, %s", model, shape.m, shape.k,
             suite_weights_name(t->format, name),
             kernel == SIZE_MAX ? "no kernel" : kernels_info(&s->choice, kernel).name);
    if (kernel == SIZE_MAX) return suite_skip(s, &row, "no kernel takes it here", err);
    size_t way = 0;
    crumb_status status = take_ways(s, &p, kernel, &turns, &way, err);
    if (status == CRUMB_OK) {
        const char *divided = way ? "in equal shares" : "in chunks";
        row.n_bytes = kernels_turns_bytes(&turns, way);
        row.measured = (double)row.n_bytes / kernels_turns_median(&turns, way, TURNS_NS);
        row.baseline = row.read_gb_s = kernels_turns_median(&turns, way, TURNS_READ_GB_S);
        row.ratio = kernels_turns_median(&turns, way, TURNS_READ_SHARE);
        suite_alone(&row, &turns, way, SIZE_MAX, TURNS_READ_SHARE);
        snprintf(row.note, sizeof row.note, "%s", divided);
        if (p.group) snprintf(row.note, sizeof row.note, "scales per %u, %s", p.group, divided);
        if (!large) snprintf(row.note, sizeof row.note, "%s", not_judged);
        if (large && row.wanted <= 0) snprintf(row.note, sizeof row.note, "judged by its weights per second, below");
        status = suite_row_add(s, &row, err);
    }
    kernels_turns_destroy(&turns);
    return status;
}

/* The chosen tier's kernel, and those that the target names for lower tiers. */
static crumb_status gemv_tiers(suite_state *s, const char *model, const gemv_target *t, kernels_shape shape,
                               crumb_error *err) {
    const crumb_kernel_problem p = suite_usual_problem(s, t->format, shape);
    const char *forced[SUITE_LOWER_TIERS];
    const size_t n = t->wanted_avx2 > 0 ? suite_lower_tiers(s, &p, forced) : 0;
    CRUMB_TRY(gemv_row(s, model, t, shape, NULL, err));
    for (size_t i = 0; i < n; i++) CRUMB_TRY(gemv_row(s, model, t, shape, forced[i], err));
    return CRUMB_OK;
}

static const char dense_ternary[] = "ternary at 1.6 bits";

/* Ternary codes packed into fewer bits than two, against the kernel of two. */
static crumb_status ternary_row(suite_state *s, const char *model, kernels_shape shape, crumb_error *err) {
    const crumb_kernel_problem p = suite_problem(s, "1.58", 0, shape);
    const size_t two_bits = pick_in(s, &p, s->tier, "tile"), dense = pick_in(s, &p, s->tier, "index");
    suite_row row = {.section = "gemv", .unit = "Gweights/s", .wanted = 1.15, .factor = true};
    kernels_turns turns = {0};
    snprintf(row.what, sizeof row.what, "%s %u x %u, %s", model, shape.m, shape.k, dense_ternary);
    if (dense == SIZE_MAX || two_bits == SIZE_MAX) return suite_skip(s, &row, "no kernel", err);
    crumb_status status = suite_turns(s, &p, dense, two_bits, s->rounds, &turns, err);
    if (status == CRUMB_OK) {
        row.n_bytes = kernels_turns_bytes(&turns, 0);
        row.read_gb_s = kernels_turns_median(&turns, 0, TURNS_READ_GB_S);
        row.measured = kernels_turns_gops(&turns, 0) / 2;
        row.baseline = kernels_turns_gops(&turns, 1) / 2;
        snprintf(row.baseline_name, sizeof row.baseline_name, "%s", turns.series[1].info.name);
        row.ratio = kernels_turns_ratio(&turns, 1, 0, TURNS_NS);
        suite_alone(&row, &turns, 1, 0, TURNS_NS);
        snprintf(row.note, sizeof row.note, "%s", turns.series[0].info.name);
        status = suite_row_add(s, &row, err);
    }
    kernels_turns_destroy(&turns);
    return status;
}

static bool is_timed(const gemv_case *c, const char *format, kernels_shape shape) {
    return c->all || code_bytes(format, shape) > LEAST_BYTES;
}

/* A matrix that is not timed, so that none of the model's is missing. */
static crumb_status small_row(suite_state *s, const char *model, const char *weights, kernels_shape shape,
                              crumb_error *err) {
    suite_row row = {.section = "gemv", .unit = "GB/s"};
    snprintf(row.what, sizeof row.what, "%s %u x %u, %s", model, shape.m, shape.k, weights);
    return suite_skip(s, &row, not_judged, err);
}

static crumb_status gemv_model(suite_state *s, const gemv_case *c, crumb_error *err) {
    char name[16];
    for (size_t t = 0; t < sizeof gemv_targets / sizeof gemv_targets[0]; t++) {
        const gemv_target *target = &gemv_targets[t];
        if (!suite_wants_format(s, target->format) || !suite_case(s, "gemv/%s/%s", c->model, target->format)) continue;
        for (size_t i = 0; i < c->n_shapes; i++)
            CRUMB_TRY(is_timed(c, target->format, c->shapes[i])
                          ? gemv_tiers(s, c->model, target, c->shapes[i], err)
                          : small_row(s, c->model, suite_weights_name(target->format, name), c->shapes[i], err));
    }
    if (!suite_wants_format(s, "1.58") || !suite_case(s, "gemv/%s/1.6", c->model)) return CRUMB_OK;
    for (size_t i = 0; i < c->n_shapes; i++)
        CRUMB_TRY(is_timed(c, "1.58", c->shapes[i]) ? ternary_row(s, c->model, c->shapes[i], err)
                                                    : small_row(s, c->model, dense_ternary, c->shapes[i], err));
    return CRUMB_OK;
}

static void add_shape(gemv_case *c, uint32_t m, uint32_t k) {
    for (size_t i = 0; i < c->n_shapes; i++)
        if (c->shapes[i].m == m && c->shapes[i].k == k) return;
    c->shapes[c->n_shapes++] = (kernels_shape){m, k, 1};
}

static crumb_status shapes_of_model(const char *model, gemv_case *c, crumb_error *err) {
    char spec[64];
    crumb_hparams h;
    uint64_t n_bytes;
    *c = (gemv_case){.model = model};
    snprintf(spec, sizeof spec, "%s:u2", model);
    CRUMB_TRY(crumb_engine_synthetic_size(spec, &h, &n_bytes, err));
    add_shape(c, h.num_attention_heads * h.head_dim, h.hidden_size);
    add_shape(c, h.num_key_value_heads * h.head_dim, h.hidden_size);
    add_shape(c, h.hidden_size, h.num_attention_heads * h.head_dim);
    add_shape(c, h.intermediate_size, h.hidden_size);
    add_shape(c, h.hidden_size, h.intermediate_size);
    return CRUMB_OK;
}

crumb_status suite_gemv(suite_state *s, crumb_error *err) {
    gemv_case c = {.model = "shape", .all = true};
    for (size_t i = 0; i < s->choice.n_shapes; i++)
        if (s->choice.shapes[i].n == 1) c.shapes[c.n_shapes++] = s->choice.shapes[i];
    if (s->choice.n_shapes > 0) return c.n_shapes > 0 ? gemv_model(s, &c, err) : CRUMB_OK;
    for (size_t i = 0; i < N_MODEL_SHAPES; i++) {
        CRUMB_TRY(shapes_of_model(model_shapes[i], &c, err));
        CRUMB_TRY(gemv_model(s, &c, err));
    }
    return CRUMB_OK;
}
