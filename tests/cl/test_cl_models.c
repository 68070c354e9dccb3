/* Whole models on the first GPU against the CPU backend, by the rule of tests/support/compare_tokens.h.
 *
 * usage: test_cl_models TARGET [MODEL...]   TARGET as in --target: cl:RUNG, ze:RUNG; a MODEL is a file, or one of
 * random weights: synthetic:SHAPE:TYPE[:HEAD] Without models: those of tests/oracle, which are every architecture and
 * type, each with prompts of 1, 7, 64 and 513 tokens and decoding behind them, with both types of cache; each with
 * every way to quantize activations; GPTQ's folders with act-order and with groups of 16; and that pieces of a batch
 * change no bit. With models: the prompts on these. With CRUMB_PLACE in the environment the CPU computes some of the
 * layers beside the device, with CRUMB_TEST_SPLIT (0..1) a part of each while decoding, of models whose heads are whole
 * tiles. Exits with 77 where there is no device. */
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
/* Attention over an f16 cache on matrix instructions, which a target with them has unless it ends with +exact, adds up
 * floats in another order, so no bits are wanted: values that come to lie on the other side of a rounding become the
 * neighbouring code in the linear layers behind it. All that this changes of logits is below max_nmse of their power;
 * the two best of SmolLM2's, behind 30 layers, have come up to 0.31 nearer or further, where a prompt of 513 tokens
 * without a meaning leaves many alike. */
static const token_rule matrix_rule = {.near_tie = 0.5f, .max_error = 0.5f};
static const double matrix_nmse = 3e-3; /* three times the largest found */
static double max_nmse = 1;
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

/* CRUMB_CL_LAUNCHES=1: one model of each architecture, one token after the other, and the launches of a token. */
static bool launches_alone;

/* Names of kernels on matrix instructions in what plans log: the rungs that have them must use them. */
static size_t n_matrix;
/* Of the last plan for one row. No layer's: embedding, picking a row, the largest logits, and one of the head. */
static size_t n_launches, n_outside;

static void count_launches(const char *plan) {
    char name[64];
    size_t n;
    int length;
    n_outside = 1;
    assert_int_equal(sscanf(plan, "a plan for 1 rows is %zu kernels", &n_launches), 1);
    plan = strstr(plan, "scratch:");
    assert_non_null(plan);
    for (plan = strchr(plan, ' '); plan && sscanf(plan, " %zu %63s%n", &n, name, &length) == 2; plan += length)
        if (!strncmp(name, "embed", 5) || !strncmp(name, "select", 6) || !strncmp(name, "top", 3)) n_outside += n;
}

static void listen(void *user, crumb_log_level level, const char *message) {
    (void)user, (void)level;
    const char *plan = strstr(message, "a plan for 1 rows is ");
    for (const char *at = message; (at = strstr(at, "__dpas")); at++) n_matrix++;
    if (plan) count_launches(plan);
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
    crumb_status status;
    const size_t prefix = strlen("synthetic:");
    if (path && strncmp(path, "synthetic:", prefix) == 0)
        status = crumb_model_open_synthetic(path + prefix, &params, &model, &err);
    else if (path)
        status = crumb_model_open(path, &params, &model, &err);
    else
        status = crumb_model_open_embedded(&params, &model, &err);
    if (status == CRUMB_ERR_UNSUPPORTED && split && strstr(err.message, "cannot be divided")) return NULL;
    OK(status);
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
    bool good = token_tally_report(&tally, &rule, what) && token_tally_nmse(&tally) <= max_nmse;
    free(expected);
    free(logits);
    return good;
}

/* A prompt, then decoding: at each step the CPU's best token is fed to both. */
static bool compare_prompt(const char *name, crumb_model *cpu, crumb_model *gpu, crumb_kv_type kv, size_t n_prompt,
                           size_t n_decode) {
    crumb_model_info info;
    crumb_model_get_info(cpu, &info);
    const uint32_t n_batch = launches_alone ? 1 : 512;
    crumb_session *a = create_session(cpu, CRUMB_ACTIVATION_AUTO, kv, 640, n_batch);
    crumb_session *b = create_session(gpu, CRUMB_ACTIVATION_AUTO, kv, 640, n_batch);
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
    return token_tally_report(&tally, &rule, what) && token_tally_nmse(&tally) <= max_nmse;
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

/* Heads that are no whole tiles cannot be divided, and the error says so: where weights are divided as well, when the
 * model is opened. */
static bool can_run(crumb_model *gpu) {
    if (!gpu) return false;
    crumb_session_params params = crumb_session_params_default();
    crumb_session *session;
    params.n_ctx = params.n_batch = 16;
    const crumb_status status = crumb_session_create(gpu, &params, &session, &err);
    crumb_session_destroy(session);
    if (status == CRUMB_OK) return true;
    if (status != CRUMB_ERR_UNSUPPORTED) fail_msg("%s", err.message);
    assert_true(wanted_split() > 0);
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

/* The first model of its architecture? */
static bool is_new(const crumb_model_info *info) {
    static char known[16][32];
    size_t i = 0;
    while (i < 16 && known[i][0] && strcmp(known[i], info->architecture) != 0) i++;
    assert_true(i < 16);
    const bool added = !known[i][0];
    snprintf(known[i], sizeof known[i], "%s", info->architecture);
    return added;
}

/* Floats are a launch for each matrix, and no low-bit model. */
static bool has_floats(const char *name) {
    return strstr(name, "-f32") || strstr(name, "-f16") || strstr(name, "-bf16");
}

/* At most 8 of each layer, where the device is a GPU, or claims to be one: there kernels quantize in the same launch.
 * Qwen 3 has 9, since the norms of q's and of k's heads are launches of their own. */
static void tokens_are_few_launches(void **state) {
    (void)state;
    size_t n, n_architectures = 0;
    fixture *all = fixtures_load(&n);
    for (size_t i = 0; i < n; i++) {
        crumb_model_info info;
        crumb_model *cpu = open_on(all[i].model_path, "cpu");
        crumb_model_get_info(cpu, &info);
        if (!has_floats(all[i].name) && is_new(&info)) {
            crumb_model *gpu = open_on(all[i].model_path, "gpu0");
            n_launches = n_outside = 0;
            assert_true(compare_prompt(all[i].name, cpu, gpu, CRUMB_KV_F16, 1, 2));
            assert_true(n_launches > n_outside);
            printf("%s: %zu launches a token, %zu of them of %u layers\n", info.architecture, n_launches,
                   n_launches - n_outside, info.n_layers);
            const size_t most = strcmp(info.architecture, "qwen3") == 0 ? 9 : 8;
            assert_true(n_launches - n_outside <= most * info.n_layers);
            crumb_model_close(gpu);
            n_architectures++;
        }
        crumb_model_close(cpu);
    }
    fixtures_free(all, n);
    assert_true(n_architectures >= 6);
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
        crumb_model *cpu = open_on(path, "cpu"), *gpu = open_on(path, "gpu0");
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
        cmocka_unit_test(gptq_folders_agree),
    };
    const struct CMUnitTest given[] = {cmocka_unit_test(given_models_agree)};
    const struct CMUnitTest launches[] = {cmocka_unit_test(tokens_are_few_launches)};
    if (argc < 2) {
        fprintf(stderr, "usage: test_cl_models TARGET [MODEL...]\n");
        return 2;
    }
    snprintf(target, sizeof target, "%.24s", argv[1]);
    const char *every = getenv("CRUMB_CL_SAMPLE");
    sample = every ? strtoul(every, NULL, 10) : 0;
    if (strstr(target, "dpas") && !strstr(target, "+exact")) {
        rule = matrix_rule;
        max_nmse = matrix_nmse;
    }
    launches_alone = getenv("CRUMB_CL_LAUNCHES") != NULL;
    if (strstr(target, "+bf16")) rule = bf16_rule;
    models = argv + 2;
    n_models = argc - 2;
    if (!has_device()) {
        fprintf(stderr, "skipped: %s\n", err.message);
        return 77;
    }
    int failed = launches_alone ? cmocka_run_group_tests(launches, NULL, NULL)
                 : n_models     ? cmocka_run_group_tests(given, NULL, NULL)
                                : cmocka_run_group_tests(own, NULL, NULL);
    if (strncmp(target + 3, "dpas", 4) != 0) return failed;
    printf("%zu times a kernel on matrix instructions\n", n_matrix);
    return failed || n_matrix == 0;
}
