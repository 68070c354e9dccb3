/* host/sample: order of the filters, determinism, and that draws follow the probabilities. */
#include "host/sample/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const crumb_sampler_params plain = {.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 1};

static int32_t pick(crumb_sampler *s, const float *logits, const int32_t *history, size_t n, const bool *banned) {
    int32_t token = -1;
    crumb_error err = {0};
    const crumb_logits all = {.value = logits, .n = s->n_vocab};
    assert_int_equal(crumb_sampler_pick(s, &all, history, n, banned, &token, &err), CRUMB_OK);
    return token;
}

static crumb_sampler make(crumb_sampler_params p, uint32_t n_vocab) {
    crumb_sampler s;
    assert_int_equal(crumb_sampler_init(&s, &p, n_vocab, NULL), CRUMB_OK);
    return s;
}

static void greedy_takes_the_largest_and_the_smaller_id_of_a_tie(void **state) {
    (void)state;
    crumb_sampler_params p = plain;
    p.temperature = 0;
    crumb_sampler s = make(p, 5);
    assert_int_equal(pick(&s, (float[]){1, 3, 2, 3, NAN}, NULL, 0, NULL), 1);
    assert_int_equal(pick(&s, (float[]){1, 3, 2, 3, 0}, NULL, 0, (bool[]){0, 1, 0, 1, 0}), 2);
    crumb_error err = {0};
    int32_t token;
    const crumb_logits none = {.value = (float[]){NAN, NAN, NAN, NAN, NAN}, .n = 5};
    assert_int_equal(crumb_sampler_pick(&s, &none, NULL, 0, NULL, &token, &err), CRUMB_ERR_VERIFY);
    crumb_sampler_free(&s);
}

static void repeat_penalty_looks_back_over_its_window_only(void **state) {
    (void)state;
    crumb_sampler_params p = plain;
    p.temperature = 0;
    p.repeat_penalty = 2;
    p.repeat_last_n = 2;
    crumb_sampler s = make(p, 4);
    const float logits[] = {5, 4, 3, -1};
    assert_int_equal(pick(&s, logits, (int32_t[]){0, 3, 3}, 3, NULL), 0); /* 0 is three tokens back */
    assert_int_equal(pick(&s, logits, (int32_t[]){3, 3, 0}, 3, NULL), 1);
    assert_int_equal(pick(&s, logits, (int32_t[]){1, 0}, 2, NULL), 2);
    assert_int_equal(pick(&s, logits, (int32_t[]){-5, 99}, 2, NULL), 0); /* ids from nowhere do no harm */
    crumb_sampler_free(&s);
}

/* How often each of n tokens comes out of 20,000 draws. */
static void draw_many(crumb_sampler_params p, const float *logits, uint32_t n, double *share) {
    enum { DRAWS = 20000 };
    crumb_sampler s = make(p, n);
    memset(share, 0, n * sizeof *share);
    for (int i = 0; i < DRAWS; i++) share[pick(&s, logits, NULL, 0, NULL)] += 1.0 / DRAWS;
    crumb_sampler_free(&s);
}

static void draws_follow_softmax_and_temperature(void **state) {
    (void)state;
    const float logits[] = {0, logf(2), logf(4), logf(1)};
    double share[4];
    draw_many(plain, logits, 4, share);
    const double expected[] = {1 / 8.0, 2 / 8.0, 4 / 8.0, 1 / 8.0};
    for (int i = 0; i < 4; i++) assert_true(fabs(share[i] - expected[i]) < 0.02);
    crumb_sampler_params cold = plain;
    cold.temperature = 0.5f;
    draw_many(cold, logits, 4, share);
    const double squared[] = {1 / 22.0, 4 / 22.0, 16 / 22.0, 1 / 22.0};
    for (int i = 0; i < 4; i++) assert_true(fabs(share[i] - squared[i]) < 0.02);
}

static void filters_cut_the_tail(void **state) {
    (void)state;
    const float logits[] = {logf(1), logf(2), logf(4), logf(8), logf(0.1f)};
    double share[5];
    crumb_sampler_params p = plain;
    p.top_k = 2;
    draw_many(p, logits, 5, share);
    assert_true(share[0] == 0 && share[1] == 0 && share[4] == 0 && share[2] > 0.3 && share[3] > 0.6);
    p = plain;
    p.top_p = 0.7f; /* 8/15.1 is not enough, with 4/15.1 it is */
    draw_many(p, logits, 5, share);
    assert_true(share[0] == 0 && share[1] == 0 && share[2] > 0.3);
    p = plain;
    p.min_p = 0.2f; /* keeps 2/8 and more */
    draw_many(p, logits, 5, share);
    assert_true(share[0] == 0 && share[4] == 0 && share[1] > 0.1);
}

static void same_seed_same_draws(void **state) {
    (void)state;
    float logits[1000];
    for (int i = 0; i < 1000; i++) logits[i] = (float)((i * 7919) % 1000) / 250;
    crumb_sampler_params p = plain;
    p.top_k = 100;
    p.seed = 42;
    crumb_sampler a = make(p, 1000), b = make(p, 1000);
    p.seed = 43;
    crumb_sampler c = make(p, 1000);
    int differ = 0;
    for (int i = 0; i < 200; i++) {
        int32_t token = pick(&a, logits, NULL, 0, NULL);
        assert_int_equal(token, pick(&b, logits, NULL, 0, NULL));
        differ += token != pick(&c, logits, NULL, 0, NULL);
    }
    assert_true(differ > 100);
    crumb_sampler_free(&a);
    crumb_sampler_free(&b);
    crumb_sampler_free(&c);
}

static void wrong_parameters_are_named(void **state) {
    (void)state;
    crumb_error err = {0};
    crumb_sampler s;
    crumb_sampler_params p = plain;
    p.top_p = NAN;
    assert_int_equal(crumb_sampler_init(&s, &p, 4, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "top-p"));
    p = plain;
    p.temperature = -1;
    assert_int_equal(crumb_sampler_init(&s, &p, 4, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "temperature"));
}

/* The largest logits, as many as are said to be needed, lead to the same draws as all. */
static void the_largest_are_enough(void **state) {
    (void)state;
    enum { VOCAB = 500, WINDOW = 20 };
    float logits[VOCAB], largest[VOCAB];
    uint32_t order[VOCAB];
    bool banned[VOCAB] = {[3] = true, [77] = true};
    for (int round = 0; round < 200; round++) {
        crumb_sampler_params p = plain;
        p.temperature = round % 3 ? 0.9f : 0;
        p.top_k = 1 + round % 30;
        p.top_p = round % 2 ? 0.9f : 1;
        p.repeat_penalty = round % 5 ? 1.3f : 1;
        p.repeat_last_n = WINDOW;
        p.seed = (uint64_t)round;
        uint32_t state_of = (uint32_t)round + 1;
        for (uint32_t i = 0; i < VOCAB; i++) {
            state_of = state_of * 1664525u + 1013904223u;
            logits[i] = (float)(state_of >> 24) / 16 - 8; /* many are equal */
            order[i] = i;
        }
        for (uint32_t i = 1; i < VOCAB; i++) /* falling, the smaller id first */
            for (uint32_t j = i; j > 0 && logits[order[j]] > logits[order[j - 1]]; j--) {
                uint32_t t = order[j];
                order[j] = order[j - 1];
                order[j - 1] = t;
            }
        int32_t history[2 * WINDOW];
        for (uint32_t i = 0; i < 2 * WINDOW; i++) history[i] = (int32_t)order[i * 2 % 25];
        for (uint32_t i = 0; i < VOCAB; i++) largest[i] = logits[order[i]];
        crumb_sampler a = make(p, VOCAB), b = make(p, VOCAB);
        const crumb_logits few = {.value = largest, .token = order, .n = crumb_sampler_needs(&b, 2)};
        assert_true(few.n < 60);
        for (int i = 0; i < 5; i++) {
            int32_t token = -1;
            assert_int_equal(crumb_sampler_pick(&b, &few, history, 2 * WINDOW, banned, &token, NULL), CRUMB_OK);
            assert_int_equal(token, pick(&a, logits, history, 2 * WINDOW, banned));
        }
        crumb_sampler_free(&a);
        crumb_sampler_free(&b);
    }
    crumb_sampler_params p = plain;
    p.top_k = 0;
    crumb_sampler all = make(p, VOCAB);
    assert_true(crumb_sampler_needs(&all, 0) == SIZE_MAX);
    crumb_sampler_free(&all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_are_enough),
        cmocka_unit_test(greedy_takes_the_largest_and_the_smaller_id_of_a_tie),
        cmocka_unit_test(repeat_penalty_looks_back_over_its_window_only),
        cmocka_unit_test(draws_follow_softmax_and_temperature),
        cmocka_unit_test(filters_cut_the_tail),
        cmocka_unit_test(same_seed_same_draws),
        cmocka_unit_test(wrong_parameters_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
