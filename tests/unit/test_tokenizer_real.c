/* Tokenizers of real models, which are not part of the repository:
 * CRUMB_TEST_VOCABS   a folder of llama.cpp's vocabularies, NAME.gguf, with texts in NAME.gguf.inp and ids in .out
 * CRUMB_TEST_SMOLLM2  SmolLM2-135M-Instruct.Q4_1.gguf; its ids are committed, from llama-tokenize (make_vocabs.py)
 */
#include "host/text/tokenizer.h"
#include "tests/support/vocab_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_tokenizer *open_file(const char *path) {
    crumb_gguf *g;
    crumb_tokenizer *t = NULL;
    crumb_error err = {0};
    if (crumb_gguf_open(path, &g, &err) != CRUMB_OK || crumb_tokenizer_open(g, &t, &err) != CRUMB_OK)
        fail_msg("%s", err.message);
    crumb_gguf_close(g);
    return t;
}

static void expect_ids(const crumb_tokenizer *t, const char *text, size_t n_bytes, const int32_t *ids, size_t n_ids) {
    int32_t *got = malloc((n_bytes + 2) * sizeof *got);
    size_t n;
    crumb_error err = {0};
    assert_non_null(got);
    assert_int_equal(crumb_tokenizer_encode(t, text, n_bytes, 0, got, n_bytes + 2, &n, &err), CRUMB_OK);
    for (size_t i = 0; i < n && i < n_ids; i++)
        if (got[i] != ids[i]) fail_msg("token %zu of '%.200s' is %d, expected %d", i, text, got[i], ids[i]);
    assert_int_equal(n, n_ids);
    free(got);
}

/* Texts are separated by a line of their own; the ids of each are one line. */
static void replay(const char *name, size_t n_expected) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    const char *folder = getenv("CRUMB_TEST_VOCABS");
    if (!folder) {
        print_message("not checked, since CRUMB_TEST_VOCABS is not set: the vocabulary of %s\n", name);
        skip();
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf", folder, name);
    crumb_tokenizer *t = open_file(path);
    size_t n_path = strlen(path), n_texts = 0;
    snprintf(path + n_path, sizeof path - n_path, ".inp");
    char *texts = vocab_read_file(path, NULL), *text = texts;
    snprintf(path + n_path, sizeof path - n_path, ".out");
    char *lines = vocab_read_file(path, NULL), *line = lines;
    for (char *end; (end = strstr(text, separator)) != NULL; text = end + strlen(separator), n_texts++) {
        int32_t ids[4096];
        size_t n = 0;
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        *line_end = 0;
        for (char *next; n < 4096; line = next) {
            long id = strtol(line, &next, 10);
            if (next == line) break;
            ids[n++] = (int32_t)id;
        }
        line = line_end + 1;
        expect_ids(t, text, (size_t)(end - text), ids, n);
    }
    assert_int_equal(n_texts, n_expected);
    free(texts);
    free(lines);
    crumb_tokenizer_close(t);
}

static void vocab_gpt_2(void **state) {
    (void)state;
    replay("gpt-2", 46);
}
static void vocab_llama_spm(void **state) {
    (void)state;
    replay("llama-spm", 46);
}
static void vocab_phi_3(void **state) {
    (void)state;
    replay("phi-3", 46);
}
static void vocab_falcon(void **state) {
    (void)state;
    replay("falcon", 46);
}
static void vocab_starcoder(void **state) {
    (void)state;
    replay("starcoder", 46);
}

static void vocab_smollm2(void **state) {
    (void)state;
    const char *path = getenv("CRUMB_TEST_SMOLLM2");
    if (!path) {
        print_message("not checked, since CRUMB_TEST_SMOLLM2 is not set: the vocabulary of SmolLM2\n");
        skip();
    }
    crumb_tokenizer *t = open_file(path);
    vocab_texts texts = vocab_texts_read();
    size_t n_lines, n_bytes = 0;
    vocab_ids *lines = vocab_ids_read("smollm2", 3, &n_lines);
    assert_int_equal(n_lines, 1);
    for (size_t i = 0; i < texts.n; i++) n_bytes += strlen(texts.texts[i]);
    char *text = malloc(n_bytes + 1), *end = text;
    for (size_t i = 0; i < texts.n; i++) end = stpcpy(end, texts.texts[i]);
    expect_ids(t, text, n_bytes, lines[0].ids, lines[0].n);
    assert_true(crumb_tokenizer_ends(t, 0) && crumb_tokenizer_ends(t, 2) && !crumb_tokenizer_ends(t, 1));
    assert_int_equal(crumb_tokenizer_bos(t), 1);
    assert_false(crumb_tokenizer_adds_bos(t));
    free(text);
    free(lines[0].ids);
    free(lines);
    vocab_texts_free(&texts);
    crumb_tokenizer_close(t);
}

int main(void) {
    if (!getenv("CRUMB_TEST_VOCABS") && !getenv("CRUMB_TEST_SMOLLM2")) {
        printf("not checked, since neither CRUMB_TEST_VOCABS nor CRUMB_TEST_SMOLLM2 is set: real vocabularies\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vocab_gpt_2),  cmocka_unit_test(vocab_llama_spm), cmocka_unit_test(vocab_phi_3),
        cmocka_unit_test(vocab_falcon), cmocka_unit_test(vocab_starcoder), cmocka_unit_test(vocab_smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
