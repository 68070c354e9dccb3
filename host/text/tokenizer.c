/* Tokenizers: the keys of a file, and the way of a text through special tokens and merges. */
#include "host/text/tokenizer.h"

#include "host/base/memory.h"
#include "host/text/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 29 }; /* marked spaces triple a text, and positions in it have 32 bits */

/* Which pieces of a text get a space in front. */
typedef enum space_prefix {
    SPACE_NEVER,
    SPACE_EACH,          /* every piece */
    SPACE_WHERE_MISSING, /* every piece that does not begin with one */
    SPACE_FIRST_MISSING, /* only what the text begins with, in the same way */
} space_prefix;

struct crumb_tokenizer {
    crumb_vocab vocab;
    bool is_bpe; /* else SentencePiece's */
    crumb_bpe bpe;
    crumb_spm spm;
    crumb_specials user_defined; /* cut out of every text */
    crumb_specials special;      /* these and control tokens: where the caller wants them parsed */
    int32_t bos, eos, unknown;   /* -1: none */
    bool add_bos, add_eos;
    bool strips_wide; /* white space of more than one byte too */
    space_prefix space_prefix;
};

/* ---- opening ------------------------------------------------------------------------------------------------ */

static bool is(crumb_bytes text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

static crumb_status read_token_id(const crumb_gguf *g, const char *key, uint32_t n_tokens, int32_t *id,
                                  crumb_error *err) {
    uint32_t value = UINT32_MAX;
    if (!crumb_gguf_find(g, key)) {
        if (*id >= (int32_t)n_tokens) *id = -1;
        return CRUMB_OK;
    }
    CRUMB_TRY(crumb_gguf_get_u32(g, key, true, &value, err));
    if (value >= n_tokens)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s is %u, but the vocabulary has %u tokens", key, value, n_tokens);
    *id = (int32_t)value;
    return CRUMB_OK;
}

/* Keys that both kinds have; the caller has set what holds without them. */
static crumb_status read_common_keys(const crumb_gguf *g, crumb_tokenizer *t, crumb_error *err) {
    uint32_t n = t->vocab.n_tokens;
    CRUMB_TRY(read_token_id(g, "tokenizer.ggml.bos_token_id", n, &t->bos, err));
    CRUMB_TRY(read_token_id(g, "tokenizer.ggml.eos_token_id", n, &t->eos, err));
    CRUMB_TRY(read_token_id(g, "tokenizer.ggml.unknown_token_id", n, &t->unknown, err));
    CRUMB_TRY(crumb_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", false, &t->add_bos, err));
    CRUMB_TRY(crumb_gguf_get_bool(g, "tokenizer.ggml.add_eos_token", false, &t->add_eos, err));
    if ((t->add_bos && t->bos < 0) || (t->add_eos && t->eos < 0))
        return crumb_fail(err, CRUMB_ERR_FORMAT, "texts shall %s, but tokenizer.ggml.%s_token_id is missing",
                          t->add_bos && t->bos < 0 ? "begin with BOS" : "end with EOS",
                          t->add_bos && t->bos < 0 ? "bos" : "eos");
    return CRUMB_OK;
}

/* What needs both the vocabulary and the keys. */
static crumb_status finish_vocab(const crumb_gguf *g, crumb_tokenizer *t, const char *lstrip_token,
                                 crumb_token_spelling spelling, crumb_error *err) {
    t->strips_wide = crumb_gguf_find(g, CRUMB_KEY_STRIPS) != NULL;
    CRUMB_TRY(crumb_vocab_set_roles(g, &t->vocab, t->eos, lstrip_token, err));
    CRUMB_TRY(crumb_vocab_spell(&t->vocab, spelling, err));
    CRUMB_TRY(crumb_specials_create(&t->vocab, CRUMB_TOKEN_USER_DEFINED, &t->user_defined, err));
    return crumb_specials_create(&t->vocab, CRUMB_TOKEN_USER_DEFINED | CRUMB_TOKEN_CONTROL | CRUMB_TOKEN_UNKNOWN,
                                 &t->special, err);
}

static crumb_status open_bpe(const crumb_gguf *g, crumb_tokenizer *t, crumb_error *err) {
    crumb_bytes name = {"default", 7}; /* like llama.cpp, for files from before the key existed */
    CRUMB_TRY(crumb_gguf_get_string(g, "tokenizer.ggml.pre", false, &name, err));
    const crumb_pretokenizer *pre = crumb_pretokenizer_find(name);
    if (!pre)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "tokenizer.ggml.pre is '%.*s', a pre-tokenizer that crumb does not have",
                          (int)(name.size < 100 ? name.size : 100), name.data);
    t->is_bpe = true;
    t->bos = t->eos = t->unknown = -1;
    t->add_bos = pre->adds_bos;
    CRUMB_TRY(read_common_keys(g, t, err));
    CRUMB_TRY(crumb_bpe_open(g, &t->vocab, pre, &t->bpe, err));
    return finish_vocab(g, t, pre->lstrip_token, CRUMB_SPELLING_BYTE_LEVEL, err);
}

static crumb_status read_space_prefix(const crumb_gguf *g, crumb_tokenizer *t, crumb_error *err) {
    bool adds = true;
    crumb_bytes rule = {"", 0};
    CRUMB_TRY(crumb_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", false, &adds, err));
    CRUMB_TRY(crumb_gguf_get_string(g, CRUMB_KEY_SPACE_PREFIX, false, &rule, err));
    if (rule.size && !is(rule, "first") && !is(rule, "always"))
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s is '%.*s'; crumb has 'first' and 'always'",
                          CRUMB_KEY_SPACE_PREFIX, (int)(rule.size < 100 ? rule.size : 100), rule.data);
    t->space_prefix = !adds               ? SPACE_NEVER
                      : is(rule, "first") ? SPACE_FIRST_MISSING
                      : rule.size         ? SPACE_WHERE_MISSING
                                          : SPACE_EACH;
    return CRUMB_OK;
}

static crumb_status open_spm(const crumb_gguf *g, crumb_tokenizer *t, crumb_error *err) {
    bool collapse = false;
    CRUMB_TRY(crumb_gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", false, &collapse, err));
    if (collapse || crumb_gguf_find(g, "tokenizer.ggml.precompiled_charsmap"))
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "tokenizer.ggml.%s asks for a normalization of texts that crumb does not do",
                          collapse ? "remove_extra_whitespaces" : "precompiled_charsmap");
    t->bos = 1, t->eos = 2, t->unknown = 0;
    t->add_bos = true;
    CRUMB_TRY(read_common_keys(g, t, err));
    CRUMB_TRY(read_space_prefix(g, t, err));
    CRUMB_TRY(crumb_spm_open(g, &t->vocab, t->unknown, &t->spm, err));
    return finish_vocab(g, t, NULL, CRUMB_SPELLING_SENTENCEPIECE, err);
}

static crumb_status open_model(const crumb_gguf *g, crumb_tokenizer *t, crumb_error *err) {
    crumb_bytes model = {0};
    CRUMB_TRY(crumb_gguf_get_string(g, "tokenizer.ggml.model", true, &model, err));
    bool is_bpe = is(model, "gpt2");
    if (!is_bpe && !is(model, "llama"))
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "tokenizer.ggml.model is '%.*s'; crumb has 'gpt2' and 'llama'",
                          (int)(model.size < 100 ? model.size : 100), model.data);
    CRUMB_TRY(crumb_vocab_open(g, &t->vocab, err));
    return is_bpe ? open_bpe(g, t, err) : open_spm(g, t, err);
}

crumb_status crumb_tokenizer_open(const crumb_gguf *g, crumb_tokenizer **out, crumb_error *err) {
    void *p;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof(crumb_tokenizer), "a tokenizer", &p, err));
    crumb_status status = open_model(g, p, err);
    if (status == CRUMB_OK) {
        *out = p;
    } else {
        crumb_tokenizer_close(p);
    }
    return status;
}

void crumb_tokenizer_close(crumb_tokenizer *t) {
    if (!t) return;
    crumb_specials_destroy(&t->special);
    crumb_specials_destroy(&t->user_defined);
    crumb_bpe_close(&t->bpe);
    crumb_spm_close(&t->spm);
    crumb_vocab_close(&t->vocab);
    free(t);
}

/* ---- what it is --------------------------------------------------------------------------------------------- */

uint32_t crumb_tokenizer_n_vocab(const crumb_tokenizer *t) {
    return t->vocab.n_tokens;
}

int32_t crumb_tokenizer_bos(const crumb_tokenizer *t) {
    return t->bos;
}

int32_t crumb_tokenizer_eos(const crumb_tokenizer *t) {
    return t->eos;
}

bool crumb_tokenizer_adds_bos(const crumb_tokenizer *t) {
    return t->add_bos;
}

static bool is_token(const crumb_tokenizer *t, int32_t token) {
    return token >= 0 && (uint32_t)token < t->vocab.n_tokens;
}

bool crumb_tokenizer_ends(const crumb_tokenizer *t, int32_t token) {
    return is_token(t, token) && (t->vocab.attributes[token] & CRUMB_TOKEN_ENDS);
}

const char *crumb_tokenizer_token_bytes(const crumb_tokenizer *t, int32_t token, bool special, size_t *n_bytes) {
    *n_bytes = 0;
    if (!is_token(t, token)) return "";
    if (!special && (t->vocab.attributes[token] & (CRUMB_TOKEN_CONTROL | CRUMB_TOKEN_UNKNOWN))) return "";
    *n_bytes = t->vocab.bytes_at[token + 1] - t->vocab.bytes_at[token];
    return t->vocab.bytes + t->vocab.bytes_at[token];
}

/* ---- encoding ----------------------------------------------------------------------------------------------- */

typedef struct encoding {
    const crumb_tokenizer *t;
    const crumb_specials *specials;
    const char *text;     /* all of it */
    const char *is_plain; /* by byte of the text; NULL: none is */
    crumb_merger merger;
    crumb_token_sink sink;
} encoding;

/* Whether these n bytes, 1 to 3, are a character that tokens swallow: llama.cpp's of one byte, or, where a
 * tokenizer.json asked for it, any of Unicode's White_Space. */
static bool is_space(const crumb_tokenizer *t, const char *text, size_t n) {
    static const char *const wide[] = {"\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\xa8",
                                       "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    if (n == 1) return *text == ' ' || (*text >= '\t' && *text <= '\r');
    if (!t->strips_wide) return false;
    if (n == 3 && memcmp(text, "\xe2\x80", 2) == 0 && (unsigned char)text[2] <= 0x8a) return true; /* U+2000 .. */
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (strlen(wide[i]) == n && memcmp(text, wide[i], n) == 0) return true;
    return false;
}

/* The end of text[begin, end) without the white space there. */
static size_t without_space_behind(const crumb_tokenizer *t, const char *text, size_t begin, size_t end) {
    for (size_t n = 1; n <= 3 && n <= end - begin; n++)
        if (is_space(t, text + end - n, n)) end -= n, n = 0;
    return end;
}

/* Where text[begin, end) goes on behind the white space at its beginning. */
static size_t behind_space(const crumb_tokenizer *t, const char *text, size_t begin, size_t end) {
    for (size_t n = 1; n <= 3 && n <= end - begin; n++)
        if (is_space(t, text + begin, n)) begin += n, n = 0;
    return begin;
}

static bool wants_space(const encoding *e, const char *text, size_t n_bytes) {
    const space_prefix rule = e->t->space_prefix;
    if (rule == SPACE_NEVER || rule == SPACE_EACH) return rule == SPACE_EACH;
    if (rule == SPACE_FIRST_MISSING && text != e->text) return false;
    return text[0] != ' ' && !(n_bytes >= 3 && memcmp(text, "\xe2\x96\x81", 3) == 0);
}

/* Text between special tokens. */
static crumb_status encode_piece(encoding *e, const char *text, size_t n_bytes, crumb_error *err) {
    if (n_bytes == 0) return CRUMB_OK;
    if (e->t->is_bpe) return crumb_bpe_encode(&e->t->bpe, text, n_bytes, &e->merger, &e->sink, err);
    return crumb_spm_encode(&e->t->spm, text, n_bytes, wants_space(e, text, n_bytes), &e->merger, &e->sink, err);
}

/* The longest special token that the text has at `at`. One with plain bytes in it is text, unless users may write it.
 */
static const crumb_special *match_special(const encoding *e, const char *text, size_t n_bytes, size_t at) {
    const crumb_special *found = crumb_specials_match(e->specials, text, n_bytes, at);
    if (!found || !e->is_plain || !memchr(e->is_plain + at, 1, found->text.size)) return found;
    return crumb_specials_match(&e->t->user_defined, text, n_bytes, at);
}

static crumb_status encode_text(encoding *e, const char *text, size_t n_bytes, crumb_error *err) {
    size_t begin = 0;
    for (size_t at = 0; at < n_bytes;) {
        const crumb_special *found = match_special(e, text, n_bytes, at);
        if (!found) {
            at++;
            continue;
        }
        unsigned attributes = e->t->vocab.attributes[found->id];
        size_t end = at;
        if (attributes & CRUMB_TOKEN_LSTRIP) end = without_space_behind(e->t, text, begin, end);
        CRUMB_TRY(encode_piece(e, text + begin, end - begin, err));
        crumb_sink_push(&e->sink, found->id);
        at += found->text.size;
        if (attributes & CRUMB_TOKEN_RSTRIP) at = behind_space(e->t, text, at, n_bytes);
        begin = at;
    }
    return encode_piece(e, text + begin, n_bytes - begin, err);
}

static crumb_status check_size(size_t n_bytes, crumb_error *err) {
    if (n_bytes <= MAX_TEXT_BYTES) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a text of %zu bytes is too long to tokenize at once; at most %d",
                      n_bytes, MAX_TEXT_BYTES);
}

static crumb_status finish(encoding *e, crumb_status status, size_t *n_tokens, crumb_error *err) {
    crumb_merger_free(&e->merger);
    *n_tokens = e->sink.n;
    if (status == CRUMB_OK && e->sink.n > e->sink.capacity)
        status = crumb_fail(err, CRUMB_ERR_ARGUMENT, "the text has %zu tokens, but there is room for %zu", e->sink.n,
                            e->sink.capacity);
    return status;
}

crumb_status crumb_tokenizer_encode(const crumb_tokenizer *t, const char *text, size_t n_bytes, unsigned flags,
                                    int32_t *tokens, size_t capacity, size_t *n_tokens, crumb_error *err) {
    *n_tokens = 0;
    CRUMB_TRY(check_size(n_bytes, err));
    encoding e = {.t = t,
                  .text = text,
                  .specials = flags & CRUMB_TOKENIZE_PARSE_SPECIAL ? &t->special : &t->user_defined,
                  .sink = {.tokens = tokens, .capacity = capacity}};
    if ((flags & CRUMB_TOKENIZE_ADD_SPECIAL) && t->add_bos) crumb_sink_push(&e.sink, t->bos);
    crumb_status status = encode_text(&e, text, n_bytes, err);
    if ((flags & CRUMB_TOKENIZE_ADD_SPECIAL) && t->add_eos) crumb_sink_push(&e.sink, t->eos);
    return finish(&e, status, n_tokens, err);
}

crumb_status crumb_tokenizer_encode_chat(const crumb_tokenizer *t, const char *text, const char *is_plain,
                                         size_t n_bytes, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                         crumb_error *err) {
    *n_tokens = 0;
    CRUMB_TRY(check_size(n_bytes, err));
    encoding e = {.t = t,
                  .text = text,
                  .specials = &t->special,
                  .is_plain = is_plain,
                  .sink = {.tokens = tokens, .capacity = capacity}};
    const crumb_special *first = n_bytes ? match_special(&e, text, n_bytes, 0) : NULL;
    if (t->add_bos && !(first && first->id == t->bos)) crumb_sink_push(&e.sink, t->bos);
    return finish(&e, encode_text(&e, text, n_bytes, err), n_tokens, err);
}
