/* The vocabulary: tokens as the file spells them, what bytes they stand for, and the way back from text to token. Two
 * arenas and a hash table, no allocation per token: opening is part of the time to the first token.
 */
#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/text/internal.h"

#include <stdlib.h>
#include <string.h>

#define KEY_TOKENS     "tokenizer.ggml.tokens"
#define KEY_TOKEN_TYPE "tokenizer.ggml.token_type"

/* ---- text -> id --------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t hash_text(uint64_t seed, const char *text, size_t n_bytes) {
    uint64_t hash = mix(seed, n_bytes), word;
    for (; n_bytes >= 8; text += 8, n_bytes -= 8) {
        memcpy(&word, text, 8);
        hash = mix(hash, word);
    }
    word = 0;
    for (size_t i = 0; i < n_bytes; i++) word = word << 8 | (unsigned char)text[i];
    return mix(mix(hash, word), seed);
}

/* The slot that holds the text, or the free one where it belongs. */
static crumb_vocab_slot *find_slot(const crumb_vocab *v, const char *text, size_t n_bytes, uint32_t *tag) {
    uint64_t hash = hash_text(v->seed, text, n_bytes);
    *tag = (uint32_t)(hash >> 32);
    for (uint32_t i = (uint32_t)hash & v->slot_mask;; i = (i + 1) & v->slot_mask) {
        crumb_vocab_slot *slot = &v->slots[i];
        if (slot->id < 0) return slot;
        if (slot->tag != *tag) continue;
        crumb_bytes found = crumb_vocab_text(v, slot->id);
        if (found.size == n_bytes && memcmp(found.data, text, n_bytes) == 0) return slot;
    }
}

int32_t crumb_vocab_find(const crumb_vocab *v, const char *text, size_t n_bytes) {
    uint32_t tag;
    return n_bytes > v->max_text_bytes ? -1 : find_slot(v, text, n_bytes, &tag)->id;
}

/* Each pass touches what the one before has asked for, so that cache misses overlap instead of adding up: a Llama 3
 * file's merges are 800,000 look-ups in tables that fit no cache. */
void crumb_vocab_find_many(const crumb_vocab *v, const crumb_bytes *texts, size_t n, int32_t *ids) {
    uint32_t at[CRUMB_FIND_MANY];
    for (size_t i = 0; i < n; i++) {
        at[i] = (uint32_t)hash_text(v->seed, texts[i].data, texts[i].size) & v->slot_mask;
        __builtin_prefetch(&v->slots[at[i]]);
    }
    for (size_t i = 0; i < n; i++) {
        at[i] = v->slots[at[i]].id < 0 ? 0 : (uint32_t)v->slots[at[i]].id;
        __builtin_prefetch(&v->text_at[at[i]]);
    }
    for (size_t i = 0; i < n; i++) __builtin_prefetch(v->text + v->text_at[at[i]]);
    for (size_t i = 0; i < n; i++) ids[i] = crumb_vocab_find(v, texts[i].data, texts[i].size);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static crumb_status allocate(crumb_vocab *v, uint64_t n_text_bytes, crumb_error *err) {
    uint64_t n = v->n_tokens, n_slots = 2;
    while (n_slots < 2 * n) n_slots *= 2;
    v->slot_mask = (uint32_t)(n_slots - 1);
    CRUMB_TRY(crumb_calloc(n_text_bytes + 1, 1, "the vocabulary", (void **)&v->text, err));
    CRUMB_TRY(crumb_calloc(n + 1, sizeof *v->text_at, "the vocabulary", (void **)&v->text_at, err));
    CRUMB_TRY(crumb_calloc(n, sizeof *v->attributes, "the vocabulary", (void **)&v->attributes, err));
    CRUMB_TRY(crumb_calloc(n_slots, sizeof *v->slots, "the vocabulary", (void **)&v->slots, err));
    memset(v->slots, 0xff, n_slots * sizeof *v->slots);
    return CRUMB_OK;
}

/* Copies the next n texts, from token `first` on, and asks for the slots that they will need. */
static void copy_texts(crumb_vocab *v, const uint8_t **cursor, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < first + n; i++) {
        crumb_bytes text = crumb_gguf_next_string(cursor);
        memcpy(v->text + v->text_at[i], text.data, text.size);
        v->text_at[i + 1] = v->text_at[i] + (uint32_t)text.size;
        if (text.size > v->max_text_bytes) v->max_text_bytes = (uint32_t)text.size;
        __builtin_prefetch(&v->slots[(uint32_t)hash_text(v->seed, text.data, text.size) & v->slot_mask]);
    }
}

static crumb_status read_texts(const crumb_gguf_value *tokens, crumb_vocab *v, crumb_error *err) {
    const uint8_t *cursor = tokens->array.data;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        uint32_t n_left = v->n_tokens - i;
        if (i % CRUMB_FIND_MANY == 0) copy_texts(v, &cursor, i, n_left < CRUMB_FIND_MANY ? n_left : CRUMB_FIND_MANY);
        crumb_bytes text = crumb_vocab_text(v, (int32_t)i);
        if (text.size == 0) continue; /* a hole in the numbering: nothing encodes to it */
        uint32_t tag;
        crumb_vocab_slot *slot = find_slot(v, text.data, text.size, &tag);
        if (slot->id >= 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: tokens %d and %u are both '%.*s'", KEY_TOKENS, slot->id, i,
                              (int)(text.size < 100 ? text.size : 100), text.data);
        *slot = (crumb_vocab_slot){tag, (int32_t)i};
    }
    return CRUMB_OK;
}

static crumb_status read_types(const crumb_gguf *g, crumb_vocab *v, crumb_error *err) {
    static const uint16_t attributes[] = {
        0,
        CRUMB_TOKEN_NORMAL,
        CRUMB_TOKEN_UNKNOWN,
        CRUMB_TOKEN_CONTROL,
        CRUMB_TOKEN_USER_DEFINED,
        CRUMB_TOKEN_UNUSED,
        CRUMB_TOKEN_BYTE,
    };
    const crumb_gguf_value *types = NULL;
    CRUMB_TRY(crumb_gguf_get_array(g, KEY_TOKEN_TYPE, false, CRUMB_GGUF_I32, &types, err));
    if (types && types->array.n != v->n_tokens)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s has %llu entries for %u tokens", KEY_TOKEN_TYPE,
                          (unsigned long long)types->array.n, v->n_tokens);
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        int32_t type = 1;
        if (types) memcpy(&type, types->array.data + 4 * (size_t)i, 4);
        if (type < 0 || type > 6)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s of token %u is %d, which is no type", KEY_TOKEN_TYPE, i, type);
        v->attributes[i] = attributes[type];
    }
    return CRUMB_OK;
}

crumb_status crumb_vocab_open(const crumb_gguf *g, crumb_vocab *v, crumb_error *err) {
    *v = (crumb_vocab){.seed = crumb_now_ns() ^ (uint64_t)(uintptr_t)v};
    const crumb_gguf_value *tokens = NULL;
    CRUMB_TRY(crumb_gguf_get_array(g, KEY_TOKENS, true, CRUMB_GGUF_STRING, &tokens, err));
    uint64_t n_text_bytes = 0;
    const uint8_t *cursor = tokens->array.data;
    for (uint64_t i = 0; i < tokens->array.n; i++) n_text_bytes += crumb_gguf_next_string(&cursor).size;
    /* Byte-level text is longer than its bytes and SentencePiece's is not shorter: 32-bit offsets serve both. */
    if (tokens->array.n == 0 || tokens->array.n > INT32_MAX / 4 || n_text_bytes > INT32_MAX)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s has %llu tokens of %llu bytes; need 1 to %d of at most %d",
                          KEY_TOKENS, (unsigned long long)tokens->array.n, (unsigned long long)n_text_bytes,
                          INT32_MAX / 4, INT32_MAX);
    v->n_tokens = (uint32_t)tokens->array.n;
    CRUMB_TRY(allocate(v, n_text_bytes, err));
    CRUMB_TRY(read_texts(tokens, v, err));
    return read_types(g, v, err);
}

void crumb_vocab_close(crumb_vocab *v) {
    free(v->text);
    free(v->text_at);
    free(v->bytes);
    free(v->bytes_at);
    free(v->attributes);
    free(v->slots);
}

/* ---- id -> bytes -------------------------------------------------------------------------------------------- */

/* GPT-2's byte-level spelling: printable Latin-1 bytes are the character of that number, and the other 68 bytes are, in
 * order, the characters from U+0100 on. */
static bool is_spelled_as_itself(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

size_t crumb_vocab_write_byte_level(const char *bytes, size_t n_bytes, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned c = (unsigned char)bytes[i];
        if (!is_spelled_as_itself(c)) /* 0-20 -> 100-120, 7f-a0 -> 121-142, ad -> 143 */
            c = c < 0x21 ? c + 0x100 : c < 0xa1 ? c + (0x121 - 0x7f) : 0x143;
        if (c < 0x80) {
            out[n++] = (char)c;
        } else {
            out[n++] = (char)(0xc0 | c >> 6);
            out[n++] = (char)(0x80 | (c & 0x3f));
        }
    }
    return n;
}

/* Undoes crumb_vocab_write_byte_level; false where the text is not in that spelling. */
static bool read_byte_level(crumb_bytes text, char *out, size_t *n_out) {
    const unsigned char *p = (const unsigned char *)text.data, *end = p + text.size;
    size_t n = 0;
    while (p < end) {
        unsigned c = *p++;
        if (c >= 0x21 && c <= 0x7e) { /* nearly all */
            out[n++] = (char)c;
            continue;
        }
        if (c >= 0xc2 && c <= 0xc5 && p < end && (*p & 0xc0) == 0x80) {
            c = (c & 0x1f) << 6 | (*p++ & 0x3f);
        } else if (c >= 0x80) {
            return false;
        }
        if (c >= 0x100) {
            if (c > 0x143) return false;
            c = c <= 0x120 ? c - 0x100 : c <= 0x142 ? c - (0x121 - 0x7f) : 0xad;
        } else if (!is_spelled_as_itself(c)) {
            return false;
        }
        out[n++] = (char)c;
    }
    *n_out = n;
    return true;
}

static size_t read_sentencepiece(crumb_bytes text, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < text.size;) {
        bool is_space = text.size - i >= 3 && memcmp(text.data + i, "\xe2\x96\x81", 3) == 0;
        out[n++] = is_space ? ' ' : text.data[i];
        i += is_space ? 3 : 1;
    }
    return n;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The byte of "<0xNN>"; -1: the text is not of that form. */
static int read_byte_token(crumb_bytes text) {
    if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>') return -1;
    int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Writes the bytes of a token, never more than its text has. */
static crumb_status spell(const crumb_vocab *v, int32_t id, crumb_token_spelling spelling, char *out, size_t *n,
                          crumb_error *err) {
    crumb_bytes text = crumb_vocab_text(v, id);
    unsigned attributes = v->attributes[id];
    *n = 0;
    if (attributes & (CRUMB_TOKEN_UNKNOWN | CRUMB_TOKEN_CONTROL | CRUMB_TOKEN_USER_DEFINED)) {
        memcpy(out, text.data, *n = text.size);
    } else if (attributes & CRUMB_TOKEN_BYTE) {
        int byte = read_byte_token(text);
        if (byte < 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: token %d has the type byte but is not of the form <0xNN>",
                              KEY_TOKENS, id);
        out[(*n)++] = (char)byte;
    } else if (attributes & CRUMB_TOKEN_NORMAL) {
        if (spelling == CRUMB_SPELLING_SENTENCEPIECE) {
            *n = read_sentencepiece(text, out);
        } else if (!read_byte_level(text, out, n)) { /* a plain token in a byte-level vocabulary: as it stands */
            memcpy(out, text.data, *n = text.size);
        }
    }
    return CRUMB_OK;
}

crumb_status crumb_vocab_spell(crumb_vocab *v, crumb_token_spelling spelling, crumb_error *err) {
    CRUMB_TRY(crumb_calloc((uint64_t)v->text_at[v->n_tokens] + 1, 1, "the vocabulary", (void **)&v->bytes, err));
    CRUMB_TRY(
        crumb_calloc((uint64_t)v->n_tokens + 1, sizeof *v->bytes_at, "the vocabulary", (void **)&v->bytes_at, err));
    uint32_t at = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        size_t n;
        CRUMB_TRY(spell(v, (int32_t)i, spelling, v->bytes + at, &n, err));
        at += (uint32_t)n;
        v->bytes_at[i + 1] = at;
    }
    return CRUMB_OK;
}
