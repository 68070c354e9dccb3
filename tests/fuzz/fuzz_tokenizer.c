/* Tokenizers on any bytes. The first byte picks one of tests/oracle/vocabs and the flags, the rest is the text, or,
 * with the top bit, a GGUF file whose vocabulary is read.
 */
#include "host/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"gpt-2", "default", "smollm", "llama-bpe", "spm"};
enum { N_NAMES = 5, IS_FILE = 0x80 };

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

static const crumb_tokenizer *small(unsigned index) {
    static crumb_tokenizer *open[N_NAMES];
    if (!open[index]) {
        char path[4096];
        crumb_gguf *g;
        snprintf(path, sizeof path, CRUMB_SOURCE_FOLDER "/tests/oracle/vocabs/%s.gguf", names[index]);
        require(crumb_gguf_open(path, &g, NULL) == CRUMB_OK, path);
        require(crumb_tokenizer_open(g, &open[index], NULL) == CRUMB_OK, path);
        crumb_gguf_close(g);
    }
    return open[index];
}

static void check_text(const crumb_tokenizer *t, bool is_bpe, unsigned flags, const char *text, size_t n_text) {
    size_t n = 0, n_again = 0, n_bytes = 0, capacity = n_text + 2;
    if (!is_bpe) capacity = 3 * n_text + 3; /* a space may be three byte tokens */
    int32_t *ids = malloc(capacity * sizeof *ids);
    require(ids && crumb_tokenizer_encode(t, text, n_text, flags, ids, capacity, &n, NULL) == CRUMB_OK, "it encodes");
    crumb_status status = crumb_tokenizer_encode(t, text, n_text, flags, NULL, 0, &n_again, NULL);
    require(n_again == n && status == (n ? CRUMB_ERR_ARGUMENT : CRUMB_OK), "counting agrees");
    for (size_t i = (flags & CRUMB_TOKENIZE_ADD_SPECIAL) && crumb_tokenizer_adds_bos(t); i < n; i++) {
        size_t size;
        const char *bytes = crumb_tokenizer_token_bytes(t, ids[i], true, &size);
        require(!is_bpe || (n_bytes + size <= n_text && memcmp(bytes, text + n_bytes, size) == 0), "it decodes again");
        n_bytes += size;
    }
    require(!is_bpe || n_bytes == n_text, "it decodes to all of the text");
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    unsigned first = *data;
    const char *text = (const char *)data + 1;
    if (first & IS_FILE) {
        crumb_gguf *g;
        crumb_tokenizer *t;
        size_t n;
        if (crumb_gguf_open_memory(text, size - 1, "fuzz", &g, NULL) != CRUMB_OK) return 0;
        if (crumb_tokenizer_open(g, &t, NULL) == CRUMB_OK) {
            crumb_tokenizer_encode(t, text, size - 1, first & 3, NULL, 0, &n, NULL);
            for (uint32_t i = 0; i < crumb_tokenizer_n_vocab(t); i++)
                crumb_tokenizer_token_bytes(t, (int32_t)i, true, &n);
            crumb_tokenizer_close(t);
        }
        crumb_gguf_close(g);
    } else {
        unsigned index = (first >> 2) % N_NAMES;
        check_text(small(index), index < 4, first & 3, text, size - 1);
    }
    return 0;
}
