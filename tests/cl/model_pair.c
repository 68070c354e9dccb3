#include "tests/cl/model_pair.h"

#include "host/base/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

crumb_error pair_err;
char pair_target[32];
size_t pair_n_matrix;
void (*pair_listen)(const char *message);

/* Integer sums are exact; what remains is a norm's last bit, which may move a value to the neighbouring code. */
static const pair_bounds exact = {.rule = {.near_tie = 0.05f, .max_error = 0.1f}, .max_nmse = 1};
/* Attention over an f16 cache and dense layers of 16 bits on matrix instructions, which a target with them has unless
 * it ends with +exact, add up floats in another order, so no bits are wanted: values that come to lie on the other side
 * of a rounding become the neighbouring code in the linear layers behind it. The two best of SmolLM2's logits, behind
 * 30 layers, have come up to 0.31 nearer or further, where a prompt of 513 tokens without a meaning leaves many alike;
 * the squared error is three times the largest found. */
static const pair_bounds matrix = {.rule = {.near_tie = 0.5f, .max_error = 0.5f}, .max_nmse = 3e-3};
/* Values between ops in bf16 (TARGET ends with +bf16) make more of them neighbours: three times the largest found, with
 * and without matrix instructions. */
static const pair_bounds bf16 = {.rule = {.near_tie = 0.5f, .max_error = 1.0f}, .max_nmse = 1.1e-2};
/* Names of kernels that `matrix` is for, in what plans have logged. */
static size_t n_float_matrix;

void pair_set_target(const char *target) {
    snprintf(pair_target, sizeof pair_target, "%.24s", target);
}

void pair_begin(void) {
    n_float_matrix = 0;
}

const pair_bounds *pair_get_bounds(void) {
    if (strstr(pair_target, "+bf16")) return &bf16;
    return n_float_matrix ? &matrix : &exact;
}

/* The name that ends at `end` with the rung. */
static bool adds_floats(const char *message, const char *end) {
    const char *name = end;
    while (name > message && name[-1] != ' ') name--;
    const bool dense = strncmp(name, "dense_", strlen("dense_")) == 0;
    const bool q8 = end - name > 3 && strncmp(end - 3, "_q8", 3) == 0;
    return dense || (strncmp(name, "attention_", strlen("attention_")) == 0 && !q8);
}

static void listen(void *user, crumb_log_level level, const char *message) {
    (void)user, (void)level;
    for (const char *at = message; (at = strstr(at, "__dpas")); at++) {
        pair_n_matrix++;
        n_float_matrix += adds_floats(message, at);
    }
    if (pair_listen) pair_listen(message);
}

const char *pair_place(void) {
    return getenv("CRUMB_PLACE");
}

double pair_split(void) {
    const char *text = getenv("CRUMB_TEST_SPLIT");
    return text ? strtod(text, NULL) : 0;
}

crumb_model *pair_open(const char *path, const char *device) {
    crumb_model_params params = crumb_model_params_default();
    const bool split = pair_split() > 0 && strcmp(device, "cpu") != 0;
    params.device = split ? "cpu+gpu0" : device;
    params.split = pair_split();
    params.target = strcmp(device, "cpu") == 0 ? "cpu" : pair_target;
    params.tuning = "none";
    params.n_threads = 2;
    params.verify = CRUMB_VERIFY_NEVER;
    params.log = listen;
    crumb_model *model = NULL;
    crumb_status status;
    const size_t prefix = strlen("synthetic:");
    if (path && strncmp(path, "synthetic:", prefix) == 0)
        status = crumb_model_open_synthetic(path + prefix, &params, &model, &pair_err);
    else if (path)
        status = crumb_model_open(path, &params, &model, &pair_err);
    else
        status = crumb_model_open_embedded(&params, &model, &pair_err);
    if (status == CRUMB_ERR_UNSUPPORTED && split && strstr(pair_err.message, "cannot be divided")) return NULL;
    PAIR_OK(status);
    crumb_model_info info;
    crumb_model_get_info(model, &info);
    assert_int_equal(*info.placement != 0, split || (pair_place() && strcmp(device, "cpu") != 0));
    return model;
}

crumb_session *pair_session(crumb_model *model, crumb_activation activation, crumb_kv_type kv, uint32_t n_ctx,
                            uint32_t n_batch) {
    crumb_session_params params = crumb_session_params_default();
    params.activation = activation;
    params.kv_type = kv;
    params.n_ctx = n_ctx;
    params.n_batch = n_batch;
    crumb_session *session = NULL;
    PAIR_OK(crumb_session_create(model, &params, &session, &pair_err));
    return session;
}

size_t pair_equal_bits(const float *a, const float *b, size_t n) {
    size_t equal = 0;
    for (size_t i = 0; i < n; i++) equal += crumb_f32_to_bits(a[i]) == crumb_f32_to_bits(b[i]);
    return equal;
}

bool pair_compare_prompt(const char *name, crumb_model *cpu, crumb_model *gpu, crumb_kv_type kv, size_t n_prompt,
                         size_t n_decode, uint32_t n_batch) {
    crumb_model_info info;
    crumb_model_get_info(cpu, &info);
    pair_begin();
    crumb_session *a = pair_session(cpu, CRUMB_ACTIVATION_AUTO, kv, 640, n_batch);
    crumb_session *b = pair_session(gpu, CRUMB_ACTIVATION_AUTO, kv, 640, n_batch);
    int32_t tokens[640];
    token_tally tally = {0};
    char what[160];
    size_t equal = 0;
    for (size_t i = 0; i < n_prompt; i++) tokens[i] = (int32_t)((i * 7919 + 13) % info.n_vocab);
    PAIR_OK(crumb_session_feed(a, tokens, n_prompt, &pair_err));
    PAIR_OK(crumb_session_feed(b, tokens, n_prompt, &pair_err));
    for (size_t i = 0; i <= n_decode; i++) {
        const float *expected = crumb_session_logits(a), *logits = crumb_session_logits(b);
        token_tally_add_logits(&tally, &pair_get_bounds()->rule, name, logits, info.n_vocab, expected);
        equal += pair_equal_bits(logits, expected, info.n_vocab);
        int32_t next = token_best(expected, info.n_vocab);
        if (i == n_decode) break;
        PAIR_OK(crumb_session_feed(a, &next, 1, &pair_err));
        PAIR_OK(crumb_session_feed(b, &next, 1, &pair_err));
    }
    const pair_bounds *bounds = pair_get_bounds();
    snprintf(what, sizeof what, "%s, prompt of %zu, cache %s, %zu of %zu logits bit-equal%s", name, n_prompt,
             kv == CRUMB_KV_Q8 ? "q8" : "f16", equal, (n_decode + 1) * info.n_vocab, bounds == &exact ? ", exact" : "");
    crumb_session_destroy(a);
    crumb_session_destroy(b);
    return token_tally_report(&tally, &bounds->rule, what) && token_tally_nmse(&tally) <= bounds->max_nmse;
}

bool pair_find_device(void) {
    crumb_model_params params = crumb_model_params_default();
    crumb_model *model = NULL;
    params.device = "gpu0";
    params.verify = CRUMB_VERIFY_ALWAYS; /* what that compares must agree here */
    params.target = pair_target;
    crumb_status status = crumb_model_open_embedded(&params, &model, &pair_err);
    if (status != CRUMB_OK) return fprintf(stderr, "%s\n", pair_err.message), false;
    crumb_model_info info;
    crumb_model_get_info(model, &info);
    printf("%s: %s, kernels %s\n", info.device, info.device_detail, info.target);
    const bool found = strcmp(info.target, pair_target + 3) == 0;
    if (!found) fprintf(stderr, "%s is not what was asked for, %s\n", info.target, pair_target);
    crumb_model_close(model);
    return found;
}
