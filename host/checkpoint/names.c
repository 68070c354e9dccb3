/* What checkpoints and GGUF files call a model's tensors, and how large config.json says that they are. */
#include "host/checkpoint/internal.h"

#include <stdio.h>
#include <string.h>

enum size { VOCAB, HIDDEN, FF, Q, KV, HEAD };

typedef struct checkpoint_name_pair {
    const char *hf, *gguf;
    enum size rows, columns; /* of a matrix; a vector has as many values as there are rows */
} name_pair;

static const name_pair model_names[] = {
    {"model.embed_tokens", "token_embd", VOCAB, HIDDEN},
    {"model.norm", "output_norm", HIDDEN, HIDDEN},
    {"lm_head", "output", VOCAB, HIDDEN},
};

static const name_pair layer_names[] = {
    {"input_layernorm", "attn_norm", HIDDEN, HIDDEN},
    {"self_attn.q_proj", "attn_q", Q, HIDDEN},
    {"self_attn.k_proj", "attn_k", KV, HIDDEN},
    {"self_attn.v_proj", "attn_v", KV, HIDDEN},
    {"self_attn.o_proj", "attn_output", HIDDEN, Q},
    {"self_attn.q_norm", "attn_q_norm", HEAD, HEAD},
    {"self_attn.k_norm", "attn_k_norm", HEAD, HEAD},
    {"self_attn.attn_sub_norm", "attn_sub_norm", Q, Q},
    {"post_attention_layernorm", "ffn_norm", HIDDEN, HIDDEN},
    {"mlp.gate_proj", "ffn_gate", FF, HIDDEN},
    {"mlp.up_proj", "ffn_up", FF, HIDDEN},
    {"mlp.down_proj", "ffn_down", HIDDEN, FF},
    {"mlp.ffn_sub_norm", "ffn_sub_norm", FF, FF},
};

/* The pair whose first name is the n bytes at text; NULL: none. */
static const name_pair *find_pair(const name_pair *pairs, size_t n_pairs, const char *text, size_t n) {
    for (size_t i = 0; i < n_pairs; i++)
        if (strlen(pairs[i].hf) == n && memcmp(pairs[i].hf, text, n) == 0) return &pairs[i];
    return NULL;
}

checkpoint_name checkpoint_translate(const char *name) {
    const char *dot = strrchr(name, '.');
    checkpoint_name t = {.part = dot ? dot + 1 : ""};
    int used = 0;
    if (!dot) return t;
    t.pair = find_pair(model_names, sizeof model_names / sizeof *model_names, name, (size_t)(dot - name));
    if (t.pair) return snprintf(t.gguf, sizeof t.gguf, "%s", t.pair->gguf), t;
    if (sscanf(name, "model.layers.%5u.%n", &t.layer, &used) != 1 || used == 0 || name + used >= dot) return t;
    t.pair = find_pair(layer_names, sizeof layer_names / sizeof *layer_names, name + used, (size_t)(dot - name - used));
    if (t.pair) snprintf(t.gguf, sizeof t.gguf, "blk.%u.%s", t.layer, t.pair->gguf);
    return t;
}

bool checkpoint_name_of(const char *gguf, char out[128], unsigned *layer, unsigned *rank) {
    const char *dot = strrchr(gguf, '.');
    int used = 0;
    if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0)) return false;
    for (size_t i = 0; i < sizeof model_names / sizeof *model_names; i++)
        if (strlen(model_names[i].gguf) == (size_t)(dot - gguf) &&
            strncmp(model_names[i].gguf, gguf, (size_t)(dot - gguf)) == 0)
            return *layer = *rank = 0, snprintf(out, 128, "%s%s", model_names[i].hf, dot), true;
    if (sscanf(gguf, "blk.%5u.%n", layer, &used) != 1 || used == 0 || gguf + used >= dot) return false;
    for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++) {
        const size_t n = strlen(layer_names[i].gguf);
        if (n != (size_t)(dot - gguf) - (size_t)used || strncmp(layer_names[i].gguf, gguf + used, n) != 0) continue;
        *rank = (unsigned)i;
        return snprintf(out, 128, "model.layers.%u.%s%s", *layer, layer_names[i].hf, dot), true;
    }
    return false;
}

crumb_status checkpoint_check_sizes(const checkpoint_config *c, const checkpoint_name *name, const char *tensor,
                                    const crumb_gguf_tensor *d, crumb_error *err) {
    const struct {
        const char *keys;
        uint64_t n;
    } sizes[] = {[VOCAB] = {"'vocab_size'", c->vocab_size},
                 [HIDDEN] = {"'hidden_size'", c->hidden_size},
                 [FF] = {"'intermediate_size'", c->intermediate_size},
                 [Q] = {"'num_attention_heads' (times head_dim)", (uint64_t)c->n_heads * c->head_dim},
                 [KV] = {"'num_key_value_heads' (times head_dim)", (uint64_t)c->n_heads_kv * c->head_dim},
                 [HEAD] = {"'head_dim'", c->head_dim}};
    const enum size rows = name->pair->rows, columns = name->pair->columns;
    const uint64_t n_rows = d->dims[d->n_dims - 1], n_columns = d->n_dims == 2 ? d->dims[0] : sizes[columns].n;
    const bool in_rows = n_rows != sizes[rows].n;
    const enum size wrong = in_rows ? rows : columns;
    if (!in_rows && n_columns == sizes[columns].n) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key %s: %llu, but the tensor '%.80s' has %llu %s", c->path,
                      sizes[wrong].keys, (unsigned long long)sizes[wrong].n, tensor,
                      (unsigned long long)(in_rows ? n_rows : n_columns), in_rows ? "rows" : "columns");
}
