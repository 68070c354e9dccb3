/* Whole models on the first GPU against the CPU backend, by the rule of tests/support/compare_tokens.h.
 *
 * usage: test_cl_models TARGET [MODEL...]   TARGET as in --target: cl:RUNG, ze:RUNG; a MODEL is a file, or one of
 * random weights: synthetic:SHAPE:TYPE[:HEAD] Without models: those of tests/oracle, which are every architecture and
 * type, each with prompts of 1, 7, 64 and 513 tokens and decoding behind them, with both types of cache; each with
 * every way to quantize activations; GPTQ's folders with act-order and with groups of 16; and that pieces of a batch
 * change no bit. With models: the prompts on these. With CRUMB_PLACE in the environment the CPU computes some of the
 * layers beside the device, with CRUMB_TEST_SPLIT (0..1) a part of each while decoding, of models whose heads are whole
 * tiles. */
#include "tests/cl/model_pair.h"
#include "tests/model/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char **models; /* given */
static int n_models;
/* CRUMB_CL_SAMPLE=n or n:first: every n-th model from number `first` on, one prompt each, of all lengths in turn; 0:
 * everything. */
static size_t sample, first_model;

typedef struct sink {
    float *logits; /* [n][n_vocab] */
    size_t n_vocab, n;
} sink;

static crumb_status keep(void *user, size_t index, const float *logits) {
    sink *s = user;
    memcpy(s->logits + index * s->n_vocab, logits, s->n_vocab * sizeof *logits);
    s->n++;
    return CRUMB_OK;
}

/* Logits of all tokens. */
static float *score(crumb_model *model, crumb_activation activation, crumb_kv_type kv, const int32_t *tokens, size_t n,
                    size_t n_vocab) {
    crumb_session *session = pair_session(model, activation, kv, 64, 16);
    sink s = {.logits = calloc(n * n_vocab, sizeof(float)), .n_vocab = n_vocab};
    assert_non_null(s.logits);
    PAIR_OK(crumb_session_score(session, tokens, n, 0, keep, &s, &pair_err));
    assert_int_equal(s.n, n);
    crumb_session_destroy(session);
    return s.logits;
}

/* Every way to quantize activations, each token's logits. */
static bool compare_activations(const fixture *f, crumb_model *cpu, crumb_model *gpu, crumb_activation activation) {
    static const char *const names[] = {"auto", "float", "row"};
    pair_begin();
    float *expected = score(cpu, activation, CRUMB_KV_F16, f->tokens, f->n_tokens, f->n_vocab);
    float *logits = score(gpu, activation, CRUMB_KV_F16, f->tokens, f->n_tokens, f->n_vocab);
    const pair_bounds *bounds = pair_get_bounds();
    token_tally tally = {0};
    char what[128];
    for (size_t t = 0; t < f->n_tokens; t++)
        token_tally_add_logits(&tally, &bounds->rule, f->name, logits + t * f->n_vocab, f->n_vocab,
                               expected + t * f->n_vocab);
    size_t n = (size_t)f->n_tokens * f->n_vocab;
    snprintf(what, sizeof what, "%s %s, %zu of %zu logits bit-equal", f->name, names[activation],
             pair_equal_bits(logits, expected, n), n);
    bool good = token_tally_report(&tally, &bounds->rule, what) && token_tally_nmse(&tally) <= bounds->max_nmse;
    free(expected);
    free(logits);
    return good;
}

/* All lengths; each type of cache with two of them, in turn, so that over the models every pair occurs. */
static bool compare_prompts(const char *name, crumb_model *cpu, crumb_model *gpu, size_t turn) {
    static const size_t lengths[] = {1, 7, 64, 513};
    bool good = true;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (sample && i != turn / 2 % 4)
            continue;
        else if (!pair_compare_prompt(name, cpu, gpu, (turn + i) % 2 ? CRUMB_KV_Q8 : CRUMB_KV_F16, lengths[i], 4, 512))
            good = false;
    return good;
}

/* Heads that are no whole tiles cannot be divided, and the error says so: where weights are divided as well, when the
 * model is opened. */
static bool can_run(crumb_model *gpu) {
    if (!gpu) return false;
    crumb_session_params params = crumb_session_params_default();
    crumb_session *session;
    params.n_ctx = params.n_batch = 16;
    const crumb_status status = crumb_session_create(gpu, &params, &session, &pair_err);
    crumb_session_destroy(session);
    if (status == CRUMB_OK) return true;
    if (status != CRUMB_ERR_UNSUPPORTED) fail_msg("%s", pair_err.message);
    assert_true(pair_split() > 0);
    assert_non_null(strstr(pair_err.message, "cannot be divided"));
    return false;
}

static void oracle_models_agree(void **state) {
    (void)state;
    size_t n, n_compared = 0;
    fixture *all = fixtures_load(&n);
    bool good = true;
    assert_true(n >= 18);
    for (size_t i = first_model; i < n; i += sample ? sample : 1) {
        crumb_model *cpu = pair_open(all[i].model_path, "cpu"), *gpu = pair_open(all[i].model_path, "gpu0");
        const bool runs = can_run(gpu);
        n_compared += runs;
        if (runs && !compare_prompts(all[i].name, cpu, gpu, i)) good = false;
        for (int activation = CRUMB_ACTIVATION_AUTO; activation <= CRUMB_ACTIVATION_ROW && !sample; activation++)
            if (!compare_activations(&all[i], cpu, gpu, (crumb_activation)activation)) good = false;
        crumb_model_close(cpu);
        crumb_model_close(gpu);
    }
    fixtures_free(all, n);
    printf("%zu models compared\n", n_compared);
    assert_true(good && n_compared > 0);
}

/* What only folders of GPTQ have: columns in an order of their own, which activations follow (act-order); groups of 16
 * with f32 scales and mins; both. */
static void gptq_folders_agree(void **state) {
    (void)state;
    static const char *const names[] = {"llama-q4_0+order", "llama-q4_0+narrow", "llama-q2_0+narrow",
                                        "llama-q4_0+order-narrow"};
    bool good = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[96];
        snprintf(path, sizeof path, "tests/oracle/checkpoints/%s", names[i]);
        crumb_model *cpu = pair_open(path, "cpu"), *gpu = pair_open(path, "gpu0");
        if (can_run(gpu) && !compare_prompts(names[i], cpu, gpu, 2 * i)) good = false;
        crumb_model_close(cpu);
        crumb_model_close(gpu);
    }
    assert_true(good);
}

static void given_models_agree(void **state) {
    (void)state;
    bool good = true;
    for (int i = 0; i < n_models; i++) {
        const char *slash = strrchr(models[i], '/');
        crumb_model *cpu = pair_open(models[i], "cpu"), *gpu = pair_open(models[i], "gpu0");
        if (!compare_prompts(slash ? slash + 1 : models[i], cpu, gpu, (size_t)i)) good = false;
        crumb_model_close(cpu);
        crumb_model_close(gpu);
    }
    assert_true(good);
}

/* What travels in one batch, and what was in the cache before, changes no bit. */
static void pieces_and_rewinding_change_no_bit(void **state) {
    (void)state;
    if (pair_place() || pair_split() > 0) return; /* small pieces may be another device's than large ones */
    enum { N = 40 };
    crumb_model *gpu = pair_open(NULL, "gpu0");
    crumb_model_info info;
    crumb_model_get_info(gpu, &info);
    int32_t tokens[N];
    static const size_t pieces[] = {1, 3, 16};
    for (size_t i = 0; i < N; i++) tokens[i] = (int32_t)((i * 31 + 5) % info.n_vocab);
    crumb_session *s = pair_session(gpu, CRUMB_ACTIVATION_AUTO, CRUMB_KV_F16, 64, 64);
    float *expected = malloc(info.n_vocab * sizeof *expected);
    assert_non_null(expected);
    PAIR_OK(crumb_session_feed(s, tokens, N, &pair_err));
    memcpy(expected, crumb_session_logits(s), info.n_vocab * sizeof *expected);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        PAIR_OK(crumb_session_rewind(s, 5, &pair_err));
        for (size_t at = 5; at < N; at += pieces[p])
            PAIR_OK(crumb_session_feed(s, tokens + at, N - at < pieces[p] ? N - at : pieces[p], &pair_err));
        assert_memory_equal(expected, crumb_session_logits(s), info.n_vocab * sizeof *expected);
    }
    free(expected);
    crumb_session_destroy(s);
    crumb_model_close(gpu);
}

int main(int argc, char **argv) {
    const struct CMUnitTest own[] = {
        cmocka_unit_test(pieces_and_rewinding_change_no_bit),
        cmocka_unit_test(oracle_models_agree),
        cmocka_unit_test(gptq_folders_agree),
    };
    const struct CMUnitTest given[] = {cmocka_unit_test(given_models_agree)};
    if (argc < 2) {
        fprintf(stderr, "usage: test_cl_models TARGET [MODEL...]\n");
        return 2;
    }
    pair_set_target(argv[1]);
    const char *every = getenv("CRUMB_CL_SAMPLE");
    char *end = NULL;
    sample = every ? strtoul(every, &end, 10) : 0;
    first_model = end && *end == ':' ? strtoul(end + 1, NULL, 10) : 0;
    models = argv + 2;
    n_models = argc - 2;
    if (!pair_find_device()) return 1;
    int failed = n_models ? cmocka_run_group_tests(given, NULL, NULL) : cmocka_run_group_tests(own, NULL, NULL);
    if (strncmp(pair_target + 3, "dpas", 4) != 0) return failed;
    printf("%zu times a kernel on matrix instructions\n", pair_n_matrix);
    return failed || pair_n_matrix == 0;
}
