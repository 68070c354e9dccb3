/* Byte-level BPE (tokenizer.ggml.model = gpt2): a word's bytes are tokens, and pairs of tokens merge in the order of
 * tokenizer.ggml.merges.
 */
#include "host/base/memory.h"
#include "host/text/internal.h"

#include <stdlib.h>
#include <string.h>

#define KEY_MERGES "tokenizer.ggml.merges"

static uint64_t hash_pair(const crumb_bpe *b, int32_t left, int32_t right) {
    uint64_t hash = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ b->seed;
    hash = (hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return (hash ^ hash >> 32) * UINT64_C(0xd6e8feb86659fd93);
}

/* The slot of the pair, or the free one where it belongs. */
static crumb_bpe_slot *find_slot(const crumb_bpe *b, int32_t left, int32_t right, uint32_t *tag) {
    uint64_t hash = hash_pair(b, left, right);
    *tag = (uint32_t)hash;
    for (uint32_t i = (uint32_t)(hash >> 32) & b->slot_mask;; i = (i + 1) & b->slot_mask) {
        crumb_bpe_slot *slot = &b->slots[i];
        if (slot->rank == UINT32_MAX) return slot;
        if (slot->tag == *tag && b->merges[slot->rank].left == left && b->merges[slot->rank].right == right)
            return slot;
    }
}

static bool is_joined(crumb_bytes whole, crumb_bytes left, crumb_bytes right) {
    return whole.size == left.size + right.size && memcmp(whole.data, left.data, left.size) == 0 &&
           memcmp(whole.data + left.size, right.data, right.size) == 0;
}

static int32_t find_joined(const crumb_vocab *v, crumb_bytes left, crumb_bytes right) {
    char buffer[256], *joined = buffer;
    size_t n = left.size + right.size;
    if (n > v->max_text_bytes) return -1;
    if (n > sizeof buffer && !(joined = malloc(n))) return -1;
    memcpy(joined, left.data, left.size);
    memcpy(joined + left.size, right.data, right.size);
    int32_t id = crumb_vocab_find(v, joined, n);
    if (joined != buffer) free(joined);
    return id;
}

/* Splits "left right"; llama.cpp, too, does so at the first space that is not the first character. */
static bool split_merge(crumb_bytes text, crumb_bytes pair[2]) {
    const char *space = text.size > 2 ? memchr(text.data + 1, ' ', text.size - 2) : NULL;
    if (!space) return false;
    pair[0] = (crumb_bytes){text.data, (size_t)(space - text.data)};
    pair[1] = (crumb_bytes){space + 1, text.size - pair[0].size - 1};
    return true;
}

/* The token that a merge makes: trainers number tokens in the order of merges, so it is mostly the one of the merge
 * before, or the next. */
static int32_t find_merged(const crumb_vocab *v, const crumb_bytes pair[2], int32_t before) {
    for (int32_t id = before; id <= before + 1 && id < (int32_t)v->n_tokens; id++)
        if (is_joined(crumb_vocab_text(v, id), pair[0], pair[1])) return id;
    return find_joined(v, pair[0], pair[1]);
}

/* Reads up to CRUMB_FIND_MANY / 2 merges; *n_read is how many were good. */
static void read_some_merges(const crumb_vocab *v, const uint8_t **cursor, uint32_t n, crumb_bpe_merge *merges,
                             int32_t before, uint32_t *n_read) {
    crumb_bytes pairs[CRUMB_FIND_MANY];
    int32_t ids[CRUMB_FIND_MANY];
    uint32_t n_split = 0;
    while (n_split < n && split_merge(crumb_gguf_next_string(cursor), pairs + 2 * n_split)) n_split++;
    crumb_vocab_find_many(v, pairs, 2 * (size_t)n_split, ids);
    for (*n_read = 0; *n_read < n_split; ++*n_read) {
        uint32_t i = *n_read;
        if (ids[2 * i] < 0 || ids[2 * i + 1] < 0 || (before = find_merged(v, pairs + 2 * i, before)) < 0) break;
        merges[i] = (crumb_bpe_merge){ids[2 * i], ids[2 * i + 1], before};
    }
}

/* Names the first entry that could not be read. */
static crumb_status fail_merge(const crumb_gguf_value *merges, uint32_t index, crumb_error *err) {
    const uint8_t *cursor = merges->array.data;
    crumb_bytes text = crumb_gguf_next_string(&cursor);
    for (uint32_t i = 0; i < index; i++) text = crumb_gguf_next_string(&cursor);
    return crumb_fail(err, CRUMB_ERR_FORMAT,
                      "%s: entry %u, '%.*s', is not two tokens of the vocabulary that join to a third", KEY_MERGES,
                      index, (int)(text.size < 100 ? text.size : 100), text.data);
}

static crumb_status read_merges(const crumb_gguf *g, crumb_bpe *b, crumb_error *err) {
    const crumb_gguf_value *merges = NULL;
    CRUMB_TRY(crumb_gguf_get_array(g, KEY_MERGES, true, CRUMB_GGUF_STRING, &merges, err));
    uint64_t n_slots = 2;
    if (merges->array.n > INT32_MAX / 4)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s has %llu entries; at most %d are possible", KEY_MERGES,
                          (unsigned long long)merges->array.n, INT32_MAX / 4);
    uint32_t n = (uint32_t)merges->array.n, n_read;
    while (n_slots < 2 * (uint64_t)n) n_slots *= 2;
    b->slot_mask = (uint32_t)(n_slots - 1);
    CRUMB_TRY(crumb_calloc(n + 1, sizeof *b->merges, "the merges", (void **)&b->merges, err));
    CRUMB_TRY(crumb_calloc(n_slots, sizeof *b->slots, "the merges", (void **)&b->slots, err));
    memset(b->slots, 0xff, n_slots * sizeof *b->slots);
    const uint8_t *cursor = merges->array.data;
    for (uint32_t i = 0; i < n; i += n_read) {
        uint32_t n_now = n - i < CRUMB_FIND_MANY / 2 ? n - i : CRUMB_FIND_MANY / 2;
        read_some_merges(b->vocab, &cursor, n_now, b->merges + i, i ? b->merges[i - 1].token : 0, &n_read);
        if (n_read < n_now) return fail_merge(merges, i + n_read, err);
        for (uint32_t j = i; j < i + n_now; j++)
            __builtin_prefetch(&b->slots[hash_pair(b, b->merges[j].left, b->merges[j].right) >> 32 & b->slot_mask]);
        for (uint32_t j = i; j < i + n_now; j++) {
            uint32_t tag;
            crumb_bpe_slot *slot = find_slot(b, b->merges[j].left, b->merges[j].right, &tag);
            if (slot->rank == UINT32_MAX) *slot = (crumb_bpe_slot){tag, j}; /* of equal ones the first counts */
        }
    }
    return CRUMB_OK;
}

crumb_status crumb_bpe_open(const crumb_gguf *g, const crumb_vocab *v, const crumb_pretokenizer *p, crumb_bpe *out,
                            crumb_error *err) {
    *out = (crumb_bpe){.vocab = v, .ignore_merges = p->ignore_merges, .seed = v->seed};
    for (int i = 0; i < 256; i++) {
        char byte = (char)i, text[2];
        out->byte_tokens[i] = crumb_vocab_find(v, text, crumb_vocab_write_byte_level(&byte, 1, text));
    }
    CRUMB_TRY(read_merges(g, out, err));
    return crumb_splitter_create(p, &out->splitter, err);
}

void crumb_bpe_close(crumb_bpe *b) {
    crumb_splitter_destroy(&b->splitter);
    free(b->merges);
    free(b->slots);
}

static bool may_merge(const void *rules, const char *word, const crumb_symbol *symbols, uint32_t left, uint32_t right,
                      uint32_t *rank, int32_t *id) {
    (void)word;
    const crumb_bpe *b = rules;
    uint32_t tag;
    if (symbols[left].id < 0 || symbols[right].id < 0) return false;
    *rank = find_slot(b, symbols[left].id, symbols[right].id, &tag)->rank;
    if (*rank == UINT32_MAX) return false;
    *id = b->merges[*rank].token;
    return true;
}

typedef struct encoding {
    const crumb_bpe *bpe;
    crumb_merger *merger;
    crumb_token_sink *sink;
    char *spelled; /* [2 * max_text_bytes] room for a word's byte-level spelling, where words are looked up whole */
} encoding;

static crumb_status encode_word(void *user, const char *word, size_t n_bytes, crumb_error *err) {
    encoding *e = user;
    const crumb_bpe *b = e->bpe;
    if (b->ignore_merges && n_bytes <= b->vocab->max_text_bytes) {
        int32_t id = crumb_vocab_find(b->vocab, e->spelled, crumb_vocab_write_byte_level(word, n_bytes, e->spelled));
        if (id >= 0) {
            crumb_sink_push(e->sink, id);
            return CRUMB_OK;
        }
    }
    CRUMB_TRY(crumb_merger_reserve(e->merger, n_bytes, err));
    crumb_symbol *symbols = e->merger->symbols;
    for (uint32_t i = 0; i < n_bytes; i++)
        symbols[i] = (crumb_symbol){i - 1, 1, b->byte_tokens[(unsigned char)word[i]]}; /* 0 - 1: none */
    CRUMB_TRY(crumb_merger_run(e->merger, word, n_bytes, may_merge, b, err));
    for (uint32_t i = 0; i < n_bytes; i += symbols[i].size)
        if (symbols[i].id >= 0)
            crumb_sink_push(e->sink, symbols[i].id); /* like llama.cpp: what it cannot say is lost */
    return CRUMB_OK;
}

crumb_status crumb_bpe_encode(const crumb_bpe *b, const char *text, size_t n_bytes, crumb_merger *merger,
                              crumb_token_sink *sink, crumb_error *err) {
    encoding e = {b, merger, sink, NULL};
    if (b->ignore_merges && !(e.spelled = malloc(2 * (size_t)b->vocab->max_text_bytes + 1)))
        return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory to tokenize a text");
    crumb_status status = crumb_splitter_run(&b->splitter, text, n_bytes, encode_word, &e, err);
    free(e.spelled);
    return status;
}
