/* Pre-tokenizers: text -> words, by PCRE2. Which names mean which patterns is as in llama.cpp's src/llama-vocab.cpp;
 * the patterns are those of the models' own tokenizer.json, so that what PyPI's tokenizers library does is what we do:
 * - white space is Unicode's White_Space, written out, because PCRE2's \s also takes U+180E;
 * - (?i:'s) takes U+017F, the long s, as there.
 * Another pre-tokenizer is a row of `table`, and where no pattern fits, a list of patterns.
 */
#include "host/text/internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string.h>

#define SPACES     "\\p{Z}\\t-\\r\\x{85}"
#define SPACES_END "|[" SPACES "]+(?![^" SPACES "])|[" SPACES "]+"
#define WORDS_GPT2 "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+" SPACES_END
#define WORDS_LLAMA3                                                                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" SPACES                               \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACES "]*[\\r\\n]+" SPACES_END

#define WORDS_QWEN2                                                                                                    \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACES \
    "]*[\\r\\n]+" SPACES_END

static const char *const gpt2[] = {WORDS_GPT2, NULL};
static const char *const smollm[] = {"\\p{N}", WORDS_GPT2, NULL};
static const char *const llama3[] = {WORDS_LLAMA3, NULL};
static const char *const qwen2[] = {WORDS_QWEN2, NULL};
static const char *const falcon[] = {"[\\p{P}$+<=>^~|`]+", WORDS_GPT2, "[0-9]{3}", NULL};
static const char *const plain[] = {"[\\p{P}$+<=>^~|]+", WORDS_GPT2, "\\p{N}+", "[0-9]{3}", NULL};

static const crumb_pretokenizer table[] = {
    {"default", plain, false, false, NULL},
    {"gpt-2", gpt2, false, false, NULL},
    {"phi-2", gpt2, false, false, NULL},
    {"gigachat", gpt2, false, false, NULL},
    {"a.x-4.0", gpt2, false, false, NULL},
    {"mellum", gpt2, false, false, NULL},
    {"mpt", gpt2, false, false, NULL},
    {"olmo", gpt2, false, false, NULL},
    {"jais", gpt2, false, false, NULL},
    {"trillion", gpt2, false, false, NULL},
    {"granite-docling", gpt2, false, false, NULL},
    {"exaone4", gpt2, false, false, NULL},
    {"jina-es", gpt2, false, false, NULL},
    {"jina-de", gpt2, false, false, NULL},
    {"jina-v2-es", gpt2, false, false, "<mask>"},
    {"jina-v2-de", gpt2, false, false, "<mask>"},
    {"modern-bert", gpt2, false, false, "[MASK]"},
    {"smollm", smollm, false, false, NULL},
    {"starcoder", smollm, false, false, NULL},
    {"refact", smollm, false, false, NULL},
    {"command-r", smollm, false, false, NULL},
    {"codeshell", smollm, false, false, NULL},
    {"exaone", smollm, false, false, NULL},
    {"minerva-7b", smollm, false, false, NULL},
    {"mellum2", smollm, false, false, NULL},
    {"llama3", llama3, true, true, NULL},
    {"llama-v3", llama3, true, true, NULL},
    {"llama-bpe", llama3, true, true, NULL},
    {"falcon3", llama3, true, true, NULL},
    {"falcon-h1", llama3, true, true, NULL},
    {"pixtral", llama3, true, true, NULL},
    {"midm-2.0", llama3, true, true, NULL},
    {"lfm2", llama3, true, true, NULL},
    {"jina-v5-nano", llama3, true, true, NULL},
    {"dbrx", llama3, false, false, NULL},
    {"smaug-bpe", llama3, false, false, NULL},
    {"glm4", llama3, false, false, NULL},
    {"chatglm-bpe", llama3, false, false, NULL},
    {"qwen2", qwen2, false, false, NULL},
    {"deepseek-r1-qwen", qwen2, false, false, NULL},
    {"stablelm2", qwen2, false, false, NULL},
    {"megrez", qwen2, false, false, NULL},
    {"kormo", qwen2, false, false, NULL},
    {"falcon", falcon, false, false, NULL},
};

const crumb_pretokenizer *crumb_pretokenizer_find(crumb_bytes name) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strlen(table[i].name) == name.size && memcmp(table[i].name, name.data, name.size) == 0) return &table[i];
    return NULL;
}

crumb_status crumb_splitter_create(const crumb_pretokenizer *p, crumb_splitter *out, crumb_error *err) {
    *out = (crumb_splitter){0};
    for (; p->patterns[out->n_patterns]; out->n_patterns++) {
        int code;
        PCRE2_SIZE at;
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)p->patterns[out->n_patterns], PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &at, NULL);
        if (!re)
            return crumb_fail(err, CRUMB_ERR_INTERNAL, "pre-tokenizer '%s': PCRE2 error %d at offset %zu of pattern %d",
                              p->name, code, (size_t)at, out->n_patterns);
        pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* where it cannot, pcre2_match() interprets */
        out->patterns[out->n_patterns] = re;
    }
    return CRUMB_OK;
}

void crumb_splitter_destroy(crumb_splitter *s) {
    for (int i = 0; i < s->n_patterns; i++) pcre2_code_free(s->patterns[i]);
}

typedef struct splitting {
    const crumb_splitter *splitter;
    pcre2_match_data *match;
    crumb_word_fn fn;
    void *user;
} splitting;

/* Applies the patterns from number `pattern` on. What each sees is only its piece: lookahead does not leave it. */
static crumb_status split(const splitting *s, int pattern, const char *text, size_t n_bytes, crumb_error *err) {
    if (pattern == s->splitter->n_patterns) return s->fn(s->user, text, n_bytes, err);
    const pcre2_code *re = s->splitter->patterns[pattern];
    for (size_t at = 0; at < n_bytes;) {
        int rc = pcre2_match(re, (PCRE2_SPTR)text, n_bytes, at, PCRE2_NO_UTF_CHECK, s->match, NULL);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                              "the text is too hard to split into words (PCRE2 error %d in a piece of %zu bytes); "
                              "give it in smaller parts",
                              rc, n_bytes);
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match);
        size_t begin = rc < 0 ? n_bytes : ends[0], end = rc < 0 ? n_bytes : ends[1];
        if (begin > at) CRUMB_TRY(split(s, pattern + 1, text + at, begin - at, err));
        if (end > begin) CRUMB_TRY(split(s, pattern + 1, text + begin, end - begin, err));
        at = end;
    }
    return CRUMB_OK;
}

crumb_status crumb_splitter_run(const crumb_splitter *s, const char *text, size_t n_bytes, crumb_word_fn fn, void *user,
                                crumb_error *err) {
    splitting work = {s, pcre2_match_data_create(1, NULL), fn, user};
    if (!work.match) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory to split a text into words");
    crumb_status status = CRUMB_OK;
    while (n_bytes > 0 && status == CRUMB_OK) {
        size_t n = crumb_utf8_valid_prefix(text, n_bytes);
        if (n > 0) {
            status = split(&work, 0, text, n, err);
        } else {
            size_t n_used;
            while (n < n_bytes && crumb_utf8_next(text + n, n_bytes - n, &n_used) != CRUMB_UTF8_WHOLE) n += n_used;
            status = fn(user, text, n, err);
        }
        text += n, n_bytes -= n;
    }
    pcre2_match_data_free(work.match);
    return status;
}
