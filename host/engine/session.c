#include "host/engine/engine.h"

#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Plans are recorded for these numbers of rows, then for a whole batch; a tail runs in the next larger one. */
static const uint32_t small_buckets[] = {1, 2, 4, 8, 16};
enum {
    N_SMALL = sizeof small_buckets / sizeof *small_buckets,
    BATCH_BUCKET = N_SMALL,
    SCORE_BUCKET, /* every row's logits are wanted: smaller, so that logits stay small */
    N_BUCKETS,
    SCORE_ROWS = 128,
    TOP_K = 128, /* enough for the default top-k of 40 behind a penalty's window of 64 */
};

struct crumb_session {
    crumb_model *model;
    crumb_session_params params;
    crumb_kv_cache *kv;
    crumb_graph graph; /* its last op is TOP where top_value is there */
    crumb_value logits_value;
    crumb_value top_value; /* of the logits, on devices from which these would have to travel; else CRUMB_NO_VALUE */
    crumb_plan *plans[N_BUCKETS];
    crumb_row *rows; /* n_batch */
    int32_t *tokens; /* those in the context; n_ctx */
    size_t n_tokens;
    const float *logits; /* NULL: none, or not yet read from last_bucket's plan */
    const float *top;    /* values, then tokens; NULL: none */
    int last_bucket;     /* of the last token fed; -1: none */
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
    if (p.n_threads <= 0) p.n_threads = m->device_info.n_threads;
    if (p.n_threads_batch <= 0) p.n_threads_batch = p.n_threads;
    return p;
}

static uint32_t bucket_rows(const crumb_session *s, int bucket) {
    if (bucket < N_SMALL) return small_buckets[bucket];
    if (bucket == SCORE_BUCKET && s->params.n_batch > SCORE_ROWS) return SCORE_ROWS;
    return s->params.n_batch;
}

/* Records the bucket's plan when it is first needed. */
static crumb_status get_plan(crumb_session *s, int bucket, crumb_plan **out, crumb_error *err) {
    if (!s->plans[bucket]) {
        uint32_t rows = bucket_rows(s, bucket);
        crumb_plan_desc desc = {
            .ops = s->graph.ops,
            .n_ops = s->graph.n_ops - (bucket == SCORE_BUCKET && s->top_value != CRUMB_NO_VALUE),
            .values = s->graph.values,
            .n_values = s->graph.n_values,
            .max_rows = rows,
            .max_outputs = bucket == SCORE_BUCKET ? rows : 1,
            .n_threads = bucket >= BATCH_BUCKET ? s->params.n_threads_batch : s->params.n_threads,
            .kv = s->kv,
        };
        CRUMB_TRY(s->model->backend->plan.record(s->model->device, &desc, &s->plans[bucket], err));
        s->stats.scratch_bytes += s->model->backend->plan.scratch_bytes(s->plans[bucket]);
    }
    *out = s->plans[bucket];
    return CRUMB_OK;
}

static crumb_status create_kv(crumb_session *s, crumb_error *err) {
    const crumb_hparams *h = &s->model->net.hparams;
    crumb_kv_params kv = {.n_layers = h->num_hidden_layers,
                          .n_sequences = 1,
                          .n_ctx = s->params.n_ctx,
                          .n_head_kv = h->num_key_value_heads,
                          .head_dim = h->head_dim,
                          .type = s->params.kv_type};
    return s->model->backend->device.kv_create(s->model->device, &kv, &s->kv, &s->stats.kv_bytes, err);
}

static crumb_status build_graph(crumb_session *s, crumb_error *err) {
    crumb_graph_init(&s->graph, s->params.activation, err);
    s->logits_value = crumb_network_span(&s->model->net, &s->graph, 0, s->model->net.hparams.num_hidden_layers);
    s->top_value =
        s->model->device_info.host_memory ? CRUMB_NO_VALUE : crumb_graph_top(&s->graph, s->logits_value, TOP_K);
    return s->graph.status;
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

static crumb_status set_up(crumb_session *s, crumb_error *err) {
    const crumb_session_params *p = &s->params;
    crumb_sampler_params sampling = {.temperature = p->temperature,
                                     .top_k = p->top_k,
                                     .top_p = p->top_p,
                                     .min_p = p->min_p,
                                     .repeat_penalty = p->repeat_penalty,
                                     .repeat_last_n = p->repeat_last_n,
                                     .seed = p->seed};
    crumb_plan *plan;
    CRUMB_TRY(crumb_sampler_init(&s->sampler, &sampling, s->model->net.hparams.vocab_size, err));
    CRUMB_TRY(ban_end_tokens(s, err));
    CRUMB_TRY(build_graph(s, err));
    CRUMB_TRY(create_kv(s, err)); /* what a context too large for the machine fails with comes first */
    CRUMB_TRY(crumb_calloc(p->n_batch, sizeof *s->rows, "the batch", (void **)&s->rows, err));
    CRUMB_TRY(crumb_calloc(p->n_ctx, sizeof *s->tokens, "the context", (void **)&s->tokens, err));
    CRUMB_TRY(get_plan(s, 0, &plan, err));
    return get_plan(s, BATCH_BUCKET, &plan, err);
}

crumb_status crumb_session_create(crumb_model *model, const crumb_session_params *params, crumb_session **out,
                                  crumb_error *err) {
    *out = NULL;
    crumb_session *s;
    CRUMB_TRY(crumb_calloc(1, sizeof *s, "the session", (void **)&s, err));
    s->model = model;
    s->params = complete_params(model, params);
    s->last_bucket = -1;
    crumb_status status = set_up(s, err);
    s->graph.err = NULL; /* the caller's; it may be gone by the next call */
    if (status == CRUMB_OK)
        *out = s;
    else
        crumb_session_destroy(s);
    return status;
}

void crumb_session_destroy(crumb_session *s) {
    if (!s) return;
    for (int i = 0; i < N_BUCKETS; i++)
        if (s->plans[i]) s->model->backend->plan.destroy(s->plans[i]);
    if (s->kv) s->model->backend->device.kv_destroy(s->model->device, s->kv);
    crumb_graph_free(&s->graph);
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

static int bucket_for(const crumb_session *s, uint32_t n) {
    for (int i = 0; i < N_SMALL; i++)
        if (n <= small_buckets[i] && small_buckets[i] <= s->params.n_batch) return i;
    return BATCH_BUCKET;
}

static void forget_logits(crumb_session *s) {
    s->logits = s->top = NULL;
    s->last_bucket = -1;
}

/* Evaluates n tokens (at most the bucket's rows) in one replay; outputs are wanted from row first_output on. */
static crumb_status evaluate(crumb_session *s, int bucket, const int32_t *tokens, uint32_t n, uint32_t first_output,
                             crumb_error *err) {
    crumb_plan *plan;
    CRUMB_TRY(get_plan(s, bucket, &plan, err));
    for (uint32_t i = 0; i < n; i++)
        s->rows[i] =
            (crumb_row){.token = tokens[i], .position = (uint32_t)(s->n_tokens + i), .wants_output = i >= first_output};
    forget_logits(s);
    CRUMB_TRY(s->model->backend->plan.replay(plan, s->rows, n, err));
    memcpy(s->tokens + s->n_tokens, tokens, n * sizeof *tokens);
    s->n_tokens += n;
    return CRUMB_OK;
}

static crumb_status read_logits(crumb_session *s, int bucket, const float **out, uint32_t *n, crumb_error *err) {
    return s->model->backend->plan.read(s->plans[bucket], s->logits_value, out, n, err);
}

/* What the next token is chosen from: the largest logits, or all where they lie in the host's memory. */
static crumb_status read_last(crumb_session *s, int bucket, crumb_error *err) {
    const bool all = s->top_value == CRUMB_NO_VALUE;
    uint32_t n;
    s->last_bucket = bucket;
    return s->model->backend->plan.read(s->plans[bucket], all ? s->logits_value : s->top_value,
                                        all ? &s->logits : &s->top, &n, err);
}

static crumb_status need_logits(crumb_session *s, crumb_error *err) {
    uint32_t n;
    if (s->logits) return CRUMB_OK;
    if (s->last_bucket < 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "there are no logits to sample from: feed tokens first");
    return read_logits(s, s->last_bucket, &s->logits, &n, err);
}

static crumb_status stop_if_asked(const crumb_session *s, crumb_error *err) {
    if (!s->params.should_stop || !s->params.should_stop(s->params.should_stop_user)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted after %zu tokens", s->n_tokens);
}

crumb_status crumb_session_feed(crumb_session *s, const int32_t *tokens, size_t n_tokens, crumb_error *err) {
    CRUMB_TRY(check_tokens(s, tokens, n_tokens, err));
    uint64_t start = crumb_now_ns();
    bool decoding = n_tokens == 1 && s->n_tokens > 0;
    for (size_t done = 0; done < n_tokens;) {
        if (!decoding) CRUMB_TRY(stop_if_asked(s, err));
        size_t left = n_tokens - done;
        uint32_t n = left < s->params.n_batch ? (uint32_t)left : s->params.n_batch;
        bool last = n == left;
        int bucket = bucket_for(s, n);
        CRUMB_TRY(evaluate(s, bucket, tokens + done, n, last ? n - 1 : n, err));
        if (last) CRUMB_TRY(read_last(s, bucket, err));
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
    for (size_t done = 0; done < n_tokens;) {
        CRUMB_TRY(stop_if_asked(s, err));
        bool wanted = done + s->params.n_batch > first; /* batches before `first` need no logits */
        int bucket = wanted ? SCORE_BUCKET : BATCH_BUCKET;
        size_t left = n_tokens - done, rows = bucket_rows(s, bucket);
        uint32_t n = (uint32_t)(left < rows ? left : rows), n_outputs = 0;
        uint32_t skip = first <= done ? 0 : first - done < n ? (uint32_t)(first - done) : n;
        CRUMB_TRY(evaluate(s, bucket, tokens + done, n, skip, err));
        const float *logits = NULL;
        if (skip < n) CRUMB_TRY(read_logits(s, bucket, &logits, &n_outputs, err));
        for (uint32_t i = 0; i < n_outputs; i++) CRUMB_TRY(fn(user, done + skip + i, logits + i * n_vocab));
        if (n_outputs) s->logits = logits + (n_outputs - 1) * n_vocab;
        done += n;
    }
    s->stats.n_prompt += n_tokens;
    s->stats.prompt_ms += (double)(crumb_now_ns() - start) / 1e6;
    return CRUMB_OK;
}

void crumb_engine_session_measure(crumb_session *s, crumb_plan_times *times) {
    if (s->model->backend->plan.measure)
        s->model->backend->plan.measure(s->plans[0], times); /* the plan for one row, which every session has */
}

const float *crumb_session_logits(crumb_session *s) {
    return need_logits(s, NULL) == CRUMB_OK ? s->logits : NULL;
}

/* ---- generation -------------------------------------------------------------------------------------------- */

static crumb_status choose_logits(crumb_session *s, crumb_logits *out, crumb_error *err) {
    if (s->top && crumb_sampler_needs(&s->sampler, s->n_banned) <= TOP_K) {
        *out = (crumb_logits){s->top, (const uint32_t *)(const void *)(s->top + TOP_K), TOP_K};
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
    *out = s->stats;
}
