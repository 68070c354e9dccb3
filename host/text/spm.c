/* SentencePiece's BPE (tokenizer.ggml.model = llama): the text's characters merge wherever the result is a token,
 * highest score first; what stays outside the vocabulary becomes byte tokens. There are no words: spaces are
 * characters.
 */
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/text/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SCORES "tokenizer.ggml.scores"

static const char space_mark[] = "\xe2\x96\x81"; /* U+2581 */

/* A number that orders like the score, reversed: a float's bits order like sign and magnitude. */
static uint32_t rank_of_score(float score) {
    uint32_t bits = crumb_f32_to_bits(score + 0.0f); /* -0 is 0 */
    return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

static crumb_status read_scores(const crumb_gguf *g, crumb_spm *s, crumb_error *err) {
    uint32_t n_tokens = s->vocab->n_tokens;
    const crumb_gguf_value *scores = NULL;
    CRUMB_TRY(crumb_gguf_get_array(g, KEY_SCORES, true, CRUMB_GGUF_F32, &scores, err));
    if (scores->array.n != n_tokens)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s has %llu entries for %u tokens", KEY_SCORES,
                          (unsigned long long)scores->array.n, n_tokens);
    CRUMB_TRY(crumb_calloc(n_tokens, sizeof *s->ranks, "the scores", (void **)&s->ranks, err));
    for (uint32_t i = 0; i < n_tokens; i++) {
        float score;
        memcpy(&score, scores->array.data + 4 * (size_t)i, 4);
        if (score != score) return crumb_fail(err, CRUMB_ERR_FORMAT, "%s of token %u is not a number", KEY_SCORES, i);
        s->ranks[i] = rank_of_score(score);
    }
    return CRUMB_OK;
}

crumb_status crumb_spm_open(const crumb_gguf *g, const crumb_vocab *v, int32_t unknown, crumb_spm *out,
                            crumb_error *err) {
    *out = (crumb_spm){.vocab = v};
    for (int i = 0; i < 256; i++) {
        char name[8], byte = (char)i;
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        out->byte_tokens[i] = crumb_vocab_find(v, name, 6);
        if (out->byte_tokens[i] < 0) out->byte_tokens[i] = crumb_vocab_find(v, &byte, 1);
        if (out->byte_tokens[i] < 0) out->byte_tokens[i] = unknown;
    }
    return read_scores(g, out, err);
}

void crumb_spm_close(crumb_spm *s) {
    free(s->ranks);
}

static bool may_merge(const void *rules, const char *word, const crumb_symbol *symbols, uint32_t left, uint32_t right,
                      uint32_t *rank, int32_t *id) {
    const crumb_spm *s = rules;
    *id = crumb_vocab_find(s->vocab, word + left, symbols[left].size + symbols[right].size);
    if (*id < 0) return false;
    *rank = s->ranks[*id];
    return true;
}

/* Spaces become U+2581. Returns the size; `out` has room for three times the input. */
static size_t mark_spaces(const char *text, size_t n_bytes, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] == ' ') {
            memcpy(out + n, space_mark, 3);
            n += 3;
        } else {
            out[n++] = text[i];
        }
    }
    return n;
}

static crumb_status encode_marked(const crumb_spm *s, const char *text, size_t n_bytes, crumb_merger *m,
                                  crumb_token_sink *sink, crumb_error *err) {
    CRUMB_TRY(crumb_merger_reserve(m, n_bytes, err));
    crumb_symbol *symbols = m->symbols;
    uint32_t prev = UINT32_MAX;
    for (uint32_t i = 0; i < n_bytes; i += symbols[i].size) {
        size_t n_used;
        crumb_utf8_next(text + i, n_bytes - i, &n_used);
        symbols[i] = (crumb_symbol){prev, (uint32_t)n_used, crumb_vocab_find(s->vocab, text + i, n_used)};
        prev = i;
    }
    CRUMB_TRY(crumb_merger_run(m, text, n_bytes, may_merge, s, err));
    for (uint32_t i = 0; i < n_bytes; i += symbols[i].size) {
        if (symbols[i].id >= 0) {
            crumb_sink_push(sink, symbols[i].id);
            continue;
        }
        for (uint32_t j = i; j < i + symbols[i].size; j++) {
            int32_t id = s->byte_tokens[(unsigned char)text[j]];
            if (id >= 0) crumb_sink_push(sink, id);
        }
    }
    return CRUMB_OK;
}

crumb_status crumb_spm_encode(const crumb_spm *s, const char *text, size_t n_bytes, bool space_before,
                              crumb_merger *merger, crumb_token_sink *sink, crumb_error *err) {
    char *marked = malloc(3 * n_bytes + 3);
    if (!marked) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory to tokenize a text of %zu bytes", n_bytes);
    size_t n = space_before ? mark_spaces(" ", 1, marked) : 0;
    n += mark_spaces(text, n_bytes, marked + n);
    crumb_status status = encode_marked(s, marked, n, merger, sink, err);
    free(marked);
    return status;
}
