/* safetensors from any bytes: refused with a reason, or tensors whose bytes all lie in the file. */
#include "host/container/safetensors.h"

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
    crumb_safetensors *s;
    crumb_error err = {0};
    const crumb_status status = crumb_safetensors_open_memory(data, size, "fuzz", &s, &err);
    if (status != CRUMB_OK) {
        require(!s && err.status == status && strncmp(err.message, "fuzz: ", 6) == 0, "a refusal says why");
        return 0;
    }
    for (size_t i = 0; i < crumb_safetensors_n(s); i++) {
        const crumb_safetensor *t = crumb_safetensors_at(s, i);
        unsigned sum = 0;
        require(crumb_safetensors_find(s, t->name) == t, "it is found by its name");
        require(t->offset <= size && t->n_bytes <= size - t->offset, "its bytes lie in the file");
        for (uint64_t b = 0; b < t->n_bytes; b++) sum += crumb_safetensors_data(s, t)[b];
        require(sum <= 255 * t->n_bytes && crumb_dtype_name(t->dtype)[0], "its bytes can be read");
    }
    crumb_safetensors_close(s);
    return 0;
}
