#include "host/engine/pipeline.h"
#include "host/engine/substitute.h"
#include "host/engine/verify.h"

#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct crumb_session {
    crumb_model *model;
    crumb_session_params params;
    crumb_pipeline *pipeline;
    crumb_row *rows; /* n_batch */
    int32_t *tokens; /* those in the context; n_ctx */
    size_t n_tokens;
    crumb_phase phase;   /* that those which are fed belong to */
    const float *logits; /* NULL: none, or not yet read from the device */
    const float *top;    /* values, then tokens; NULL: none */
    bool has_output;     /* of the last token fed */
    crumb_sampler sampler;
    bool *banned; /* end-of-generation tokens under ignore_eos; else NULL */
    size_t n_banned;
    crumb_session_stats stats;
};

crumb_session_params crumb_session_params_default(void) {
    return (crumb_session_params){.struct_size = sizeof(crumb_session_params),
                                  .n_batch = 512,
                                  .temperature = 0.8f,
                                  .top_k = 40,
                                  .top_p = 0.95f,
                                  .min_p = 0.05f,
                                  .repeat_penalty = 1,
                                  .repeat_last_n = 64};
}

static crumb_session_params complete_params(const crumb_model *m, const crumb_session_params *params) {
    crumb_session_params p = crumb_session_params_default();
    if (params && params->struct_size <= sizeof p) memcpy(&p, params, params->struct_size);
    uint32_t trained = m->net.hparams.max_position_embeddings;
    if (p.n_ctx == 0) p.n_ctx = trained < 4096 ? trained : 4096;
    if (p.n_batch == 0) p.n_batch = 512;
    if (p.n_batch > p.n_ctx) p.n_batch = p.n_ctx;
    if (p.n_threads <= 0) p.n_threads = m->units[0].info.n_threads;
    if (p.n_threads_batch <= 0) p.n_threads_batch = p.n_threads;
    return p;
}

static crumb_status ban_end_tokens(crumb_session *s, crumb_error *err) {
    uint32_t n_vocab = s->model->net.hparams.vocab_size;
    if (!s->params.ignore_eos) return CRUMB_OK;
    CRUMB_TRY(crumb_calloc(n_vocab, sizeof *s->banned, "the sampler", (void **)&s->banned, err));
    for (uint32_t t = 0; t < n_vocab; t++) {
        s->banned[t] = crumb_model_token_ends(s->model, (int32_t)t);
        s->n_banned += s->banned[t];
    }
    return CRUMB_OK;
}

/* With another type of cache than the model was opened for. */
static crumb_status check_kernels(crumb_session *s, crumb_error *err) {
    const crumb_status status = crumb_engine_check_kernels(s->model, s->params.kv_type, err);
    if (status != CRUMB_ERR_VERIFY) return status;
    return crumb_fail_prefix(err, status, "a model that is opened for this type of cache may get simpler kernels");
}

static crumb_status set_up(crumb_session *s, crumb_error *err) {
    const crumb_session_params *p = &s->params;
    crumb_sampler_params sampling = {.temperature = p->temperature,
                                     .top_k = p->top_k,
                                     .top_p = p->top_p,
                                     .min_p = p->min_p,
                                     .repeat_penalty = p->repeat_penalty,
                                     .repeat_last_n = p->repeat_last_n,
                                     .seed = p->seed};
    CRUMB_TRY(crumb_sampler_init(&s->sampler, &sampling, s->model->net.hparams.vocab_size, err));
    CRUMB_TRY(ban_end_tokens(s, err));
    CRUMB_TRY(check_kernels(s, err));
    CRUMB_TRY(crumb_pipeline_create(s->model, p, &s->pipeline, err));
    CRUMB_TRY(crumb_calloc(p->n_batch, sizeof *s->rows, "the batch", (void **)&s->rows, err));
    return crumb_calloc(p->n_ctx, sizeof *s->tokens, "the context", (void **)&s->tokens, err);
}

crumb_status crumb_session_create(crumb_model *model, const crumb_session_params *params, crumb_session **out,
                                  crumb_error *err) {
    *out = NULL;
    crumb_session *s;
    CRUMB_TRY(crumb_calloc(1, sizeof *s, "the session", (void **)&s, err));
    s->model = model;
    s->params = complete_params(model, params);
    crumb_status status = set_up(s, err);
    if (status == CRUMB_OK)
        *out = s;
    else
        crumb_session_destroy(s);
    return status;
}

void crumb_session_destroy(crumb_session *s) {
    if (!s) return;
    crumb_pipeline_destroy(s->pipeline);
    crumb_sampler_free(&s->sampler);
    free(s->rows);
    free(s->tokens);
    free(s->banned);
    free(s);
}

/* ---- evaluation -------------------------------------------------------------------------------------------- */

static crumb_status check_tokens(const crumb_session *s, const int32_t *tokens, size_t n, crumb_error *err) {
    uint32_t n_vocab = s->model->net.hparams.vocab_size;
    if (n == 0) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "no tokens to evaluate: the prompt is empty");
    if (n > s->params.n_ctx - s->n_tokens)
        return crumb_fail(err, CRUMB_ERR_CONTEXT,
                          "the context of %u tokens holds %zu and cannot take %zu more (-c makes it larger)",
                          s->params.n_ctx, s->n_tokens, n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= n_vocab)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "token %d is outside the vocabulary of %u", tokens[i], n_vocab);
    return CRUMB_OK;
}

static void forget_logits(crumb_session *s) {
    s->logits = s->top = NULL;
    s->has_output = false;
}

/* Evaluates n tokens (at most the bucket's rows) at once, and reads what the next is chosen from: with outputs from row
 * first_output on, the largest logits, or all where they lie in the host's memory or many rows have them. */
static crumb_status try_evaluate(crumb_session *s, crumb_bucket bucket, const int32_t *tokens, uint32_t n,
                                 uint32_t first_output, crumb_error *err) {
    uint32_t n_outputs;
    for (uint32_t i = 0; i < n; i++)
        s->rows[i] =
            (crumb_row){.token = tokens[i], .position = (uint32_t)(s->n_tokens + i), .wants_output = i >= first_output};
    forget_logits(s);
    CRUMB_TRY(crumb_pipeline_run(s->pipeline, s->phase, bucket, s->rows, n, err));
    if (first_output < n) CRUMB_TRY(crumb_pipeline_top(s->pipeline, &s->top, err));
    if (first_output < n && !s->top) CRUMB_TRY(crumb_pipeline_logits(s->pipeline, &s->logits, &n_outputs, err));
    s->has_output = first_output < n;
    return CRUMB_OK;
}

/* The context's tokens once more, on a device that has never seen them. */
static crumb_status feed_again(crumb_session *s, crumb_pipeline *to, crumb_error *err) {
    for (size_t done = 0; done < s->n_tokens;) {
        const size_t left = s->n_tokens - done;
        const uint32_t n = left < s->params.n_batch ? (uint32_t)left : s->params.n_batch;
        for (uint32_t i = 0; i < n; i++)
            s->rows[i] = (crumb_row){.token = s->tokens[done + i], .position = (uint32_t)(done + i)};
        CRUMB_TRY(crumb_pipeline_run(to, CRUMB_PHASE_PREFILL, crumb_pipeline_bucket(to, n), s->rows, n, err));
        done += n;
    }
    return CRUMB_OK;
}

/* After a device has failed: its keys and values are lost, and maybe its memory. The CPU goes on with all layers, from
 * weights read once more, and the text as it would have been. */
static crumb_status take_over(crumb_session *s, const crumb_error *reason, crumb_error *err) {
    const crumb_engine_unit *failed = crumb_pipeline_failed(s->pipeline);
    crumb_model *cpu;
    crumb_pipeline *pipeline;
    crumb_engine_log(s->model, CRUMB_LOG_WARN, "%s; the CPU goes on in its place", reason->message);
    crumb_status status = crumb_engine_substitute(s->model, &cpu, err);
    if (status == CRUMB_OK) status = crumb_pipeline_create(cpu, &s->params, &pipeline, err);
    if (status != CRUMB_OK)
        return crumb_fail_prefix(err, status, "%s has failed, and the CPU cannot take its place", failed->info.name);
    status = feed_again(s, pipeline, err);
    crumb_pipeline_destroy(status == CRUMB_OK ? s->pipeline : pipeline);
    if (status == CRUMB_OK) s->pipeline = pipeline;
    return status;
}

static bool can_take_over(const crumb_session *s, crumb_status status) {
    const crumb_engine_unit *failed = crumb_pipeline_failed(s->pipeline);
    return (status == CRUMB_ERR_DEVICE || status == CRUMB_ERR_MEMORY) && failed &&
           failed->backend != &crumb_backend_cpu;
}

static crumb_status evaluate(crumb_session *s, crumb_bucket bucket, const int32_t *tokens, uint32_t n,
                             uint32_t first_output, crumb_error *err) {
    crumb_error reason = {0};
    crumb_status status = try_evaluate(s, bucket, tokens, n, first_output, &reason);
    if (can_take_over(s, status)) {
        CRUMB_TRY(take_over(s, &reason, err));
        status = try_evaluate(s, bucket, tokens, n, first_output, &reason);
    }
    if (status != CRUMB_OK) {
        if (err) *err = reason;
        return status;
    }
    memcpy(s->tokens + s->n_tokens, tokens, n * sizeof *tokens);
    s->n_tokens += n;
    return CRUMB_OK;
}

static crumb_status need_logits(crumb_session *s, crumb_error *err) {
    crumb_error reason = {0};
    uint32_t n;
    if (s->logits) return CRUMB_OK;
    if (!s->has_output)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "there are no logits to sample from: feed tokens first");
    crumb_status status = crumb_pipeline_logits(s->pipeline, &s->logits, &n, &reason);
    if (can_take_over(s, status)) {
        s->n_tokens--; /* the last one, whose logits these are, is evaluated again */
        status = take_over(s, &reason, err);
        if (status == CRUMB_OK) return evaluate(s, CRUMB_BUCKET_ONE, s->tokens + s->n_tokens, 1, 0, err);
        s->n_tokens++;
    } else if (status != CRUMB_OK && err) {
        *err = reason;
    }
    return status;
}

static crumb_status stop_if_asked(const crumb_session *s, crumb_error *err) {
    if (!s->params.should_stop || !s->params.should_stop(s->params.should_stop_user)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted after %zu tokens", s->n_tokens);
}

crumb_status crumb_session_feed(crumb_session *s, const int32_t *tokens, size_t n_tokens, crumb_error *err) {
    CRUMB_TRY(check_tokens(s, tokens, n_tokens, err));
    uint64_t start = crumb_now_ns();
    bool decoding = n_tokens == 1 && s->n_tokens > 0;
    s->phase = decoding ? CRUMB_PHASE_DECODE : CRUMB_PHASE_PREFILL;
    for (size_t done = 0; done < n_tokens;) {
        if (!decoding) CRUMB_TRY(stop_if_asked(s, err));
        size_t left = n_tokens - done;
        uint32_t n = left < s->params.n_batch ? (uint32_t)left : s->params.n_batch;
        bool last = n == left;
        CRUMB_TRY(evaluate(s, crumb_pipeline_bucket(s->pipeline, n), tokens + done, n, last ? n - 1 : n, err));
        done += n;
    }
    double ms = (double)(crumb_now_ns() - start) / 1e6;
    *(decoding ? &s->stats.n_decode : &s->stats.n_prompt) += n_tokens;
    *(decoding ? &s->stats.decode_ms : &s->stats.prompt_ms) += ms;
    return CRUMB_OK;
}

crumb_status crumb_session_score(crumb_session *s, const int32_t *tokens, size_t n_tokens, size_t first,
                                 crumb_logits_fn fn, void *user, crumb_error *err) {
    CRUMB_TRY(check_tokens(s, tokens, n_tokens, err));
    uint64_t start = crumb_now_ns();
    size_t n_vocab = s->model->net.hparams.vocab_size;
    s->phase = CRUMB_PHASE_PREFILL;
    for (size_t done = 0; done < n_tokens;) {
        CRUMB_TRY(stop_if_asked(s, err));
        bool wanted = done + s->params.n_batch > first; /* batches before `first` need no logits */
        crumb_bucket bucket = wanted ? CRUMB_BUCKET_SCORE : CRUMB_BUCKET_BATCH;
        size_t left = n_tokens - done, rows = crumb_pipeline_rows(s->pipeline, bucket);
        uint32_t n = (uint32_t)(left < rows ? left : rows);
        uint32_t skip = first <= done ? 0 : first - done < n ? (uint32_t)(first - done) : n;
        CRUMB_TRY(evaluate(s, bucket, tokens + done, n, skip, err));
        for (uint32_t i = 0; i < n - skip; i++) CRUMB_TRY(fn(user, done + skip + i, s->logits + i * n_vocab));
        if (skip < n) s->logits += (n - skip - 1) * n_vocab; /* the last one's stay */
        done += n;
    }
    s->stats.n_prompt += n_tokens;
    s->stats.prompt_ms += (double)(crumb_now_ns() - start) / 1e6;
    return CRUMB_OK;
}

void crumb_engine_session_measure(crumb_session *s, crumb_plan_times *times) {
    crumb_pipeline_measure(s->pipeline, times);
}

void crumb_engine_session_explain(const crumb_session *s, crumb_explanation *out) {
    crumb_pipeline_explain(s->pipeline, out);
}

const float *crumb_session_logits(crumb_session *s) {
    return need_logits(s, NULL) == CRUMB_OK ? s->logits : NULL;
}

/* ---- generation -------------------------------------------------------------------------------------------- */

static crumb_status choose_logits(crumb_session *s, crumb_logits *out, crumb_error *err) {
    if (s->top && crumb_sampler_needs(&s->sampler, s->n_banned) <= CRUMB_PIPELINE_TOP) {
        *out =
            (crumb_logits){s->top, (const uint32_t *)(const void *)(s->top + CRUMB_PIPELINE_TOP), CRUMB_PIPELINE_TOP};
        return CRUMB_OK;
    }
    CRUMB_TRY(need_logits(s, err));
    *out = (crumb_logits){.value = s->logits, .n = s->model->net.hparams.vocab_size};
    return CRUMB_OK;
}

crumb_status crumb_session_sample(crumb_session *s, int32_t *token, crumb_error *err) {
    uint64_t start = crumb_now_ns();
    crumb_logits logits;
    CRUMB_TRY(choose_logits(s, &logits, err));
    crumb_status status = crumb_sampler_pick(&s->sampler, &logits, s->tokens, s->n_tokens, s->banned, token, err);
    s->stats.sample_ms += (double)(crumb_now_ns() - start) / 1e6;
    return status;
}

crumb_status crumb_session_step(crumb_session *s, int32_t *token, bool *ended, crumb_error *err) {
    CRUMB_TRY(crumb_session_sample(s, token, err));
    *ended = !s->params.ignore_eos && crumb_model_token_ends(s->model, *token);
    return *ended ? CRUMB_OK : crumb_session_feed(s, token, 1, err);
}

crumb_status crumb_session_rewind(crumb_session *s, size_t n_keep, crumb_error *err) {
    if (n_keep > s->n_tokens)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "cannot keep %zu tokens of a context of %zu", n_keep, s->n_tokens);
    s->n_tokens = n_keep;
    forget_logits(s);
    return CRUMB_OK;
}

size_t crumb_session_length(const crumb_session *s) {
    return s->n_tokens;
}
size_t crumb_session_capacity(const crumb_session *s) {
    return s->params.n_ctx;
}
void crumb_session_get_stats(const crumb_session *s, crumb_session_stats *out) {
    const crumb_pipeline_stats p = crumb_pipeline_get_stats(s->pipeline);
    *out = s->stats;
    out->kv_bytes = p.kv_bytes;
    out->scratch_bytes = p.scratch_bytes;
}
