/* scheduler/split on virtual devices: it finds the right part, pays where bandwidths add up, and leaves where they do
 * not. */
#include "scheduler/device_sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum { STEPS = CRUMB_SPLIT_STEPS, TOKENS = 512, NEVER = UINT32_MAX };

static crumb_sim_machine two(double first_gb_s, double second_gb_s, double shared_gb_s, double noise) {
    return (crumb_sim_machine){.device = {{.gb_s = first_gb_s, .fixed_ns = 1e5, .noise = noise},
                                          {.gb_s = second_gb_s, .fixed_ns = 1e5, .noise = noise}},
                               .shared_gb_s = shared_gb_s,
                               .token_bytes = 2.8e9,
                               .exchange_ns = 129 * 5e3, /* 4 in each of 32 layers, and the head's, of 5 us */
                               .seed = 7};
}

static crumb_sim_result decode(const crumb_sim_machine *m, uint32_t share, uint32_t n) {
    const crumb_split_params params = {.n_steps = STEPS, .share = share, .alone = STEPS};
    crumb_sim_result r;
    crumb_sim_decode(m, &params, n, NULL, NULL, &r);
    return r;
}

static void equal_devices_with_memory_of_their_own_are_twice_as_fast(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        const crumb_sim_machine m = two(90, 90, 0, 0.01 * i);
        const crumb_sim_result r = decode(&m, 4 + 8 * (uint32_t)i, TOKENS); /* however wrong the prediction */
        print_message("own memory, noise %d%%: %.2f times one alone, share %.2f, %u changes\n", i,
                      r.first_ns / r.total_ns, r.share, r.n_changes);
        assert_true(r.on);
        assert_true(r.first_ns / r.total_ns >= 1.8);
        assert_true(fabs(r.share - 0.5) < 1.5 / STEPS);
    }
}

static void devices_that_share_bandwidth_lose_nothing(void **state) {
    (void)state;
    for (int percent = 0; percent <= 5; percent++)
        for (uint32_t n = 128; n <= 2048; n *= 4) {
            double worst = 0;
            for (uint32_t seed = 1; seed <= 20; seed++) { /* however wrong the prediction */
                crumb_sim_machine m = two(90, 90, 90, 0.01 * percent);
                m.seed = seed;
                const crumb_sim_result r = decode(&m, 1 + seed * 3 % (STEPS - 1), n);
                worst = fmax(worst, r.total_ns / r.first_ns);
            }
            print_message("shared memory, noise %d%%, %u tokens: at worst %+.2f%% against one alone\n", percent, n,
                          100 * (worst - 1));
            assert_true(worst <= 1.03);
        }
}

/* One that cannot use all of the memory alone: together they can. */
static void a_slower_device_helps_by_what_is_left(void **state) {
    (void)state;
    const crumb_sim_machine m = two(60, 30, 80, 0.01);
    const crumb_sim_result r = decode(&m, STEPS / 2, TOKENS);
    print_message("60 and 30 of 80 GB/s: %.2f times one alone, share %.2f\n", r.first_ns / r.total_ns, r.share);
    assert_true(r.on);
    assert_true(r.first_ns / r.total_ns > 1.2);
    assert_true(r.share > 0.55 && r.share < 0.75);
}

static void unequal_devices_get_their_parts(void **state) {
    (void)state;
    for (int percent = 10; percent <= 90; percent += 10) {
        const double part = percent / 100.0;
        const crumb_sim_machine m = two(180 * part, 180 * (1 - part), 0, 0.01);
        const crumb_split_params params = {.n_steps = STEPS, .share = STEPS / 2, .alone = part < 0.5 ? 0 : STEPS};
        crumb_sim_result r;
        crumb_sim_decode(&m, &params, TOKENS, NULL, NULL, &r);
        const double best = fmin(r.first_ns, r.second_ns), gained = best / r.total_ns;
        const double ideal = part < 0.5 ? 1 / (1 - part) : 1 / part;
        print_message("%d%% of the speed: share %.2f, %.2f times the faster alone (ideal %.2f)\n", percent, r.share,
                      gained, ideal);
        assert_true(gained > 0.85 * ideal && gained > 0.97);
        if (r.on) assert_true(fabs(r.share - part) < 2.0 / STEPS);
    }
}

/* The second device is slowed down for good: its part shrinks; a helper that is of no more use is left. */
static void a_neighbour_moves_the_part(void **state) {
    (void)state;
    crumb_sim_machine m = two(90, 90, 0, 0.01);
    m.device[1].slower = 3;
    m.device[1].from = 200;
    m.device[1].until = NEVER;
    const crumb_sim_result some = decode(&m, STEPS / 2, TOKENS);
    assert_true(some.on && fabs(some.share - 0.75) < 2.0 / STEPS);
    m.device[1].slower = 200;
    const crumb_sim_result none = decode(&m, STEPS / 2, TOKENS);
    print_message("a neighbour takes 2/3: share %.2f; takes all: %s\n", some.share, none.on ? "still split" : "left");
    assert_false(none.on);
}

typedef struct recovery {
    uint32_t until, split_after;
} recovery;

static void note_token(void *user, uint32_t token, uint32_t share, const crumb_sim_token *t) {
    recovery *r = user;
    (void)t;
    if (token >= r->until && share > 0 && share < STEPS && r->split_after == NEVER) r->split_after = token - r->until;
}

static void it_comes_back_when_the_neighbour_has_gone(void **state) {
    (void)state;
    const crumb_split_params params = {.n_steps = STEPS, .share = STEPS / 2, .alone = STEPS};
    crumb_sim_machine m = two(90, 90, 0, 0.01);
    crumb_sim_result r;
    recovery when = {.until = 200, .split_after = NEVER};
    m.device[1].slower = 200;
    m.device[1].from = 100;
    m.device[1].until = 200;
    crumb_sim_decode(&m, &params, 1024, note_token, &when, &r);
    print_message("back %u tokens after the neighbour has gone\n", when.split_after);
    assert_true(r.on && when.split_after < 256);
}

/* The device that runs alone gets slow (heat): the split is tried again. */
static void heat_brings_the_other_one_in(void **state) {
    (void)state;
    crumb_sim_machine m = two(90, 20, 90, 0.01);
    m.device[0].slower = 3;
    m.device[0].from = 150;
    m.device[0].until = NEVER;
    const crumb_sim_result r = decode(&m, 24, TOKENS);
    assert_true(r.on && r.total_ns < r.first_ns);
}

/* As the engine has it: each change takes as long as several tokens, and how long is known before. */
static crumb_sim_result decode_dearly(const crumb_sim_machine *m, uint32_t share, uint32_t n) {
    const crumb_split_params params = {
        .n_steps = STEPS, .share = share, .alone = STEPS, .settle = CRUMB_SPLIT_SETTLE, .change_ns = m->change_ns};
    crumb_sim_result r;
    crumb_sim_decode(m, &params, n, NULL, NULL, &r);
    return r;
}

static void dear_changes_are_few_and_still_find_the_part(void **state) {
    (void)state;
    for (uint32_t share = 1; share < STEPS; share += 5)
        for (int percent = 0; percent <= 5; percent++) {
            crumb_sim_machine m = two(120, 60, 0, 0.01 * percent);
            m.change_ns = 1e8; /* 5 tokens of 19 ms */
            const crumb_sim_result r = decode_dearly(&m, share, 1024);
            if (percent == 2)
                print_message("begun with %2u of 32: share %.2f after %u changes, %.2f times one alone (1.5 at best)\n",
                              share, r.share, r.n_changes, r.first_ns / r.total_ns);
            assert_true(r.on);
            assert_true(fabs(r.share - 2.0 / 3) < 1.5 / STEPS);
            assert_true(r.n_changes <= 4);
            assert_true(r.first_ns / r.total_ns > 1.22); /* at the worst 215 tokens pass before the first is allowed */
        }
}

/* Whatever a change costs, all of them stay below the part of the time that they may take. */
static void changes_take_a_small_part_of_the_time(void **state) {
    (void)state;
    const double costs[] = {1e6, 1e7, 1e8, 1e9, 1e10};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        for (uint32_t seed = 1; seed <= 10; seed++) {
            crumb_sim_machine m = two(90, 90, 0, 0.1);
            m.change_ns = costs[i];
            m.seed = seed;
            const crumb_sim_result r = decode_dearly(&m, 1 + seed, 2048);
            assert_true(r.changes_ns <= 0.02 * r.total_ns);
            assert_true(r.changes_ns >=
                        (r.n_changes - 1.0) * costs[i]); /* one may be wanted and not be needed any more */
        }
}

/* One memory for both, which one alone uses up: it is left, and all that was tried, changes included, costs at most 3%,
 * whatever a change costs, however many tokens there are, and however wrong the prediction is. */
static void a_split_that_does_not_pay_is_left_though_changes_are_dear(void **state) {
    (void)state;
    const double costs[] = {1e6, 1e7, 5e7, 1e8, 1e9, 1e10}; /* a token takes 31 ms */
    for (uint32_t n = CRUMB_SPLIT_FORESEEN; n <= 2048; n *= 2)
        for (size_t i = 0; i < sizeof costs / sizeof *costs; i++) {
            double worst = 0;
            uint32_t most = 0;
            for (uint32_t seed = 1; seed <= 62; seed++) {
                crumb_sim_machine m = two(90, 90, 90, 0.01 * (seed % 6));
                m.change_ns = costs[i];
                m.seed = seed;
                const crumb_sim_result r = decode_dearly(&m, 1 + seed * 3 % (STEPS - 1), n);
                assert_true(r.total_ns >= r.changes_ns);
                worst = fmax(worst, r.total_ns / r.first_ns);
                most = r.n_changes > most ? r.n_changes : most;
            }
            if (i == 2)
                print_message(
                    "shared memory, changes of 50 ms, %u tokens: at worst %+.2f%% against one alone, %u changes\n", n,
                    100 * (worst - 1), most);
            if (worst > 1.03) fail_msg("%u tokens, changes of %.0f ms: %+.2f%%", n, costs[i] * 1e-6, 100 * (worst - 1));
        }
}

/* The first one waits, too, until it is a small part of the time; then it is made, and pays. */
static void a_dear_change_is_made_when_it_is_worth_it(void **state) {
    (void)state;
    crumb_sim_machine m = two(120, 60, 0, 0.01);
    m.change_ns = 1e8; /* 4.3 tokens of 23 ms */
    const crumb_sim_result few = decode_dearly(&m, 4, CRUMB_SPLIT_FORESEEN), many = decode_dearly(&m, 4, 1024);
    print_message("a change of 4 tokens: %u in 128 tokens, %u in 1024, then %.2f times one alone\n", few.n_changes,
                  many.n_changes, many.first_ns / many.total_ns);
    assert_int_equal(few.n_changes, 0);
    assert_true(many.on && many.n_changes >= 1);
    m.change_ns = 1e7; /* of which many fit into what is counted upon */
    assert_true(decode_dearly(&m, 4, CRUMB_SPLIT_FORESEEN).on);
}

/* What --split asks for is neither learned from nor left. */
static void a_fixed_share_stays(void **state) {
    (void)state;
    const crumb_sim_machine own = two(90, 90, 0, 0.01), shared = two(90, 90, 90, 0);
    crumb_sim_result r;
    crumb_sim_decode_fixed(&own, 0.25, TOKENS, &r);
    assert_true(r.on && r.n_changes == 0 && r.n_split == TOKENS && fabs(r.share - 0.25) < 1e-9);
    assert_true(fabs(r.first_ns / r.total_ns - 1 / 0.77) < 0.02); /* three quarters of the rows, and exchanges */
    crumb_sim_decode_fixed(&shared, 0.5, TOKENS, &r);
    assert_true(r.total_ns > r.first_ns);
    crumb_sim_decode_fixed(&shared, 1, TOKENS, &r);
    assert_true(r.n_split == 0 && fabs(r.total_ns / r.first_ns - 1) < 1e-9);
}

/* One token that took a hundred times as long as others, a program that was started perhaps, moves no part. */
static void one_odd_token_changes_no_share(void **state) {
    (void)state;
    crumb_split s;
    const crumb_split_params params = {.n_steps = STEPS, .share = 16, .alone = STEPS, .settle = CRUMB_SPLIT_SETTLE};
    crumb_split_init(&s, &params);
    for (int i = 0; i < 200; i++) {
        const bool odd = i == 50, split = crumb_split_next(&s) != STEPS;
        crumb_split_done(&s, split ? odd ? 1e9 : 1e7 : 2e7, split ? 1e7 : 0, split ? odd ? 1e9 : 1e7 : 2e7);
    }
    assert_true(crumb_split_is_on(&s));
    assert_int_equal(s.n_changes, 0);
}

static void odd_times_teach_nothing(void **state) {
    (void)state;
    crumb_split s;
    const crumb_split_params params = {.n_steps = 2, .share = 9, .alone = 0};
    crumb_split_init(&s, &params);
    for (int i = 0; i < 100; i++) {
        crumb_split_done(&s, 0, 0, i % 2 ? 0 : NAN);
        crumb_split_done(&s, -1, NAN, 1e6);
        assert_true(crumb_split_next(&s) <= 2);
        assert_int_equal(s.share, 1);
    }
    char text[128];
    crumb_split_explain(&s, text, sizeof text);
    assert_true(text[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_devices_with_memory_of_their_own_are_twice_as_fast),
        cmocka_unit_test(devices_that_share_bandwidth_lose_nothing),
        cmocka_unit_test(a_slower_device_helps_by_what_is_left),
        cmocka_unit_test(unequal_devices_get_their_parts),
        cmocka_unit_test(a_neighbour_moves_the_part),
        cmocka_unit_test(it_comes_back_when_the_neighbour_has_gone),
        cmocka_unit_test(heat_brings_the_other_one_in),
        cmocka_unit_test(dear_changes_are_few_and_still_find_the_part),
        cmocka_unit_test(changes_take_a_small_part_of_the_time),
        cmocka_unit_test(a_split_that_does_not_pay_is_left_though_changes_are_dear),
        cmocka_unit_test(a_dear_change_is_made_when_it_is_worth_it),
        cmocka_unit_test(a_fixed_share_stays),
        cmocka_unit_test(one_odd_token_changes_no_share),
        cmocka_unit_test(odd_times_teach_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
