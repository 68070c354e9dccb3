#include "host/sample/sampler.h"

#include "host/base/memory.h"

#include <math.h>
#include <stdlib.h>

/* splitmix64, to spread a seed; xoroshiro128+ (Blackman, Vigna 2018) for the draws. */
static uint64_t split_mix(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotate(uint64_t x, int k) {
    return x << k | x >> (64 - k);
}

static double draw_unit(crumb_sampler *s) {
    uint64_t a = s->rng[0], b = s->rng[1], sum = a + b;
    b ^= a;
    s->rng[0] = rotate(a, 24) ^ b ^ b << 16;
    s->rng[1] = rotate(b, 37);
    return (double)(sum >> 11) * 0x1p-53;
}

static crumb_status check(const crumb_sampler_params *p, crumb_error *err) {
    if (!(p->temperature >= 0 && p->temperature <= 1e4f))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "temperature %g is not in 0..10000", (double)p->temperature);
    if (!(p->top_p >= 0 && p->top_p <= 1))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "top-p %g is not in 0..1", (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "min-p %g is not in 0..1", (double)p->min_p);
    if (!(p->repeat_penalty > 0 && p->repeat_penalty <= 1e4f))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "repeat penalty %g is not above 0", (double)p->repeat_penalty);
    if (p->top_k < 0) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "top-k %d is negative", p->top_k);
    return CRUMB_OK;
}

crumb_status crumb_sampler_init(crumb_sampler *s, const crumb_sampler_params *params, uint32_t n_vocab,
                                crumb_error *err) {
    *s = (crumb_sampler){.params = *params, .n_vocab = n_vocab};
    CRUMB_TRY(check(params, err));
    uint64_t state = params->seed;
    s->rng[0] = split_mix(&state);
    s->rng[1] = split_mix(&state);
    CRUMB_TRY(crumb_calloc(n_vocab, sizeof *s->candidates, "the sampler", (void **)&s->candidates, err));
    CRUMB_TRY(crumb_calloc(n_vocab, sizeof *s->probabilities, "the sampler", (void **)&s->probabilities, err));
    return crumb_calloc(n_vocab, 1, "the sampler", (void **)&s->seen, err);
}

void crumb_sampler_free(crumb_sampler *s) {
    free(s->candidates);
    free(s->probabilities);
    free(s->seen);
    *s = (crumb_sampler){0};
}

static bool better(crumb_candidate a, crumb_candidate b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

/* Heap with the worst candidate on top. */
static void sift_down(crumb_candidate *heap, size_t n, size_t i) {
    for (;;) {
        size_t worst = i, left = 2 * i + 1, right = left + 1;
        if (left < n && better(heap[worst], heap[left])) worst = left;
        if (right < n && better(heap[worst], heap[right])) worst = right;
        if (worst == i) return;
        crumb_candidate t = heap[i];
        heap[i] = heap[worst];
        heap[worst] = t;
        i = worst;
    }
}

/* Moves the k best of n candidates to the front, best first; O(n log k) at worst, about O(n) for random logits. */
static void select_best(crumb_candidate *c, size_t n, size_t k) {
    for (size_t i = k / 2; i-- > 0;) sift_down(c, k, i);
    for (size_t i = k; i < n; i++) {
        if (!better(c[i], c[0])) continue;
        c[0] = c[i];
        sift_down(c, k, 0);
    }
    for (size_t end = k; end > 1; end--) {
        crumb_candidate t = c[0];
        c[0] = c[end - 1];
        c[end - 1] = t;
        sift_down(c, end - 1, 0);
    }
}

/* Candidates from logits: banned ones and NaN left out, repeated ones made less likely (Keskar et al. 2019). */
static size_t collect(crumb_sampler *s, const crumb_logits *logits, const int32_t *history, size_t n_history,
                      const bool *banned) {
    float penalty = s->params.repeat_penalty;
    size_t window = n_history < s->params.repeat_last_n ? n_history : s->params.repeat_last_n;
    if (penalty == 1) window = 0;
    const int32_t *recent = window ? history + (n_history - window) : NULL;
    for (size_t i = 0; i < window; i++)
        if (recent[i] >= 0 && (uint32_t)recent[i] < s->n_vocab) s->seen[recent[i]] = 1;
    size_t n = 0;
    for (size_t i = 0; i < logits->n && n < s->n_vocab; i++) {
        const size_t t = logits->token ? logits->token[i] : i;
        float logit = logits->value[i];
        if (t >= s->n_vocab) continue;
        if (s->seen[t]) logit = logit > 0 ? logit / penalty : logit * penalty;
        if (isnan(logit) || logit == -INFINITY || (banned && banned[t])) continue;
        s->candidates[n++] = (crumb_candidate){logit, (int32_t)t};
    }
    for (size_t i = 0; i < window; i++)
        if (recent[i] >= 0 && (uint32_t)recent[i] < s->n_vocab) s->seen[recent[i]] = 0;
    return n;
}

/* Softmax of the sorted candidates at the given temperature; returns the sum of the unnormalised weights. */
static double weigh(crumb_sampler *s, size_t n, float temperature) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double weight = exp(((double)s->candidates[i].logit - (double)s->candidates[0].logit) / (double)temperature);
        s->probabilities[i] = (float)weight;
        sum += weight;
    }
    return sum;
}

/* How many of the sorted candidates top-p and min-p keep, at least one. */
static size_t truncate_tail(crumb_sampler *s, size_t n) {
    const crumb_sampler_params *p = &s->params;
    double sum = weigh(s, n, 1.0f);
    if (p->top_p < 1) {
        double kept = 0;
        size_t i = 0;
        while (i < n && kept < (double)p->top_p * sum) kept += (double)s->probabilities[i++];
        n = i ? i : 1;
    }
    if (p->min_p > 0) { /* weights are relative to the best one, whose weight is 1 */
        size_t i = 1;
        while (i < n && s->probabilities[i] >= p->min_p) i++;
        n = i;
    }
    return n;
}

/* Penalties of at least 1 only lower logits: each token that they touch makes room for one that they do not. */
size_t crumb_sampler_needs(const crumb_sampler *s, size_t n_banned) {
    const crumb_sampler_params *p = &s->params;
    if (p->repeat_penalty < 1 || (p->temperature != 0 && p->top_k == 0)) return SIZE_MAX;
    const size_t kept = p->temperature == 0 ? 1 : (size_t)p->top_k;
    return kept + n_banned + (p->repeat_penalty == 1 ? 0 : p->repeat_last_n);
}

crumb_status crumb_sampler_pick(crumb_sampler *s, const crumb_logits *logits, const int32_t *history, size_t n_history,
                                const bool *banned, int32_t *token, crumb_error *err) {
    const crumb_sampler_params *p = &s->params;
    size_t n = collect(s, logits, history, n_history, banned);
    if (n == 0) return crumb_fail(err, CRUMB_ERR_VERIFY, "no logit is a number: the weights or the device are broken");
    size_t k = p->temperature == 0 ? 1 : p->top_k > 0 && (size_t)p->top_k < n ? (size_t)p->top_k : n;
    select_best(s->candidates, n, k);
    *token = s->candidates[0].token;
    if (k == 1) return CRUMB_OK;
    k = truncate_tail(s, k);
    double target = draw_unit(s) * weigh(s, k, p->temperature);
    for (size_t i = 0; i < k; i++) {
        target -= (double)s->probabilities[i];
        *token = s->candidates[i].token;
        if (target < 0) break;
    }
    return CRUMB_OK;
}
