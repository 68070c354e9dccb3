/* What a token is for, where only its name tells: which tokens end a generation and which strip white space. Files do
 * not say it reliably, so names decide, and the lists agree with llama.cpp's (src/llama-vocab.cpp), whose converter
 * makes the files.
 */
#include "host/text/internal.h"

#include <string.h>

enum { MAX_NAMES = 12 };

/* A role has at most one token: the key's, else the first of the names that the vocabulary has. */
static const struct role {
    const char *key;
    bool ends; /* the token ends a generation */
    const char *names[MAX_NAMES];
} roles[] = {
    {"tokenizer.ggml.eot_token_id",
     true,
     {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>",
      "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"}},
    {"tokenizer.ggml.eom_token_id", true, {"<|eom_id|>"}},
    {"tokenizer.ggml.fim_pre_token_id",
     false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
      "<|prefix|>"}},
    {"tokenizer.ggml.fim_suf_token_id",
     false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
      "<|suffix|>"}},
    {"tokenizer.ggml.fim_mid_token_id",
     false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
      "<|middle|>"}},
    {"tokenizer.ggml.fim_pad_token_id", true, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {"tokenizer.ggml.fim_rep_token_id", true, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"tokenizer.ggml.fim_sep_token_id", true, {"<|file_sep|>"}},
};

/* These end a generation wherever they exist. */
static const char *const end_names[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};

/* These are part of what the model says (gpt-oss's channels), whatever their type. */
static const char *const said_names[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static int32_t find_name(const crumb_vocab *v, const char *name) {
    return crumb_vocab_find(v, name, strlen(name));
}

static bool ends(const crumb_vocab *v, const char *name) {
    int32_t id = find_name(v, name);
    return id >= 0 && (v->attributes[id] & CRUMB_TOKEN_ENDS);
}

static crumb_status apply_role(const crumb_gguf *g, crumb_vocab *v, const struct role *r, crumb_error *err) {
    uint32_t id = UINT32_MAX;
    CRUMB_TRY(crumb_gguf_get_u32(g, r->key, false, &id, err));
    if (id < v->n_tokens) {
        if (r->ends) v->attributes[id] |= CRUMB_TOKEN_ENDS;
        return CRUMB_OK;
    }
    for (int i = 0; i < MAX_NAMES && r->names[i]; i++) {
        int32_t named = find_name(v, r->names[i]);
        if (named < 0) continue;
        v->attributes[named] |= (uint16_t)(CRUMB_TOKEN_CONTROL | (r->ends ? CRUMB_TOKEN_ENDS : 0));
        break;
    }
    return CRUMB_OK;
}

/* Two families use a name that ends generations elsewhere for something else. */
static void take_back_ends(crumb_vocab *v) {
    bool calls = ends(v, "<|call|>") || ends(v, "<|calls|>");
    if (ends(v, "<|end|>") && calls && (ends(v, "<|return|>") || ends(v, "<|flush|>")))
        v->attributes[find_name(v, "<|end|>")] = CRUMB_TOKEN_USER_DEFINED;
    if (ends(v, "<|tool_response>") && ends(v, "</s>")) v->attributes[find_name(v, "</s>")] = CRUMB_TOKEN_NORMAL;
}

static bool contains(crumb_bytes text, const char *lower_case) {
    size_t n = strlen(lower_case);
    for (size_t i = 0; i + n <= text.size; i++) {
        size_t j = 0;
        while (j < n &&
               (text.data[i + j] | (text.data[i + j] >= 'A' && text.data[i + j] <= 'Z' ? 0x20 : 0)) == lower_case[j])
            j++;
        if (j == n) return true;
    }
    return false;
}

/* Phi-3's special tokens swallow the white space behind them; no key says so, only the model's name. */
static crumb_status set_rstrip(const crumb_gguf *g, crumb_vocab *v, crumb_error *err) {
    static const char *const exceptions[] = {"<unk>", "<s>", "<|endoftext|>"};
    crumb_bytes name = {"", 0};
    CRUMB_TRY(crumb_gguf_get_string(g, "general.name", false, &name, err));
    if (!contains(name, "phi-3") && !contains(name, "phi3")) return CRUMB_OK;
    for (uint32_t i = 0; i < v->n_tokens; i++)
        if (v->attributes[i] & (CRUMB_TOKEN_CONTROL | CRUMB_TOKEN_USER_DEFINED | CRUMB_TOKEN_UNKNOWN))
            v->attributes[i] |= CRUMB_TOKEN_RSTRIP;
    for (size_t i = 0; i < LENGTH(exceptions); i++) {
        int32_t id = find_name(v, exceptions[i]);
        if (id >= 0) v->attributes[id] &= (uint16_t)~CRUMB_TOKEN_RSTRIP;
    }
    return CRUMB_OK;
}

static crumb_status read_ends(const crumb_gguf *g, crumb_vocab *v, crumb_error *err) {
    const crumb_gguf_value *ends = NULL;
    CRUMB_TRY(crumb_gguf_get_array(g, CRUMB_KEY_ENDS, false, CRUMB_GGUF_I32, &ends, err));
    for (uint64_t i = 0; ends && i < ends->array.n; i++) {
        uint32_t id;
        memcpy(&id, ends->array.data + 4 * i, 4);
        if (id >= v->n_tokens) return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: there is no token %u", CRUMB_KEY_ENDS, id);
        v->attributes[id] |= CRUMB_TOKEN_ENDS;
    }
    return CRUMB_OK;
}

static crumb_status read_strips(const crumb_gguf *g, crumb_vocab *v, crumb_error *err) {
    const crumb_gguf_value *strips = NULL;
    CRUMB_TRY(crumb_gguf_get_array(g, CRUMB_KEY_STRIPS, false, CRUMB_GGUF_I32, &strips, err));
    if (strips && strips->array.n != v->n_tokens)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s has %llu entries for %u tokens", CRUMB_KEY_STRIPS,
                          (unsigned long long)strips->array.n, v->n_tokens);
    for (uint32_t i = 0; strips && i < v->n_tokens; i++) {
        int32_t sides;
        memcpy(&sides, strips->array.data + 4 * (size_t)i, 4);
        if (sides & CRUMB_STRIPS_LEFT) v->attributes[i] |= CRUMB_TOKEN_LSTRIP;
        if (sides & CRUMB_STRIPS_RIGHT) v->attributes[i] |= CRUMB_TOKEN_RSTRIP;
    }
    return CRUMB_OK;
}

crumb_status crumb_vocab_set_roles(const crumb_gguf *g, crumb_vocab *v, int32_t eos, const char *lstrip_token,
                                   crumb_error *err) {
    for (size_t i = 0; i < LENGTH(roles); i++) CRUMB_TRY(apply_role(g, v, &roles[i], err));
    for (size_t i = 0; i < LENGTH(end_names); i++) {
        int32_t id = find_name(v, end_names[i]);
        if (id >= 0) v->attributes[id] |= CRUMB_TOKEN_CONTROL | CRUMB_TOKEN_ENDS;
    }
    for (size_t i = 0; i < LENGTH(said_names); i++) {
        int32_t id = find_name(v, said_names[i]);
        if (id >= 0) v->attributes[id] = (uint16_t)(CRUMB_TOKEN_USER_DEFINED | (v->attributes[id] & CRUMB_TOKEN_ENDS));
    }
    if (eos >= 0) v->attributes[eos] |= CRUMB_TOKEN_ENDS;
    CRUMB_TRY(read_ends(g, v, err));
    take_back_ends(v);
    int32_t stripper = lstrip_token ? find_name(v, lstrip_token) : -1;
    if (stripper >= 0) v->attributes[stripper] |= CRUMB_TOKEN_LSTRIP;
    CRUMB_TRY(set_rstrip(g, v, err));
    return read_strips(g, v, err);
}
