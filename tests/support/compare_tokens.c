#include "tests/support/compare_tokens.h"

#include <math.h>
#include <stdio.h>

int32_t token_best(const float *logits, size_t n_vocab) {
    size_t best = 0;
    for (size_t i = 1; i < n_vocab; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

void token_tally_add(token_tally *tally, const token_rule *rule, const char *where, const float *logits, size_t n_vocab,
                     const token_reference *reference) {
    float error = fabsf(logits[reference->best] - logits[reference->second] - reference->margin);
    int32_t ours = token_best(logits, n_vocab);
    size_t position = tally->n_positions++;
    if (!(error <= tally->worst_error)) tally->worst_error = error; /* a NaN stays */
    if (!(error <= rule->max_error)) {
        tally->n_far++;
        printf("%s, position %zu: the reference's two best are %g apart, ours %g\n", where, position,
               (double)reference->margin, (double)(logits[reference->best] - logits[reference->second]));
    }
    if (ours == reference->best) return;
    if (reference->margin < rule->near_tie) {
        tally->n_near_ties++;
    } else {
        tally->n_wrong++;
        printf("%s, position %zu: token %d, the reference has %d by %g\n", where, position, ours, reference->best,
               (double)reference->margin);
    }
}

void token_tally_add_logits(token_tally *tally, const token_rule *rule, const char *where, const float *logits,
                            size_t n_vocab, const float *reference) {
    token_reference two = {.best = token_best(reference, n_vocab), .second = -1};
    for (size_t i = 0; i < n_vocab; i++) {
        double error = (double)logits[i] - (double)reference[i];
        tally->error_sum += error * error;
        tally->reference_sum += (double)reference[i] * (double)reference[i];
        if ((int32_t)i == two.best) continue;
        if (two.second < 0 || reference[i] > reference[two.second]) two.second = (int32_t)i;
    }
    two.margin = reference[two.best] - reference[two.second];
    token_tally_add(tally, rule, where, logits, n_vocab, &two);
}

double token_tally_nmse(const token_tally *tally) {
    return tally->error_sum / tally->reference_sum;
}

bool token_tally_report(const token_tally *tally, const token_rule *rule, const char *what) {
    printf("%s: %zu positions, %zu other tokens at near-ties (closer than %g), %zu wrong, worst error %g of %g", what,
           tally->n_positions, tally->n_near_ties, (double)rule->near_tie, tally->n_wrong, (double)tally->worst_error,
           (double)rule->max_error);
    if (tally->reference_sum > 0) printf(", nmse %.2g", token_tally_nmse(tally));
    printf("\n");
    return tally->n_positions > 0 && tally->n_wrong == 0 && tally->n_far == 0;
}
