/* Tokenizers against the libraries that made the vocabularies (tests/oracle/make_vocabs.py), and on texts that are not
 * text or very long.
 */
#include "host/text/tokenizer.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/vocab_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_tokenizer *open_small(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "tests/oracle/vocabs/%s.gguf", name);
    crumb_gguf *g;
    crumb_tokenizer *t = NULL;
    crumb_error err = {0};
    if (crumb_gguf_open(path, &g, &err) != CRUMB_OK || crumb_tokenizer_open(g, &t, &err) != CRUMB_OK)
        fail_msg("%s", err.message);
    crumb_gguf_close(g);
    return t;
}

/* Encodes after asking for the number of tokens. Freed by the caller. */
static int32_t *encode(const crumb_tokenizer *t, const char *text, size_t n_bytes, unsigned flags, size_t *n) {
    size_t n_again;
    crumb_error err = {0};
    crumb_status status = crumb_tokenizer_encode(t, text, n_bytes, flags, NULL, 0, n, &err);
    assert_int_equal(status, *n ? CRUMB_ERR_ARGUMENT : CRUMB_OK);
    int32_t *ids = malloc((*n + 1) * sizeof *ids);
    assert_non_null(ids);
    ids[*n] = -12345;
    assert_int_equal(crumb_tokenizer_encode(t, text, n_bytes, flags, ids, *n, &n_again, &err), CRUMB_OK);
    assert_int_equal(n_again, *n);
    assert_int_equal(ids[*n], -12345);
    return ids;
}

static char *decode(const crumb_tokenizer *t, const int32_t *ids, size_t n, size_t *n_bytes) {
    size_t size, capacity = 1;
    for (size_t i = 0; i < n; i++) {
        crumb_tokenizer_token_bytes(t, ids[i], true, &size);
        capacity += size;
    }
    char *text = malloc(capacity);
    assert_non_null(text);
    *n_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const char *bytes = crumb_tokenizer_token_bytes(t, ids[i], true, &size);
        memcpy(text + *n_bytes, bytes, size);
        *n_bytes += size;
    }
    return text;
}

static void expect_decodes_to(const crumb_tokenizer *t, const int32_t *ids, size_t n, const char *text, size_t n_text) {
    size_t n_bytes;
    char *decoded = decode(t, ids, n, &n_bytes);
    assert_int_equal(n_bytes, n_text);
    assert_memory_equal(decoded, text, n_text);
    free(decoded);
}

static void expect_ids(const crumb_tokenizer *t, const char *text, unsigned flags, const int32_t *ids, size_t n_ids) {
    size_t n;
    int32_t *got = encode(t, text, strlen(text), flags, &n);
    if (n != n_ids || memcmp(got, ids, n * sizeof *got) != 0) {
        print_error("text \"%s\"\n     got:", text);
        for (size_t i = 0; i < n; i++) print_error(" %d", got[i]);
        print_error("\nexpected:");
        for (size_t i = 0; i < n_ids; i++) print_error(" %d", ids[i]);
        fail_msg("other ids");
    }
    free(got);
}

/* `lead` is what decoding puts before the text. */
static void replay(const char *name, const char *lead) {
    crumb_tokenizer *t = open_small(name);
    vocab_texts texts = vocab_texts_read();
    size_t n_lines;
    vocab_ids *lines = vocab_ids_read(name, 2, &n_lines);
    assert_true(texts.n >= 3000);
    assert_int_equal(n_lines, texts.n);
    /* sentencepiece takes special tokens in a text for text, the others do not */
    unsigned flags = *lead ? 0 : CRUMB_TOKENIZE_PARSE_SPECIAL;
    for (size_t i = 0; i < n_lines; i++) {
        expect_ids(t, texts.texts[i], flags, lines[i].ids, lines[i].n);
        char whole[4096];
        int n = snprintf(whole, sizeof whole, "%s%s", *texts.texts[i] ? lead : "", texts.texts[i]);
        bool has_mark = *lead && strstr(texts.texts[i], "\xe2\x96\x81"); /* SentencePiece cannot tell it from a space */
        if (!has_mark) expect_decodes_to(t, lines[i].ids, lines[i].n, whole, (size_t)n);
        free(lines[i].ids);
    }
    free(lines);
    vocab_texts_free(&texts);
    crumb_tokenizer_close(t);
}

static void gpt2_agrees_with_tokenizers(void **state) {
    (void)state;
    replay("gpt-2", "");
}
static void default_agrees_with_tokenizers(void **state) {
    (void)state;
    replay("default", "");
}
static void smollm_agrees_with_tokenizers(void **state) {
    (void)state;
    replay("smollm", "");
}
static void falcon_agrees_with_tokenizers(void **state) {
    (void)state;
    replay("falcon", "");
}
static void qwen2_agrees_with_tokenizers(void **state) {
    (void)state;
    replay("qwen2", "");
}
static void llama_bpe_agrees_with_tokenizers(void **state) {
    (void)state;
    replay("llama-bpe", "");
}
static void spm_agrees_with_sentencepiece(void **state) {
    (void)state;
    replay("spm", " ");
}

static const char *const byte_level[] = {"gpt-2", "default", "smollm", "llama-bpe"};

static void bytes_that_are_not_text_survive(void **state) {
    (void)state;
    uint64_t random = 1;
    for (size_t v = 0; v < 4; v++) {
        crumb_tokenizer *t = open_small(byte_level[v]);
        for (int round = 0; round < 200; round++) {
            char bytes[300];
            for (int i = 0; i < 300; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                bytes[i] = (char)(round == 0 ? i : (int)(random >> 56) & (round % 2 ? 0xff : 0xdf));
            }
            size_t n, n_bytes = round == 0 ? 256 : 1 + (size_t)(random >> 33) % 300;
            int32_t *ids = encode(t, bytes, n_bytes, CRUMB_TOKENIZE_PARSE_SPECIAL, &n);
            expect_decodes_to(t, ids, n, bytes, n_bytes);
            free(ids);
        }
        crumb_tokenizer_close(t);
    }
    crumb_tokenizer *spm = open_small("spm");
    size_t n;
    int32_t *ids = encode(spm, "a\xff\xe2\x82\0z", 6, 0, &n);
    expect_decodes_to(spm, ids, n, " a\xff\xe2\x82\0z", 7);
    free(ids);
    crumb_tokenizer_close(spm);
}

/* Runs that make a careless pattern or merge loop quadratic. */
static void long_runs_are_no_trap(void **state) {
    (void)state;
    static const char *const runs[] = {" ",   "a",   "\n", "1", "\xe2\x80\xa8", "!", "' ", "\xf0\x9f\x98\x80",
                                       " \n", "\xff"};
    const size_t n_bytes = 1 << 18;
    char *text = malloc(n_bytes + 1);
    assert_non_null(text);
    for (size_t v = 0; v < 5; v++) {
        crumb_tokenizer *t = open_small(v < 4 ? byte_level[v] : "spm");
        for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
            size_t n, n_run = strlen(runs[r]), size = n_bytes / n_run * n_run;
            text[0] = ' ';
            for (size_t i = 0; i < size; i++) text[1 + i] = runs[r][i % n_run];
            int32_t *ids = encode(t, text + (v == 4), size + (v < 4), 0, &n);
            expect_decodes_to(t, ids, n, text, size + 1);
            free(ids);
        }
        crumb_tokenizer_close(t);
    }
    free(text);
}

static void a_text_too_long_is_refused(void **state) {
    (void)state;
    crumb_tokenizer *t = open_small("gpt-2");
    crumb_error err = {0};
    size_t n = 1;
    assert_int_equal(crumb_tokenizer_encode(t, "", (size_t)1 << 32, 0, NULL, 0, &n, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "4294967296"));
    assert_int_equal(n, 0);
    crumb_tokenizer_close(t);
}

/* ---- special tokens ----------------------------------------------------------------------------------------- */

/* Words of one letter and no merges, so that only special tokens matter. */
static const struct {
    const char *text;
    uint32_t type;
} tokens[] = {
    {"a", 1},     {"b", 1},       {"\xc4\xa0", 1}, /* a space */
    {"<s>", 3},   {"<|end|>", 1}, {"<x>", 4},          {"<x><y>", 4}, {"<u>", 5},
    {"<unk>", 2}, {"[EOS]", 3},   {"<|file_sep|>", 3}, {"<mask>", 3},
};
enum { N_TOKENS = sizeof tokens / sizeof *tokens, A = 0, B, SPACE, S, END, X, XY, U, UNK, EOS, FILE_SEP, MASK };

static crumb_tokenizer *open_special(const char *pre, const char *name) {
    gguf_writer w = gguf_writer_begin();
    gguf_key_string(&w, "general.name", name);
    gguf_key_string(&w, "tokenizer.ggml.model", "gpt2");
    gguf_key_string(&w, "tokenizer.ggml.pre", pre);
    gguf_put_array(&w, "tokenizer.ggml.tokens", CRUMB_GGUF_STRING, N_TOKENS);
    for (int i = 0; i < N_TOKENS; i++) gguf_put_string(&w, tokens[i].text);
    gguf_put_array(&w, "tokenizer.ggml.token_type", CRUMB_GGUF_I32, N_TOKENS);
    for (int i = 0; i < N_TOKENS; i++) gguf_put_u32(&w, tokens[i].type);
    gguf_put_array(&w, "tokenizer.ggml.merges", CRUMB_GGUF_STRING, 0);
    gguf_key_u32(&w, "tokenizer.ggml.bos_token_id", S);
    gguf_key_u32(&w, "tokenizer.ggml.eos_token_id", UNK);
    crumb_gguf *g;
    crumb_tokenizer *t = NULL;
    crumb_error err = {0};
    if (crumb_gguf_open_memory(w.data, w.size, "special", &g, &err) != CRUMB_OK ||
        crumb_tokenizer_open(g, &t, &err) != CRUMB_OK)
        fail_msg("%s", err.message);
    crumb_gguf_close(g);
    gguf_writer_free(&w);
    return t;
}

#define EXPECT(t, text, flags, ...)                                                                                    \
    expect_ids(t, text, flags, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void special_tokens_are_found(void **state) {
    (void)state;
    crumb_tokenizer *t = open_special("gpt-2", "plain");
    const unsigned parse = CRUMB_TOKENIZE_PARSE_SPECIAL, add = CRUMB_TOKENIZE_ADD_SPECIAL;
    EXPECT(t, "a<x>b", 0, A, X, B);             /* user-defined: always */
    EXPECT(t, "a<x><y>b<x><x", 0, A, XY, B, X); /* the longest; what has no token is lost, as in llama.cpp */
    EXPECT(t, "a<s>b", 0, A, B);                /* control: only where asked for */
    EXPECT(t, "a<s>b", parse, A, S, B);
    EXPECT(t, "<s><unk><s>", parse, S, UNK, S);
    EXPECT(t, "<|end|>", parse, END); /* control by its name, whatever its type */
    EXPECT(t, "a <mask> b", parse, A, SPACE, MASK, SPACE, B);
    EXPECT(t, "a", add, A); /* gpt-2 has no BOS unless the file says so */
    size_t n;
    assert_int_equal(crumb_tokenizer_encode(t, "", 0, add | parse, NULL, 0, &n, NULL), CRUMB_OK);
    assert_int_equal(n, 0);
    crumb_tokenizer_close(t);

    t = open_special("llama-bpe", "plain");
    EXPECT(t, "a", add, S, A);
    EXPECT(t, "", add, S);
    EXPECT(t, "a", 0, A);
    assert_true(crumb_tokenizer_adds_bos(t));
    crumb_tokenizer_close(t);
}

static void special_tokens_strip_white_space(void **state) {
    (void)state;
    crumb_tokenizer *t = open_special("jina-v2-de", "plain");
    EXPECT(t, "a \t<mask> b", CRUMB_TOKENIZE_PARSE_SPECIAL, A, MASK, SPACE, B);
    EXPECT(t, " <mask>", CRUMB_TOKENIZE_PARSE_SPECIAL, MASK);
    crumb_tokenizer_close(t);
    t = open_special("gpt-2", "My Phi-3 Mini");
    EXPECT(t, "a <x> \n b<x> ", 0, A, SPACE, X, B, X);
    EXPECT(t, "a<s> b", CRUMB_TOKENIZE_PARSE_SPECIAL, A, S, SPACE, B); /* one of the exceptions */
    crumb_tokenizer_close(t);
}

static void token_bytes_and_ends_follow_types(void **state) {
    (void)state;
    crumb_tokenizer *t = open_special("gpt-2", "plain");
    static const struct {
        int32_t id;
        const char *shown, *special;
        bool ends;
    } cases[] = {
        {A, "a", "a", false},       {SPACE, " ", " ", false},
        {S, "", "<s>", false},      {END, "", "<|end|>", true},
        {X, "<x>", "<x>", false},   {U, "", "", false},
        {UNK, "", "<unk>", true}, /* the file's EOS */
        {EOS, "", "[EOS]", true},   {FILE_SEP, "", "<|file_sep|>", true},
        {-1, "", "", false},        {N_TOKENS, "", "", false},
        {INT32_MIN, "", "", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        const char *bytes = crumb_tokenizer_token_bytes(t, cases[i].id, false, &n);
        assert_int_equal(n, strlen(cases[i].shown));
        assert_memory_equal(bytes, cases[i].shown, n);
        bytes = crumb_tokenizer_token_bytes(t, cases[i].id, true, &n);
        assert_int_equal(n, strlen(cases[i].special));
        assert_memory_equal(bytes, cases[i].special, n);
        assert_int_equal(crumb_tokenizer_ends(t, cases[i].id), cases[i].ends);
    }
    assert_int_equal(crumb_tokenizer_bos(t), S);
    assert_int_equal(crumb_tokenizer_eos(t), UNK);
    assert_int_equal(crumb_tokenizer_n_vocab(t), N_TOKENS);
    crumb_tokenizer_close(t);
}

static void spm_puts_a_space_before_each_piece(void **state) {
    (void)state;
    crumb_tokenizer *t = open_small("spm");
    size_t n;
    int32_t *ids = encode(t, "a<s>b", 5, CRUMB_TOKENIZE_PARSE_SPECIAL | CRUMB_TOKENIZE_ADD_SPECIAL, &n);
    assert_int_equal(ids[0], 1);
    expect_decodes_to(t, ids + 1, n - 1, " a<s> b", 7);
    free(ids);
    assert_int_equal(crumb_tokenizer_bos(t), 1);
    assert_true(crumb_tokenizer_adds_bos(t) && crumb_tokenizer_ends(t, 2));
    crumb_tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_agrees_with_tokenizers),
        cmocka_unit_test(default_agrees_with_tokenizers),
        cmocka_unit_test(smollm_agrees_with_tokenizers),
        cmocka_unit_test(falcon_agrees_with_tokenizers),
        cmocka_unit_test(qwen2_agrees_with_tokenizers),
        cmocka_unit_test(llama_bpe_agrees_with_tokenizers),
        cmocka_unit_test(spm_agrees_with_sentencepiece),
        cmocka_unit_test(bytes_that_are_not_text_survive),
        cmocka_unit_test(long_runs_are_no_trap),
        cmocka_unit_test(a_text_too_long_is_refused),
        cmocka_unit_test(special_tokens_are_found),
        cmocka_unit_test(special_tokens_strip_white_space),
        cmocka_unit_test(token_bytes_and_ends_follow_types),
        cmocka_unit_test(spm_puts_a_space_before_each_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
