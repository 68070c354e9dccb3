/* Whole models: what decoding and reading a prompt reach of the machine's limits, what a context costs, and what fewer
 * bits gain over bf16. */
#include "tools/crumb/suite_model.h"

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/engine/engine.h"

#include <string.h>

static const char *const standard_model = "falcon3-1b:ternary"; /* where the options name none */

static void begin_row(suite_row *row, const char *section, const char *unit, const suite_model *m) {
    *row = (suite_row){.section = section, .unit = unit, .head = m->info.head_type};
    row->read_gb_s = suite_model_median(m, MODEL_READ_GB_S);
    row->tuning = m->suite->tuning;
}

/* The row's ratio, of all rounds and of those without another thread on its cores. */
static void set_ratio(suite_row *row, const suite_model *m, suite_model_fn *of) {
    row->ratio = suite_model_median_of(m, of, NULL);
    row->n_rounds = suite_model_median(m, MODEL_REORDER) > 0 ? m->suite->rounds : 0;
    row->alone_ratio = suite_model_alone(m, of, NULL, &row->n_alone);
}

/* Nothing is taken out of caches between tokens: what one reads is gone when the next one wants it only where that is
 * much more than they hold. Added to the row's note. */
static void say_cached(suite_row *row, const suite_model *m) {
    const uint64_t cached = crumb_probe_cached_bytes(m->probe);
    const size_t used = strlen(row->note);
    if (m->info.decode_bytes >= cached) return;
    snprintf(row->note + used, sizeof row->note - used,
             "%snot all from memory: a token reads %.1f MB, less than 4 times the last-level cache's %.0f",
             used ? "; " : "", (double)m->info.decode_bytes * 1e-6, (double)cached / 4 * 1e-6);
}

/* A model that does not fit is a row that says so, and no failure. */
static crumb_status skip_for_memory(suite_state *s, const char *section, const char *what, double wanted,
                                    crumb_status status, crumb_error *err) {
    suite_row row = {.section = section, .wanted = wanted, .skipped = true};
    if (status != CRUMB_ERR_MEMORY) return status;
    snprintf(row.what, sizeof row.what, "%s", what);
    snprintf(row.note, sizeof row.note, "skipped: %.140s", err->message);
    cli_note("%s: %s: %s", section, what, err->message);
    return suite_row_add(s, &row, err);
}

static double tokens_per_second(const suite_model *m, size_t round, const void *x) {
    (void)x;
    return 1e9 / suite_model_value(m, MODEL_TOKEN_NS, round);
}

/* Bytes of a token over its time, of what memory delivers. */
static double decode_share(const suite_model *m, size_t round, const void *x) {
    (void)x;
    return (double)m->info.decode_bytes / suite_model_value(m, MODEL_TOKEN_NS, round) /
           suite_model_value(m, MODEL_READ_GB_S, round);
}

/* ---- the layers' matrices ---------------------------------------------------------------------------------- */

static uint64_t layers_bytes(const suite_model *m) {
    return m->info.decode_bytes - crumb_engine_head_bytes(m->model);
}

static double layers_share(const suite_model *m, size_t round, const void *x) {
    (void)x;
    return (double)layers_bytes(m) / suite_model_value(m, MODEL_LAYERS_NS, round) /
           suite_model_value(m, MODEL_READ_GB_S, round);
}

static crumb_status layer_row(suite_state *s, const char *spec, crumb_error *err) {
    const double wanted = 0.90;
    suite_model m;
    suite_row row;
    crumb_status status = suite_model_open(s, NULL, spec, 0, 0, &m, err);
    if (status == CRUMB_OK) status = suite_model_run(&m, err);
    if (status == CRUMB_OK) {
        begin_row(&row, "layer", "GB/s", &m);
        row.head = NULL; /* not part of it */
        row.wanted = wanted;
        row.n_bytes = layers_bytes(&m) / m.info.n_layers;
        row.measured = (double)layers_bytes(&m) / suite_model_median(&m, MODEL_LAYERS_NS);
        row.baseline = row.read_gb_s;
        set_ratio(&row, &m, layers_share);
        snprintf(row.what, sizeof row.what, "%s, a layer's matrices in decoding", spec);
        snprintf(row.baseline_name, sizeof row.baseline_name, "read");
        snprintf(row.note, sizeof row.note,
                 "time with norms, quantization and gates; in the same steps %.1f GB/s are read",
                 suite_model_median(&m, MODEL_STEPS_GB_S));
        say_cached(&row, &m);
        status = suite_row_add(s, &row, err);
    }
    suite_model_close(&m);
    return status == CRUMB_OK ? status : skip_for_memory(s, "layer", spec, wanted, status, err);
}

crumb_status suite_layer(suite_state *s, crumb_error *err) {
    static const char *const shapes[] = {"falcon3-1b", "mobilellm-1.5b"};
    static const char *const types[][2] = {{"u1", "1"}, {"ternary", "1.58"}, {"u2", "2"}, {"u4", "4"}, {"i8", "8"}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s:%s:i8", shapes[i], types[t][0]);
            if (suite_wants_format(s, types[t][1]) && suite_case(s, "layer/%s/%s", shapes[i], types[t][1]))
                CRUMB_TRY(layer_row(s, spec, err));
        }
    return CRUMB_OK;
}

/* ---- end to end -------------------------------------------------------------------------------------------- */

static crumb_status decode_row(suite_state *s, const suite_model *m, const char *name, crumb_error *err) {
    suite_row row;
    begin_row(&row, "model", "tok/s", m);
    row.wanted = 0.92;
    row.n_bytes = m->info.decode_bytes;
    row.measured = suite_model_median_of(m, tokens_per_second, NULL);
    row.baseline = row.read_gb_s * 1e9 / (double)row.n_bytes;
    set_ratio(&row, m, decode_share);
    snprintf(row.what, sizeof row.what, "%s, decoding", name);
    snprintf(row.baseline_name, sizeof row.baseline_name, "at the read rate");
    say_cached(&row, m);
    return suite_row_add(s, &row, err);
}

/* Operations of the prompt in the layers' matrices. */
static double prompt_gop(const suite_model *m) {
    return 2e-9 * (double)crumb_engine_layer_macs(m->model) * m->n_prompt;
}

static double prompt_share(const suite_model *m, size_t round, const void *x) {
    (void)x;
    return prompt_gop(m) / (suite_model_value(m, MODEL_PROMPT_NS, round) * 1e-9) /
           suite_model_value(m, MODEL_PEAK_GOPS, round);
}

static crumb_status prompt_row(suite_state *s, const suite_model *m, const char *name, crumb_error *err) {
    suite_row row;
    begin_row(&row, "model", "tok/s", m);
    row.peak_gops = suite_model_median(m, MODEL_PEAK_GOPS);
    if (row.peak_gops <= 0 || m->model->net.layers[0].ffn_up.matrix.bits == 0) return CRUMB_OK; /* not in int8 */
    row.measured = 1e9 * m->n_prompt / suite_model_median(m, MODEL_PROMPT_NS);
    row.baseline = row.peak_gops * m->n_prompt / prompt_gop(m);
    row.ratio = suite_model_median_of(m, prompt_share, NULL);
    snprintf(row.what, sizeof row.what, "%s, reading a prompt of %u", name, m->n_prompt);
    snprintf(row.baseline_name, sizeof row.baseline_name, "at the int8 peak");
    snprintf(row.note, sizeof row.note, "for information: the targets are the peers");
    return suite_row_add(s, &row, err);
}

static crumb_status model_rows(suite_state *s, const char *path, const char *synthetic, crumb_error *err) {
    const char *name = synthetic ? synthetic : path ? cli_file_name(path) : "the embedded model";
    const int64_t n_prompt = s->options->bench_prompt.n ? s->options->bench_prompt.value[0] : 0;
    suite_model m;
    if (!suite_case(s, "model/%s", name)) return CRUMB_OK;
    crumb_status status = suite_model_open(s, path, synthetic, (uint32_t)n_prompt, 0, &m, err);
    if (status == CRUMB_OK) status = suite_model_run(&m, err);
    if (status == CRUMB_OK) status = decode_row(s, &m, name, err);
    if (status == CRUMB_OK && n_prompt > 0) status = prompt_row(s, &m, name, err);
    suite_model_close(&m);
    return status == CRUMB_OK ? status : skip_for_memory(s, "model", name, 0.92, status, err);
}

crumb_status suite_models(suite_state *s, crumb_error *err) {
    static const char *const standard[] = {"falcon3-1b:ternary",
                                           "falcon3-1b:ternary:i8"}; /* the head as f16, as int8 */
    const cli_options *o = s->options;
    for (size_t i = 0; i < o->bench_models.n; i++) CRUMB_TRY(model_rows(s, o->bench_models.value[i], NULL, err));
    for (size_t i = 0; i < o->synthetic.n; i++) CRUMB_TRY(model_rows(s, NULL, o->synthetic.value[i], err));
    for (size_t i = 0; i < 2 && o->bench_models.n + o->synthetic.n == 0; i++)
        CRUMB_TRY(model_rows(s, NULL, standard[i], err));
    return CRUMB_OK;
}

/* ---- behind a full context --------------------------------------------------------------------------------- */

/* Nanoseconds that a token behind the full context takes more than one behind none. */
static double depth_cost(const suite_model *m, size_t round, const void *x) {
    const crumb_kv_type *type = x;
    return suite_model_value(m, (model_measure)(MODEL_DEEP_NS + *type), round) -
           suite_model_value(m, MODEL_TOKEN_NS, round);
}

static double depth_share(const suite_model *m, size_t round, const void *x) {
    const crumb_kv_type *type = x;
    return (double)m->kv_bytes[*type] / suite_model_value(m, MODEL_READ_GB_S, round) / depth_cost(m, round, x);
}

static double depth_gain(const suite_model *m, size_t round, const void *x) {
    const crumb_kv_type f16 = CRUMB_KV_F16, q8 = CRUMB_KV_Q8;
    (void)x;
    return depth_cost(m, round, &f16) / depth_cost(m, round, &q8);
}

static const double within = 1.15; /* of what bytes and bandwidth explain */

static crumb_status depth_row(suite_state *s, const suite_model *m, const char *name, crumb_kv_type type,
                              crumb_error *err) {
    suite_row row;
    begin_row(&row, "depth", "ms", m);
    row.wanted = 1 / within;
    row.n_bytes = m->kv_bytes[type];
    row.measured = suite_model_median_of(m, depth_cost, &type) * 1e-6;
    row.baseline = (double)row.n_bytes / row.read_gb_s * 1e-6;
    row.ratio = suite_model_median_of(m, depth_share, &type);
    snprintf(row.what, sizeof row.what, "%s, what %u tokens before it cost a token, %s", name, m->depth,
             type == CRUMB_KV_Q8 ? "q8" : "f16");
    snprintf(row.baseline_name, sizeof row.baseline_name, "to read keys and values");
    return suite_row_add(s, &row, err);
}

static crumb_status depth_gain_row(suite_state *s, const suite_model *m, const char *name, crumb_error *err) {
    const crumb_kv_type f16 = CRUMB_KV_F16, q8 = CRUMB_KV_Q8;
    suite_row row;
    begin_row(&row, "depth", "ms", m);
    row.wanted = 2 / within;
    row.factor = true;
    row.measured = suite_model_median_of(m, depth_cost, &q8) * 1e-6;
    row.baseline = suite_model_median_of(m, depth_cost, &f16) * 1e-6;
    row.ratio = suite_model_median_of(m, depth_gain, NULL);
    snprintf(row.what, sizeof row.what, "%s, the same, q8 against f16", name);
    snprintf(row.baseline_name, sizeof row.baseline_name, "with f16");
    return suite_row_add(s, &row, err);
}

static crumb_status depth_rows(suite_state *s, const char *path, const char *synthetic, uint32_t depth,
                               crumb_error *err) {
    const char *name = synthetic ? synthetic : cli_file_name(path);
    suite_model m;
    crumb_status status = suite_model_open(s, path, synthetic, 0, depth, &m, err);
    if (status == CRUMB_OK) status = suite_model_run(&m, err);
    for (int i = 0; i < SUITE_KV_TYPES && status == CRUMB_OK; i++)
        status = depth_row(s, &m, name, (crumb_kv_type)i, err);
    if (status == CRUMB_OK) status = depth_gain_row(s, &m, name, err);
    suite_model_close(&m);
    return status == CRUMB_OK ? status : skip_for_memory(s, "depth", name, 1 / within, status, err);
}

crumb_status suite_depth(suite_state *s, crumb_error *err) {
    static const cli_ints standard = {.value = {4096, 16384}, .n = 2};
    const cli_options *o = s->options;
    const cli_ints *depths = o->bench_depth.n == 1 && o->bench_depth.value[0] == 0 ? &standard : &o->bench_depth;
    const char *path = o->bench_models.n ? o->bench_models.value[0] : NULL;
    const char *synthetic = path ? NULL : o->synthetic.n ? o->synthetic.value[0] : standard_model;
    for (size_t i = 0; i < depths->n; i++)
        if (depths->value[i] > 0 && suite_case(s, "depth/%lld", (long long)depths->value[i]))
            CRUMB_TRY(depth_rows(s, path, synthetic, (uint32_t)depths->value[i], err));
    return CRUMB_OK;
}

/* ---- the paper's CPU figure -------------------------------------------------------------------------------- */

/* What the bf16 run says of the others. */
typedef struct paper_base {
    const suite_model *model; /* measured in the same rounds; NULL: before, or not at all */
    double share;             /* of the read rate that it decodes at; 0: it was not run */
    double alpha;             /* part of a token's time that GEMVs take */
    uint64_t n_bytes;
} paper_base;

static double gemv_share(const suite_model *m, size_t round, const void *x) {
    (void)x;
    return suite_model_value(m, MODEL_GEMV_NS, round) / suite_model_value(m, MODEL_TOKEN_NS, round);
}

static void read_base(const suite_model *m, bool in_turns, paper_base *out) {
    *out = (paper_base){.model = in_turns ? m : NULL, .n_bytes = m->info.decode_bytes};
    out->share = suite_model_median_of(m, decode_share, NULL);
    out->alpha = suite_model_median_of(m, gemv_share, NULL);
}

/* Amdahl: only the GEMVs' time shrinks, and as their bytes do. */
static double ideal_speedup(const suite_model *m, const paper_base *base) {
    return 1 / (1 - base->alpha + base->alpha * (double)m->info.decode_bytes / (double)base->n_bytes);
}

/* Tokens a second over those of bf16. Where the models do not fit into memory together, each run is divided by the read
 * rate of its own rounds, so that a machine that drifts between them changes little. */
static double speedup(const suite_model *m, size_t round, const void *x) {
    const paper_base *base = x;
    const double token_ns = suite_model_value(m, MODEL_TOKEN_NS, round);
    if (base->model) return suite_model_value(base->model, MODEL_TOKEN_NS, round) / token_ns;
    return (double)base->n_bytes / base->share / (token_ns * suite_model_value(m, MODEL_READ_GB_S, round));
}

static crumb_status paper_row(suite_state *s, const suite_model *m, const char *spec, const paper_base *base,
                              bool is_base, crumb_error *err) {
    suite_row row;
    begin_row(&row, "paper", "tok/s", m);
    row.n_bytes = m->info.decode_bytes;
    row.measured = suite_model_median_of(m, tokens_per_second, NULL);
    snprintf(row.what, sizeof row.what, "%s", spec);
    if (base->share > 0 && !is_base) {
        const double reached = suite_model_median_of(m, speedup, base), ideal = ideal_speedup(m, base);
        row.ratio = reached / ideal;
        row.baseline = row.measured / row.ratio;
        snprintf(row.baseline_name, sizeof row.baseline_name, "Amdahl's ideal");
        snprintf(row.note, sizeof row.note, "%.2f x bf16, ideal %.2f x by alpha %.3f and bytes%s", reached, ideal,
                 base->alpha, base->model ? "" : ", not in turns: too large");
    } else {
        row.ratio = suite_model_median_of(m, decode_share, NULL);
        row.baseline = row.read_gb_s * 1e9 / (double)row.n_bytes;
        snprintf(row.baseline_name, sizeof row.baseline_name, "at the read rate");
        snprintf(row.note, sizeof row.note, "no alpha and no ideal: bf16 was skipped");
        if (is_base) snprintf(row.note, sizeof row.note, "alpha %.3f", base->alpha);
    }
    say_cached(&row, m);
    return suite_row_add(s, &row, err);
}

enum { N_PAPER_TYPES = 4, MAX_SPEC = 64 };

static void paper_spec(const char *shape, size_t type, char out[MAX_SPEC]) {
    static const char *const types[N_PAPER_TYPES] = {"bf16", "mxfp4", "u2", "u1"};
    snprintf(out, MAX_SPEC, "%s:%s", shape, types[type]);
}

static crumb_status fit_together(const char *shape, bool *fit, crumb_error *err) {
    uint64_t sum = 0, n_bytes;
    for (size_t i = 0; i < N_PAPER_TYPES; i++) {
        char spec[MAX_SPEC];
        paper_spec(shape, i, spec);
        CRUMB_TRY(suite_model_bytes(spec, &n_bytes, err));
        sum += n_bytes;
    }
    *fit = sum <= crumb_memory_available_bytes();
    return CRUMB_OK;
}

/* All types in turns, and their rows. */
static crumb_status paper_in_turns(suite_state *s, const char *shape, crumb_error *err) {
    suite_model models[N_PAPER_TYPES] = {{0}};
    paper_base base;
    char spec[MAX_SPEC];
    crumb_status status = CRUMB_OK;
    for (size_t i = 0; i < N_PAPER_TYPES && status == CRUMB_OK; i++) {
        paper_spec(shape, i, spec);
        status = suite_model_open(s, NULL, spec, 0, 0, &models[i], err);
    }
    for (size_t round = 0; round < s->rounds && status == CRUMB_OK; round++)
        for (size_t i = 0; i < N_PAPER_TYPES && status == CRUMB_OK; i++)
            status = suite_model_round(&models[i], round, err);
    if (status == CRUMB_OK) read_base(&models[0], true, &base);
    for (size_t i = 0; i < N_PAPER_TYPES && status == CRUMB_OK; i++) {
        paper_spec(shape, i, spec);
        status = paper_row(s, &models[i], spec, &base, i == 0, err);
    }
    for (size_t i = 0; i < N_PAPER_TYPES; i++) suite_model_close(&models[i]);
    return status;
}

/* One after the other, and those that do not fit alone are skipped. */
static crumb_status paper_one_by_one(suite_state *s, const char *shape, crumb_error *err) {
    paper_base base = {0};
    for (size_t i = 0; i < N_PAPER_TYPES; i++) {
        suite_model m;
        char spec[MAX_SPEC];
        paper_spec(shape, i, spec);
        crumb_status status = suite_model_open(s, NULL, spec, 0, 0, &m, err);
        if (status == CRUMB_OK) status = suite_model_run(&m, err);
        if (status == CRUMB_OK && i == 0) read_base(&m, false, &base);
        if (status == CRUMB_OK) status = paper_row(s, &m, spec, &base, i == 0, err);
        suite_model_close(&m);
        if (status != CRUMB_OK) CRUMB_TRY(skip_for_memory(s, "paper", spec, 0, status, err));
    }
    return CRUMB_OK;
}

crumb_status suite_paper(suite_state *s, crumb_error *err) {
    static const char *const shapes[] = {"mobilellm-1.5b", "falcon3-1b", "llama3-8b"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (!suite_case(s, "paper/%s", shapes[i])) continue;
        bool fit;
        CRUMB_TRY(fit_together(shapes[i], &fit, err));
        CRUMB_TRY(fit ? paper_in_turns(s, shapes[i], err) : paper_one_by_one(s, shapes[i], err));
    }
    return CRUMB_OK;
}
