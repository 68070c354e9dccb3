/* From options to an open model and session parameters. */
#include "tools/crumb/cli.h"

#include "host/base/error.h"
#include "host/checkpoint/checkpoint.h"
#include "host/container/gguf.h"
#include "host/engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void on_log(void *user, crumb_log_level level, const char *line) {
    const cli_options *options = user;
    crumb_log_level most = options->verbose ? CRUMB_LOG_DEBUG : CRUMB_LOG_WARN;
    if (level == CRUMB_LOG_ERROR)
        cli_error("%s", line);
    else if (level <= most)
        cli_note("%s", line);
}

static crumb_status check_repo(const cli_options *options, crumb_error *err) {
    if (!options->hf_repo) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                      "-hf %s: crumb downloads nothing; fetch the GGUF file from there, then give -m FILE",
                      options->hf_repo);
}

/* One file of a folder does not say what model it belongs to. */
static crumb_status refuse_safetensors(const char *path, crumb_error *err) {
    char found[4096];
    if (!cli_find_safetensors(path, found, sizeof found) || strcmp(path, found) != 0) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                      "%s: a safetensors file is run as part of its folder, with config.json and tokenizer.json: give "
                      "the folder",
                      path);
}

const char *cli_kv_name(crumb_kv_type type) {
    return type == CRUMB_KV_Q8 ? "q8_0" : "f16";
}

crumb_status cli_kv_type(const cli_options *options, crumb_kv_type *out, crumb_error *err) {
    const char *k = options->cache_type_k, *v = options->cache_type_v, *own = options->kv_cache;
    const char *both = k && v && strcmp(k, v) == 0 ? k : "f16";
    *out = strncmp(own ? own : both, "q8", 2) == 0 ? CRUMB_KV_Q8 : CRUMB_KV_F16;
    const char *name = cli_kv_name(*out);
    if ((!k || strcmp(k, name) == 0) && (!v || strcmp(v, name) == 0)) return CRUMB_OK;
    return crumb_fail(
        err, CRUMB_ERR_ARGUMENT,
        "-ctk %s, -ctv %s, --kv-cache %s: keys and values are kept alike; give --kv-cache f16 or q8 alone",
        k ? k : "f16", v ? v : "f16", own ? own : "f16");
}

static crumb_verify verify_of(const char *text) {
    if (text && strcmp(text, "on") == 0) return CRUMB_VERIFY_ALWAYS;
    return text && strcmp(text, "off") == 0 ? CRUMB_VERIFY_NEVER : CRUMB_VERIFY_AUTO;
}

crumb_status cli_read_split(const char *text, double *out, crumb_error *err) {
    char *end;
    *out = -1;
    if (!text || strcmp(text, "auto") == 0) return CRUMB_OK;
    *out = strtod(text, &end);
    if (end != text && !*end && *out >= 0 && *out <= 1) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--split %s: neither auto nor a number from 0 to 1", text);
}

static uint32_t largest(const cli_ints *list, int64_t one) {
    for (size_t i = 0; i < list->n; i++)
        if (list->value[i] > one) one = list->value[i];
    return (uint32_t)one;
}

/* What placement is chosen for; of the lists that `crumb bench` has the largest. */
static void set_lengths(const cli_options *options, int64_t n_prompt, crumb_model_params *params) {
    params->profile = options->profile;
    params->explain = options->explain;
    params->n_ctx = (uint32_t)options->n_ctx;
    params->n_prompt = (uint32_t)n_prompt;
    const uint32_t handed = largest(&options->bench_batch, options->n_batch),
                   at_once = largest(&options->bench_ubatch, options->n_ubatch);
    params->n_batch = handed < at_once ? handed : at_once;
    params->n_generate = options->n_predict > 0 ? (uint32_t)options->n_predict : 0;
}

crumb_status cli_model_open(const cli_options *options, const char *path, const char *synthetic, int n_threads,
                            int64_t n_prompt, crumb_model **out, crumb_error *err) {
    cli_catch_interrupt(); /* from here on there is something to end cleanly */
    CRUMB_TRY(check_repo(options, err));
    CRUMB_TRY(refuse_safetensors(path, err));
    crumb_model_params params = crumb_model_params_default();
    CRUMB_TRY(cli_kv_type(options, &params.kv_type, err));
    /* the suite measures the processor, and commands without --device have no use for another */
    params.device = options->suite || !options->device ? "cpu" : options->device;
    params.backend = options->suite || !options->backend ? "cpu" : options->backend;
    params.target = options->target;
    params.n_threads = n_threads;
    params.tuning = options->tuning;
    params.cpu_kind = options->cpu_kind;
    params.balance = options->balance;
    params.verify = verify_of(options->verify);
    params.n_gpu_layers = (int32_t)options->gpu_layers;
    CRUMB_TRY(cli_read_split(options->split, &params.split, err));
    set_lengths(options, n_prompt, &params);
    params.progress = cli_progress;
    params.progress_user = (void *)(synthetic ? "making weights" : "loading");
    params.log = on_log;
    params.log_user = (void *)options;
    crumb_status status = synthetic ? crumb_model_open_synthetic(synthetic, &params, out, err)
                          : path    ? crumb_model_open(path, &params, out, err)
                                    : crumb_model_open_embedded(&params, out, err);
    cli_progress_clear();
    /* Only what is there now: the KV cache of a long context should not be forced into memory. */
    if (status == CRUMB_OK && options->mlock && mlockall(MCL_CURRENT) != 0)
        cli_note("--mlock: %s (see 'ulimit -l'); going on without", strerror(errno));
    return status;
}

crumb_status cli_gguf_open(const char *path, crumb_gguf **out, crumb_error *err) {
    return path ? crumb_checkpoint_open_any(path, out, err) : crumb_engine_open_embedded_file(out, err);
}

crumb_session_params cli_session_params(const cli_options *options) {
    static const char *const names[] = {"auto", "float", "row", "group"};
    crumb_session_params params = crumb_session_params_default();
    params.n_ctx = (uint32_t)options->n_ctx;
    params.n_batch = (uint32_t)(options->n_ubatch < options->n_batch ? options->n_ubatch : options->n_batch);
    params.n_threads = (int)options->n_threads;
    params.n_threads_batch = (int)options->n_threads_batch;
    for (int i = 0; i < 4; i++)
        if (strcmp(options->activation, names[i]) == 0) params.activation = (crumb_activation)i;
    cli_kv_type(options, &params.kv_type, NULL); /* cli_model_open has checked it */
    params.should_stop = cli_interrupted;
    return params;
}

crumb_status cli_model_tokenize(const crumb_model *model, const char *text, size_t n_bytes, unsigned flags,
                                int32_t **tokens, size_t *n_tokens, crumb_error *err) {
    size_t capacity = n_bytes + 8; /* a token has at least one byte, apart from the special ones at both ends */
    for (int attempt = 0; attempt < 2; attempt++) {
        *tokens = capacity <= SIZE_MAX / sizeof **tokens ? malloc(capacity * sizeof **tokens) : NULL;
        if (!*tokens) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu tokens", capacity);
        crumb_status status = crumb_model_tokenize(model, text, n_bytes, flags, *tokens, capacity, n_tokens, err);
        if (status == CRUMB_OK) return CRUMB_OK;
        free(*tokens);
        *tokens = NULL;
        if (status != CRUMB_ERR_ARGUMENT || *n_tokens <= capacity) return status;
        capacity = *n_tokens;
    }
    return err ? err->status : CRUMB_ERR_INTERNAL;
}

const char *cli_cpu_name(void) {
    static char name[128];
    if (name[0]) return name;
    strcpy(name, "unknown processor");
    FILE *in = fopen("/proc/cpuinfo", "r");
    for (char line[256]; in && fgets(line, sizeof line, in);) {
        char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!value) continue;
        value += strspn(value, ": \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(name, sizeof name, "%s", value);
        break;
    }
    if (in) fclose(in);
    return name;
}

const char *cli_file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *cli_count_label(uint64_t n, char buffer[32]) {
    bool giga = n >= 1000000000;
    snprintf(buffer, 32, "%.2f %c", (double)n / (giga ? 1e9 : 1e6), giga ? 'B' : 'M');
    return buffer;
}

const char *cli_model_label(const crumb_model_info *info, char buffer[128]) {
    double millions = (double)info->n_params / 1e6;
    if (millions >= 1000)
        snprintf(buffer, 128, "%s %.1fB %s", info->architecture, millions / 1000, info->type);
    else
        snprintf(buffer, 128, "%s %.0fM %s", info->architecture, millions, info->type);
    return buffer;
}
