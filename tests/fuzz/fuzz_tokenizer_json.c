/* tokenizer.json from any bytes: refused with a reason, or a tokenizer that encodes and decodes. */
#include "host/text/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    crumb_tokenizer *t;
    crumb_error err = {0};
    const crumb_status status = crumb_tokenizer_open_json((const char *)data, size, "fuzz.json", &t, &err);
    if (status != CRUMB_OK) {
        require(!t && err.status == status && strncmp(err.message, "fuzz.json: ", 11) == 0, "a refusal says why");
        return 0;
    }
    size_t n, n_bytes;
    crumb_tokenizer_encode(t, (const char *)data, size, CRUMB_TOKENIZE_PARSE_SPECIAL, NULL, 0, &n, NULL);
    for (uint32_t i = 0; i < crumb_tokenizer_n_vocab(t); i++)
        crumb_tokenizer_token_bytes(t, (int32_t)i, true, &n_bytes);
    crumb_tokenizer_close(t);
    return 0;
}
