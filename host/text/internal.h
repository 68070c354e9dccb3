/* What the files of host/text share. A tokenizer is a vocabulary (vocab.c), the special tokens that are cut out of a
 * text first (special.c), and one of two ways to merge the rest into tokens: byte-level BPE (pretokenize.c, bpe.c) or
 * SentencePiece's (spm.c), which both run on merge.c. Everything here is immutable once a tokenizer is open.
 */
#ifndef CRUMB_TEXT_INTERNAL_H
#define CRUMB_TEXT_INTERNAL_H

#include "host/text/tokenizer.h"

/* ---- utf8.c ------------------------------------------------------------------------------------------------- */

typedef enum crumb_utf8_kind {
    CRUMB_UTF8_WHOLE,   /* a character */
    CRUMB_UTF8_BROKEN,  /* bytes that no following byte can make a character (Unicode's maximal subpart) */
    CRUMB_UTF8_PARTIAL, /* the beginning of a character, cut off by the end */
} crumb_utf8_kind;

/* Looks at the start of `text` (n_bytes > 0) and sets how many bytes of it are of the returned kind. */
crumb_utf8_kind crumb_utf8_next(const char *text, size_t n_bytes, size_t *n_used);
/* How many bytes from the start of `text` are whole characters. */
size_t crumb_utf8_valid_prefix(const char *text, size_t n_bytes);

/* ---- vocab.c ------------------------------------------------------------------------------------------------ */

enum { /* attributes of a token; the first six are tokenizer.ggml.token_type */
       CRUMB_TOKEN_NORMAL = 1,
       CRUMB_TOKEN_UNKNOWN = 2,
       CRUMB_TOKEN_CONTROL = 4,
       CRUMB_TOKEN_USER_DEFINED = 8,
       CRUMB_TOKEN_UNUSED = 16,
       CRUMB_TOKEN_BYTE = 32,
       CRUMB_TOKEN_LSTRIP = 64,  /* swallows white space before it */
       CRUMB_TOKEN_RSTRIP = 128, /* swallows white space after it */
       CRUMB_TOKEN_ENDS = 256,   /* ends a generation */
};

/* Keys of our own, for what tokenizer.json can say and GGUF cannot. */
#define CRUMB_KEY_STRIPS       "tokenizer.crumb.token_strips" /* [n_tokens]: which white space a token swallows */
#define CRUMB_KEY_SPACE_PREFIX "tokenizer.crumb.space_prefix" /* of add_space_prefix: "first", "always" */
enum { CRUMB_STRIPS_LEFT = 1, CRUMB_STRIPS_RIGHT = 2 };

typedef enum crumb_token_spelling {
    CRUMB_SPELLING_BYTE_LEVEL,    /* GPT-2's: every byte is one printable character */
    CRUMB_SPELLING_SENTENCEPIECE, /* U+2581 is a space */
} crumb_token_spelling;

typedef struct crumb_vocab_slot {
    uint32_t tag; /* high half of the text's hash */
    int32_t id;   /* -1: free */
} crumb_vocab_slot;

typedef struct crumb_vocab {
    uint32_t n_tokens;
    uint32_t max_text_bytes; /* of one token */
    char *text;              /* all tokens as the file spells them, one after another */
    uint32_t *text_at;       /* [n_tokens + 1] offsets into text */
    char *bytes;             /* all tokens as the bytes they stand for */
    uint32_t *bytes_at;      /* [n_tokens + 1] offsets into bytes */
    uint16_t *attributes;    /* [n_tokens] */
    crumb_vocab_slot *slots; /* [slot_mask + 1] hash table: text -> id */
    uint32_t slot_mask;
    uint64_t seed; /* of the hash, so that a file cannot be made to collide */
} crumb_vocab;

/* Reads tokenizer.ggml.tokens and .token_type. On failure the vocabulary may be half made: close it. */
crumb_status crumb_vocab_open(const crumb_gguf *g, crumb_vocab *v, crumb_error *err);
void crumb_vocab_close(crumb_vocab *v);
/* The token spelled so; -1: none. */
int32_t crumb_vocab_find(const crumb_vocab *v, const char *text, size_t n_bytes);
/* The same for n <= CRUMB_FIND_MANY texts, faster. */
enum { CRUMB_FIND_MANY = 128 };
void crumb_vocab_find_many(const crumb_vocab *v, const crumb_bytes *texts, size_t n, int32_t *ids);
/* Makes v->bytes, once the attributes are final. */
crumb_status crumb_vocab_spell(crumb_vocab *v, crumb_token_spelling spelling, crumb_error *err);
/* Writes the byte-level spelling of `bytes`, at most 2 * n_bytes, and returns its size. */
size_t crumb_vocab_write_byte_level(const char *bytes, size_t n_bytes, char *out);

static inline crumb_bytes crumb_vocab_text(const crumb_vocab *v, int32_t id) {
    return (crumb_bytes){v->text + v->text_at[id], v->text_at[id + 1] - v->text_at[id]};
}

/* ---- roles.c ------------------------------------------------------------------------------------------------ */

/* Sets the attributes that follow from a token's name or from keys such as tokenizer.ggml.eot_token_id: which tokens
 * end a generation, and which strip white space. `lstrip_token` may be NULL. */
crumb_status crumb_vocab_set_roles(const crumb_gguf *g, crumb_vocab *v, int32_t eos, const char *lstrip_token,
                                   crumb_error *err);

/* ---- special.c ---------------------------------------------------------------------------------------------- */

typedef struct crumb_special {
    crumb_bytes text;
    int32_t id;
} crumb_special;

/* Tokens that are cut out of a text before anything else, sorted by text. */
typedef struct crumb_specials {
    crumb_special *list;
    uint32_t first[257]; /* list[first[c]] to list[first[c + 1]] begin with byte c */
} crumb_specials;

/* All tokens that have one of `attributes`. */
crumb_status crumb_specials_create(const crumb_vocab *v, unsigned attributes, crumb_specials *out, crumb_error *err);
void crumb_specials_destroy(crumb_specials *s);
/* The longest special token that text + at begins with; NULL: none. */
const crumb_special *crumb_specials_match(const crumb_specials *s, const char *text, size_t n_bytes, size_t at);

/* ---- pretokenize.c ------------------------------------------------------------------------------------------ */

/* A pre-tokenizer cuts text into words by regular expressions, each applied to what the one before has made: what it
 * matches and what lies between are separate pieces. */
typedef struct crumb_pretokenizer {
    const char *name; /* tokenizer.ggml.pre */
    const char *const *patterns;
    bool ignore_merges;       /* a word that is a token is that token, whatever the merges say */
    bool adds_bos;            /* unless the file says otherwise */
    const char *lstrip_token; /* a token that swallows the white space before it; NULL: none */
} crumb_pretokenizer;

const crumb_pretokenizer *crumb_pretokenizer_find(crumb_bytes name); /* NULL: crumb does not know it */

enum { CRUMB_MAX_PATTERNS = 4 };
typedef struct crumb_splitter {
    int n_patterns;
    void *patterns[CRUMB_MAX_PATTERNS]; /* pcre2_code */
} crumb_splitter;

typedef crumb_status (*crumb_word_fn)(void *user, const char *word, size_t n_bytes, crumb_error *err);

crumb_status crumb_splitter_create(const crumb_pretokenizer *p, crumb_splitter *out, crumb_error *err);
void crumb_splitter_destroy(crumb_splitter *s);
/* Calls fn with every word in order. Runs of bytes that are not UTF-8 are words of their own. */
crumb_status crumb_splitter_run(const crumb_splitter *s, const char *text, size_t n_bytes, crumb_word_fn fn, void *user,
                                crumb_error *err);

/* ---- merge.c ------------------------------------------------------------------------------------------------ */

/* The part of a word that begins at byte i is symbols[i]; its right neighbour is symbols[i + size]. */
typedef struct crumb_symbol {
    uint32_t prev; /* index of the left neighbour; UINT32_MAX: none */
    uint32_t size; /* bytes; 0: has become part of a symbol to its left */
    int32_t id;    /* -1: not a token */
} crumb_symbol;

typedef struct crumb_candidate {
    uint64_t key;  /* rank << 32 | index of the left symbol: the smallest is merged next */
    uint32_t size; /* of both symbols; another size means that one of them has changed meanwhile */
    int32_t id;    /* the token they become */
} crumb_candidate;

typedef struct crumb_merger {
    crumb_symbol *symbols;
    size_t n_symbols; /* capacity */
    crumb_candidate *heap;
    size_t n_heap, heap_capacity;
} crumb_merger;

/* Whether two neighbours may merge: sets rank (lower first) and the token that they become. */
typedef bool (*crumb_merge_fn)(const void *rules, const char *word, const crumb_symbol *symbols, uint32_t left,
                               uint32_t right, uint32_t *rank, int32_t *id);

crumb_status crumb_merger_reserve(crumb_merger *m, size_t n_bytes, crumb_error *err); /* makes room for symbols */
/* Merges the symbols of a word, which the caller has set, until nothing can be merged: O(n log n). */
crumb_status crumb_merger_run(crumb_merger *m, const char *word, size_t n_bytes, crumb_merge_fn fn, const void *rules,
                              crumb_error *err);
void crumb_merger_free(crumb_merger *m);

/* ---- encoding: one call's state ----------------------------------------------------------------------------- */

/* Counts all tokens and keeps those that fit. */
typedef struct crumb_token_sink {
    int32_t *tokens;
    size_t capacity, n;
} crumb_token_sink;

static inline void crumb_sink_push(crumb_token_sink *sink, int32_t token) {
    if (sink->n < sink->capacity) sink->tokens[sink->n] = token;
    sink->n++;
}

/* ---- bpe.c -------------------------------------------------------------------------------------------------- */

typedef struct crumb_bpe_merge {
    int32_t left, right, token; /* left, right -> token; the index is the rank */
} crumb_bpe_merge;

typedef struct crumb_bpe_slot {
    uint32_t tag;
    uint32_t rank; /* UINT32_MAX: free */
} crumb_bpe_slot;

typedef struct crumb_bpe {
    const crumb_vocab *vocab;
    crumb_splitter splitter;
    bool ignore_merges;
    int32_t byte_tokens[256]; /* -1: the vocabulary lacks the byte */
    crumb_bpe_merge *merges;
    crumb_bpe_slot *slots; /* [slot_mask + 1] hash table: pair -> rank */
    uint32_t slot_mask;
    uint64_t seed;
} crumb_bpe;

crumb_status crumb_bpe_open(const crumb_gguf *g, const crumb_vocab *v, const crumb_pretokenizer *p, crumb_bpe *out,
                            crumb_error *err);
void crumb_bpe_close(crumb_bpe *b);
crumb_status crumb_bpe_encode(const crumb_bpe *b, const char *text, size_t n_bytes, crumb_merger *merger,
                              crumb_token_sink *sink, crumb_error *err);

/* ---- tokenizer_json.c ---------------------------------------------------------------------------------------- */

/* Components of a tokenizer.json's pre-tokenizer, one after the other ("digits;gpt2;", "split PATTERN;bytes;"), and
 * what GGUF calls them. */
typedef struct crumb_known_splitter {
    const char *components;
    bool ignore_merges;
    const char *name;
} crumb_known_splitter;
extern const crumb_known_splitter crumb_known_splitters[];
extern const size_t crumb_n_known_splitters;

/* ---- spm.c -------------------------------------------------------------------------------------------------- */

typedef struct crumb_spm {
    const crumb_vocab *vocab;
    uint32_t *ranks;          /* [n_tokens] from the scores: a higher score is a lower rank */
    int32_t byte_tokens[256]; /* <0xNN>, else the unknown token, else -1 */
} crumb_spm;

crumb_status crumb_spm_open(const crumb_gguf *g, const crumb_vocab *v, int32_t unknown, crumb_spm *out,
                            crumb_error *err);
void crumb_spm_close(crumb_spm *s);
/* `space_before`: as if the text began with one more space. */
crumb_status crumb_spm_encode(const crumb_spm *s, const char *text, size_t n_bytes, bool space_before,
                              crumb_merger *merger, crumb_token_sink *sink, crumb_error *err);

#endif
