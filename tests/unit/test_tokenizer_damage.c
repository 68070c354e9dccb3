/* Vocabularies that are damaged, or that crumb does not have: each is refused with the key named. */
#include "host/text/tokenizer.h"
#include "tests/support/gguf_writer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A vocabulary of four tokens; a case changes one thing in it. -1, NULL and 0 leave a key out. */
typedef struct vocabulary {
    const char *model, *pre;
    const char *tokens[4];
    uint32_t n_types, type, n_scores; /* the type of token 3 */
    float score;                      /* of token 3 */
    const char *merge;
    int64_t bos, eos;
    const char *flag; /* a key that is set to true */
    uint32_t n_strips;
    const char *space_prefix;
} vocabulary;

static const vocabulary sound_bpe = {"gpt2", "gpt-2", {"a", "b", "ab", "<s>"}, 4, 3, 0, 0, "a b", 3, 3, NULL, 4, NULL};
static const vocabulary sound_spm = {"llama", NULL,   {"a", "b", "<0x41>", "<s>"}, 4, 3, 4, -1, NULL, 3, 3, NULL,
                                     4,       "first"};

static gguf_writer write_file(const vocabulary *v) {
    gguf_writer w = gguf_writer_begin();
    if (v->model) gguf_key_string(&w, "tokenizer.ggml.model", v->model);
    if (v->pre) gguf_key_string(&w, "tokenizer.ggml.pre", v->pre);
    if (v->tokens[0]) gguf_put_array(&w, "tokenizer.ggml.tokens", CRUMB_GGUF_STRING, 4);
    for (int i = 0; i < 4 && v->tokens[0]; i++) gguf_put_string(&w, v->tokens[i]);
    if (v->n_types) gguf_put_array(&w, "tokenizer.ggml.token_type", CRUMB_GGUF_I32, v->n_types);
    for (uint32_t i = 0; i < v->n_types; i++) gguf_put_u32(&w, i == 3 ? v->type : 1);
    if (v->n_scores) gguf_put_array(&w, "tokenizer.ggml.scores", CRUMB_GGUF_F32, v->n_scores);
    for (uint32_t i = 0; i < v->n_scores; i++) gguf_put(&w, i == 3 ? &v->score : &(float){-1}, 4);
    if (v->merge) gguf_put_array(&w, "tokenizer.ggml.merges", CRUMB_GGUF_STRING, 1);
    if (v->merge) gguf_put_string(&w, v->merge);
    if (v->bos >= 0) gguf_key_u32(&w, "tokenizer.ggml.bos_token_id", (uint32_t)v->bos);
    if (v->eos >= 0) gguf_key_u32(&w, "tokenizer.ggml.eos_token_id", (uint32_t)v->eos);
    if (v->n_strips) gguf_put_array(&w, "tokenizer.crumb.token_strips", CRUMB_GGUF_I32, v->n_strips);
    for (uint32_t i = 0; i < v->n_strips; i++) gguf_put_u32(&w, 0);
    if (v->space_prefix) gguf_key_string(&w, "tokenizer.crumb.space_prefix", v->space_prefix);
    if (v->flag) gguf_put_key(&w, v->flag, CRUMB_GGUF_BOOL);
    if (v->flag) gguf_put(&w, &(uint8_t){1}, 1);
    return w;
}

static crumb_status open_vocabulary(const vocabulary *v, crumb_error *err) {
    gguf_writer w = write_file(v);
    crumb_gguf *g;
    crumb_tokenizer *t = NULL;
    assert_int_equal(crumb_gguf_open_memory(w.data, w.size, "damaged.gguf", &g, err), CRUMB_OK);
    crumb_status status = crumb_tokenizer_open(g, &t, err);
    assert_true((t != NULL) == (status == CRUMB_OK));
    crumb_tokenizer_close(t);
    crumb_gguf_close(g);
    gguf_writer_free(&w);
    return status;
}

/* Opens `base` with one member changed; all parts of the message must be there. */
#define REFUSES(base, change, expected, part1, part2)                                                                  \
    do {                                                                                                               \
        vocabulary v = base;                                                                                           \
        crumb_error err = {0};                                                                                         \
        v.change;                                                                                                      \
        assert_int_equal(open_vocabulary(&v, &err), expected);                                                         \
        if (!strstr(err.message, part1) || !strstr(err.message, part2)) fail_msg("message: %s", err.message);          \
    } while (0)

static void sound_ones_open(void **state) {
    (void)state;
    crumb_error err = {0};
    assert_int_equal(open_vocabulary(&sound_bpe, &err), CRUMB_OK);
    assert_int_equal(open_vocabulary(&sound_spm, &err), CRUMB_OK);
    vocabulary v = sound_bpe;
    v.pre = NULL; /* means "default" */
    v.n_types = 0;
    v.tokens[1] = ""; /* a hole */
    v.merge = "a a", v.tokens[2] = "aa";
    v.bos = v.eos = -1;
    assert_int_equal(open_vocabulary(&v, &err), CRUMB_OK);
}

static void what_crumb_lacks_is_named(void **state) {
    (void)state;
    REFUSES(sound_bpe, model = "t5", CRUMB_ERR_UNSUPPORTED, "tokenizer.ggml.model", "'t5'");
    REFUSES(sound_bpe, model = "", CRUMB_ERR_UNSUPPORTED, "tokenizer.ggml.model", "''");
    REFUSES(sound_bpe, pre = "tekken", CRUMB_ERR_UNSUPPORTED, "tokenizer.ggml.pre", "'tekken'");
    REFUSES(sound_bpe, pre = "gpt-2 ", CRUMB_ERR_UNSUPPORTED, "tokenizer.ggml.pre", "'gpt-2 '");
    REFUSES(sound_spm, space_prefix = "last", CRUMB_ERR_UNSUPPORTED, "tokenizer.crumb.space_prefix", "'last'");
    REFUSES(sound_spm, flag = "tokenizer.ggml.remove_extra_whitespaces", CRUMB_ERR_UNSUPPORTED, "normalization",
            "remove_extra_whitespaces");
    REFUSES(sound_spm, flag = "tokenizer.ggml.precompiled_charsmap", CRUMB_ERR_UNSUPPORTED, "normalization",
            "precompiled_charsmap");
}

static void damage_is_named(void **state) {
    (void)state;
    REFUSES(sound_bpe, model = NULL, CRUMB_ERR_FORMAT, "tokenizer.ggml.model", "");
    REFUSES(sound_bpe, tokens[0] = NULL, CRUMB_ERR_FORMAT, "tokenizer.ggml.tokens", "");
    REFUSES(sound_bpe, tokens[3] = "b", CRUMB_ERR_FORMAT, "tokens 1 and 3", "'b'");
    REFUSES(sound_bpe, n_types = 3, CRUMB_ERR_FORMAT, "tokenizer.ggml.token_type", "3 entries for 4");
    REFUSES(sound_bpe, n_types = 5, CRUMB_ERR_FORMAT, "tokenizer.ggml.token_type", "5 entries for 4");
    REFUSES(sound_bpe, n_strips = 3, CRUMB_ERR_FORMAT, "tokenizer.crumb.token_strips", "3 entries for 4");
    REFUSES(sound_bpe, type = 7, CRUMB_ERR_FORMAT, "token 3", "is 7");
    REFUSES(sound_bpe, type = 0xffffffff, CRUMB_ERR_FORMAT, "token 3", "is -1");
    REFUSES(sound_bpe, type = 6, CRUMB_ERR_FORMAT, "token 3", "<0xNN>");
    REFUSES(sound_bpe, merge = NULL, CRUMB_ERR_FORMAT, "tokenizer.ggml.merges", "");
    REFUSES(sound_bpe, merge = "b a", CRUMB_ERR_FORMAT, "entry 0", "'b a'");
    REFUSES(sound_bpe, merge = "a c", CRUMB_ERR_FORMAT, "entry 0", "'a c'");
    REFUSES(sound_bpe, merge = "ab", CRUMB_ERR_FORMAT, "entry 0", "'ab'");
    REFUSES(sound_bpe, merge = "a ", CRUMB_ERR_FORMAT, "entry 0", "'a '");
    REFUSES(sound_bpe, merge = " b", CRUMB_ERR_FORMAT, "entry 0", "' b'");
    REFUSES(sound_bpe, merge = "", CRUMB_ERR_FORMAT, "entry 0", "''");
    REFUSES(sound_bpe, bos = 4, CRUMB_ERR_FORMAT, "tokenizer.ggml.bos_token_id", "4 tokens");
    REFUSES(sound_bpe, eos = 0xffffffff, CRUMB_ERR_FORMAT, "tokenizer.ggml.eos_token_id", "4294967295");
    vocabulary no_ids = sound_bpe;
    no_ids.bos = no_ids.eos = -1;
    REFUSES(no_ids, flag = "tokenizer.ggml.add_bos_token", CRUMB_ERR_FORMAT, "tokenizer.ggml.bos_token_id", "missing");
    REFUSES(no_ids, flag = "tokenizer.ggml.add_eos_token", CRUMB_ERR_FORMAT, "tokenizer.ggml.eos_token_id", "missing");
    REFUSES(no_ids, pre = "llama-bpe", CRUMB_ERR_FORMAT, "tokenizer.ggml.bos_token_id", "missing");
    REFUSES(sound_spm, n_scores = 0, CRUMB_ERR_FORMAT, "tokenizer.ggml.scores", "");
    REFUSES(sound_spm, n_scores = 3, CRUMB_ERR_FORMAT, "tokenizer.ggml.scores", "3 entries for 4");
    REFUSES(sound_spm, score = NAN, CRUMB_ERR_FORMAT, "tokenizer.ggml.scores", "token 3");
}

/* Infinite scores and byte tokens that are missing are odd, but say what to do. */
static void odd_but_sound(void **state) {
    (void)state;
    crumb_error err = {0};
    vocabulary v = sound_spm;
    v.score = -INFINITY;
    assert_int_equal(open_vocabulary(&v, &err), CRUMB_OK);
    v.tokens[2] = "c";
    assert_int_equal(open_vocabulary(&v, &err), CRUMB_OK);
    v.bos = v.eos = -1; /* SentencePiece's are 1 and 2 */
    assert_int_equal(open_vocabulary(&v, &err), CRUMB_OK);
}

/* Any four bytes of a file changed: an error or a vocabulary, never a crash. */
static void flipped_words_do_no_harm(void **state) {
    (void)state;
    static const uint32_t words[] = {0, 1, 0x7fffffff, 0xffffffff};
    for (int base = 0; base < 2; base++) {
        gguf_writer w = write_file(base ? &sound_bpe : &sound_spm);
        for (size_t at = GGUF_HEADER_BYTES; at + 4 <= w.size; at++) {
            for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
                uint32_t before;
                memcpy(&before, w.data + at, 4);
                gguf_patch_u32(&w, at, words[i]);
                crumb_gguf *g;
                crumb_tokenizer *t;
                if (crumb_gguf_open_memory(w.data, w.size, "flipped", &g, NULL) == CRUMB_OK) {
                    if (crumb_tokenizer_open(g, &t, NULL) == CRUMB_OK) {
                        int32_t ids[16];
                        size_t n;
                        crumb_tokenizer_encode(t, "abAB <s>", 8, CRUMB_TOKENIZE_PARSE_SPECIAL, ids, 16, &n, NULL);
                        for (size_t k = 0; k < n && k < 16; k++)
                            assert_true(ids[k] >= 0 && (uint32_t)ids[k] < crumb_tokenizer_n_vocab(t));
                        crumb_tokenizer_close(t);
                    }
                    crumb_gguf_close(g);
                }
                gguf_patch_u32(&w, at, before);
            }
        }
        gguf_writer_free(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_ones_open),          cmocka_unit_test(what_crumb_lacks_is_named),
        cmocka_unit_test(damage_is_named),          cmocka_unit_test(odd_but_sound),
        cmocka_unit_test(flipped_words_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
