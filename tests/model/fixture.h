/* The tiny models of tests/oracle and what they must answer (tests/oracle/make_fixtures.py describes the file). */
#ifndef CRUMB_TESTS_MODEL_FIXTURE_H
#define CRUMB_TESTS_MODEL_FIXTURE_H

#include "host/crumb.h"

enum { FIXTURE_MAX_SETS = 3 };

typedef struct fixture {
    char name[64];
    char model_path[256];
    uint32_t n_tokens, n_vocab, n_sets;
    const int32_t *tokens;
    crumb_activation activation[FIXTURE_MAX_SETS];
    const float *logits[FIXTURE_MAX_SETS]; /* [n_tokens][n_vocab] */
    void *bytes;                           /* the file, which the pointers above look into */
} fixture;

/* Every fixture, sorted by name; fails the test when one is damaged. Freed by fixtures_free. */
fixture *fixtures_load(size_t *n);
void fixtures_free(fixture *fixtures, size_t n);
const float *fixture_logits(const fixture *f, crumb_activation activation); /* NULL: the model has no such set */

/* The logits of all tokens, [n_tokens][n_vocab], on one thread of the CPU; fails the test where a model does not open.
 */
void score_tokens(const char *model_path, const int32_t *tokens, size_t n_tokens, uint32_t n_vocab,
                  crumb_activation activation, float *logits);
/* Squared error of n numbers by the squared size of what they are compared with, which is neither 0 nor infinite. */
double squared_error(const float *found, const float *wanted, size_t n);

/* A whole file. *n_bytes excludes the NUL that follows the bytes. Freed by the caller. */
uint8_t *read_whole_file(const char *path, size_t *n_bytes);

#endif
