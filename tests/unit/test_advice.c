/* host/engine/advice: what the caller says of context, batches and cache counts in memory and in predicted times. No
 * device is opened, and no weights are made. */
#include "host/engine/advice.h"
#include "host/engine/costs.h"
#include "host/engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    GPU = 1,
    LAYERS = 32,
    HIDDEN = 4096,
    FFN = 14336,
    KV_BYTES_F16 = 2 * 1024 * 2,
    KV_BYTES_Q8 = 2 * 1024 * 34 / 32
};

static crumb_error err;
static crumb_backend some_gpu; /* only to be another one than the CPU's */

static crumb_status outline(const void *source, crumb_network *out, crumb_error *e) {
    return crumb_engine_synthetic_outline(source, out, e);
}

static crumb_model_params params_for(uint32_t n_ctx, uint32_t n_batch, crumb_kv_type kv_type) {
    crumb_model_params params = crumb_model_params_default();
    params.profile = "bmg";
    params.n_ctx = n_ctx;
    params.n_batch = n_batch;
    params.kv_type = kv_type;
    return params;
}

/* For Llama 3 8B in 4 bits on a B580 and the CPU beside it. */
static crumb_engine_advice *advise(const crumb_model_params *params) {
    crumb_engine_choice choice = {.device = {.backend = &some_gpu, .name = "gpu0"}, .with_cpu = true};
    crumb_engine_advice *a;
    assert_int_equal(crumb_engine_advise(params, outline, "llama3-8b:u4", &choice, &a, &err), CRUMB_OK);
    return a;
}

static bool all_on_gpu(const crumb_engine_advice *a) {
    for (uint32_t i = 0; i < a->placement.n_layers; i++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            if (a->placement.part[phase][i].device != GPU || a->placement.part[phase][i].share < 1) return false;
    return a->known;
}

static void the_cache_of_the_context_takes_memory(void **state) {
    (void)state;
    const uint32_t n_ctx = 16384;
    const crumb_model_params f16 = params_for(n_ctx, 0, CRUMB_KV_F16), q8 = params_for(n_ctx, 0, CRUMB_KV_Q8),
                             half = params_for(n_ctx / 2, 0, CRUMB_KV_F16);
    crumb_engine_advice *a = advise(&f16), *b = advise(&q8), *c = advise(&half);
    assert_true(all_on_gpu(a) && all_on_gpu(b) && all_on_gpu(c));
    const uint64_t most = a->placement.memory_bytes[GPU];
    assert_int_equal(most - b->placement.memory_bytes[GPU], (uint64_t)LAYERS * n_ctx * (KV_BYTES_F16 - KV_BYTES_Q8));
    assert_int_equal(most - c->placement.memory_bytes[GPU], (uint64_t)LAYERS * n_ctx / 2 * KV_BYTES_F16);
    crumb_engine_advice_free(a);
    crumb_engine_advice_free(b);
    crumb_engine_advice_free(c);
}

/* 5 GB of weights and 64 Ki positions of 11 GB. */
static void a_smaller_cache_leaves_all_layers_on_the_card(void **state) {
    (void)state;
    const crumb_model_params f16 = params_for(65536, 0, CRUMB_KV_F16), q8 = params_for(65536, 0, CRUMB_KV_Q8);
    crumb_engine_advice *a = advise(&f16), *b = advise(&q8);
    assert_false(all_on_gpu(a));
    assert_true(all_on_gpu(b));
    crumb_engine_advice_free(a);
    crumb_engine_advice_free(b);
}

static void batches_count_in_time_and_memory(void **state) {
    (void)state;
    crumb_model_params few = params_for(4096, 16, CRUMB_KV_F16), usual = params_for(4096, 0, CRUMB_KV_F16);
    crumb_engine_advice *a = advise(&few), *b = advise(&usual);
    assert_true(all_on_gpu(a) && all_on_gpu(b));
    assert_int_equal(a->problem.n_prompt, 512);
    assert_true(a->placement.sum[CRUMB_PHASE_PREFILL].ns > 2 * b->placement.sum[CRUMB_PHASE_PREFILL].ns);
    assert_int_equal(b->placement.memory_bytes[GPU] - a->placement.memory_bytes[GPU],
                     (512 - 16) * 4 * (6 * HIDDEN + 2 * FFN));
    crumb_engine_advice_free(a);
    crumb_engine_advice_free(b);
}

static void a_small_cache_is_read_faster(void **state) {
    (void)state;
    crumb_model_params f16 = params_for(8192, 0, CRUMB_KV_F16), q8 = params_for(8192, 0, CRUMB_KV_Q8);
    f16.n_prompt = q8.n_prompt = 8000;
    crumb_engine_advice *a = advise(&f16), *b = advise(&q8);
    const crumb_cost *more = &a->placement.sum[CRUMB_PHASE_DECODE], *less = &b->placement.sum[CRUMB_PHASE_DECODE];
    const double bytes = (double)LAYERS * (8000 + 128 / 2) * (KV_BYTES_F16 - KV_BYTES_Q8);
    assert_true(more->bytes - less->bytes > 0.99 * bytes && more->bytes - less->bytes < 1.01 * bytes);
    assert_true(more->ns > less->ns);
    crumb_engine_advice_free(a);
    crumb_engine_advice_free(b);
}

static bool all_on_cpu(const crumb_engine_advice *a) {
    for (uint32_t i = 0; i < a->placement.n_layers; i++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            if (a->placement.part[phase][i].device != 0 || a->placement.part[phase][i].share < 1) return false;
    return a->known && a->gpu == 0;
}

/* Where the GPU that was chosen cannot run the model, or has failed, what is predicted is the CPU's. */
static void a_gpu_that_is_left_is_predicted_no_more(void **state) {
    (void)state;
    const crumb_model_params params = params_for(4096, 0, CRUMB_KV_F16);
    crumb_engine_advice *a = advise(&params), *copy;
    const double on_gpu_ns = a->placement.sum[CRUMB_PHASE_DECODE].ns;
    assert_true(all_on_gpu(a));
    assert_int_equal(crumb_engine_advice_copy_to_cpu(a, "gpu0 has failed", &copy, &err), CRUMB_OK);
    assert_true(all_on_gpu(a) && all_on_cpu(copy));
    crumb_engine_advice_leave_gpu(a, "gpu0 cannot run this model");
    assert_true(all_on_cpu(a));
    assert_ptr_equal(strstr(a->placement.why, "gpu0 cannot run this model; prefill on cpu: "), a->placement.why);
    const double on_cpu_ns = a->placement.sum[CRUMB_PHASE_DECODE].ns;
    assert_true(on_cpu_ns > 2 * on_gpu_ns);
    crumb_engine_advice_free(a); /* the copy has its own of everything */
    assert_ptr_equal(strstr(copy->placement.why, "gpu0 has failed; prefill on cpu: "), copy->placement.why);
    const crumb_cost_phase token = {.n_rows = 1, .n_past = 512 + 128 / 2};
    const double ns = crumb_engine_advice_predict(copy, 0, 0, LAYERS + 1, &token);
    assert_true(ns > 0.999 * on_cpu_ns && ns < 1.001 * on_cpu_ns);
    crumb_engine_advice_leave_gpu(copy, "once more");
    assert_true(all_on_cpu(copy));
    crumb_engine_advice_free(copy);
}

/* Nothing was known before: why nothing is predicted is all there is. */
static void without_a_profile_there_is_a_reason(void **state) {
    (void)state;
    crumb_model_params params = params_for(4096, 0, CRUMB_KV_F16);
    params.profile = "none";
    crumb_engine_advice *a = advise(&params), *copy;
    assert_int_equal(crumb_engine_advice_copy_to_cpu(a, "gpu0 has failed", &copy, &err), CRUMB_OK);
    assert_false(copy->known);
    assert_string_equal(copy->note, "gpu0 has failed");
    assert_string_equal(a->note, "--profile none");
    crumb_engine_advice_free(copy);
    crumb_engine_advice_free(a);
}

static void lengths_fit_the_context(void **state) {
    (void)state;
    const crumb_hparams h = {.max_position_embeddings = 2048};
    crumb_model_params params = crumb_model_params_default();
    crumb_engine_lengths n = crumb_engine_lengths_of(&h, &params);
    assert_true(n.n_ctx == 2048 && n.n_prompt == 512 && n.n_generate == 128 && n.n_batch == 512);
    params.n_ctx = 600;
    n = crumb_engine_lengths_of(&h, &params);
    assert_true(n.n_ctx == 600 && n.n_prompt == 512 && n.n_generate == 88 && n.n_batch == 512);
    params.n_ctx = 100;
    params.n_prompt = 3000;
    n = crumb_engine_lengths_of(&h, &params);
    assert_true(n.n_ctx == 100 && n.n_prompt == 100 && n.n_generate == 1 && n.n_batch == 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cache_of_the_context_takes_memory),
        cmocka_unit_test(a_smaller_cache_leaves_all_layers_on_the_card),
        cmocka_unit_test(batches_count_in_time_and_memory),
        cmocka_unit_test(a_small_cache_is_read_faster),
        cmocka_unit_test(a_gpu_that_is_left_is_predicted_no_more),
        cmocka_unit_test(without_a_profile_there_is_a_reason),
        cmocka_unit_test(lengths_fit_the_context),
    };
    return cmocka_run_group_tests_name("advice", tests, NULL, NULL);
}
