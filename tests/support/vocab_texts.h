/* The texts and ids of tests/oracle/vocabs. Tests run in the repository's root. Failures end the test program. */
#ifndef CRUMB_TESTS_VOCAB_TEXTS_H
#define CRUMB_TESTS_VOCAB_TEXTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct vocab_texts {
    char **texts; /* [n], NUL-terminated */
    size_t n;
    void *json;
} vocab_texts;

vocab_texts vocab_texts_read(void);
void vocab_texts_free(vocab_texts *t);

typedef struct vocab_ids {
    int32_t *ids;
    size_t n;
} vocab_ids;

/* Every line of tests/oracle/vocabs/NAME.ids, n_digits base64 digits to an id. Free .ids of each and the array. */
vocab_ids *vocab_ids_read(const char *name, int n_digits, size_t *n_lines);

/* A whole file; *n_bytes may be NULL. NUL-terminated, freed by the caller. */
char *vocab_read_file(const char *path, size_t *n_bytes);

#endif
