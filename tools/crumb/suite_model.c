#include "tools/crumb/suite_model.h"

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/engine/engine.h"

#include <math.h>
#include <stdlib.h>

enum { EMPTY_CONTEXT = 128, MOST_GEN = 64, ROUNDS_PER_PROMPT = 3 }; /* a prompt takes seconds */
static const double round_ns = 0.25e9;                              /* decoding, of a round */

/* ---- opening ----------------------------------------------------------------------------------------------- */

crumb_status suite_model_bytes(const char *spec, uint64_t *n_bytes, crumb_error *err) {
    const uint64_t reserve = UINT64_C(512) << 20; /* contexts, probe, activations */
    crumb_hparams hparams;
    CRUMB_TRY(crumb_engine_synthetic_size(spec, &hparams, n_bytes, err));
    *n_bytes += reserve;
    return CRUMB_OK;
}

/* A synthetic model would be made in memory that the system hands out although it does not have it. */
static crumb_status check_memory(const char *spec, crumb_error *err) {
    const uint64_t available = crumb_memory_available_bytes();
    uint64_t n_bytes;
    CRUMB_TRY(suite_model_bytes(spec, &n_bytes, err));
    if (n_bytes <= available) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_MEMORY, "%s takes %.1f GB, and %.1f GB are free", spec, (double)n_bytes * 1e-9,
                      (double)available * 1e-9);
}

static crumb_status make_tokens(suite_model *m, crumb_error *err) {
    const uint32_t n = m->depth > m->n_prompt ? m->depth : m->n_prompt;
    uint64_t random = 1;
    m->tokens = malloc((n + MOST_GEN) * sizeof *m->tokens);
    if (!m->tokens) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %u tokens", n);
    for (uint32_t i = 0; i < n + MOST_GEN; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        m->tokens[i] = (int32_t)((random >> 33) % m->info.n_vocab);
    }
    return CRUMB_OK;
}

static crumb_session_params session_params(const suite_model *m, uint32_t n_ctx) {
    crumb_session_params params = cli_session_params(m->suite->options);
    params.n_ctx = n_ctx;
    params.n_batch = 512;
    params.n_threads = params.n_threads_batch = m->suite->n_threads;
    return params;
}

static crumb_status feed_one_by_one(suite_model *m, crumb_session *s, uint32_t n, double *ns, crumb_error *err) {
    const uint64_t began = crumb_now_ns();
    for (uint32_t i = 0; i < n; i++) CRUMB_TRY(crumb_session_feed(s, &m->tokens[i], 1, err));
    *ns = (double)(crumb_now_ns() - began) / n;
    return CRUMB_OK;
}

/* As many tokens a round as take a quarter of a second, so that all models take about as long. The first token of a
 * session comes with the pages of its memory. */
static crumb_status choose_n_gen(suite_model *m, crumb_error *err) {
    double ns = 0;
    for (int i = 0; i < 2; i++) CRUMB_TRY(feed_one_by_one(m, m->session, 1, &ns, err));
    m->n_gen = ns * MOST_GEN <= round_ns ? MOST_GEN : ns >= round_ns ? 1 : (uint32_t)(round_ns / ns);
    return CRUMB_OK;
}

static crumb_status make_deep_session(suite_model *m, crumb_kv_type type, crumb_error *err) {
    crumb_session_params params = session_params(m, m->depth + MOST_GEN);
    crumb_session_stats stats;
    params.kv_type = type;
    CRUMB_TRY(crumb_session_create(m->model, &params, &m->deep[type], err));
    crumb_session_get_stats(m->deep[type], &stats);
    m->kv_bytes[type] = stats.kv_bytes / params.n_ctx * m->depth;
    if (stats.kv_bytes > crumb_memory_available_bytes()) /* its pages are there only when they are written */
        return crumb_fail(err, CRUMB_ERR_MEMORY, "a context of %u takes %.1f GB, and %.1f GB are free", m->depth,
                          (double)stats.kv_bytes * 1e-9, (double)crumb_memory_available_bytes() * 1e-9);
    return crumb_session_feed(m->deep[type], m->tokens, m->depth, err);
}

static crumb_status set_up(suite_model *m, crumb_error *err) {
    const size_t rounds = m->suite->rounds;
    crumb_model_get_info(m->model, &m->info);
    m->values = calloc(MODEL_N_MEASURES * rounds, sizeof *m->values);
    m->sorted = calloc(rounds, sizeof *m->sorted);
    if (!m->values || !m->sorted) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu rounds", rounds);
    CRUMB_TRY(make_tokens(m, err));
    CRUMB_TRY(crumb_probe_create(m->suite->n_threads, m->suite->options->cpu_kind, &m->probe, err));
    CRUMB_TRY(crumb_probe_add_memory(m->probe, err));
    const crumb_session_params params = session_params(m, m->n_prompt > EMPTY_CONTEXT ? m->n_prompt : EMPTY_CONTEXT);
    CRUMB_TRY(crumb_session_create(m->model, &params, &m->session, err));
    CRUMB_TRY(choose_n_gen(m, err));
    for (int i = 0; i < SUITE_KV_TYPES && m->depth; i++) CRUMB_TRY(make_deep_session(m, (crumb_kv_type)i, err));
    return CRUMB_OK;
}

crumb_status suite_model_open(const suite_state *s, const char *path, const char *synthetic, uint32_t n_prompt,
                              uint32_t depth, suite_model *out, crumb_error *err) {
    *out = (suite_model){.suite = s, .n_prompt = n_prompt, .depth = depth};
    if (synthetic) CRUMB_TRY(check_memory(synthetic, err));
    CRUMB_TRY(cli_model_open(s->options, path, synthetic, s->n_threads, n_prompt, &out->model, err));
    return set_up(out, err);
}

void suite_model_close(suite_model *m) {
    crumb_session_destroy(m->session);
    for (size_t i = 0; i < SUITE_KV_TYPES; i++) crumb_session_destroy(m->deep[i]);
    crumb_probe_destroy(m->probe);
    crumb_model_close(m->model);
    free(m->tokens);
    free(m->values);
    free(m->sorted);
    *m = (suite_model){0};
}

/* ---- rounds ------------------------------------------------------------------------------------------------ */

static crumb_status decode(suite_model *m, double value[MODEL_N_MEASURES], crumb_error *err) {
    crumb_plan_times times = {0};
    CRUMB_TRY(crumb_session_rewind(m->session, 0, err));
    crumb_engine_session_measure(m->session, &times);
    crumb_status status = feed_one_by_one(m, m->session, m->n_gen, &value[MODEL_TOKEN_NS], err);
    crumb_engine_session_measure(m->session, NULL);
    CRUMB_TRY(status);
    value[MODEL_LAYERS_NS] = (double)times.linear_ns / (double)times.n_replays;
    value[MODEL_GEMV_NS] = (double)(times.linear_ns + times.head_ns) / (double)times.n_replays;
    return CRUMB_OK;
}

static crumb_status read_prompt(suite_model *m, double *ns, crumb_error *err) {
    CRUMB_TRY(crumb_session_rewind(m->session, 0, err));
    const uint64_t began = crumb_now_ns();
    CRUMB_TRY(crumb_session_feed(m->session, m->tokens, m->n_prompt, err));
    *ns = (double)(crumb_now_ns() - began);
    return CRUMB_OK;
}

/* Bytes of the first layer's matrices, by the steps that a plan reads them in. */
enum { LAYER_STEPS = 4 };
static void layer_steps(const suite_model *m, uint64_t bytes[LAYER_STEPS]) {
    const crumb_layer *l = m->model->net.layers;
    const crumb_weight *steps[LAYER_STEPS][3] = {
        {&l->attn_q, &l->attn_k, &l->attn_v}, {&l->attn_output}, {&l->ffn_gate, &l->ffn_up}, {&l->ffn_down}};
    for (int i = 0; i < LAYER_STEPS; i++) {
        bytes[i] = 0;
        for (int j = 0; j < 3 && steps[i][j]; j++) {
            const crumb_matrix_bytes n = crumb_matrix_get_bytes(&steps[i][j]->matrix);
            bytes[i] += n.codes + n.scales + n.mins;
        }
    }
}

/* At a stretch, or `in_steps` of a layer. A pass takes a millisecond, and decoding a quarter of a second: a few of them
 * say more. */
static double read_roof(suite_model *m, bool in_steps) {
    enum { PASSES = 5 };
    double gb_s[PASSES];
    uint64_t bytes[LAYER_STEPS];
    layer_steps(m, bytes);
    for (int i = 0; i < PASSES; i++)
        gb_s[i] = in_steps ? crumb_probe_read_steps(m->probe, bytes, LAYER_STEPS) : crumb_probe_read(m->probe);
    return cli_median(gb_s, PASSES);
}

static crumb_status run_once(suite_model *m, bool prompt, double value[MODEL_N_MEASURES], crumb_error *err) {
    crumb_isa isa;
    if (cli_interrupted(NULL)) return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted");
    const double before = read_roof(m, false);
    const uint32_t reorder = crumb_probe_reorder(m->probe);
    CRUMB_TRY(decode(m, value, err));
    for (size_t i = 0; i < SUITE_KV_TYPES && m->depth; i++) {
        CRUMB_TRY(crumb_session_rewind(m->deep[i], m->depth, err));
        CRUMB_TRY(feed_one_by_one(m, m->deep[i], m->n_gen, &value[MODEL_DEEP_NS + i], err));
    }
    const uint32_t reorder_after = crumb_probe_reorder(m->probe);
    value[MODEL_REORDER] = reorder < reorder_after ? reorder : reorder_after;
    value[MODEL_READ_GB_S] = (before + read_roof(m, false)) / 2;
    value[MODEL_STEPS_GB_S] = read_roof(m, true);
    value[MODEL_PEAK_GOPS] = crumb_isa_parse(m->info.target, &isa) ? crumb_probe_dot(m->probe, isa) : 0;
    return prompt ? read_prompt(m, &value[MODEL_PROMPT_NS], err) : CRUMB_OK;
}

crumb_status suite_model_round(suite_model *m, size_t round, crumb_error *err) {
    const bool prompt = m->n_prompt && round % ROUNDS_PER_PROMPT == 0;
    double value[MODEL_N_MEASURES] = {0};
    if (round == 0) CRUMB_TRY(run_once(m, prompt, value, err));
    CRUMB_TRY(run_once(m, prompt, value, err));
    for (size_t i = 0; i < MODEL_N_MEASURES; i++) m->values[i * m->suite->rounds + round] = value[i];
    return CRUMB_OK;
}

crumb_status suite_model_run(suite_model *m, crumb_error *err) {
    for (size_t round = 0; round < m->suite->rounds; round++) CRUMB_TRY(suite_model_round(m, round, err));
    return CRUMB_OK;
}

/* ---- results ----------------------------------------------------------------------------------------------- */

double suite_model_value(const suite_model *m, model_measure measure, size_t round) {
    return m->values[measure * m->suite->rounds + round];
}

double suite_model_median_of(const suite_model *m, suite_model_fn *of, const void *x) {
    size_t n = 0;
    for (size_t round = 0; round < m->suite->rounds; round++) {
        const double value = of(m, round, x);
        if (isfinite(value) && fpclassify(value) != FP_ZERO) m->sorted[n++] = value;
    }
    return cli_median(m->sorted, n);
}

double suite_model_alone(const suite_model *m, suite_model_fn *of, const void *x, size_t *n) {
    double most = 0;
    for (size_t round = 0; round < m->suite->rounds; round++)
        most = fmax(most, suite_model_value(m, MODEL_REORDER, round));
    *n = 0;
    for (size_t round = 0; round < m->suite->rounds; round++) {
        const double window = suite_model_value(m, MODEL_REORDER, round);
        if (window > 0 && window >= CRUMB_REORDER_WHOLE * most) m->sorted[(*n)++] = of(m, round, x);
    }
    return *n ? cli_median(m->sorted, *n) : 0;
}

static double one_measure(const suite_model *m, size_t round, const void *x) {
    const model_measure *measure = x;
    return suite_model_value(m, *measure, round);
}

double suite_model_median(const suite_model *m, model_measure measure) {
    return suite_model_median_of(m, one_measure, &measure);
}
