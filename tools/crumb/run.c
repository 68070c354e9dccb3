/* crumb run: continues a text, streaming it to stdout, and ends with llama.cpp's timing footer on stderr. */
#include "host/base/error.h"
#include "host/base/thread.h"
#include "tools/crumb/explain.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char default_prompt[] = "Once upon a time"; /* how the embedded model's stories begin */

enum { TOKEN_BYTES = 4 }; /* of a token, about: the tokenizer is only there when the model is placed */

typedef enum run_end { END_EOS, END_LENGTH, END_CONTEXT, END_INTERRUPTED, END_OUTPUT } run_end;
static const char *const end_names[] = {"eos", "length", "context", "interrupted", "output"};

typedef struct run_state {
    const cli_options *options;
    crumb_model *model;
    crumb_session *session;
    crumb_model_info info;
    char *prompt;
    size_t prompt_bytes;
    int32_t *tokens;
    size_t n_tokens, n_generated;
    uint64_t seed;
    crumb_utf8_stream utf8;
    char last_byte; /* written to stdout: the text is made to end with a newline */
    uint64_t began_ns;
    run_end end;
} run_state;

/* ---- what is printed --------------------------------------------------------------------------------------- */

static void print_memory(const run_state *r) {
    crumb_session_stats stats;
    crumb_session_get_stats(r->session, &stats);
    cli_note("memory: weights %.2f MB, KV cache of %zu tokens in %s %.2f MB, scratch %.2f MB",
             (double)r->info.weight_bytes / 1e6, crumb_session_capacity(r->session),
             cli_session_params(r->options).kv_type == CRUMB_KV_Q8 ? "q8" : "f16", (double)stats.kv_bytes / 1e6,
             (double)stats.scratch_bytes / 1e6);
}

static void print_header(const run_state *r) {
    char label[128];
    bool on_cpu = *r->info.why_cpu != 0;
    cli_note("version %s, model %s (%s), device %s (%s), kernels %s%s%s", crumb_version(), r->info.name,
             cli_model_label(&r->info, label), r->info.device, r->info.device_detail, r->info.target,
             on_cpu ? ", no GPU: " : "", r->info.why_cpu);
    if (*r->info.placement) cli_note("layers: %s", r->info.placement);
    cli_say_notes(r->options);
    if (r->options->verbose) print_memory(r);
    if (r->options->seed < 0 && r->options->temperature > 0)
        cli_note("seed %llu (-s %llu gives the same text again)", (unsigned long long)r->seed,
                 (unsigned long long)r->seed);
}

static crumb_status print_json_start(const run_state *r, crumb_error *err) {
    cJSON *o = json_document();
    json_add_text(o, "event", "start");
    json_add_text(o, "version", crumb_version());
    json_add_text(o, "model", r->info.name);
    json_add_text(o, "architecture", r->info.architecture);
    json_add_text(o, "type", r->info.type);
    json_add_text(o, "device", r->info.device);
    json_add_text(o, "device_name", r->info.device_detail);
    json_add_text(o, "backend", r->info.backend);
    json_add_text(o, "target", r->info.target);
    json_add_text(o, "why_cpu", r->info.why_cpu);
    json_add_text(o, "placement", r->info.placement);
    json_add_u64(o, "seed", r->seed);
    json_add_u64(o, "n_prompt", r->n_tokens);
    cJSON_AddItemToObject(o, "prompt", json_text(r->prompt, r->prompt_bytes));
    return json_print(o, true, "\n", err);
}

static crumb_status put_text(run_state *r, const char *text, size_t n_bytes, crumb_error *err) {
    if (n_bytes == 0) return CRUMB_OK;
    r->last_byte = text[n_bytes - 1];
    if (!r->options->json) {
        cli_write(text, n_bytes);
        return CRUMB_OK;
    }
    cJSON *o = cJSON_CreateObject();
    json_add_text(o, "event", "text");
    cJSON_AddItemToObject(o, "text", json_text(text, n_bytes));
    return json_print(o, true, "\n", err);
}

static void print_prompt(run_state *r) {
    const cli_options *options = r->options;
    if (options->json || !options->display_prompt) return;
    bool colored = strcmp(options->color, "on") == 0 || (strcmp(options->color, "auto") == 0 && cli_uses_color(stdout));
    if (colored) cli_print("\x1b[33m");
    cli_write(r->prompt, r->prompt_bytes);
    if (colored) cli_print("\x1b[0m");
    if (r->prompt_bytes) r->last_byte = r->prompt[r->prompt_bytes - 1];
}

static crumb_status put_token(run_state *r, int32_t token, crumb_error *err) {
    size_t n_bytes;
    const char *bytes = crumb_model_token_bytes(r->model, token, false, &n_bytes);
    char *ready = malloc(3 * n_bytes + 16); /* each malformed byte may become the three of U+FFFD */
    if (!ready) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a token's text");
    size_t n_ready = crumb_utf8_stream_push(&r->utf8, bytes, n_bytes, ready, 3 * n_bytes + 16);
    crumb_status status = put_text(r, ready, n_ready, err);
    free(ready);
    return status;
}

/* ---- the footer -------------------------------------------------------------------------------------------- */

static double per(double a, double b) {
    return b > 0 ? a / b : 0;
}

/* llama.cpp's lines, because scripts parse them. */
static void print_timings(const run_state *r, const crumb_session_stats *s, double total_ms) {
    double prompt_n = (double)s->n_prompt, decode_n = (double)s->n_decode;
    fprintf(stderr, "\n");
    fprintf(stderr, "    sampling time = %10.2f ms / %5zu runs   (%8.2f ms per token, %8.2f tokens per second)\n",
            s->sample_ms, r->n_generated, per(s->sample_ms, (double)r->n_generated),
            per(1e3 * (double)r->n_generated, s->sample_ms));
    fprintf(stderr, "        load time = %10.2f ms\n", r->info.load_ms);
    fprintf(stderr, " prompt eval time = %10.2f ms / %5llu tokens (%8.2f ms per token, %8.2f tokens per second)\n",
            s->prompt_ms, (unsigned long long)s->n_prompt, per(s->prompt_ms, prompt_n),
            per(1e3 * prompt_n, s->prompt_ms));
    fprintf(stderr, "        eval time = %10.2f ms / %5llu runs   (%8.2f ms per token, %8.2f tokens per second)\n",
            s->decode_ms, (unsigned long long)s->n_decode, per(s->decode_ms, decode_n),
            per(1e3 * decode_n, s->decode_ms));
    fprintf(stderr, "       total time = %10.2f ms / %5llu tokens\n", total_ms,
            (unsigned long long)(s->n_prompt + s->n_decode));
}

static void print_roofline(const run_state *r, double rate, double roof) {
    if (rate <= 0) return;
    if (roof > 0)
        fprintf(stderr, "         roofline = %9.1f %% (%.1f GB/s of weights read, of %.1f GB/s that memory gives)\n",
                100 * rate / roof, rate, roof);
    else if (r->options->roofline)
        fprintf(stderr, "         roofline = unknown: too little free memory to measure it\n");
    else
        fprintf(stderr, "         roofline = %9.2f GB/s of weights read (--roofline compares it with the memory)\n",
                rate);
}

static crumb_status print_json_end(const run_state *r, const crumb_session_stats *s, double rate, double roof,
                                   crumb_error *err) {
    cJSON *o = cJSON_CreateObject();
    json_add_text(o, "event", "end");
    json_add_text(o, "reason", end_names[r->end]);
    json_add_u64(o, "n_prompt", s->n_prompt);
    json_add_u64(o, "n_decode", s->n_decode);
    json_add_u64(o, "n_generated", r->n_generated);
    json_add_real(o, "load_ms", r->info.load_ms);
    json_add_real(o, "prompt_ms", s->prompt_ms);
    json_add_real(o, "decode_ms", s->decode_ms);
    json_add_real(o, "sample_ms", s->sample_ms);
    cJSON_AddItemToObject(o, "bandwidth_gb_s", rate > 0 ? json_real(rate, 6) : cJSON_CreateNull());
    cJSON_AddItemToObject(o, "roofline_pct", roof > 0 ? json_real(100 * rate / roof, 6) : cJSON_CreateNull());
    if (r->options->explain) cJSON_AddItemToObject(o, "explain", cli_explain_json(r->session));
    return json_print(o, true, "\n", err);
}

static crumb_status finish(run_state *r, crumb_error *err) {
    double total_ms = (double)(crumb_now_ns() - r->began_ns) / 1e6;
    crumb_status status = CRUMB_OK;
    if (r->utf8.n_pending) status = put_text(r, "\xef\xbf\xbd", 3, err);
    if (!r->options->json && r->last_byte != '\n' && r->last_byte != 0) cli_write("\n", 1);
    crumb_session_stats stats;
    crumb_session_get_stats(r->session, &stats);
    double rate =
        stats.decode_ms > 0 ? (double)r->info.decode_bytes * (double)stats.n_decode / stats.decode_ms / 1e6 : 0;
    bool probes = r->options->roofline && r->end != END_OUTPUT && strcmp(r->info.backend, "cpu") == 0;
    double roof = probes ? cli_probe_read_bandwidth((int)r->options->n_threads, r->options->cpu_kind) : 0;
    if (r->options->json && status == CRUMB_OK) status = print_json_end(r, &stats, rate, roof, err);
    if (!cli_flush() || r->options->quiet) return status; /* a reader that went away wants no footer */
    if (r->end == END_CONTEXT)
        cli_note("the context of %zu tokens is full (-c makes it larger)", crumb_session_capacity(r->session));
    print_timings(r, &stats, total_ms);
    print_roofline(r, rate, roof);
    if (r->options->explain) cli_explain(r->session);
    return status;
}

/* ---- generation -------------------------------------------------------------------------------------------- */

static uint64_t choose_seed(int64_t wanted) {
    uint32_t seed = (uint32_t)wanted;
    if (wanted < 0 && getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint32_t)crumb_now_ns();
    return seed;
}

static void set_sampling(crumb_session_params *params, const cli_options *options, uint64_t seed) {
    params->temperature = (float)options->temperature;
    params->top_k = (int32_t)options->top_k;
    params->top_p = (float)options->top_p;
    params->min_p = (float)options->min_p;
    params->repeat_penalty = (float)options->repeat_penalty;
    params->repeat_last_n = (uint32_t)options->repeat_last_n;
    params->ignore_eos = options->ignore_eos;
    params->seed = seed;
}

static crumb_status prepare(run_state *r, crumb_error *err) {
    const cli_options *options = r->options;
    CRUMB_TRY(cli_prompt(options, &r->prompt, &r->prompt_bytes, err));
    if (!r->prompt && options->model)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "no prompt: give -p TEXT or -f FILE (there is no chat yet)");
    if (!r->prompt) {
        r->prompt = strdup(default_prompt);
        if (!r->prompt) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for the prompt");
        r->prompt_bytes = strlen(r->prompt);
    }
    int64_t most = options->n_threads > options->n_threads_batch ? options->n_threads : options->n_threads_batch;
    CRUMB_TRY(cli_model_open(options, options->model, NULL, (int)most, (int64_t)r->prompt_bytes / TOKEN_BYTES + 1,
                             &r->model, err));
    crumb_model_get_info(r->model, &r->info);
    unsigned flags = CRUMB_TOKENIZE_ADD_SPECIAL | CRUMB_TOKENIZE_PARSE_SPECIAL;
    CRUMB_TRY(cli_model_tokenize(r->model, r->prompt, r->prompt_bytes, flags, &r->tokens, &r->n_tokens, err));
    r->seed = choose_seed(options->seed);
    crumb_session_params params = cli_session_params(options);
    set_sampling(&params, options, r->seed);
    return crumb_session_create(r->model, &params, &r->session, err);
}

/* Each token is shown before it is evaluated, and the last one is not evaluated at all. */
static crumb_status generate(run_state *r, crumb_error *err) {
    uint64_t wanted = r->options->n_predict < 0 ? UINT64_MAX : (uint64_t)r->options->n_predict;
    CRUMB_TRY(crumb_session_feed(r->session, r->tokens, r->n_tokens, err));
    for (r->end = END_LENGTH; r->n_generated < wanted;) {
        int32_t token;
        if (cli_interrupted(NULL)) return r->end = END_INTERRUPTED, CRUMB_OK;
        CRUMB_TRY(crumb_session_sample(r->session, &token, err));
        if (!r->options->ignore_eos && crumb_model_token_ends(r->model, token)) return r->end = END_EOS, CRUMB_OK;
        CRUMB_TRY(put_token(r, token, err));
        if (!cli_flush()) return r->end = END_OUTPUT, CRUMB_OK;
        if (++r->n_generated == wanted) break;
        bool full = crumb_session_length(r->session) == crumb_session_capacity(r->session);
        if (full) return r->end = END_CONTEXT, CRUMB_OK;
        CRUMB_TRY(crumb_session_feed(r->session, &token, 1, err));
    }
    return CRUMB_OK;
}

static int run_all(run_state *r, crumb_error *err) {
    if (prepare(r, err) != CRUMB_OK) return cli_fail(err);
    print_header(r);
    if (r->options->json && print_json_start(r, err) != CRUMB_OK) return cli_fail(err);
    r->began_ns = crumb_now_ns();
    print_prompt(r);
    cli_flush();
    crumb_status status = generate(r, err);
    if (status == CRUMB_ERR_INTERRUPTED) r->end = END_INTERRUPTED;
    if (status != CRUMB_OK && status != CRUMB_ERR_INTERRUPTED) {
        if (r->last_byte && r->last_byte != '\n' && !r->options->json) cli_write("\n", 1);
        cli_flush();
        return cli_fail(err);
    }
    if (finish(r, err) != CRUMB_OK) return cli_fail(err);
    return r->end == END_INTERRUPTED ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}

int cli_run(const cli_options *options) {
    crumb_error err = {0};
    run_state r = {.options = options, .last_byte = 0};
    int code = run_all(&r, &err);
    crumb_session_destroy(r.session);
    crumb_model_close(r.model);
    free(r.tokens);
    free(r.prompt);
    return code;
}
