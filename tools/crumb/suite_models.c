/* Whole models: what decoding and reading a prompt reach of the machine's limits, what a context costs, and what fewer
 * bits gain over bf16. */
#include "tools/crumb/suite_model.h"

#include "host/base/error.h"
#include "host/engine/engine.h"

#include <string.h>

static const char *const standard_model = "falcon3-1b:ternary"; /* where the options name none */

static void begin_row(suite_row *row, const char *section, const char *unit, const suite_model *m) {
    *row = (suite_row){.section = section, .unit = unit, .head = m->info.head_type};
    row->read_gb_s = suite_model_median(m, MODEL_READ_GB_S);
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

static double tokens_per_second(const double round[MODEL_N_MEASURES], const void *x) {
    (void)x;
    return 1e9 / round[MODEL_TOKEN_NS];
}

/* Bytes of a token over its time, of what memory delivers. */
static double decode_share(const double round[MODEL_N_MEASURES], const void *x) {
    const suite_model *m = x;
    return (double)m->info.decode_bytes / round[MODEL_TOKEN_NS] / round[MODEL_READ_GB_S];
}

/* ---- the layers' matrices ---------------------------------------------------------------------------------- */

static uint64_t layers_bytes(const suite_model *m) {
    return m->info.decode_bytes - crumb_engine_head_bytes(m->model);
}

static double layers_share(const double round[MODEL_N_MEASURES], const void *x) {
    return (double)layers_bytes(x) / round[MODEL_LAYERS_NS] / round[MODEL_READ_GB_S];
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
        row.ratio = suite_model_median_of(&m, layers_share, &m);
        snprintf(row.what, sizeof row.what, "%s, a layer's matrices in decoding", spec);
        snprintf(row.baseline_name, sizeof row.baseline_name, "read");
        snprintf(row.note, sizeof row.note, "time with norms, quantization and gates");
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
    row.ratio = suite_model_median_of(m, decode_share, m);
    snprintf(row.what, sizeof row.what, "%s, decoding", name);
    snprintf(row.baseline_name, sizeof row.baseline_name, "at the read rate");
    return suite_row_add(s, &row, err);
}

/* Operations of the prompt in the layers' matrices. */
static double prompt_gop(const suite_model *m) {
    return 2e-9 * (double)crumb_engine_layer_macs(m->model) * m->n_prompt;
}

static double prompt_share(const double round[MODEL_N_MEASURES], const void *x) {
    return prompt_gop(x) / (round[MODEL_PROMPT_NS] * 1e-9) / round[MODEL_PEAK_GOPS];
}

static crumb_status prompt_row(suite_state *s, const suite_model *m, const char *name, crumb_error *err) {
    suite_row row;
    begin_row(&row, "model", "tok/s", m);
    row.peak_gops = suite_model_median(m, MODEL_PEAK_GOPS);
    if (row.peak_gops <= 0 || m->model->net.layers[0].ffn_up.matrix.bits == 0) return CRUMB_OK; /* not in int8 */
    row.measured = 1e9 * m->n_prompt / suite_model_median(m, MODEL_PROMPT_NS);
    row.baseline = row.peak_gops * m->n_prompt / prompt_gop(m);
    row.ratio = suite_model_median_of(m, prompt_share, m);
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

static double depth_share(const double round[MODEL_N_MEASURES], const void *x) {
    const suite_model *m = x;
    return (double)m->kv_bytes / round[MODEL_READ_GB_S] / (round[MODEL_DEEP_NS] - round[MODEL_TOKEN_NS]);
}

static double depth_cost_ms(const double round[MODEL_N_MEASURES], const void *x) {
    (void)x;
    return (round[MODEL_DEEP_NS] - round[MODEL_TOKEN_NS]) * 1e-6;
}

static crumb_status depth_row(suite_state *s, const char *path, const char *synthetic, uint32_t depth,
                              crumb_error *err) {
    const double wanted = 1 / 1.15;
    suite_model m;
    suite_row row;
    char what[128];
    snprintf(what, sizeof what, "%s, a token behind %u over an empty context",
             synthetic ? synthetic : cli_file_name(path), depth);
    crumb_status status = suite_model_open(s, path, synthetic, 0, depth, &m, err);
    if (status == CRUMB_OK) status = suite_model_run(&m, err);
    if (status == CRUMB_OK) {
        begin_row(&row, "depth", "ms", &m);
        row.wanted = wanted;
        row.n_bytes = m.kv_bytes;
        row.measured = suite_model_median_of(&m, depth_cost_ms, NULL);
        row.baseline = (double)m.kv_bytes / row.read_gb_s * 1e-6;
        row.ratio = suite_model_median_of(&m, depth_share, &m);
        snprintf(row.what, sizeof row.what, "%s", what);
        snprintf(row.baseline_name, sizeof row.baseline_name, "to read keys and values");
        status = suite_row_add(s, &row, err);
    }
    suite_model_close(&m);
    return status == CRUMB_OK ? status : skip_for_memory(s, "depth", what, wanted, status, err);
}

crumb_status suite_depth(suite_state *s, crumb_error *err) {
    static const cli_ints standard = {.value = {4096, 16384}, .n = 2};
    const cli_options *o = s->options;
    const cli_ints *depths = o->bench_depth.n == 1 && o->bench_depth.value[0] == 0 ? &standard : &o->bench_depth;
    const char *path = o->bench_models.n ? o->bench_models.value[0] : NULL;
    const char *synthetic = path ? NULL : o->synthetic.n ? o->synthetic.value[0] : standard_model;
    for (size_t i = 0; i < depths->n; i++)
        if (depths->value[i] > 0 && suite_case(s, "depth/%lld", (long long)depths->value[i]))
            CRUMB_TRY(depth_row(s, path, synthetic, (uint32_t)depths->value[i], err));
    return CRUMB_OK;
}

/* ---- the paper's CPU figure -------------------------------------------------------------------------------- */

/* What the bf16 run says of the others. */
typedef struct paper_base {
    double share; /* of the read rate that it decodes at; 0: it was not run */
    double alpha; /* part of a token's time that GEMVs take */
    uint64_t n_bytes;
} paper_base;

static double gemv_share(const double round[MODEL_N_MEASURES], const void *x) {
    (void)x;
    return round[MODEL_GEMV_NS] / round[MODEL_TOKEN_NS];
}

typedef struct paper_ideal {
    const suite_model *m;
    const paper_base *base;
} paper_ideal;

/* Amdahl: only the GEMVs' time shrinks, and as their bytes do. */
static double ideal_speedup(const paper_ideal *p) {
    return 1 / (1 - p->base->alpha + p->base->alpha * (double)p->m->info.decode_bytes / (double)p->base->n_bytes);
}

/* Tokens a second over those of bf16. The runs come one after the other, since they do not fit into memory together;
 * each is divided by the read rate of its own rounds, so that a machine that drifts between them changes nothing. */
static double speedup(const double round[MODEL_N_MEASURES], const void *x) {
    const paper_ideal *p = x;
    const double token_bytes = round[MODEL_TOKEN_NS] * round[MODEL_READ_GB_S];
    return (double)p->base->n_bytes / p->base->share / token_bytes;
}

static crumb_status paper_base_row(suite_state *s, const suite_model *m, paper_base *base, const char *spec,
                                   crumb_error *err) {
    suite_row row;
    begin_row(&row, "paper", "tok/s", m);
    base->share = row.ratio = suite_model_median_of(m, decode_share, m);
    base->alpha = suite_model_median_of(m, gemv_share, NULL);
    base->n_bytes = row.n_bytes = m->info.decode_bytes;
    row.measured = suite_model_median_of(m, tokens_per_second, NULL);
    row.baseline = row.read_gb_s * 1e9 / (double)row.n_bytes;
    snprintf(row.what, sizeof row.what, "%s", spec);
    snprintf(row.baseline_name, sizeof row.baseline_name, "at the read rate");
    snprintf(row.note, sizeof row.note, "alpha %.3f", base->alpha);
    return suite_row_add(s, &row, err);
}

static crumb_status paper_row(suite_state *s, const suite_model *m, const paper_base *base, const char *spec,
                              crumb_error *err) {
    const paper_ideal p = {.m = m, .base = base};
    suite_row row;
    begin_row(&row, "paper", "tok/s", m);
    row.n_bytes = m->info.decode_bytes;
    row.measured = suite_model_median_of(m, tokens_per_second, NULL);
    snprintf(row.what, sizeof row.what, "%s", spec);
    if (base->share > 0) {
        const double reached = suite_model_median_of(m, speedup, &p), ideal = ideal_speedup(&p);
        row.ratio = reached / ideal;
        row.baseline = row.measured / row.ratio;
        snprintf(row.baseline_name, sizeof row.baseline_name, "Amdahl's ideal");
        snprintf(row.note, sizeof row.note, "%.2f x bf16, ideal %.2f x by alpha %.3f and bytes", reached, ideal,
                 base->alpha);
    } else {
        row.ratio = suite_model_median_of(m, decode_share, m);
        row.baseline = row.read_gb_s * 1e9 / (double)row.n_bytes;
        snprintf(row.baseline_name, sizeof row.baseline_name, "at the read rate");
        snprintf(row.note, sizeof row.note, "no alpha and no ideal: bf16 was skipped");
    }
    return suite_row_add(s, &row, err);
}

static crumb_status paper_model(suite_state *s, const char *spec, bool is_base, paper_base *base, crumb_error *err) {
    suite_model m;
    crumb_status status = suite_model_open(s, NULL, spec, 0, 0, &m, err);
    if (status == CRUMB_OK) status = suite_model_run(&m, err);
    if (status == CRUMB_OK)
        status = is_base ? paper_base_row(s, &m, base, spec, err) : paper_row(s, &m, base, spec, err);
    suite_model_close(&m);
    return status == CRUMB_OK ? status : skip_for_memory(s, "paper", spec, 0, status, err);
}

crumb_status suite_paper(suite_state *s, crumb_error *err) {
    static const char *const shapes[] = {"mobilellm-1.5b", "falcon3-1b", "llama3-8b"};
    static const char *const types[] = {"bf16", "mxfp4", "u2", "u1"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        paper_base base = {0};
        if (!suite_case(s, "paper/%s", shapes[i])) continue;
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s:%s", shapes[i], types[t]);
            CRUMB_TRY(paper_model(s, spec, t == 0, &base, err));
        }
    }
    return CRUMB_OK;
}
