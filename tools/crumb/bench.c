/* crumb bench: how fast models read prompts (ppN) and generate (tgN), by llama-bench's conventions: random tokens, a
 * warm-up before the timed runs, the context emptied between them. */
#include "tools/crumb/bench.h"
#include "tools/crumb/explain.h"

#include "host/base/error.h"
#include "host/base/thread.h"
#include "scheduler/topology.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_test {
    int64_t n_prompt, n_gen;
} bench_test;

typedef struct bench_state {
    const cli_options *options;
    bench_format format;
    const char *model_filename;
    crumb_model *model;
    crumb_session *session;
    int32_t *tokens; /* as many as the longest context */
    uint64_t *samples_ns;
    size_t n_printed;
    char energy_note[sizeof((crumb_engine_energy *)NULL)->missing]; /* printed last */
} bench_state;

/* ---- one test ---------------------------------------------------------------------------------------------- */

static crumb_status feed_one_by_one(bench_state *b, int64_t n, crumb_error *err) {
    for (int64_t i = 0; i < n; i++) {
        if (cli_interrupted(NULL)) return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted");
        CRUMB_TRY(crumb_session_feed(b->session, &b->tokens[i], 1, err));
    }
    return CRUMB_OK;
}

static crumb_status feed_at_once(bench_state *b, int64_t n, crumb_error *err) {
    return n > 0 ? crumb_session_feed(b->session, b->tokens, (size_t)n, err) : CRUMB_OK;
}

static crumb_status warm_up(bench_state *b, const bench_test *test, int64_t depth, crumb_error *err) {
    CRUMB_TRY(feed_at_once(b, test->n_prompt, err));
    if (test->n_gen > 0) CRUMB_TRY(feed_one_by_one(b, 1, err));
    CRUMB_TRY(crumb_session_rewind(b->session, (size_t)depth, err));
    return CRUMB_OK;
}

static void summarize(bench_result *r) {
    double n = (double)r->n_samples, tokens = (double)(r->n_prompt + r->n_gen), ns2 = 0, ts2 = 0;
    r->avg_ns = r->avg_ts = r->stddev_ns = r->stddev_ts = 0;
    for (size_t i = 0; i < r->n_samples; i++) {
        r->avg_ns += (double)r->samples_ns[i] / n;
        r->avg_ts += 1e9 * tokens / (double)r->samples_ns[i] / n;
    }
    for (size_t i = 0; i < r->n_samples; i++) {
        double ns = (double)r->samples_ns[i];
        ns2 += (ns - r->avg_ns) * (ns - r->avg_ns);
        ts2 += (1e9 * tokens / ns - r->avg_ts) * (1e9 * tokens / ns - r->avg_ts);
    }
    if (r->n_samples < 2) return;
    r->stddev_ns = sqrt(ns2 / (n - 1));
    r->stddev_ts = sqrt(ts2 / (n - 1));
}

/* Fills the depth, warms up, and times the repetitions. The session is empty before. */
static crumb_status time_test(bench_state *b, const bench_test *test, bench_result *r, crumb_error *err) {
    CRUMB_TRY(feed_at_once(b, r->n_depth, err));
    if (b->options->warmup) CRUMB_TRY(warm_up(b, test, r->n_depth, err));
    r->test_time = time(NULL);
    r->samples_ns = b->samples_ns;
    r->n_samples = (size_t)b->options->repetitions;
    if (r->with_energy) crumb_engine_energy_begin(b->model, &r->energy);
    for (size_t i = 0; i < r->n_samples; i++) {
        CRUMB_TRY(crumb_session_rewind(b->session, (size_t)r->n_depth, err));
        uint64_t start = crumb_now_ns();
        CRUMB_TRY(feed_at_once(b, test->n_prompt, err));
        uint64_t between = crumb_now_ns();
        CRUMB_TRY(feed_one_by_one(b, test->n_gen, err));
        uint64_t end = crumb_now_ns();
        if (r->with_energy) crumb_engine_energy_add(b->model, &r->energy);
        b->samples_ns[i] = end - start ? end - start : 1;
        if (test->n_prompt) r->prompt_ns += (double)(between - start) / (double)r->n_samples;
        if (test->n_gen) r->gen_ns += (double)(end - between) / (double)r->n_samples;
    }
    summarize(r);
    return CRUMB_OK;
}

/* GB/s of the processor's memory; what bounds a GPU is not measured yet. 0: unknown. */
static double roof(const bench_state *b, const bench_result *r) {
    crumb_model_info info;
    crumb_model_get_info(b->model, &info);
    return r->n_gen && strcmp(info.backend, "cpu") == 0 ? cli_probe_read_bandwidth(r->n_threads, b->options->cpu_kind)
                                                        : 0;
}

static crumb_status make_tokens(bench_state *b, int64_t n, crumb_error *err) {
    crumb_model_info info;
    crumb_model_get_info(b->model, &info);
    free(b->tokens);
    b->tokens = malloc((size_t)(n + 1) * sizeof *b->tokens);
    if (!b->tokens) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %lld tokens", (long long)n);
    uint64_t random = 1;
    for (int64_t i = 0; i <= n; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        b->tokens[i] = (int32_t)((random >> 33) % info.n_vocab);
    }
    if (info.bos_token >= 0) b->tokens[0] = info.bos_token;
    return CRUMB_OK;
}

static crumb_status run_test(bench_state *b, const bench_test *test, bench_result r, crumb_error *err) {
    int64_t n_ctx = test->n_prompt + test->n_gen + r.n_depth;
    if (test->n_prompt + test->n_gen == 0) return CRUMB_OK;
    r.with_energy = b->options->energy;
    r.n_prompt = test->n_prompt;
    r.n_gen = test->n_gen;
    crumb_session_params params = cli_session_params(b->options);
    params.n_ctx = (uint32_t)n_ctx;
    params.n_batch = (uint32_t)(r.n_ubatch < r.n_batch ? r.n_ubatch : r.n_batch);
    params.n_threads = params.n_threads_batch = r.n_threads;
    r.kv_type = params.kv_type;
    CRUMB_TRY(make_tokens(b, n_ctx, err));
    const double roof_before = roof(b, &r);
    CRUMB_TRY(crumb_session_create(b->model, &params, &b->session, err));
    crumb_status status = time_test(b, test, &r, err);
    if (status == CRUMB_OK && b->options->explain) cli_explain(b->session);
    crumb_session_destroy(b->session);
    b->session = NULL;
    CRUMB_TRY(status);
    r.roof_gb_s = cli_probe_halfway(roof_before, roof(b, &r));
    if (*r.energy.missing && strcmp(b->energy_note, r.energy.missing) != 0) {
        snprintf(b->energy_note, sizeof b->energy_note, "%s", r.energy.missing);
        cli_note("%s", b->energy_note);
    }
    CRUMB_TRY(bench_print_result(b->format, &r, b->n_printed++ == 0, err));
    return cli_flush() ? CRUMB_OK : crumb_fail(err, CRUMB_ERR_INTERRUPTED, "stdout is closed");
}

/* ---- the matrix of tests ----------------------------------------------------------------------------------- */

/* Prompt tests, then generation, then both together, as llama-bench orders them. */
static crumb_status run_tests(bench_state *b, const bench_result *setting, crumb_error *err) {
    const cli_options *o = b->options;
    for (size_t i = 0; i < o->bench_prompt.n; i++)
        CRUMB_TRY(run_test(b, &(bench_test){o->bench_prompt.value[i], 0}, *setting, err));
    for (size_t i = 0; i < o->bench_gen.n; i++)
        CRUMB_TRY(run_test(b, &(bench_test){0, o->bench_gen.value[i]}, *setting, err));
    for (size_t i = 0; i + 1 < o->bench_pair.n; i += 2)
        CRUMB_TRY(run_test(b, &(bench_test){o->bench_pair.value[i], o->bench_pair.value[i + 1]}, *setting, err));
    return CRUMB_OK;
}

int bench_resolve_threads(const cli_options *options, int64_t n) {
    crumb_topology topology;
    crumb_cores_wanted wanted;
    int cpus[CRUMB_TOPOLOGY_MAX_CORES], n_cpus;
    if (n > 0) return (int)n;
    crumb_topology_read(&topology);
    crumb_cores_wanted_parse(options->cpu_kind, &wanted);
    /* Where there are none of the kind, opening the model says so. */
    return crumb_topology_choose(&topology, wanted, cpus, CRUMB_TOPOLOGY_MAX_CORES, &n_cpus, NULL) == CRUMB_OK ? n_cpus
                                                                                                               : 1;
}

static crumb_status run_settings(bench_state *b, crumb_error *err) {
    const cli_options *o = b->options;
    bench_result r = {.model_filename = b->model_filename};
    crumb_model_get_info(b->model, &r.info);
    cli_model_label(&r.info, r.model_label);
    for (size_t i = 0; i < o->bench_batch.n; i++)
        for (size_t j = 0; j < o->bench_ubatch.n; j++)
            for (size_t t = 0; t < o->bench_threads.n; t++)
                for (size_t d = 0; d < o->bench_depth.n; d++) {
                    r.n_batch = o->bench_batch.value[i];
                    r.n_ubatch = o->bench_ubatch.value[j];
                    r.n_threads = bench_resolve_threads(o, o->bench_threads.value[t]);
                    r.n_depth = o->bench_depth.value[d];
                    CRUMB_TRY(run_tests(b, &r, err));
                }
    return CRUMB_OK;
}

static crumb_status run_model(bench_state *b, const char *path, const char *synthetic, crumb_error *err) {
    int most = 1;
    int64_t n_prompt = 0;
    for (size_t i = 0; i < b->options->bench_threads.n; i++) {
        int n = bench_resolve_threads(b->options, b->options->bench_threads.value[i]);
        if (n > most) most = n;
    }
    for (size_t i = 0; i < b->options->bench_prompt.n; i++)
        if (b->options->bench_prompt.value[i] > n_prompt) n_prompt = b->options->bench_prompt.value[i];
    b->model_filename = path ? path : synthetic ? synthetic : "";
    CRUMB_TRY(cli_model_open(b->options, path, synthetic, most, n_prompt, &b->model, err));
    crumb_status status = run_settings(b, err);
    crumb_model_close(b->model);
    b->model = NULL;
    return status;
}

static crumb_status run_models(bench_state *b, crumb_error *err) {
    const cli_options *o = b->options;
    if (o->bench_pair.n % 2) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "-pg wants two numbers: prompt,generation");
    if (o->bench_models.n + o->synthetic.n == 0) CRUMB_TRY(run_model(b, NULL, NULL, err));
    for (size_t i = 0; i < o->bench_models.n; i++) CRUMB_TRY(run_model(b, o->bench_models.value[i], NULL, err));
    for (size_t i = 0; i < o->synthetic.n; i++) CRUMB_TRY(run_model(b, NULL, o->synthetic.value[i], err));
    return CRUMB_OK;
}

int cli_bench(const cli_options *options) {
    crumb_error err = {0};
    if (options->suite) return bench_suite(options);
    bench_state *b = calloc(1, sizeof *b);
    uint64_t *samples = calloc((size_t)options->repetitions, sizeof *samples);
    crumb_status status = CRUMB_OK;
    if (b && samples) {
        b->options = options;
        b->samples_ns = samples;
        b->format = bench_choose_format(options);
        bench_print_begin(b->format, options->energy);
        status = run_models(b, &err);
        bench_print_end(b->format, b->n_printed > 0); /* what was measured until a failure stays readable */
        free(b->tokens);
    } else {
        status = crumb_fail(&err, CRUMB_ERR_MEMORY, "no memory for the benchmark");
    }
    free(samples);
    free(b);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
