/* The one rule by which "the same greedy tokens" is judged (testing.md): the reference's tokens are fed, whatever ours
 * would be; at every position the logits may differ by a stated bound; and another best token counts as agreement only
 * where the reference's own two best are closer than a stated bound. How many such places there were is printed.
 */
#ifndef CRUMB_TESTS_COMPARE_TOKENS_H
#define CRUMB_TESTS_COMPARE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct token_rule {
    float near_tie;  /* logits: the reference's two best are as good as equal when they are closer than this */
    float max_error; /* logits: how far our distance between its two best may be from its own */
} token_rule;

typedef struct token_tally {
    size_t n_positions;
    size_t n_near_ties; /* positions where our best is another, and may be */
    size_t n_wrong;     /* positions where our best is another, and may not be */
    size_t n_far;       /* positions whose error exceeds max_error */
    float worst_error;
    double error_sum, reference_sum; /* squares, over all logits compared: nmse is their quotient */
} token_tally;

/* The reference's verdict on one position: its best token, the runner-up, and by how much the best leads. */
typedef struct token_reference {
    int32_t best, second;
    float margin; /* logits, >= 0 */
} token_reference;

int32_t token_best(const float *logits, size_t n_vocab); /* the first of the greatest */

/* Judges one position where only the two best of the reference are known. Prints what is wrong, with `where`. */
void token_tally_add(token_tally *tally, const token_rule *rule, const char *where, const float *logits, size_t n_vocab,
                     const token_reference *reference);

/* The same where all its logits are known; they also enter the normalized mean squared error. */
void token_tally_add_logits(token_tally *tally, const token_rule *rule, const char *where, const float *logits,
                            size_t n_vocab, const float *reference);

double token_tally_nmse(const token_tally *tally);

/* Prints the tally in one line and says whether no position was wrong or far. */
bool token_tally_report(const token_tally *tally, const token_rule *rule, const char *what);

#endif
