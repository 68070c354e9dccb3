/* tokenizer.json from a GGUF file's keys: byte-level BPE, and SentencePiece's as transformers writes it. */
#include "host/base/memory.h"
#include "host/text/internal.h"
#include "host/text/tokenizer_json.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    const crumb_gguf *g;
    crumb_vocab vocab;
    bool is_spm;
    const crumb_pretokenizer *pre; /* of byte-level BPE, as the next one */
    const crumb_known_splitter *splitter;
    const uint8_t *scores; /* SentencePiece's: [n_tokens] f32 */
    const uint8_t *strips; /* [n_tokens] i32 of CRUMB_STRIPS_*; NULL: none does */
    cJSON *root;
    crumb_error *err;
} writer;

/* ---- the vocabulary ------------------------------------------------------------------------------------------ */

/* A token's text with a NUL behind it, freed by the caller; NULL without memory. */
static char *copy_text(crumb_bytes text) {
    char *copy = malloc(text.size + 1);
    if (!copy) return NULL;
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    return copy;
}

static void put_added(const writer *w, cJSON *added, uint32_t id, const char *text) {
    cJSON *entry = cJSON_CreateObject();
    int32_t strips = 0;
    if (w->strips) memcpy(&strips, w->strips + 4 * (size_t)id, 4);
    cJSON_AddNumberToObject(entry, "id", id);
    cJSON_AddStringToObject(entry, "content", text);
    cJSON_AddFalseToObject(entry, "single_word");
    cJSON_AddBoolToObject(entry, "lstrip", (strips & CRUMB_STRIPS_LEFT) != 0);
    cJSON_AddBoolToObject(entry, "rstrip", (strips & CRUMB_STRIPS_RIGHT) != 0);
    cJSON_AddFalseToObject(entry, "normalized");
    cJSON_AddBoolToObject(entry, "special", !(w->vocab.attributes[id] & CRUMB_TOKEN_USER_DEFINED));
    cJSON_AddItemToArray(added, entry);
}

/* Fillers for rows that no token has stay out of it: who reads the file makes them again. */
static crumb_status put_tokens(const writer *w, cJSON *model) {
    cJSON *added = cJSON_AddArrayToObject(w->root, "added_tokens"), *vocab = cJSON_AddObjectToObject(model, "vocab");
    for (uint32_t i = 0; i < w->vocab.n_tokens; i++) {
        const crumb_bytes text = crumb_vocab_text(&w->vocab, (int32_t)i);
        const unsigned a = w->vocab.attributes[i];
        if (text.size == 0 || a & CRUMB_TOKEN_UNUSED) continue;
        char *copy = copy_text(text);
        if (!copy) return crumb_fail(w->err, CRUMB_ERR_MEMORY, "not enough memory for a vocabulary");
        if (a & (CRUMB_TOKEN_CONTROL | CRUMB_TOKEN_USER_DEFINED | CRUMB_TOKEN_UNKNOWN)) put_added(w, added, i, copy);
        cJSON_AddNumberToObject(vocab, copy, i);
        free(copy);
    }
    return CRUMB_OK;
}

static crumb_status put_listed_merges(const writer *w, cJSON *list) {
    const crumb_gguf_value *merges;
    CRUMB_TRY(crumb_gguf_get_array(w->g, "tokenizer.ggml.merges", true, CRUMB_GGUF_STRING, &merges, w->err));
    const uint8_t *cursor = merges->array.data;
    for (uint64_t i = 0; i < merges->array.n; i++) {
        char *copy = copy_text(crumb_gguf_next_string(&cursor));
        if (!copy) return crumb_fail(w->err, CRUMB_ERR_MEMORY, "not enough memory for a vocabulary");
        cJSON_AddItemToArray(list, cJSON_CreateString(copy));
        free(copy);
    }
    return CRUMB_OK;
}

/* ---- SentencePiece knows scores and no merges: every way to make a token of two is one, the best scores first ---- */

typedef struct merge {
    float score;
    int32_t made, left, right;
} merge;

typedef struct merges {
    merge *list;
    size_t n, capacity;
} merges;

static int compare_merges(const void *a, const void *b) {
    const merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->made != y->made) return x->made < y->made ? -1 : 1;
    return x->left < y->left ? -1 : x->left > y->left;
}

/* A token that texts are merged to. */
static int32_t find_normal(const writer *w, const char *text, size_t n_bytes) {
    const int32_t id = crumb_vocab_find(&w->vocab, text, n_bytes);
    return id >= 0 && w->vocab.attributes[id] & CRUMB_TOKEN_NORMAL ? id : -1;
}

static crumb_status add_merge(const writer *w, merges *m, const merge *one) {
    if (m->n == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 1024;
        merge *larger = realloc(m->list, m->capacity * sizeof *m->list);
        if (!larger) return crumb_fail(w->err, CRUMB_ERR_MEMORY, "not enough memory for a vocabulary");
        m->list = larger;
    }
    m->list[m->n++] = *one;
    return CRUMB_OK;
}

static crumb_status find_merges(const writer *w, merges *m) {
    for (int32_t id = 0; id < (int32_t)w->vocab.n_tokens; id++) {
        const crumb_bytes text = crumb_vocab_text(&w->vocab, id);
        if (!(w->vocab.attributes[id] & CRUMB_TOKEN_NORMAL)) continue;
        for (size_t i = 1; i < text.size; i++) {
            if (((unsigned char)text.data[i] & 0xc0) == 0x80) continue; /* within a character */
            merge one = {.made = id, .left = find_normal(w, text.data, i)};
            one.right = one.left < 0 ? -1 : find_normal(w, text.data + i, text.size - i);
            if (one.right < 0) continue;
            memcpy(&one.score, w->scores + 4 * (size_t)id, 4);
            CRUMB_TRY(add_merge(w, m, &one));
        }
    }
    return CRUMB_OK;
}

static crumb_status put_scored_merges(const writer *w, cJSON *list) {
    merges m = {0};
    crumb_status status = find_merges(w, &m);
    if (m.n) qsort(m.list, m.n, sizeof *m.list, compare_merges);
    for (size_t i = 0; i < m.n && status == CRUMB_OK; i++) {
        const crumb_bytes left = crumb_vocab_text(&w->vocab, m.list[i].left);
        const crumb_bytes right = crumb_vocab_text(&w->vocab, m.list[i].right);
        char pair[4096];
        const int n = snprintf(pair, sizeof pair, "%.*s %.*s", (int)left.size, left.data, (int)right.size, right.data);
        if ((size_t)n >= sizeof pair)
            status = crumb_fail(w->err, CRUMB_ERR_UNSUPPORTED, "key 'tokenizer.ggml.tokens': token %d is too long",
                                (int)m.list[i].made);
        else
            cJSON_AddItemToArray(list, cJSON_CreateString(pair));
    }
    free(m.list);
    return status;
}

static crumb_status put_merges(const writer *w, cJSON *model) {
    cJSON *list = cJSON_AddArrayToObject(model, "merges");
    return w->is_spm ? put_scored_merges(w, list) : put_listed_merges(w, list);
}

/* ---- how texts are cut --------------------------------------------------------------------------------------- */

/* The one that cuts as the file's does: several of GGUF's names stand for the same patterns. */
static crumb_status find_splitter(writer *w) {
    crumb_bytes name = {"default", 7};
    CRUMB_TRY(crumb_gguf_get_string(w->g, "tokenizer.ggml.pre", false, &name, w->err));
    w->pre = crumb_pretokenizer_find(name);
    for (size_t i = 0; i < crumb_n_known_splitters && w->pre; i++) {
        const crumb_known_splitter *k = &crumb_known_splitters[i];
        const crumb_pretokenizer *p = crumb_pretokenizer_find((crumb_bytes){k->name, strlen(k->name)});
        if (w->pre->lstrip_token || p->patterns != w->pre->patterns || p->ignore_merges != w->pre->ignore_merges)
            continue;
        w->splitter = k;
        return CRUMB_OK;
    }
    return crumb_fail(w->err, CRUMB_ERR_UNSUPPORTED,
                      "key 'tokenizer.ggml.pre': crumb writes no tokenizer.json for '%.*s': give the model's folder",
                      (int)(name.size < 60 ? name.size : 60), name.data);
}

static void put_component(cJSON *list, const char *component, size_t n) {
    cJSON *p = cJSON_CreateObject();
    cJSON_AddItemToArray(list, p);
    if (n > 6 && strncmp(component, "split ", 6) == 0) {
        char pattern[512];
        snprintf(pattern, sizeof pattern, "%.*s", (int)(n - 6), component + 6);
        cJSON_AddStringToObject(p, "type", "Split");
        cJSON_AddStringToObject(cJSON_AddObjectToObject(p, "pattern"), "Regex", pattern);
        cJSON_AddStringToObject(p, "behavior", "Isolated");
        cJSON_AddFalseToObject(p, "invert");
    } else if (strncmp(component, "digits", n) == 0 || strncmp(component, "numbers", n) == 0) {
        cJSON_AddStringToObject(p, "type", "Digits");
        cJSON_AddBoolToObject(p, "individual_digits", *component == 'd');
    } else if (strncmp(component, "punctuation", n) == 0) {
        cJSON_AddStringToObject(p, "type", "Punctuation");
        cJSON_AddStringToObject(p, "behavior", "Contiguous");
    } else {
        cJSON_AddStringToObject(p, "type", "ByteLevel");
        cJSON_AddFalseToObject(p, "add_prefix_space");
        cJSON_AddTrueToObject(p, "trim_offsets");
        cJSON_AddBoolToObject(p, "use_regex", strncmp(component, "gpt2", n) == 0);
    }
}

/* Patterns have semicolons nowhere. */
static void put_splitter(const writer *w) {
    cJSON *sequence = cJSON_AddObjectToObject(w->root, "pre_tokenizer");
    cJSON_AddStringToObject(sequence, "type", "Sequence");
    cJSON *list = cJSON_AddArrayToObject(sequence, "pretokenizers");
    for (const char *c = w->splitter->components; *c; c += strcspn(c, ";") + 1) put_component(list, c, strcspn(c, ";"));
}

#define MARK "\xe2\x96\x81" /* U+2581, SentencePiece's space */

static void put_metaspace(const writer *w, crumb_bytes rule) {
    char scheme[16];
    cJSON *p = cJSON_AddObjectToObject(w->root, "pre_tokenizer");
    snprintf(scheme, sizeof scheme, "%.*s", (int)rule.size, rule.data);
    cJSON_AddStringToObject(p, "type", "Metaspace");
    cJSON_AddStringToObject(p, "replacement", MARK);
    cJSON_AddStringToObject(p, "prepend_scheme", scheme);
    cJSON_AddFalseToObject(p, "split");
}

static void put_normalizer(const writer *w, bool prepends) {
    cJSON *sequence = cJSON_AddObjectToObject(w->root, "normalizer");
    cJSON_AddStringToObject(sequence, "type", "Sequence");
    cJSON *list = cJSON_AddArrayToObject(sequence, "normalizers"), *replace = cJSON_CreateObject();
    if (prepends) {
        cJSON *prepend = cJSON_CreateObject();
        cJSON_AddStringToObject(prepend, "type", "Prepend");
        cJSON_AddStringToObject(prepend, "prepend", MARK);
        cJSON_AddItemToArray(list, prepend);
    }
    cJSON_AddStringToObject(replace, "type", "Replace");
    cJSON_AddStringToObject(cJSON_AddObjectToObject(replace, "pattern"), "String", " ");
    cJSON_AddStringToObject(replace, "content", MARK);
    cJSON_AddItemToArray(list, replace);
}

/* Spaces become U+2581, with one more in front: of each piece, or where the text does not begin with one. */
static crumb_status put_spaces(const writer *w) {
    bool prepends = true;
    crumb_bytes rule = {"", 0};
    CRUMB_TRY(crumb_gguf_get_bool(w->g, "tokenizer.ggml.add_space_prefix", false, &prepends, w->err));
    CRUMB_TRY(crumb_gguf_get_string(w->g, CRUMB_KEY_SPACE_PREFIX, false, &rule, w->err));
    if (prepends && rule.size)
        put_metaspace(w, rule);
    else
        put_normalizer(w, prepends);
    return CRUMB_OK;
}

/* What turns tokens back into text. */
static void put_decoder(const writer *w) {
    static const char *const parts[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
    cJSON *decoder = cJSON_AddObjectToObject(w->root, "decoder");
    cJSON_AddStringToObject(decoder, "type", w->is_spm ? "Sequence" : "ByteLevel");
    if (!w->is_spm) return;
    cJSON *list = cJSON_AddArrayToObject(decoder, "decoders");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        cJSON *part = cJSON_CreateObject();
        cJSON_AddStringToObject(part, "type", parts[i]);
        if (i == 0) cJSON_AddStringToObject(cJSON_AddObjectToObject(part, "pattern"), "String", MARK);
        if (i == 0 || i == 3) cJSON_AddStringToObject(part, "content", " ");
        if (i == 3) cJSON_AddNumberToObject(part, "start", 1);
        if (i == 3) cJSON_AddNumberToObject(part, "stop", 0);
        cJSON_AddItemToArray(list, part);
    }
}

/* ---- what is put around texts -------------------------------------------------------------------------------- */

static void put_special(cJSON *parts, cJSON *tokens, const writer *w, uint32_t id) {
    char *text = copy_text(crumb_vocab_text(&w->vocab, (int32_t)id));
    cJSON *part = cJSON_CreateObject(), *special = cJSON_AddObjectToObject(part, "SpecialToken");
    cJSON_AddStringToObject(special, "id", text ? text : "");
    cJSON_AddNumberToObject(special, "type_id", 0);
    cJSON_AddItemToArray(parts, part);
    cJSON *token = cJSON_AddObjectToObject(tokens, text ? text : "");
    cJSON_AddStringToObject(token, "id", text ? text : "");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(token, "ids"), cJSON_CreateNumber(id));
    cJSON_AddItemToArray(cJSON_AddArrayToObject(token, "tokens"), cJSON_CreateString(text ? text : ""));
    free(text);
}

/* Whether a token stands at one end of texts, and which: its id is `standard_id` where the file does not say. */
static crumb_status read_end(const writer *w, const char *flag, bool standard, const char *key, uint32_t standard_id,
                             bool *adds, uint32_t *id) {
    *adds = standard;
    *id = w->is_spm ? standard_id : UINT32_MAX;
    CRUMB_TRY(crumb_gguf_get_bool(w->g, flag, false, adds, w->err));
    CRUMB_TRY(crumb_gguf_get_u32(w->g, key, false, id, w->err));
    if (*id >= w->vocab.n_tokens) *adds = false;
    return CRUMB_OK;
}

static crumb_status put_template(const writer *w) {
    bool bos, eos;
    uint32_t bos_id, eos_id;
    CRUMB_TRY(read_end(w, "tokenizer.ggml.add_bos_token", w->is_spm || w->pre->adds_bos, "tokenizer.ggml.bos_token_id",
                       1, &bos, &bos_id));
    CRUMB_TRY(read_end(w, "tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id", 2, &eos, &eos_id));
    if (!bos && !eos) return CRUMB_OK;
    cJSON *p = cJSON_AddObjectToObject(w->root, "post_processor"), *text = cJSON_CreateObject();
    cJSON_AddStringToObject(p, "type", "TemplateProcessing");
    cJSON *single = cJSON_AddArrayToObject(p, "single"), *tokens = cJSON_CreateObject();
    if (bos) put_special(single, tokens, w, bos_id);
    cJSON *sequence = cJSON_AddObjectToObject(text, "Sequence");
    cJSON_AddStringToObject(sequence, "id", "A");
    cJSON_AddNumberToObject(sequence, "type_id", 0);
    cJSON_AddItemToArray(single, text);
    if (eos) put_special(single, tokens, w, eos_id);
    cJSON_AddItemToObject(p, "pair", cJSON_Duplicate(single, true));
    cJSON_AddItemToObject(p, "special_tokens", tokens);
    return CRUMB_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------------------- */

static crumb_status find_model(writer *w) {
    const crumb_gguf_value *scores, *strips = NULL;
    crumb_bytes model;
    CRUMB_TRY(crumb_gguf_get_string(w->g, "tokenizer.ggml.model", true, &model, w->err));
    w->is_spm = model.size == 5 && memcmp(model.data, "llama", 5) == 0;
    CRUMB_TRY(crumb_vocab_open(w->g, &w->vocab, w->err));
    CRUMB_TRY(crumb_gguf_get_array(w->g, CRUMB_KEY_STRIPS, false, CRUMB_GGUF_I32, &strips, w->err));
    if (strips && strips->array.n == w->vocab.n_tokens) w->strips = strips->array.data;
    if (!w->is_spm) return find_splitter(w);
    CRUMB_TRY(crumb_gguf_get_array(w->g, "tokenizer.ggml.scores", true, CRUMB_GGUF_F32, &scores, w->err));
    w->scores = scores->array.data;
    return CRUMB_OK;
}

/* The token that stands for what there is none for. */
static void put_unknown(const writer *w, cJSON *model) {
    uint32_t id = 0;
    if (w->is_spm && crumb_gguf_get_u32(w->g, "tokenizer.ggml.unknown_token_id", false, &id, NULL) == CRUMB_OK &&
        id < w->vocab.n_tokens) {
        char *text = copy_text(crumb_vocab_text(&w->vocab, (int32_t)id));
        cJSON_AddStringToObject(model, "unk_token", text ? text : "");
        free(text);
    } else {
        cJSON_AddNullToObject(model, "unk_token");
    }
}

static crumb_status put_all(writer *w) {
    static const char *const nothing[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    cJSON *model = cJSON_AddObjectToObject(w->root, "model");
    CRUMB_TRY(find_model(w));
    cJSON_AddStringToObject(w->root, "version", "1.0");
    cJSON_AddStringToObject(model, "type", "BPE");
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) cJSON_AddNullToObject(model, nothing[i]);
    put_unknown(w, model);
    cJSON_AddBoolToObject(model, "byte_fallback", w->is_spm);
    cJSON_AddBoolToObject(model, "fuse_unk", w->is_spm);
    cJSON_AddBoolToObject(model, "ignore_merges", w->splitter && w->splitter->ignore_merges);
    CRUMB_TRY(put_tokens(w, model));
    CRUMB_TRY(put_merges(w, model));
    if (w->is_spm)
        CRUMB_TRY(put_spaces(w));
    else
        put_splitter(w);
    put_decoder(w);
    return put_template(w);
}

/* Whether the keys make a tokenizer at all: what is wrong with them is then said as it is elsewhere. */
static crumb_status check_keys(const crumb_gguf *g, crumb_error *err) {
    crumb_tokenizer *t;
    CRUMB_TRY(crumb_tokenizer_open(g, &t, err));
    crumb_tokenizer_close(t);
    return CRUMB_OK;
}

crumb_status crumb_tokenizer_json_from_keys(const crumb_gguf *g, char **out, crumb_error *err) {
    writer w = {.g = g, .err = err};
    *out = NULL;
    CRUMB_TRY(check_keys(g, err));
    w.root = cJSON_CreateObject();
    crumb_status status = put_all(&w);
    if (status == CRUMB_OK) {
        *out = cJSON_PrintUnformatted(w.root);
        if (!*out) status = crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for tokenizer.json");
    }
    crumb_vocab_close(&w.vocab);
    cJSON_Delete(w.root);
    return status;
}
