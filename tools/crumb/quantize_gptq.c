#include "tools/crumb/quantize_gptq.h"

#include "host/base/memory.h"
#include "host/checkpoint/checkpoint.h"
#include "host/gptq/run.h"
#include "host/text/tokenizer.h"
#include "tools/crumb/json_util.h"
#include "tools/crumb/rewrite.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LENGTH = 512 }; /* tokens of a sequence of the calibration text */

unsigned quantize_gptq_bits(const char *type) {
    const bool known = strncasecmp(type, "GPTQ", 4) == 0 && type[4] >= '2' && type[4] <= '4' && !type[5];
    return known ? (unsigned)(type[4] - '0') : 0;
}

/* ---- the calibration text ------------------------------------------------------------------------------------ */

typedef struct calibration {
    int32_t *tokens; /* NULL: none is needed */
    size_t n;
} calibration;

static crumb_status tokenize(const crumb_tokenizer *t, const char *text, size_t n_bytes, calibration *out,
                             crumb_error *err) {
    size_t n;
    CRUMB_TRY(crumb_calloc(n_bytes + 2, sizeof *out->tokens, "the calibration text", (void **)&out->tokens, err));
    CRUMB_TRY(crumb_tokenizer_encode(t, text, n_bytes, CRUMB_TOKENIZE_ADD_SPECIAL, out->tokens, n_bytes + 2, &n, err));
    out->n = n;
    /* every sequence begins as the model's texts do */
    for (size_t i = 0; i < n && crumb_tokenizer_adds_bos(t); i += LENGTH) out->tokens[i] = crumb_tokenizer_bos(t);
    return CRUMB_OK;
}

static crumb_status read_text(const cli_options *o, const crumb_gguf *g, calibration *out, crumb_error *err) {
    crumb_tokenizer *t;
    char *text = NULL;
    size_t n_bytes;
    CRUMB_TRY(crumb_tokenizer_open(g, &t, err));
    crumb_status status = cli_read_file(o->calibration, &text, &n_bytes, err);
    if (status == CRUMB_OK) status = tokenize(t, text, n_bytes, out, err);
    free(text);
    crumb_tokenizer_close(t);
    if (status == CRUMB_OK && out->n == 0)
        status = crumb_fail(err, CRUMB_ERR_ARGUMENT, "--calibration %s: there is no text in it", o->calibration);
    if (out->n > (size_t)o->calibration_tokens) out->n = (size_t)o->calibration_tokens;
    return status;
}

/* One sequence of what the model finds likely, from where its texts begin. */
static crumb_status write_sequence(crumb_session *s, int32_t first, int32_t *tokens, size_t n, crumb_error *err) {
    bool ended;
    tokens[0] = first;
    CRUMB_TRY(crumb_session_rewind(s, 0, err));
    CRUMB_TRY(crumb_session_feed(s, tokens, 1, err));
    for (size_t i = 1; i < n; i++) CRUMB_TRY(crumb_session_step(s, &tokens[i], &ended, err));
    return CRUMB_OK;
}

static crumb_status write_sequences(crumb_model *m, crumb_session *s, calibration *out, crumb_error *err) {
    crumb_model_info info;
    crumb_model_get_info(m, &info);
    const int32_t first = info.bos_token >= 0 ? info.bos_token : info.eos_token >= 0 ? info.eos_token : 0;
    crumb_status status = CRUMB_OK;
    for (size_t i = 0; i < out->n && status == CRUMB_OK; i += LENGTH) {
        const size_t n = out->n - i < LENGTH ? out->n - i : LENGTH;
        status = write_sequence(s, first, out->tokens + i, n, err);
        if (!cli_progress((void *)"writing a calibration text", (float)(i + n) / (float)out->n) && status == CRUMB_OK)
            status = crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted");
    }
    cli_progress_clear();
    return status;
}

/* Tokens as likely as the model finds them: the inputs of its layers are then those that it makes itself. */
static crumb_status write_text(const cli_options *o, calibration *out, crumb_error *err) {
    crumb_model *m;
    crumb_session *s = NULL;
    out->n = (size_t)o->calibration_tokens;
    CRUMB_TRY(crumb_calloc(out->n, sizeof *out->tokens, "the calibration text", (void **)&out->tokens, err));
    CRUMB_TRY(cli_model_open(o, o->model, NULL, rewriting_threads(o), 0, &m, err));
    crumb_session_params params = crumb_session_params_default();
    params.n_ctx = LENGTH;
    params.temperature = 1;
    params.top_k = 0;
    params.top_p = 1;
    params.min_p = 0;
    params.repeat_penalty = 1;
    params.seed = (uint64_t)o->seed;
    params.ignore_eos = true;
    params.should_stop = cli_interrupted;
    crumb_status status = crumb_session_create(m, &params, &s, err);
    if (status == CRUMB_OK) status = write_sequences(m, s, out, err);
    crumb_session_destroy(s);
    crumb_model_close(m);
    return status;
}

static crumb_status find_text(const cli_options *o, const crumb_gguf *g, calibration *out, crumb_error *err) {
    if (strcmp(o->quantize_method, "gptq") != 0) {
        if (o->calibration)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--calibration %s: only --method gptq has a use for it",
                              o->calibration);
        return CRUMB_OK;
    }
    return o->calibration ? read_text(o, g, out, err) : write_text(o, out, err);
}

/* ---- the folder ---------------------------------------------------------------------------------------------- */

static crumb_status print_result(const cli_options *o, const crumb_gptq_run *run, uint64_t n_kept, crumb_error *err) {
    if (o->json) {
        cJSON *root = json_document();
        json_add_text(root, "model_filename", o->model);
        json_add_text(root, "out_filename", run->form.to);
        json_add_text(root, "method", o->quantize_method);
        json_add_u64(root, "bits", run->form.bits);
        json_add_u64(root, "n_calibration_tokens", run->n_tokens);
        json_add_u64(root, "n_matrices_taken_up", n_kept);
        json_add_u64(root, "peak_bytes", crumb_memory_peak_bytes());
        return json_print(root, false, "\n", err);
    }
    if (n_kept) cli_note("%" PRIu64 " matrices were there from an earlier run", n_kept);
    if (run->tokens) cli_note("calibrated on %" PRIu64 " tokens", run->n_tokens);
    cli_note("%s: a folder with weights of %u bits as GPTQ packs them", run->form.to, run->form.bits);
    return CRUMB_OK;
}

static crumb_status write_folder(const cli_options *o, unsigned bits, const crumb_gguf *g, const calibration *text,
                                 crumb_error *err) {
    uint64_t n_kept;
    const crumb_gptq_run run = {
        .form = {.from = g,
                 .from_path = o->model,
                 .to = o->plain.value[0],
                 .bits = bits,
                 .group = o->group_size == -1 ? 0 : (uint32_t)o->group_size,
                 .identity = rewriting_identity(o->model)},
        .n_threads = rewriting_threads(o),
        .progress = cli_progress,
        .progress_user = (void *)"quantizing",
        .tokens = text->tokens,
        .n_tokens = text->n,
        .length = LENGTH,
        .damping = o->damping,
        .order = strcmp(o->act_order, "off") == 0    ? CRUMB_GPTQ_ORDER_PLAIN
                 : strcmp(o->act_order, "free") == 0 ? CRUMB_GPTQ_ORDER_FREE
                                                     : CRUMB_GPTQ_ORDER_STATIC,
    };
    const crumb_status status = crumb_gptq_run_all(&run, &n_kept, err);
    cli_progress_clear();
    if (status == CRUMB_ERR_INTERRUPTED)
        cli_note("interrupted: what is done stays in %s, and the same command goes on from there", run.form.to);
    CRUMB_TRY(status);
    return print_result(o, &run, n_kept, err);
}

crumb_status quantize_gptq(const cli_options *o, unsigned bits, crumb_error *err) {
    crumb_gguf *g = NULL;
    calibration text = {0};
    if (strcmp(o->quantize_method, "rtn") != 0 && strcmp(o->quantize_method, "gptq") != 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--method %s does not write GPTQ%u: its zero points are whole codes",
                          o->quantize_method, bits);
    if (o->group_size != -1 && (o->group_size < 16 || o->group_size % 16 != 0))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--group-size %d: -1 or a multiple of 16", (int)o->group_size);
    cli_catch_interrupt();
    CRUMB_TRY(crumb_checkpoint_open_any(o->model, &g, err));
    crumb_status status = find_text(o, g, &text, err);
    if (status == CRUMB_OK) status = write_folder(o, bits, g, &text, err);
    free(text.tokens);
    crumb_gguf_close(g);
    return status;
}
