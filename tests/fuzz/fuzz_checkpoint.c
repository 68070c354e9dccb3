/* config.json from any bytes: refused with a reason, or keys that make a GGUF file. */
#include "host/base/json.h"
#include "host/checkpoint/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

static void read_config(const cJSON *root) {
    static checkpoint_config c;
    crumb_gguf_builder keys;
    crumb_error err = {0};
    c = (checkpoint_config){.path = "config.json", .architecture = ""};
    crumb_gguf_build_begin(&keys, &err);
    const crumb_status status = checkpoint_config_read(root, &c, &keys, &err);
    if (status != CRUMB_OK) {
        require(err.status == status && strncmp(err.message, "config.json: ", 13) == 0, "a refusal says why");
    } else {
        crumb_gguf *g;
        require(c.head_dim > 0 && c.n_heads > 0 && c.n_divisors <= CHECKPOINT_MAX_ROPE, "what is read is in range");
        require(crumb_gguf_build_open(&keys, "keys", &g) == CRUMB_OK, "the keys are a file");
        require(crumb_gguf_find(g, "general.architecture") != NULL, "and name the architecture");
        crumb_gguf_close(g);
    }
    crumb_gguf_build_free(&keys);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cJSON *root;
    if (crumb_json_parse_object((const char *)data, size, &root, NULL) != CRUMB_OK) return 0;
    read_config(root);
    cJSON_Delete(root);
    return 0;
}
