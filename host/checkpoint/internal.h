/* What the files of host/checkpoint share. */
#ifndef CRUMB_CHECKPOINT_INTERNAL_H
#define CRUMB_CHECKPOINT_INTERNAL_H

#include "host/checkpoint/checkpoint.h"
#include "host/container/gguf_source.h"
#include "host/container/safetensors.h"

#include <cjson/cJSON.h>

/* ---- json.c: files of the folder ---------------------------------------------------------------------------- */

enum { CHECKPOINT_MAX_PATH = 4096 };

/* FOLDER/NAME; fails where that is too long. */
crumb_status checkpoint_path(const char *folder, const char *name, char out[CHECKPOINT_MAX_PATH], crumb_error *err);
/* The text of a file of the folder, with a NUL behind it; NULL where it is not there and not required. Freed by the
 * caller. */
crumb_status checkpoint_read(const char *folder, const char *name, bool required, char **text, size_t *n_bytes,
                             crumb_error *err);
/* The same parsed: a JSON object. */
crumb_status checkpoint_read_json(const char *folder, const char *name, bool required, cJSON **out, crumb_error *err);
const cJSON *checkpoint_get(const cJSON *object, const char *key); /* NULL: absent, or null */
const char *checkpoint_text(const cJSON *object, const char *key); /* "" where there is no string */

/* ---- config.c: config.json ----------------------------------------------------------------------------------- */

enum { CHECKPOINT_MAX_ROPE = 2048 };

typedef struct checkpoint_config {
    char path[CHECKPOINT_MAX_PATH]; /* for messages */
    const char *architecture;       /* GGUF's name */
    bool interleaved; /* GGUF's q and k have the pairs that RoPE turns side by side, and not in two halves */
    bool tied;
    uint32_t n_layers, n_heads, n_heads_kv, head_dim, vocab_size;
    uint32_t n_divisors;                 /* 0: none */
    float divisors[CHECKPOINT_MAX_ROPE]; /* of frequencies, by Llama 3's scaling */
    const cJSON *quantization;           /* the document's; NULL: none */
} checkpoint_config;

/* Reads what config.json (`root`) says, and adds its keys. */
crumb_status checkpoint_config_read(const cJSON *root, checkpoint_config *c, crumb_gguf_builder *keys,
                                    crumb_error *err);

/* ---- vocabulary.c: tokenizer.json, tokenizer_config.json, chat_template.jinja -------------------------------- */

/* Adds the tokenizer.* keys. `root`: config.json. */
crumb_status checkpoint_vocabulary_read(const char *folder, const cJSON *root, const checkpoint_config *c,
                                        crumb_gguf_builder *keys, crumb_error *err);

/* ---- tensors.c ----------------------------------------------------------------------------------------------- */

/* The folder's tensors under GGUF's names. Takes `files`, also where it fails. */
crumb_status checkpoint_tensors_open(const checkpoint_config *c, crumb_safetensors *files, crumb_gguf_source *out,
                                     crumb_error *err);

#endif
