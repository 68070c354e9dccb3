/* scheduler/cost: the arithmetic, by numbers that can be checked by hand. */
#include "scheduler/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const crumb_profile_device plain = {.kind = CRUMB_PROFILE_INTEGRATED,
                                           .read_gb_s = 100,
                                           .together_gb_s = 50,
                                           .exchange_us = 3,
                                           .launch_us = 2,
                                           .layer_launches = 5,
                                           .head_launches = 1,
                                           .gops = {[CRUMB_WORK_U2] = 1000, [CRUMB_WORK_ATTENTION] = 10},
                                           .share = {[CRUMB_WORK_U2] = 0.5, [CRUMB_WORK_ATTENTION] = 1}};
static const crumb_cost_layer layer = {
    .weight_bytes = {[CRUMB_WORK_U2] = 1000000}, .macs = {[CRUMB_WORK_U2] = 4000000}, .vector_bytes = 1000};

static void equal(double a, double b) {
    if (fabs(a - b) > 1e-9 * fabs(b)) fail_msg("%.12g is not %.12g", a, b);
}

static void the_slower_of_reading_and_computing_counts(void **state) {
    (void)state;
    crumb_cost c;
    const crumb_cost_phase one = {.n_rows = 1}, many = {.n_rows = 1000, .n_batch = 512};
    assert_true(crumb_cost_of_layer(&plain, &layer, &one, 1, false, &c));
    equal(c.read_ns, 1e6 / 50); /* 1 MB at half of 100 GB/s; 8 M operations take 8 us */
    equal(c.compute_ns, 0);
    equal(c.launch_ns, 5 * 2000);
    equal(c.ns, 30000);
    assert_int_equal(c.bound, CRUMB_BOUND_BANDWIDTH);
    assert_true(crumb_cost_of_layer(&plain, &layer, &many, 1, false, &c));
    equal(c.compute_ns, 1000 * 8e6 / 1000);
    equal(c.read_ns, 0);
    equal(c.launch_ns, 2 * 10000); /* two batches, each of which reads the weights */
    equal(c.bytes, 2e6);
    assert_int_equal(c.bound, CRUMB_BOUND_COMPUTE);
    assert_true(crumb_cost_of_layer(&plain, &layer, &one, 0.25, true, &c));
    equal(c.read_ns, 0.25 * 1e6 / 25);
}

static void the_head_serves_one_row(void **state) {
    (void)state;
    crumb_cost_layer head = layer;
    crumb_cost c;
    head.head = true;
    assert_true(crumb_cost_of_layer(&plain, &head, &(crumb_cost_phase){.n_rows = 1000, .n_batch = 10}, 1, false, &c));
    equal(c.bytes, 1e6);
    equal(c.ns, 1e6 / 50 + 2000);
}

static void attention_grows_with_the_context(void **state) {
    (void)state;
    const crumb_cost_layer attention = {.attention_macs = 100, .kv_bytes = 1000};
    crumb_cost c;
    assert_true(crumb_cost_of_layer(&plain, &attention, &(crumb_cost_phase){.n_rows = 1, .n_past = 99}, 1, false, &c));
    equal(c.bytes, 100 * 1000);
    equal(c.compute_ns, 2 * 100 * 100 / 10.0);
    equal(c.read_ns, 0); /* 1 us */
    assert_true(crumb_cost_of_layer(&plain, &attention, &(crumb_cost_phase){.n_rows = 4, .n_batch = 2}, 1, false, &c));
    equal(c.bytes, (2 + 4) * 1000);
    equal(c.compute_ns, 2 * 100 * (1 + 2 + 3 + 4) / 10.0);
}

static void work_without_figures_is_refused(void **state) {
    (void)state;
    const crumb_cost_layer other = {.weight_bytes = {[CRUMB_WORK_U1] = 1}};
    crumb_cost c;
    assert_false(crumb_cost_of_layer(&plain, &other, &(crumb_cost_phase){.n_rows = 1}, 1, false, &c));
    assert_true(isinf(c.ns));
}

static void a_split_takes_what_the_slower_one_takes(void **state) {
    (void)state;
    crumb_profile_device slow = plain;
    crumb_cost c;
    slow.together_gb_s = 10;
    slow.exchange_us = 7;
    assert_true(crumb_cost_of_split(&plain, &slow, &layer, &(crumb_cost_phase){.n_rows = 1}, 0.75, &c));
    equal(c.read_ns, 0.25 * 1e6 / 5);
    equal(c.exchange_ns, 4 * 7000);
    equal(c.bytes, 1e6);
    equal(c.ns, c.read_ns + c.launch_ns + c.exchange_ns);
}

static void transfers_count_each_way(void **state) {
    (void)state;
    const crumb_profile_device card = {
        .kind = CRUMB_PROFILE_DISCRETE, .transfer_gb_s = 10, .transfer_us = 4, .exchange_us = 9};
    const crumb_cost_phase rows = {.n_rows = 20, .n_batch = 10};
    equal(crumb_cost_of_transfer(&plain, &plain, 1000, &rows), 0);
    equal(crumb_cost_of_transfer(&plain, &card, 1000, &rows), 2 * 4000 + 20000 / 10.0);
    crumb_profile_device cpu = plain;
    cpu.exchange_us = 1;
    equal(crumb_cost_of_transfer(&plain, &cpu, 1000, &rows), 2 * 3000);
    equal(crumb_cost_of_move(&plain, &cpu, 1000), 0); /* one memory */
    equal(crumb_cost_of_move(&card, &cpu, 1000), 4000 + 100);
    const crumb_profile_device other_card = card;
    equal(crumb_cost_of_move(&card, &other_card, 1000), 2 * 4100);
}

static void corrections_follow_what_is_measured(void **state) {
    (void)state;
    crumb_correction c = {0};
    equal(crumb_correction_factor(NULL, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD), 1);
    equal(crumb_correction_factor(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD), 1);
    crumb_correction_update(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD, 100, 200);
    equal(crumb_correction_factor(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD), 2);
    crumb_correction_update(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD, 100, 100);
    equal(crumb_correction_factor(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD), 0.3 * 2 + 0.7);
    for (int i = 0; i < 20; i++) crumb_correction_update(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD, 100, 80);
    assert_true(fabs(crumb_correction_factor(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD) - 0.8) < 1e-6);
    crumb_correction_update(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD, 100, NAN);
    crumb_correction_update(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD, 0, 100);
    crumb_correction_update(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD, 100, -1);
    assert_true(fabs(crumb_correction_factor(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD) - 0.8) < 1e-6);
    equal(crumb_correction_factor(&c, 0, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD), 1);
    equal(crumb_correction_factor(&c, 1, CRUMB_PHASE_PREFILL, CRUMB_SPAN_HEAD), 1);
    /* of split layers: as alone, until some have been measured; decoding's only */
    equal(crumb_correction_together(NULL, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD), 1);
    equal(crumb_correction_together(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD),
          crumb_correction_factor(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD));
    c.together[1] = 3;
    equal(crumb_correction_together(&c, 1, CRUMB_PHASE_DECODE, CRUMB_SPAN_HEAD), 3);
    equal(crumb_correction_together(&c, 1, CRUMB_PHASE_PREFILL, CRUMB_SPAN_HEAD), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slower_of_reading_and_computing_counts), cmocka_unit_test(the_head_serves_one_row),
        cmocka_unit_test(attention_grows_with_the_context),           cmocka_unit_test(work_without_figures_is_refused),
        cmocka_unit_test(a_split_takes_what_the_slower_one_takes),    cmocka_unit_test(transfers_count_each_way),
        cmocka_unit_test(corrections_follow_what_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
