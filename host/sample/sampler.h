/* Choosing the next token. The same seed gives the same tokens on any machine whose logits are the same. */
#ifndef CRUMB_SAMPLE_SAMPLER_H
#define CRUMB_SAMPLE_SAMPLER_H

#include "host/base/error.h"

typedef struct crumb_sampler_params {
    float temperature; /* 0: greedy */
    int32_t top_k;     /* 0: all */
    float top_p, min_p;
    float repeat_penalty;   /* 1: off */
    uint32_t repeat_last_n; /* tokens that the penalty looks back on */
    uint64_t seed;
} crumb_sampler_params;

typedef struct crumb_candidate {
    float logit;
    int32_t token;
} crumb_candidate;

typedef struct crumb_sampler {
    crumb_sampler_params params;
    uint64_t rng[2];
    uint32_t n_vocab;
    crumb_candidate *candidates; /* n_vocab */
    float *probabilities;        /* n_vocab */
    uint8_t *seen;               /* n_vocab: marks of the repeat penalty, zero between calls */
} crumb_sampler;

/* Checks the parameters (ARGUMENT, naming the one that is wrong) and allocates. */
crumb_status crumb_sampler_init(crumb_sampler *s, const crumb_sampler_params *params, uint32_t n_vocab,
                                crumb_error *err);
void crumb_sampler_free(crumb_sampler *s);

/* What is chosen from: `value[i]` is the logit of token `token[i]`, or, where token is NULL, of token i. Ids outside
 * the vocabulary are left out. */
typedef struct crumb_logits {
    const float *value;
    const uint32_t *token;
    size_t n; /* at most n_vocab */
} crumb_logits;

/* In llama.cpp's order: repeat penalty over the last tokens of `history`, banned tokens (banned[token] true; may be
 * NULL), top-k, top-p, min-p, temperature, then a draw. Ties go to the smaller id. Fails with VERIFY when no logit is
 * finite. */
crumb_status crumb_sampler_pick(crumb_sampler *s, const crumb_logits *logits, const int32_t *history, size_t n_history,
                                const bool *banned, int32_t *token, crumb_error *err);
/* How many of the largest logits are enough to pick as from all of them, when so many tokens are banned; SIZE_MAX: all
 * are needed. */
size_t crumb_sampler_needs(const crumb_sampler *s, size_t n_banned);

#endif
