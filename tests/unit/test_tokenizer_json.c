/* host/text/tokenizer_json.h: tokenizer.json files as the tokenizers library writes them give its ids
 * (tests/oracle/make_vocabs.py), and what crumb would run wrongly is refused with the field named. */
#include "host/text/tokenizer_json.h"
#include "tests/support/vocab_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_tokenizer *open_json(const char *name) {
    char path[256];
    size_t n_bytes;
    crumb_tokenizer *t;
    crumb_error err = {0};
    snprintf(path, sizeof path, "tests/oracle/vocabs/%s.json", name);
    char *json = vocab_read_file(path, &n_bytes);
    if (crumb_tokenizer_open_json(json, n_bytes, path, &t, &err) != CRUMB_OK) fail_msg("%s", err.message);
    free(json);
    return t;
}

static const struct vocabulary {
    const char *name;
    unsigned flags; /* sentencepiece takes special tokens in a text for text, the others do not */
    bool adds_bos;
} files[] = {{"gpt-2", CRUMB_TOKENIZE_PARSE_SPECIAL, false},    {"smollm", CRUMB_TOKENIZE_PARSE_SPECIAL, false},
             {"qwen2", CRUMB_TOKENIZE_PARSE_SPECIAL, false},    {"llama-bpe", CRUMB_TOKENIZE_PARSE_SPECIAL, true},
             {"falcon", CRUMB_TOKENIZE_PARSE_SPECIAL, false},   {"spm", 0, true},
             {"spm-first", CRUMB_TOKENIZE_PARSE_SPECIAL, true}, {"spm-gemma", CRUMB_TOKENIZE_PARSE_SPECIAL, true}};

static void check_ids(const crumb_tokenizer *t, const struct vocabulary *file) {
    vocab_texts texts = vocab_texts_read();
    size_t n_lines;
    vocab_ids *lines = vocab_ids_read(file->name, 2, &n_lines);
    assert_int_equal(n_lines, texts.n);
    for (size_t j = 0; j < n_lines; j++) {
        int32_t ids[4096];
        size_t n;
        crumb_error err = {0};
        const char *text = texts.texts[j];
        assert_int_equal(crumb_tokenizer_encode(t, text, strlen(text), file->flags, ids, 4096, &n, &err), CRUMB_OK);
        if (n != lines[j].n || memcmp(ids, lines[j].ids, n * sizeof *ids) != 0)
            fail_msg("%s: other ids for text %zu", file->name, j);
        free(lines[j].ids);
    }
    free(lines);
    assert_int_equal(crumb_tokenizer_adds_bos(t), file->adds_bos);
    if (file->adds_bos) assert_int_equal(crumb_tokenizer_bos(t), strncmp(file->name, "spm", 3) == 0);
    vocab_texts_free(&texts);
}

static void files_give_the_ids_of_their_library(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        crumb_tokenizer *t = open_json(files[i].name);
        check_ids(t, &files[i]);
        crumb_tokenizer_close(t);
    }
}

static const char byte_level[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<x>\",\"special\":true}],\"normalizer\":null,"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<x>\"}},"
    "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<x>\":{\"ids\":[4]}}},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"ignore_merges\":false,\"vocab\":{\"a\":0,\"b\":1,\"ab\":3},"
    "\"merges\":[\"a b\"]}}";
static const char spm[] =
    "{\"added_tokens\":[],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
    "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]},\"pre_tokenizer\":null,"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"byte_fallback\":true,"
    "\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2,\"<0x0A>\":3,\"\xe2\x96\x81\":4,\"a\":5,\"\xe2\x96\x81"
    "a\":6},\"merges\":[[\"\xe2\x96\x81\",\"a\"]]}}";

/* `from` of the document replaced by `to`. */
static char *changed(const char *document, const char *from, const char *to) {
    const char *at = strstr(document, from);
    assert_non_null(at);
    const size_t size = strlen(document) + strlen(to) + 1;
    char *out = malloc(size);
    assert_non_null(out);
    snprintf(out, size, "%.*s%s%s", (int)(at - document), document, to, at + strlen(from));
    return out;
}

#define PREPEND "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}"
#define SPACES  "{\"type\":\"Sequence\",\"normalizers\":[" PREPEND REPLACE "]},\"pre_tokenizer\":null"
#define METASPACE(scheme, split)                                                                                       \
    "null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"" scheme     \
    "\",\"split\":" split "}"

static void small_documents_are_read(void **state) {
    (void)state;
    static const struct {
        const char *document, *from, *to; /* a change that is fine */
        const char *text;
        int32_t ids[4];
        size_t n;
    } cases[] = {{byte_level, "null", "null", "ab", {4, 3}, 2}, /* BOS, and id 2 is a hole */
                 {byte_level, "\"a b\"", "[\"a\",\"b\"]", "abb", {4, 3, 1}, 3},
                 {byte_level, "\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", "b", {4, 1}, 2},
                 {spm, "null", "null", "a\n", {1, 6, 3}, 3},
                 {spm, SPACES, METASPACE("first", "false"), "a a", {1, 6, 6}, 3},
                 {spm, SPACES, METASPACE("first", "false"), " a", {1, 6}, 2},
                 {spm, SPACES, METASPACE("always", "false"), "a", {1, 6}, 2},
                 {spm, SPACES, METASPACE("never", "false"), "a a", {1, 5, 6}, 3},
                 {spm, "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},", "", "a", {1, 5}, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = changed(cases[i].document, cases[i].from, cases[i].to);
        crumb_tokenizer *t;
        crumb_error err = {0};
        int32_t ids[8];
        size_t n;
        if (crumb_tokenizer_open_json(json, strlen(json), "small", &t, &err) != CRUMB_OK) fail_msg("%s", err.message);
        const unsigned flags = i < 3 ? CRUMB_TOKENIZE_ADD_SPECIAL : 0;
        assert_int_equal(crumb_tokenizer_encode(t, cases[i].text, strlen(cases[i].text), flags, ids, 8, &n, &err),
                         CRUMB_OK);
        const size_t skipped = i < 3 ? 0 : 1; /* written with the BOS that this template does not add */
        assert_int_equal(n, cases[i].n - skipped);
        assert_memory_equal(ids, cases[i].ids + skipped, n * sizeof *ids);
        crumb_tokenizer_close(t);
        free(json);
    }
}

static void what_would_be_wrong_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *document, *from, *to;
        crumb_status expected;
        const char *needle;
    } cases[] = {
        {byte_level, "}}", "}", CRUMB_ERR_FORMAT, "JSON"},
        {byte_level, "\"BPE\"", "\"Unigram\"", CRUMB_ERR_UNSUPPORTED, "model.type"},
        {byte_level, "\"model\"", "\"modle\"", CRUMB_ERR_FORMAT, "'model'"},
        {byte_level, "\"dropout\":null", "\"dropout\":0.1", CRUMB_ERR_UNSUPPORTED, "dropout"},
        {byte_level, "\"ignore_merges\":false", "\"ignore_merges\":true", CRUMB_ERR_UNSUPPORTED, "pre_tokenizer"},
        {byte_level, "\"ab\":3", "\"ab\":1", CRUMB_ERR_FORMAT, "model.vocab"},
        {byte_level, "\"ab\":3", "\"ab\":-3", CRUMB_ERR_FORMAT, "model.vocab"},
        {byte_level, "\"ab\":3", "\"ab\":2.5", CRUMB_ERR_FORMAT, "model.vocab"},
        {byte_level, "\"ab\":3", "\"ab\":4194304", CRUMB_ERR_FORMAT, "model.vocab"},
        {byte_level, "\"ab\":3", "\"ab\":4", CRUMB_ERR_FORMAT, "added_tokens"},
        {byte_level, "\"vocab\"", "\"vacob\"", CRUMB_ERR_FORMAT, "model.vocab"},
        {byte_level, "[\"a b\"]", "[\"a b c\"]", CRUMB_ERR_FORMAT, "model.merges"},
        {byte_level, "[\"a b\"]", "[[\"a\"]]", CRUMB_ERR_FORMAT, "model.merges"},
        {byte_level, "[\"a b\"]", "[7]", CRUMB_ERR_FORMAT, "model.merges"},
        {byte_level, "[\"a b\"]", "[\"a z\"]", CRUMB_ERR_FORMAT, "model.merges"},
        {byte_level, "\"ab\":3", "\"zb\":2,\"azb\":3", CRUMB_ERR_FORMAT, "model.merges"},
        {byte_level, "\"a\":0,", "\"aa\":0,", CRUMB_ERR_FORMAT, "model.merges"},
        {byte_level, "\"ab\":3", "\"ab\":3,\"a\":5", CRUMB_ERR_FORMAT, "'a': it is there twice"},
        {byte_level, "\"ab\":3", "\"ab\":1e300", CRUMB_ERR_FORMAT, "model.vocab"},
        {byte_level, "\"id\":4", "\"id\":4194304", CRUMB_ERR_FORMAT, "added_tokens"},
        {byte_level, "\"id\":4", "\"id\":0", CRUMB_ERR_FORMAT, "added_tokens"},
        {byte_level, "\"normalizer\":null", "\"decoder\":{\"type\":\"WordPiece\"},\"normalizer\":null",
         CRUMB_ERR_UNSUPPORTED, "'decoder': 'WordPiece'"},
        {byte_level, "\"normalizer\":null", "\"decoder\":{\"type\":\"Metaspace\"},\"normalizer\":null",
         CRUMB_ERR_UNSUPPORTED, "'decoder': 'Metaspace'"},
        {spm, "\"pre_tokenizer\":null", "\"pre_tokenizer\":null,\"decoder\":{\"type\":\"ByteLevel\"}",
         CRUMB_ERR_UNSUPPORTED, "'decoder': 'ByteLevel'"},
        {spm, "\"pre_tokenizer\":null",
         "\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"CTC\"}]}",
         CRUMB_ERR_UNSUPPORTED, "'decoder': 'CTC'"},
        {spm, "\"pre_tokenizer\":null",
         "\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Strip\",\"content\":\"_\",\"start\":1,\"stop\":0}",
         CRUMB_ERR_UNSUPPORTED, "'decoder': 'Strip'"},
        {spm, "\"pre_tokenizer\":null",
         "\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":1}",
         CRUMB_ERR_UNSUPPORTED, "'decoder': 'Strip'"},
        {spm, "\"unk_token\":\"<unk>\"", "\"unk_token\":\"<oov>\"", CRUMB_ERR_FORMAT, "model.unk_token"},
        {byte_level, "\"merges\"", "\"merged\"", CRUMB_ERR_FORMAT, "model.merges"},
        {byte_level, "\"special\":true", "\"single_word\":true", CRUMB_ERR_UNSUPPORTED, "single_word"},
        {byte_level, "\"id\":4,", "", CRUMB_ERR_FORMAT, "added_tokens"},
        {byte_level, "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}", CRUMB_ERR_UNSUPPORTED,
         "normalizer"},
        {byte_level, "\"add_prefix_space\":false", "\"add_prefix_space\":true", CRUMB_ERR_UNSUPPORTED, "pre_tokenizer"},
        {byte_level, "\"use_regex\":true", "\"use_regex\":false", CRUMB_ERR_UNSUPPORTED, "pre_tokenizer"},
        {byte_level, "\"ids\":[4]", "\"ids\":[5]", CRUMB_ERR_FORMAT, "post_processor"},
        {byte_level, "\"ids\":[4]", "\"ids\":[4,4]", CRUMB_ERR_FORMAT, "post_processor"},
        {byte_level, "TemplateProcessing", "RobertaProcessing", CRUMB_ERR_UNSUPPORTED, "post_processor"},
        {spm, "\"Prepend\"", "\"Strip\"", CRUMB_ERR_UNSUPPORTED, "normalizer"},
        {spm, "\"String\":\" \"", "\"String\":\"_\"", CRUMB_ERR_UNSUPPORTED, "normalizer"},
        {spm, "\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"Metaspace\"}", CRUMB_ERR_UNSUPPORTED,
         "pre_tokenizer"},
        {spm, SPACES, METASPACE("first", "true"), CRUMB_ERR_UNSUPPORTED, "Metaspace that splits"},
        {spm, SPACES, METASPACE("last", "false"), CRUMB_ERR_UNSUPPORTED, "Metaspace.prepend_scheme"},
        {spm, SPACES, "null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}", CRUMB_ERR_UNSUPPORTED,
         "Metaspace.replacement"},
        {spm, SPACES, "null,\"pre_tokenizer\":null", CRUMB_ERR_UNSUPPORTED, "normalizer"},
        {byte_level, "\"type\":\"ByteLevel\"", "\"type\":\"Punctuation\",\"behavior\":\"Removed\"",
         CRUMB_ERR_UNSUPPORTED, "pre_tokenizer"},
        {spm, "\"a\"]]", "\"b\"]]", CRUMB_ERR_FORMAT, "model.merges"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = changed(cases[i].document, cases[i].from, cases[i].to);
        crumb_tokenizer *t;
        crumb_error err = {0};
        const crumb_status status = crumb_tokenizer_open_json(json, strlen(json), "damaged.json", &t, &err);
        if (status != cases[i].expected || !strstr(err.message, cases[i].needle) ||
            strncmp(err.message, "damaged.json: ", 14) != 0)
            fail_msg("case %zu: status %d, '%s', expected %d about '%s'", i, status, err.message, cases[i].expected,
                     cases[i].needle);
        assert_null(t);
        free(json);
    }
}

/* What the keys of a file are written to again; freed by the caller. */
static char *rewrite(const char *name) {
    char path[256], *text;
    size_t n_bytes;
    crumb_error err = {0};
    crumb_gguf_builder keys;
    crumb_gguf *g;
    snprintf(path, sizeof path, "tests/oracle/vocabs/%s.json", name);
    char *json = vocab_read_file(path, &n_bytes);
    crumb_gguf_build_begin(&keys, &err);
    assert_int_equal(crumb_tokenizer_json_to_keys(json, n_bytes, 0, &keys, &err), CRUMB_OK);
    assert_int_equal(crumb_gguf_build_open(&keys, path, &g), CRUMB_OK);
    if (crumb_tokenizer_json_from_keys(g, &text, &err) != CRUMB_OK) fail_msg("%s: %s", name, err.message);
    crumb_gguf_close(g);
    crumb_gguf_build_free(&keys);
    free(json);
    return text;
}

static void written_files_give_the_same_ids(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        crumb_error err = {0};
        crumb_tokenizer *t;
        char *text = rewrite(files[i].name);
        if (crumb_tokenizer_open_json(text, strlen(text), files[i].name, &t, &err) != CRUMB_OK)
            fail_msg("%s", err.message);
        check_ids(t, &files[i]);
        crumb_tokenizer_close(t);
        free(text);
    }
}

/* A vocabulary of one token for each byte, cut as `pre` says. */
static crumb_status write_bytes(const char *pre, char **text, crumb_error *err) {
    crumb_gguf_builder keys;
    crumb_gguf *g;
    crumb_gguf_build_begin(&keys, err);
    crumb_gguf_build_string(&keys, "tokenizer.ggml.model", "gpt2");
    crumb_gguf_build_string(&keys, "tokenizer.ggml.pre", pre);
    crumb_gguf_build_array(&keys, "tokenizer.ggml.tokens", CRUMB_GGUF_STRING, 26);
    for (int i = 0; i < 26; i++) crumb_gguf_add_string(&keys, &"abcdefghijklmnopqrstuvwxyz"[i], 1);
    crumb_gguf_build_array(&keys, "tokenizer.ggml.merges", CRUMB_GGUF_STRING, 0);
    assert_int_equal(crumb_gguf_build_open(&keys, "letters", &g), CRUMB_OK);
    const crumb_status status = crumb_tokenizer_json_from_keys(g, text, err);
    crumb_gguf_close(g);
    crumb_gguf_build_free(&keys);
    return status;
}

static void what_cannot_be_written_is_refused(void **state) {
    (void)state;
    char *text;
    crumb_error err = {0};
    assert_int_equal(write_bytes("starcoder", &text, &err), CRUMB_OK); /* which cuts as smollm does */
    free(text);
    assert_int_equal(write_bytes("default", &text, &err), CRUMB_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "'tokenizer.ggml.pre'"));
    assert_null(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_give_the_ids_of_their_library), cmocka_unit_test(small_documents_are_read),
        cmocka_unit_test(what_would_be_wrong_is_refused),      cmocka_unit_test(written_files_give_the_same_ids),
        cmocka_unit_test(what_cannot_be_written_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
