/* crumb perplexity: how well a model predicts a text, by llama-perplexity's rules. The text's tokens are cut into
 * chunks of n_ctx; each is evaluated from an empty context, its first token replaced by BOS where the model wants one,
 * and the second half of its tokens is scored, so that every scored token has at least n_ctx/2 before it. What the
 * model predicts can be kept as a baseline, or compared with one (kld.h). */
#include "host/base/error.h"
#include "host/base/thread.h"
#include "tools/crumb/json_util.h"
#include "tools/crumb/kld.h"

#include <math.h>
#include <stdlib.h>

typedef struct perplexity_state {
    const cli_options *options;
    crumb_model *model;
    crumb_session *session;
    int32_t *tokens;
    size_t n_tokens, n_ctx;
    uint32_t n_vocab;
    int32_t bos; /* first token of each chunk; -1: as in the text */
    /* of the tokens scored so far */
    const int32_t *chunk;
    uint64_t n_scored;
    double sum, sum_of_squares; /* of -log(probability) */
    kld_writer writer;          /* --kl-divergence-base alone */
    kld_base base;              /* with --kl-divergence */
    kld_sums sums;
    size_t number;       /* of the chunk */
    crumb_error row_err; /* what went wrong with a baseline's row */
} perplexity_state;

typedef struct perplexity_result {
    size_t n_chunks;
    double ppl, uncertainty;
} perplexity_result;

static double negative_log_probability(const float *logits, uint32_t n_vocab, int32_t token) {
    float largest = logits[0];
    for (uint32_t i = 1; i < n_vocab; i++) largest = logits[i] > largest ? logits[i] : largest;
    double sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++) sum += (double)expf(logits[i] - largest);
    return (double)largest + log(sum) - (double)logits[token];
}

/* The logits at `index` predict the token behind it. */
static crumb_status score_token(void *user, size_t index, const float *logits) {
    perplexity_state *p = user;
    double nll = negative_log_probability(logits, p->n_vocab, p->chunk[index + 1]);
    p->sum += nll;
    p->sum_of_squares += nll * nll;
    p->n_scored++;
    if (p->writer.path) return kld_write_row(&p->writer, logits, &p->row_err);
    if (!p->base.path) return CRUMB_OK;
    return kld_add(&p->base, p->number, index - p->n_ctx / 2, logits, p->chunk[index + 1], &p->sums, &p->row_err);
}

static crumb_status score_chunk(perplexity_state *p, size_t number, crumb_error *err) {
    const size_t n_ctx = p->n_ctx;
    int32_t *chunk = p->tokens + number * n_ctx, first = chunk[0];
    if (p->bos >= 0) chunk[0] = p->bos;
    p->chunk = chunk;
    p->number = number;
    CRUMB_TRY(crumb_session_rewind(p->session, 0, err));
    /* The last token predicts nothing that is in the chunk. */
    crumb_status status = crumb_session_score(p->session, chunk, n_ctx - 1, n_ctx / 2, score_token, p, err);
    chunk[0] = first;
    if (p->row_err.status != CRUMB_OK) *err = p->row_err;
    return status;
}

/* Standard error of the mean of -log(probability), carried over to its exponential. */
static perplexity_result summarize(const perplexity_state *p, size_t n_chunks) {
    double n = (double)p->n_scored, mean = p->sum / n, variance = p->sum_of_squares / n - mean * mean;
    double ppl = exp(mean);
    return (perplexity_result){n_chunks, ppl, variance > 0 && n > 1 ? ppl * sqrt(variance / (n - 1)) : 0};
}

static crumb_status score_all(perplexity_state *p, size_t n_chunks, perplexity_result *out, crumb_error *err) {
    uint64_t start = crumb_now_ns();
    for (size_t i = 0; i < n_chunks; i++) {
        CRUMB_TRY(score_chunk(p, i, err));
        *out = summarize(p, i + 1);
        if (i == 0) {
            double seconds = (double)(crumb_now_ns() - start) / 1e9;
            cli_note("perplexity: %.2f seconds per pass - ETA %.2f minutes", seconds, seconds * (double)n_chunks / 60);
        }
        if (p->base.path && i == 0 && !p->options->json) kld_print_heading();
        if (p->options->json) continue;
        if (p->base.path)
            kld_print_chunk(&p->sums, i + 1);
        else
            cli_print("[%zu]%.4f,", i + 1, out->ppl);
        if (!cli_flush()) return CRUMB_OK;
    }
    return CRUMB_OK;
}

/* The model's rule is not in its info; what an empty text becomes tells it. */
static crumb_status find_bos(perplexity_state *p, crumb_error *err) {
    int32_t *tokens;
    size_t n;
    CRUMB_TRY(cli_model_tokenize(p->model, "", 0, CRUMB_TOKENIZE_ADD_SPECIAL, &tokens, &n, err));
    crumb_model_info info;
    crumb_model_get_info(p->model, &info);
    p->n_vocab = info.n_vocab;
    p->bos = n > 0 && tokens[0] == info.bos_token ? info.bos_token : -1;
    free(tokens);
    return CRUMB_OK;
}

/* The tokens are the baseline's, and so is the length of chunks. */
static crumb_status read_base(perplexity_state *p, crumb_error *err) {
    if (!p->options->kl_base)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "--kl-divergence compares with --kl-divergence-base FILE: give both");
    CRUMB_TRY(cli_model_open(p->options, p->options->model, NULL, 0, p->options->n_ctx, &p->model, err));
    CRUMB_TRY(find_bos(p, err));
    CRUMB_TRY(kld_open(p->options->kl_base, p->n_vocab, &p->base, err));
    p->tokens = p->base.tokens;
    p->n_ctx = p->base.n_ctx;
    p->n_tokens = p->base.n_chunks * p->n_ctx;
    return kld_sums_open(p->base.n_chunks * (size_t)p->base.n_rows, &p->sums, err);
}

static crumb_status read_tokens(perplexity_state *p, crumb_error *err) {
    char *text;
    size_t n_bytes;
    if (p->options->kl_divergence) return read_base(p, err);
    if (!p->options->prompt_file) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "no text: give -f FILE (- for stdin)");
    p->n_ctx = (size_t)p->options->n_ctx;
    CRUMB_TRY(cli_prompt(p->options, &text, &n_bytes, err));
    crumb_status status = cli_model_open(p->options, p->options->model, NULL, 0, p->options->n_ctx, &p->model, err);
    if (status == CRUMB_OK)
        status = cli_model_tokenize(p->model, text, n_bytes, CRUMB_TOKENIZE_ADD_SPECIAL, &p->tokens, &p->n_tokens, err);
    free(text);
    CRUMB_TRY(status);
    return find_bos(p, err);
}

static crumb_status prepare(perplexity_state *p, size_t *n_chunks, crumb_error *err) {
    CRUMB_TRY(read_tokens(p, err));
    const size_t n_ctx = p->n_ctx;
    if (!p->base.path && p->n_tokens < 2 * n_ctx)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "%s: perplexity at -c %zu needs at least %zu tokens, and the text has %zu",
                          p->options->prompt_file, n_ctx, 2 * n_ctx, p->n_tokens);
    *n_chunks = p->n_tokens / n_ctx;
    if (p->options->n_chunks >= 0 && *n_chunks > (size_t)p->options->n_chunks) *n_chunks = (size_t)p->options->n_chunks;
    crumb_session_params params = cli_session_params(p->options);
    params.n_ctx = (uint32_t)n_ctx;
    CRUMB_TRY(crumb_session_create(p->model, &params, &p->session, err));
    if (!p->base.path && p->options->kl_base)
        CRUMB_TRY(
            kld_write_open(p->options->kl_base, (uint32_t)n_ctx, p->n_vocab, *n_chunks, p->tokens, &p->writer, err));
    cli_note("perplexity: calculating perplexity over %zu chunks, n_ctx=%zu, batch_size=%u, n_seq=1", *n_chunks, n_ctx,
             params.n_batch);
    return CRUMB_OK;
}

static crumb_status print_result(perplexity_state *p, const perplexity_result *r, crumb_error *err) {
    if (p->base.path && p->options->json)
        return kld_print_json(&p->sums, p->options->model ? p->options->model : "", p->base.path, err);
    if (p->base.path) return kld_print_result(&p->sums), CRUMB_OK;
    if (!p->options->json) {
        cli_print("\nFinal estimate: PPL = %.4f +/- %.5f\n", r->ppl, r->uncertainty);
        return CRUMB_OK;
    }
    cJSON *o = json_document();
    json_add_text(o, "model_filename", p->options->model ? p->options->model : "");
    json_add_text(o, "text_filename", p->options->prompt_file);
    json_add_u64(o, "n_ctx", (uint64_t)p->options->n_ctx);
    json_add_u64(o, "n_chunks", r->n_chunks);
    json_add_u64(o, "n_scored", p->n_scored);
    json_add_real(o, "perplexity", r->ppl);
    json_add_real(o, "uncertainty", r->uncertainty);
    return json_print(o, false, "\n", err);
}

int cli_perplexity(const cli_options *options) {
    crumb_error err = {0};
    perplexity_state p = {.options = options, .writer = {.file = {.fd = -1}}};
    perplexity_result result = {.n_chunks = 0};
    size_t n_chunks = 0;
    crumb_status status = prepare(&p, &n_chunks, &err);
    if (status == CRUMB_OK) status = score_all(&p, n_chunks, &result, &err);
    if (status == CRUMB_OK && p.writer.path) status = kld_write_finish(&p.writer, &err);
    if (status == CRUMB_OK && result.n_chunks > 0)
        status = print_result(&p, &result, &err);
    else if (result.n_chunks > 0 && !options->json)
        cli_print("\n");
    crumb_session_destroy(p.session);
    crumb_model_close(p.model);
    if (!p.base.path) free(p.tokens); /* else they are the baseline's */
    kld_write_close(&p.writer);
    kld_sums_close(&p.sums);
    kld_close(&p.base);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
