/* What `crumb run` prints: its first line, the text as it comes, and llama.cpp's timing footer on stderr. */
#include "tools/crumb/run.h"

#include "host/base/error.h"
#include "host/base/thread.h"
#include "tools/crumb/explain.h"

#include <stdlib.h>
#include <string.h>

const char *const run_end_names[] = {"eos", "length", "context", "interrupted", "output"};

/* ---- what is printed --------------------------------------------------------------------------------------- */

static void print_memory(const run_state *r) {
    crumb_session_stats stats;
    crumb_session_get_stats(r->session, &stats);
    cli_note("memory: weights %.2f MB, KV cache of %zu tokens in %s %.2f MB, scratch %.2f MB",
             (double)r->info.weight_bytes / 1e6, crumb_session_capacity(r->session),
             cli_session_params(r->options).kv_type == CRUMB_KV_Q8 ? "q8" : "f16", (double)stats.kv_bytes / 1e6,
             (double)stats.scratch_bytes / 1e6);
}

void run_print_header(const run_state *r) {
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

crumb_status run_print_json_start(const run_state *r, crumb_error *err) {
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
    cJSON_AddItemToObject(o, "prompt", r->prompt ? json_text(r->prompt, r->prompt_bytes) : cJSON_CreateNull());
    cJSON_AddBoolToObject(o, "chat", r->chats);
    return json_print(o, true, "\n", err);
}

crumb_status run_put_event(const char *event, const char *key, const char *text, size_t n_bytes, crumb_error *err) {
    cJSON *o = cJSON_CreateObject();
    json_add_text(o, "event", event);
    cJSON_AddItemToObject(o, key, json_text(text, n_bytes));
    return json_print(o, true, "\n", err);
}

static crumb_status keep_answer(run_state *r, const char *text, size_t n_bytes, crumb_error *err) {
    if (!r->chats) return CRUMB_OK;
    if (n_bytes >= r->answer_capacity - r->n_answer) {
        const size_t capacity = 2 * (r->n_answer + n_bytes) + 256;
        char *larger = realloc(r->answer, capacity);
        if (!larger) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for an answer of %zu bytes", capacity);
        r->answer = larger;
        r->answer_capacity = capacity;
    }
    memcpy(r->answer + r->n_answer, text, n_bytes);
    r->n_answer += n_bytes;
    r->answer[r->n_answer] = 0;
    return CRUMB_OK;
}

static crumb_status put_text(run_state *r, const char *text, size_t n_bytes, crumb_error *err) {
    if (n_bytes == 0) return CRUMB_OK;
    r->last_byte = text[n_bytes - 1];
    CRUMB_TRY(keep_answer(r, text, n_bytes, err));
    if (r->options->json) return run_put_event("text", "text", text, n_bytes, err);
    cli_write(text, n_bytes);
    return CRUMB_OK;
}

void run_print_prompt(run_state *r) {
    const cli_options *options = r->options;
    if (options->json || !options->display_prompt) return;
    bool colored = strcmp(options->color, "on") == 0 || (strcmp(options->color, "auto") == 0 && cli_uses_color(stdout));
    if (colored) cli_print("\x1b[33m");
    cli_write(r->prompt, r->prompt_bytes);
    if (colored) cli_print("\x1b[0m");
    if (r->prompt_bytes) r->last_byte = r->prompt[r->prompt_bytes - 1];
}

crumb_status run_put_token(run_state *r, int32_t token, crumb_error *err) {
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
        fprintf(stderr,
                "         roofline = %9.1f %% (%.1f GB/s of weights read, of %.1f GB/s that memory gives; %.1f MB a "
                "token, head %s)\n",
                100 * rate / roof, rate, roof, (double)r->info.decode_bytes * 1e-6, r->info.head_type);
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
    json_add_text(o, "reason", run_end_names[r->end]);
    json_add_u64(o, "n_prompt", s->n_prompt);
    json_add_u64(o, "n_decode", s->n_decode);
    json_add_u64(o, "n_generated", r->n_generated);
    json_add_real(o, "load_ms", r->info.load_ms);
    json_add_real(o, "prompt_ms", s->prompt_ms);
    json_add_real(o, "decode_ms", s->decode_ms);
    json_add_real(o, "sample_ms", s->sample_ms);
    cJSON_AddItemToObject(o, "bandwidth_gb_s", rate > 0 ? json_real(rate, 6) : cJSON_CreateNull());
    cJSON_AddItemToObject(o, "roofline_pct", roof > 0 ? json_real(100 * rate / roof, 6) : cJSON_CreateNull());
    cJSON_AddItemToObject(o, "read_gb_s", roof > 0 ? json_real(roof, 6) : cJSON_CreateNull());
    json_add_u64(o, "bytes_per_token", r->info.decode_bytes);
    json_add_text(o, "head_type", r->info.head_type);
    if (r->options->explain) cJSON_AddItemToObject(o, "explain", cli_explain_json(r->session));
    return json_print(o, true, "\n", err);
}

crumb_status run_end_text(run_state *r, crumb_error *err) {
    if (r->utf8.n_pending) CRUMB_TRY(put_text(r, "\xef\xbf\xbd", 3, err));
    r->utf8 = (crumb_utf8_stream){0};
    if (!r->options->json && r->last_byte != '\n' && r->last_byte != 0) cli_write("\n", 1);
    if (r->last_byte) r->last_byte = '\n';
    return CRUMB_OK;
}

double run_roof(const run_state *r) {
    const bool probes = r->options->roofline && strcmp(r->info.backend, "cpu") == 0;
    return probes ? cli_probe_read_bandwidth((int)r->options->n_threads, r->options->cpu_kind) : 0;
}

crumb_status run_finish(run_state *r, crumb_error *err) {
    double total_ms = (double)(crumb_now_ns() - r->began_ns) / 1e6;
    crumb_status status = run_end_text(r, err);
    crumb_session_stats stats;
    crumb_session_get_stats(r->session, &stats);
    double rate =
        stats.decode_ms > 0 ? (double)r->info.decode_bytes * (double)stats.n_decode / stats.decode_ms / 1e6 : 0;
    double roof = r->end != RUN_OUTPUT ? cli_probe_halfway(r->roof_before, run_roof(r)) : 0;
    if (r->options->json && status == CRUMB_OK) status = print_json_end(r, &stats, rate, roof, err);
    if (!cli_flush() || r->options->quiet) return status; /* a reader that went away wants no footer */
    if (r->end == RUN_CONTEXT)
        cli_note("the context of %zu tokens is full (-c makes it larger)", crumb_session_capacity(r->session));
    print_timings(r, &stats, total_ms);
    print_roofline(r, rate, roof);
    if (r->options->explain) cli_explain(r->session);
    return status;
}
