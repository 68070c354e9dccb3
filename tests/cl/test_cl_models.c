/* Whole models on the first GPU against the CPU backend, by the rule of tests/support/compare_tokens.h.
 *
 * usage: test_cl_models TARGET [MODEL...]   TARGET as in --target: cl:RUNG, ze:RUNG; a MODEL is a file, or one of
 * random weights: synthetic:SHAPE:TYPE[:HEAD] Without models: those of tests/oracle, which are every architecture and
 * type, each with prompts of 1, 7, 64 and 513 tokens and decoding behind them, with both types of cache; each with
 * every way to quantize activations; one with act-order; and that pieces of a batch change no bit. With models: the
 * prompts on these. With CRUMB_PLACE in the environment the CPU computes some of the layers beside the device, with
 * CRUMB_TEST_SPLIT (0..1) a part of each while decoding, of models whose heads are whole tiles. Exits with 77 where
 * there is no device. */
#include "tests/model/fixture.h"
#include "tests/support/compare_tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Integer sums are exact; what remains is a norm's last bit, which may move a value to the neighbouring code. */
static token_rule rule = {.near_tie = 0.05f, .max_error = 0.1f};
/* Values between ops in bf16 (TARGET ends with +bf16) make more of them neighbours. */
static const token_rule bf16_rule = {.near_tie = 0.5f, .max_error = 1.0f};

static char target[32]; /* "cl:portable": a backend of two letters, and a rung */
static char **models;   /* given */
static int n_models;
/* CRUMB_CL_SAMPLE=n: every n-th model, one prompt each, of all lengths in turn; 0: everything. */
static size_t sample;

static crumb_error err;
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        if ((call) != CRUMB_OK) fail_msg("%s", err.message);                                                           \
    } while (0)

/* Names of kernels on matrix instructions in what plans log: the rungs that have them must use them. */
static size_t n_matrix;
static void listen(void *user, crumb_log_level level, const char *message) {
    (void)user, (void)level;
    for (const char *at = message; (at = strstr(at, "__dpas")); at++) n_matrix++;
}

static const char *place_pattern(void) {
    return getenv("CRUMB_PLACE");
}

static double wanted_split(void) {
    const char *text = getenv("CRUMB_TEST_SPLIT");
    return text ? strtod(text, NULL) : 0;
}

static crumb_model *open_on(const char *path, const char *device) {
    crumb_model_params params = crumb_model_params_default();
    const bool split = wanted_split() > 0 && strcmp(device, "cpu") != 0;
    params.device = split ? "cpu+gpu0" : device;
    params.split = wanted_split();
    params.target = strcmp(device, "cpu") == 0 ? "cpu" : target;
    params.tuning = "none";
    params.n_threads = 2;
    params.verify = CRUMB_VERIFY_NEVER;
    params.log = listen;
    crumb_model *model = NULL;
    const size_t prefix = strlen("synthetic:");
    if (path && strncmp(path, "synthetic:", prefix) == 0)
        OK(crumb_model_open_synthetic(path + prefix, &params, &model, &err));
    else if (path)
        OK(crumb_model_open(path, &params, &model, &err));
    else
        OK(crumb_model_open_embedded(&params, &model, &err));
    crumb_model_info info;
    crumb_model_get_info(model, &info);
    assert_int_equal(*info.placement != 0, split || (place_pattern() && strcmp(device, "cpu") != 0));
    return model;
}

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

static crumb_session *create_session(crumb_model *model, crumb_activation activation, crumb_kv_type kv, uint32_t n_ctx,
                                     uint32_t n_batch) {
    crumb_session_params params = crumb_session_params_default();
    params.activation = activation;
    params.kv_type = kv;
    params.n_ctx = n_ctx;
    params.n_batch = n_batch;
    crumb_session *session = NULL;
    OK(crumb_session_create(model, &params, &session, &err));
    return session;
}

/* Logits of all tokens. */
static float *score(crumb_model *model, crumb_activation activation, crumb_kv_type kv, const int32_t *tokens, size_t n,
                    size_t n_vocab) {
    crumb_session *session = create_session(model, activation, kv, 64, 16);
    sink s = {.logits = calloc(n * n_vocab, sizeof(float)), .n_vocab = n_vocab};
    assert_non_null(s.logits);
    OK(crumb_session_score(session, tokens, n, 0, keep, &s, &err));
    assert_int_equal(s.n, n);
    crumb_session_destroy(session);
    return s.logits;
}

static size_t equal_bits(const float *a, const float *b, size_t n) {
    size_t equal = 0;
    for (size_t i = 0; i < n; i++) equal += memcmp(&a[i], &b[i], sizeof *a) == 0;
    return equal;
}

/* Every way to quantize activations, each token's logits. */
static bool compare_activations(const fixture *f, crumb_model *cpu, crumb_model *gpu, crumb_activation activation) {
    static const char *const names[] = {"auto", "float", "row"};
    float *expected = score(cpu, activation, CRUMB_KV_F16, f->tokens, f->n_tokens, f->n_vocab);
    float *logits = score(gpu, activation, CRUMB_KV_F16, f->tokens, f->n_tokens, f->n_vocab);
    token_tally tally = {0};
    char what[128];
    for (size_t t = 0; t < f->n_tokens; t++)
        token_tally_add_logits(&tally, &rule, f->name, logits + t * f->n_vocab, f->n_vocab, expected + t * f->n_vocab);
    size_t n = (size_t)f->n_tokens * f->n_vocab;
    snprintf(what, sizeof what, "%s %s, %zu of %zu logits bit-equal", f->name, names[activation],
             equal_bits(logits, expected, n), n);
    bool good = token_tally_report(&tally, &rule, what);
    free(expected);
    free(logits);
    return good;
}

/* A prompt, then decoding: at each step the CPU's best token is fed to both. */
static bool compare_prompt(const char *name, crumb_model *cpu, crumb_model *gpu, crumb_kv_type kv, size_t n_prompt,
                           size_t n_decode) {
    crumb_model_info info;
    crumb_model_get_info(cpu, &info);
    crumb_session *a = create_session(cpu, CRUMB_ACTIVATION_AUTO, kv, 640, 512);
    crumb_session *b = create_session(gpu, CRUMB_ACTIVATION_AUTO, kv, 640, 512);
    int32_t tokens[640];
    token_tally tally = {0};
    char what[160];
    size_t equal = 0;
    for (size_t i = 0; i < n_prompt; i++) tokens[i] = (int32_t)((i * 7919 + 13) % info.n_vocab);
    OK(crumb_session_feed(a, tokens, n_prompt, &err));
    OK(crumb_session_feed(b, tokens, n_prompt, &err));
    for (size_t i = 0; i <= n_decode; i++) {
        const float *expected = crumb_session_logits(a), *logits = crumb_session_logits(b);
        token_tally_add_logits(&tally, &rule, name, logits, info.n_vocab, expected);
        equal += equal_bits(logits, expected, info.n_vocab);
        int32_t next = token_best(expected, info.n_vocab);
        if (i == n_decode) break;
        OK(crumb_session_feed(a, &next, 1, &err));
        OK(crumb_session_feed(b, &next, 1, &err));
    }
    snprintf(what, sizeof what, "%s, prompt of %zu, cache %s, %zu of %zu logits bit-equal", name, n_prompt,
             kv == CRUMB_KV_Q8 ? "q8" : "f16", equal, (n_decode + 1) * info.n_vocab);
    crumb_session_destroy(a);
    crumb_session_destroy(b);
    return token_tally_report(&tally, &rule, what);
}

/* All lengths; each type of cache with two of them, in turn, so that over the models every pair occurs. */
static bool compare_prompts(const char *name, crumb_model *cpu, crumb_model *gpu, size_t turn) {
    static const size_t lengths[] = {1, 7, 64, 513};
    bool good = true;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        if (sample && i != turn / 2 % 4)
            continue;
        else if (!compare_prompt(name, cpu, gpu, (turn + i) % 2 ? CRUMB_KV_Q8 : CRUMB_KV_F16, lengths[i], 4))
            good = false;
    return good;
}

/* Heads that are no whole tiles cannot be divided, and the error says so. */
static bool can_run(crumb_model *gpu) {
    crumb_session_params params = crumb_session_params_default();
    crumb_session *session;
    params.n_ctx = params.n_batch = 16;
    const crumb_status status = crumb_session_create(gpu, &params, &session, &err);
    crumb_session_destroy(session);
    if (status == CRUMB_OK) return true;
    assert_true(status == CRUMB_ERR_UNSUPPORTED && wanted_split() > 0);
    assert_non_null(strstr(err.message, "cannot be divided"));
    return false;
}

static void oracle_models_agree(void **state) {
    (void)state;
    size_t n, n_compared = 0;
    fixture *all = fixtures_load(&n);
    bool good = true;
    assert_true(n >= 18);
    for (size_t i = 0; i < n; i += sample ? sample : 1) {
        crumb_model *cpu = open_on(all[i].model_path, "cpu"), *gpu = open_on(all[i].model_path, "gpu0");
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

/* Columns in an order of their own, which activations follow (GPTQ's act-order). */
static void act_order_agrees(void **state) {
    (void)state;
    static const char path[] = "tests/oracle/checkpoints/llama-q4_0+order";
    crumb_model *cpu = open_on(path, "cpu"), *gpu = open_on(path, "gpu0");
    if (can_run(gpu)) assert_true(compare_prompts("llama-q4_0+order", cpu, gpu, 0));
    crumb_model_close(cpu);
    crumb_model_close(gpu);
}

static void given_models_agree(void **state) {
    (void)state;
    bool good = true;
    for (int i = 0; i < n_models; i++) {
        const char *slash = strrchr(models[i], '/');
        crumb_model *cpu = open_on(models[i], "cpu"), *gpu = open_on(models[i], "gpu0");
        if (!compare_prompts(slash ? slash + 1 : models[i], cpu, gpu, (size_t)i)) good = false;
        crumb_model_close(cpu);
        crumb_model_close(gpu);
    }
    assert_true(good);
}

/* What travels in one batch, and what was in the cache before, changes no bit. */
static void pieces_and_rewinding_change_no_bit(void **state) {
    (void)state;
    if (place_pattern() || wanted_split() > 0) return; /* small pieces may be another device's than large ones */
    enum { N = 40 };
    crumb_model *gpu = open_on(NULL, "gpu0");
    crumb_model_info info;
    crumb_model_get_info(gpu, &info);
    int32_t tokens[N];
    static const size_t pieces[] = {1, 3, 16};
    for (size_t i = 0; i < N; i++) tokens[i] = (int32_t)((i * 31 + 5) % info.n_vocab);
    crumb_session *s = create_session(gpu, CRUMB_ACTIVATION_AUTO, CRUMB_KV_F16, 64, 64);
    float *expected = malloc(info.n_vocab * sizeof *expected);
    assert_non_null(expected);
    OK(crumb_session_feed(s, tokens, N, &err));
    memcpy(expected, crumb_session_logits(s), info.n_vocab * sizeof *expected);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        OK(crumb_session_rewind(s, 5, &err));
        for (size_t at = 5; at < N; at += pieces[p])
            OK(crumb_session_feed(s, tokens + at, N - at < pieces[p] ? N - at : pieces[p], &err));
        assert_memory_equal(expected, crumb_session_logits(s), info.n_vocab * sizeof *expected);
    }
    free(expected);
    crumb_session_destroy(s);
    crumb_model_close(gpu);
}

static bool has_device(void) {
    crumb_model_params params = crumb_model_params_default();
    crumb_model *model = NULL;
    params.device = "gpu0";
    params.verify = CRUMB_VERIFY_ALWAYS; /* what that compares must agree here */
    params.target = target;
    crumb_status status = crumb_model_open_embedded(&params, &model, &err);
    if (status == CRUMB_OK) {
        crumb_model_info info;
        crumb_model_get_info(model, &info);
        printf("%s: %s, kernels %s\n", info.device, info.device_detail, info.target);
        if (strcmp(info.target, target + 3) != 0) {
            fprintf(stderr, "%s is not what was asked for, %s\n", info.target, target);
            exit(1);
        }
    }
    crumb_model_close(model);
    return status == CRUMB_OK;
}

int main(int argc, char **argv) {
    const struct CMUnitTest own[] = {
        cmocka_unit_test(pieces_and_rewinding_change_no_bit),
        cmocka_unit_test(oracle_models_agree),
        cmocka_unit_test(act_order_agrees),
    };
    const struct CMUnitTest given[] = {cmocka_unit_test(given_models_agree)};
    if (argc < 2) {
        fprintf(stderr, "usage: test_cl_models TARGET [MODEL...]\n");
        return 2;
    }
    snprintf(target, sizeof target, "%.24s", argv[1]);
    const char *every = getenv("CRUMB_CL_SAMPLE");
    sample = every ? strtoul(every, NULL, 10) : 0;
    if (strstr(target, "+bf16")) rule = bf16_rule;
    models = argv + 2;
    n_models = argc - 2;
    if (!has_device()) {
        fprintf(stderr, "skipped: %s\n", err.message);
        return 77;
    }
    int failed = n_models ? cmocka_run_group_tests(given, NULL, NULL) : cmocka_run_group_tests(own, NULL, NULL);
    if (strncmp(target + 3, "dpas", 4) != 0) return failed;
    printf("%zu times a kernel on matrix instructions\n", n_matrix);
    return failed || n_matrix == 0;
}
