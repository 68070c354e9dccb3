#include "host/text/tokenizer_json.h"

#include "host/base/json.h"
#include "host/base/memory.h"
#include "host/text/internal.h"
#include "host/text/tokenizer_json_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 22, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 }; /* ..token_type */

typedef struct piece {
    const char *text; /* the document's; NULL: a hole in the numbering */
    int32_t type;
    float score;    /* SentencePiece's */
    int32_t strips; /* CRUMB_STRIPS_* */
} piece;

typedef struct reader {
    const cJSON *root, *model;
    piece *pieces; /* [n_pieces], by id */
    uint32_t n_pieces;
    uint32_t *by_text; /* ids of those that have a text, sorted by it */
    uint32_t n_by_text;
    bool is_spm;
    bool strips; /* some piece does */
    crumb_gguf_builder *to;
    crumb_error *err;
} reader;

static crumb_status damaged(const reader *r, const char *field, const char *problem) {
    return crumb_fail(r->err, CRUMB_ERR_FORMAT, "field '%s': %s", field, problem);
}

static crumb_status unsupported(const reader *r, const char *field, const char *what) {
    return crumb_fail(r->err, CRUMB_ERR_UNSUPPORTED, "field '%s': '%.100s' is something that crumb does not do", field,
                      what);
}

/* ---- small readings ---------------------------------------------------------------------------------------- */

/* NULL: absent, or null. */
static const cJSON *get(const cJSON *object, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNull(v) ? NULL : v;
}

/* A string member; "" where there is none. */
static const char *text_of(const cJSON *object, const char *name) {
    const cJSON *v = get(object, name);
    return cJSON_IsString(v) ? v->valuestring : "";
}

static bool is_set(const cJSON *object, const char *name) {
    return cJSON_IsTrue(get(object, name));
}

/* Absent, null, false, "", or 0. */
static bool is_nothing(const cJSON *v) {
    return !v || cJSON_IsFalse(v) || (cJSON_IsString(v) && !*v->valuestring) ||
           (cJSON_IsNumber(v) && v->valuedouble == 0);
}

static bool read_id(const cJSON *v, uint32_t *id) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) || !(v->valuedouble < MAX_TOKENS)) return false;
    *id = (uint32_t)v->valuedouble;
    return (double)*id == v->valuedouble;
}

/* ---- vocabulary -------------------------------------------------------------------------------------------- */

/* The largest id of the vocabulary and of the tokens added to it. */
static crumb_status count_pieces(reader *r) {
    const cJSON *vocab = get(r->model, "vocab"), *added = get(r->root, "added_tokens"), *v;
    uint32_t id = 0;
    if (!cJSON_IsObject(vocab) || !vocab->child) return damaged(r, "model.vocab", "not an object with tokens");
    cJSON_ArrayForEach(v, vocab) {
        if (!read_id(v, &id)) return damaged(r, "model.vocab", "an id is not a number from 0 to 2^22");
        if (id >= r->n_pieces) r->n_pieces = id + 1;
    }
    cJSON_ArrayForEach(v, added) {
        if (!read_id(get(v, "id"), &id) || !cJSON_IsString(get(v, "content")))
            return damaged(r, "added_tokens", "an entry without id and content");
        if (id >= r->n_pieces) r->n_pieces = id + 1;
    }
    return CRUMB_OK;
}

static int32_t type_of_vocab(const reader *r, const char *text) {
    unsigned byte;
    char end;
    if (r->is_spm && strlen(text) == 6 && sscanf(text, "<0x%2X%c", &byte, &end) == 2 && end == '>') return BYTE;
    return strcmp(text, text_of(r->model, "unk_token")) == 0 ? UNKNOWN : 1;
}

static crumb_status read_vocab(reader *r) {
    const cJSON *v;
    cJSON_ArrayForEach(v, get(r->model, "vocab")) {
        piece *p = &r->pieces[(uint32_t)v->valuedouble];
        if (p->text) return damaged(r, "model.vocab", "two tokens have one id");
        *p = (piece){.text = v->string, .type = type_of_vocab(r, v->string)};
    }
    return CRUMB_OK;
}

/* Tokens that are cut out of a text before anything else. */
static crumb_status read_added(reader *r) {
    const cJSON *v;
    cJSON_ArrayForEach(v, get(r->root, "added_tokens")) {
        piece *p = &r->pieces[(uint32_t)get(v, "id")->valuedouble];
        const char *text = text_of(v, "content");
        if (p->text && strcmp(p->text, text) != 0)
            return damaged(r, "added_tokens", "a token that the vocabulary has another text for");
        if (is_set(v, "single_word")) return unsupported(r, "added_tokens", "single_word");
        if (is_set(v, "lstrip")) p->strips |= CRUMB_STRIPS_LEFT;
        if (is_set(v, "rstrip")) p->strips |= CRUMB_STRIPS_RIGHT;
        r->strips = r->strips || p->strips;
        p->text = text;
        if (p->type != UNKNOWN) p->type = is_set(v, "special") ? CONTROL : USER_DEFINED;
    }
    return CRUMB_OK;
}

static _Thread_local const piece *sorted_pieces; /* for the comparison, which qsort() gives no argument */

static int compare_texts(const void *a, const void *b) {
    return strcmp(sorted_pieces[*(const uint32_t *)a].text, sorted_pieces[*(const uint32_t *)b].text);
}

static crumb_status sort_texts(reader *r) {
    CRUMB_TRY(crumb_calloc(r->n_pieces, sizeof *r->by_text, "a vocabulary", (void **)&r->by_text, r->err));
    for (uint32_t i = 0; i < r->n_pieces; i++)
        if (r->pieces[i].text) r->by_text[r->n_by_text++] = i;
    sorted_pieces = r->pieces;
    qsort(r->by_text, r->n_by_text, sizeof *r->by_text, compare_texts);
    return CRUMB_OK;
}

/* The token of that text; NULL: none. */
static piece *find_piece(const reader *r, const char *text) {
    uint32_t low = 0, high = r->n_by_text;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(r->pieces[r->by_text[middle]].text, text);
        if (order == 0) return &r->pieces[r->by_text[middle]];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void put_pieces(const reader *r) {
    crumb_gguf_builder *to = r->to;
    crumb_gguf_build_array(to, "tokenizer.ggml.tokens", CRUMB_GGUF_STRING, r->n_pieces);
    for (uint32_t i = 0; i < r->n_pieces; i++) {
        char hole[24];
        snprintf(hole, sizeof hole, "[PAD%u]", i);
        const char *text = r->pieces[i].text ? r->pieces[i].text : hole;
        crumb_gguf_add_string(to, text, strlen(text));
    }
    crumb_gguf_build_array(to, "tokenizer.ggml.token_type", CRUMB_GGUF_I32, r->n_pieces);
    for (uint32_t i = 0; i < r->n_pieces; i++) crumb_gguf_add_i32(to, r->pieces[i].text ? r->pieces[i].type : UNUSED);
    if (!r->strips) return;
    crumb_gguf_build_array(to, CRUMB_KEY_STRIPS, CRUMB_GGUF_I32, r->n_pieces);
    for (uint32_t i = 0; i < r->n_pieces; i++) crumb_gguf_add_i32(to, r->pieces[i].strips);
}

/* ---- merges ------------------------------------------------------------------------------------------------ */

/* Both halves of a merge, "left right" or ["left", "right"], in `room` with a NUL between them. */
static bool read_merge(const cJSON *v, char *room, size_t size, const char **right) {
    const cJSON *first = cJSON_IsArray(v) ? v->child : NULL, *second = first ? first->next : NULL;
    const char *space = cJSON_IsString(v) ? strchr(v->valuestring, ' ') : NULL;
    int n;
    if (second && !second->next && cJSON_IsString(first) && cJSON_IsString(second))
        n = snprintf(room, size, "%s%c%s", first->valuestring, 0, second->valuestring);
    else if (space && !strchr(space + 1, ' '))
        n = snprintf(room, size, "%.*s%c%s", (int)(space - v->valuestring), v->valuestring, 0, space + 1);
    else
        return false;
    *right = room + strlen(room) + 1;
    return n >= 3 && (size_t)n < size && *room && **right;
}

/* A merge's halves are tokens, and so is what it makes. */
static crumb_status check_merge(const reader *r, const char *left, const char *right, piece **made) {
    char whole[4096];
    const int n = snprintf(whole, sizeof whole, "%s%s", left, right);
    *made = n > 0 && (size_t)n < sizeof whole ? find_piece(r, whole) : NULL;
    if (!*made) return damaged(r, "model.merges", "an entry makes what is no token");
    if (!find_piece(r, left) || !find_piece(r, right))
        return damaged(r, "model.merges", "an entry merges what is no token");
    return CRUMB_OK;
}

static crumb_status put_merges(const reader *r) {
    const cJSON *merges = get(r->model, "merges"), *v;
    const char *right;
    char room[4096];
    piece *made;
    crumb_gguf_build_array(r->to, "tokenizer.ggml.merges", CRUMB_GGUF_STRING, (uint64_t)cJSON_GetArraySize(merges));
    cJSON_ArrayForEach(v, merges) {
        if (!read_merge(v, room, sizeof room, &right) || strchr(room, ' ') || strchr(right, ' '))
            return damaged(r, "model.merges", "an entry is not two tokens");
        CRUMB_TRY(check_merge(r, room, right, &made));
        const size_t n_left = strlen(room);
        room[n_left] = ' ';
        crumb_gguf_add_string(r->to, room, n_left + 1 + strlen(right));
    }
    return r->to->status;
}

/* SentencePiece knows no list of merges, but scores of what they make: the first merge that makes a token counts. */
static crumb_status put_scores(reader *r) {
    const cJSON *v;
    const char *right;
    char room[4096];
    float rank = 0;
    piece *made;
    cJSON_ArrayForEach(v, get(r->model, "merges")) {
        if (!read_merge(v, room, sizeof room, &right)) return damaged(r, "model.merges", "an entry is not two tokens");
        CRUMB_TRY(check_merge(r, room, right, &made));
        rank--;
        if (made->score == 0) made->score = rank;
    }
    crumb_gguf_build_array(r->to, "tokenizer.ggml.scores", CRUMB_GGUF_F32, r->n_pieces);
    for (uint32_t i = 0; i < r->n_pieces; i++)
        crumb_gguf_add_f32(r->to, r->pieces[i].score != 0 ? r->pieces[i].score : rank - 1);
    return r->to->status;
}

/* ---- how texts are cut ------------------------------------------------------------------------------------- */

#define WORDS_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORDS_LLAMA3(digits)                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"             \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const crumb_known_splitter crumb_known_splitters[] = {
    {"gpt2;", false, "gpt-2"},
    {"split " WORDS_GPT2 ";bytes;", false, "gpt-2"},
    {"digits;gpt2;", false, "smollm"},
    {"punctuation;gpt2;numbers;split [0-9][0-9][0-9];", false, "falcon"},
    {"split " WORDS_LLAMA3("\\p{N}{1,3}|") ";bytes;", true, "llama-bpe"},
    {"split " WORDS_LLAMA3("\\p{N}{1,3}|") ";bytes;", false, "smaug-bpe"},
    {"split " WORDS_LLAMA3("\\p{N}|") ";bytes;", false, "qwen2"},
};
const size_t crumb_n_known_splitters = sizeof crumb_known_splitters / sizeof *crumb_known_splitters;

typedef struct description {
    char text[1024];
    size_t size;
} description;

static void describe(description *d, const char *component, const char *pattern) {
    const int n = snprintf(d->text + d->size, sizeof d->text - d->size, "%s%s;", component, pattern);
    d->size = n < 0 || (size_t)n >= sizeof d->text - d->size ? sizeof d->text - 1 : d->size + (size_t)n;
}

static crumb_status describe_splitter(const reader *r, const cJSON *p, int depth, description *d) {
    const char *type = text_of(p, "type"), *pattern = text_of(get(p, "pattern"), "Regex");
    const cJSON *part;
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        cJSON_ArrayForEach(part, get(p, "pretokenizers")) CRUMB_TRY(describe_splitter(r, part, 1, d));
    } else if (strcmp(type, "ByteLevel") == 0 && !is_set(p, "add_prefix_space")) {
        const cJSON *cuts = get(p, "use_regex");
        describe(d, !cuts || cJSON_IsTrue(cuts) ? "gpt2" : "bytes", "");
    } else if (strcmp(type, "Digits") == 0 && is_set(p, "individual_digits")) {
        describe(d, "digits", "");
    } else if (strcmp(type, "Digits") == 0) {
        describe(d, "numbers", "");
    } else if (strcmp(type, "Punctuation") == 0 && strcmp(text_of(p, "behavior"), "Contiguous") == 0) {
        describe(d, "punctuation", "");
    } else if (strcmp(type, "Split") == 0 && *pattern && strcmp(text_of(p, "behavior"), "Isolated") == 0 &&
               !is_set(p, "invert")) {
        describe(d, "split ", pattern);
    } else {
        return unsupported(r, "pre_tokenizer", *type ? type : "null");
    }
    return CRUMB_OK;
}

static crumb_status put_splitter(const reader *r) {
    description d = {.size = 0};
    const bool ignore_merges = is_set(r->model, "ignore_merges");
    CRUMB_TRY(describe_splitter(r, get(r->root, "pre_tokenizer"), 0, &d));
    for (size_t i = 0; i < crumb_n_known_splitters; i++) {
        const crumb_known_splitter *k = &crumb_known_splitters[i];
        if (strcmp(k->components, d.text) != 0 || k->ignore_merges != ignore_merges) continue;
        crumb_gguf_build_string(r->to, "tokenizer.ggml.pre", k->name);
        return CRUMB_OK;
    }
    return unsupported(r, "pre_tokenizer", d.text);
}

/* What byte-level BPE may do to texts first: nothing, or NFC. */
static crumb_status check_byte_level_normalizer(const reader *r) {
    const cJSON *n = get(r->root, "normalizer");
    if (is_nothing(n) || strcmp(text_of(n, "type"), "NFC") == 0) return CRUMB_OK;
    return unsupported(r, "normalizer", text_of(n, "type"));
}

#define MARK "\xe2\x96\x81" /* U+2581, SentencePiece's space */

static bool replaces_spaces(const cJSON *n) {
    return strcmp(text_of(n, "type"), "Replace") == 0 && strcmp(text_of(get(n, "pattern"), "String"), " ") == 0 &&
           strcmp(text_of(n, "content"), MARK) == 0;
}

/* Spaces become U+2581, with one more in front where the normalizer prepends it: one Replace, or several parts. */
static crumb_status read_spm_normalizer(const reader *r, bool *replaces, bool *prepends) {
    const cJSON *n = get(r->root, "normalizer"), *part;
    *replaces = replaces_spaces(n);
    *prepends = false;
    if (*replaces || is_nothing(n)) return CRUMB_OK;
    const cJSON *parts = strcmp(text_of(n, "type"), "Sequence") == 0 ? get(n, "normalizers") : NULL;
    cJSON_ArrayForEach(part, parts) {
        if (strcmp(text_of(part, "type"), "Prepend") == 0 && strcmp(text_of(part, "prepend"), MARK) == 0 && !*replaces)
            *prepends = true;
        else if (replaces_spaces(part))
            *replaces = true;
        else
            return unsupported(r, "normalizer", text_of(part, "type"));
    }
    return *replaces ? CRUMB_OK : unsupported(r, "normalizer", text_of(n, "type"));
}

/* Metaspace does the same instead of a normalizer, but for a text that begins with a space already. */
static crumb_status put_metaspace(const reader *r, const cJSON *p) {
    const char *scheme = text_of(p, "prepend_scheme");
    const cJSON *split = get(p, "split");
    if (strcmp(text_of(p, "replacement"), MARK) != 0) return unsupported(r, "pre_tokenizer", "Metaspace.replacement");
    if (!cJSON_IsFalse(split)) return unsupported(r, "pre_tokenizer", "Metaspace that splits");
    if (strcmp(scheme, "first") != 0 && strcmp(scheme, "always") != 0 && strcmp(scheme, "never") != 0)
        return unsupported(r, "pre_tokenizer", "Metaspace.prepend_scheme");
    crumb_gguf_build_bool(r->to, "tokenizer.ggml.add_space_prefix", strcmp(scheme, "never") != 0);
    if (strcmp(scheme, "never") != 0) crumb_gguf_build_string(r->to, CRUMB_KEY_SPACE_PREFIX, scheme);
    return CRUMB_OK;
}

static crumb_status put_spm_spaces(const reader *r) {
    const cJSON *p = get(r->root, "pre_tokenizer");
    const char *type = text_of(p, "type");
    bool replaces, prepends;
    CRUMB_TRY(read_spm_normalizer(r, &replaces, &prepends));
    if (!replaces && strcmp(type, "Metaspace") == 0) return put_metaspace(r, p);
    if (!replaces) return unsupported(r, "normalizer", "null");
    /* no space is left that one could split at */
    const bool idle = strcmp(type, "Split") == 0 && strcmp(text_of(get(p, "pattern"), "String"), " ") == 0;
    if (!is_nothing(p) && !idle) return unsupported(r, "pre_tokenizer", type);
    crumb_gguf_build_bool(r->to, "tokenizer.ggml.add_space_prefix", prepends);
    return CRUMB_OK;
}

/* ---- what is put around texts ------------------------------------------------------------------------------ */

/* The id of a template's special token. */
static crumb_status special_id(const reader *r, const cJSON *processor, const cJSON *special, uint32_t *id) {
    const cJSON *entry = get(get(processor, "special_tokens"), text_of(special, "id"));
    const cJSON *ids = get(entry, "ids");
    if (cJSON_GetArraySize(ids) != 1 || !read_id(ids->child, id) || *id >= r->n_pieces)
        return damaged(r, "post_processor.special_tokens", "a special token of the template is missing");
    return CRUMB_OK;
}

static crumb_status put_template(const reader *r, const cJSON *processor) {
    const cJSON *part;
    bool behind = false;
    uint32_t id = 0;
    cJSON_ArrayForEach(part, get(processor, "single")) {
        const cJSON *special = get(part, "SpecialToken");
        if (!special) {
            if (behind || !get(part, "Sequence")) return unsupported(r, "post_processor", "TemplateProcessing.single");
            behind = true;
            continue;
        }
        CRUMB_TRY(special_id(r, processor, special, &id));
        const char *key = behind ? "tokenizer.ggml.eos_token_id" : "tokenizer.ggml.bos_token_id";
        if (part->prev && part->prev->next == part && get(part->prev, "SpecialToken"))
            return unsupported(r, "post_processor", "more than one token on one side");
        crumb_gguf_build_u32(r->to, key, id);
        crumb_gguf_build_bool(r->to, behind ? "tokenizer.ggml.add_eos_token" : "tokenizer.ggml.add_bos_token", true);
    }
    return CRUMB_OK;
}

/* There may be one, alone or among processors that move offsets only. */
static crumb_status take_template(const reader *r, const cJSON *processor, const cJSON **template) {
    const char *type = text_of(processor, "type");
    if (strcmp(type, "ByteLevel") == 0) return CRUMB_OK;
    if (strcmp(type, "TemplateProcessing") != 0 || *template) return unsupported(r, "post_processor", type);
    *template = processor;
    return CRUMB_OK;
}

static crumb_status put_post_processor(const reader *r) {
    const cJSON *p = get(r->root, "post_processor"), *part, *template = NULL;
    if (strcmp(text_of(p, "type"), "Sequence") == 0) {
        cJSON_ArrayForEach(part, get(p, "processors")) CRUMB_TRY(take_template(r, part, &template));
    } else if (!is_nothing(p)) {
        CRUMB_TRY(take_template(r, p, &template));
    }
    bool adds_bos = false;
    cJSON_ArrayForEach(part, get(template, "single")) {
        if (get(part, "Sequence")) break;
        adds_bos = true;
    }
    if (!adds_bos) crumb_gguf_build_bool(r->to, "tokenizer.ggml.add_bos_token", false);
    return template ? put_template(r, template) : CRUMB_OK;
}

/* ---- how ids become text again ----------------------------------------------------------------------------- */

static bool is_count(const cJSON *object, const char *name, double most) {
    const cJSON *v = get(object, name);
    return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble <= most;
}

/* What SentencePiece's kind does with pieces: marks become spaces, <0x..> bytes, and one space in front may go. */
static bool is_spm_decoder(const cJSON *d) {
    const char *type = text_of(d, "type");
    if (strcmp(type, "Replace") == 0)
        return strcmp(text_of(get(d, "pattern"), "String"), MARK) == 0 && strcmp(text_of(d, "content"), " ") == 0;
    if (strcmp(type, "Strip") == 0)
        return strcmp(text_of(d, "content"), " ") == 0 && is_count(d, "start", 1) && is_count(d, "stop", 0);
    if (strcmp(type, "Metaspace") == 0) return strcmp(text_of(d, "replacement"), MARK) == 0;
    return strcmp(type, "ByteFallback") == 0 || strcmp(type, "Fuse") == 0;
}

/* One that does something else would be followed by nobody. None at all is how some vocabularies are written. */
static crumb_status check_decoder(const reader *r) {
    const cJSON *d = get(r->root, "decoder"), *part;
    const char *type = text_of(d, "type");
    if (is_nothing(d)) return CRUMB_OK;
    if (!r->is_spm) return strcmp(type, "ByteLevel") == 0 ? CRUMB_OK : unsupported(r, "decoder", type);
    if (strcmp(type, "Sequence") != 0) return is_spm_decoder(d) ? CRUMB_OK : unsupported(r, "decoder", type);
    cJSON_ArrayForEach(part, get(d, "decoders")) {
        if (!is_spm_decoder(part)) return unsupported(r, "decoder", text_of(part, "type"));
    }
    return CRUMB_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------- */

static crumb_status check_model(reader *r) {
    static const char *const neutral[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    r->model = get(r->root, "model");
    if (!cJSON_IsObject(r->model)) return damaged(r, "model", "missing");
    if (strcmp(text_of(r->model, "type"), "BPE") != 0) return unsupported(r, "model.type", text_of(r->model, "type"));
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if (!is_nothing(get(r->model, neutral[i]))) return unsupported(r, "model", neutral[i]);
    if (!cJSON_IsArray(get(r->model, "merges"))) return damaged(r, "model.merges", "missing");
    r->is_spm = is_set(r->model, "byte_fallback");
    return CRUMB_OK;
}

static crumb_status put_all(reader *r) {
    CRUMB_TRY(crumb_tokenizer_json_check_fields(r->root, r->err));
    CRUMB_TRY(check_model(r));
    CRUMB_TRY(count_pieces(r));
    CRUMB_TRY(crumb_calloc(r->n_pieces, sizeof *r->pieces, "a vocabulary", (void **)&r->pieces, r->err));
    CRUMB_TRY(read_vocab(r));
    CRUMB_TRY(read_added(r));
    CRUMB_TRY(sort_texts(r));
    crumb_gguf_build_string(r->to, "tokenizer.ggml.model", r->is_spm ? "llama" : "gpt2");
    put_pieces(r);
    CRUMB_TRY(put_post_processor(r));
    CRUMB_TRY(check_decoder(r));
    if (!r->is_spm) {
        CRUMB_TRY(check_byte_level_normalizer(r));
        CRUMB_TRY(put_splitter(r));
        return put_merges(r);
    }
    CRUMB_TRY(put_spm_spaces(r));
    const char *unk_token = text_of(r->model, "unk_token");
    const piece *unknown = find_piece(r, unk_token);
    if (*unk_token && !unknown) return damaged(r, "model.unk_token", "no token of the vocabulary");
    if (unknown) crumb_gguf_build_u32(r->to, "tokenizer.ggml.unknown_token_id", (uint32_t)(unknown - r->pieces));
    return put_scores(r);
}

crumb_status crumb_tokenizer_json_to_keys(const char *json, size_t n_bytes, uint32_t n_tokens, crumb_gguf_builder *to,
                                          crumb_error *err) {
    cJSON *root;
    CRUMB_TRY(crumb_json_parse_object(json, n_bytes, &root, err));
    reader r = {.root = root, .to = to, .err = err, .n_pieces = n_tokens < MAX_TOKENS ? n_tokens : MAX_TOKENS};
    crumb_status status = put_all(&r);
    if (status == CRUMB_OK) status = to->status;
    free(r.pieces);
    free(r.by_text);
    cJSON_Delete(root);
    return status;
}

crumb_status crumb_tokenizer_open_json(const char *json, size_t n_bytes, const char *name, crumb_tokenizer **out,
                                       crumb_error *err) {
    crumb_gguf_builder keys;
    crumb_gguf *g = NULL;
    *out = NULL;
    crumb_gguf_build_begin(&keys, err);
    crumb_status status = crumb_tokenizer_json_to_keys(json, n_bytes, 0, &keys, err);
    if (status != CRUMB_OK)
        crumb_fail_prefix(err, status, "%s", name);
    else
        status = crumb_gguf_build_open(&keys, name, &g); /* which names the file itself */
    if (g && (status = crumb_tokenizer_open(g, out, err)) != CRUMB_OK) crumb_fail_prefix(err, status, "%s", name);
    crumb_gguf_close(g);
    crumb_gguf_build_free(&keys);
    return status;
}
