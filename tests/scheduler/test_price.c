/* tools/crumb/probe: what is small beside its noise is measured again, and is never nothing. */
#include "tools/crumb/cli.h"

#include "cpu/probe.h"
#include "host/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

typedef struct samples {
    const double *values;
    size_t n, taken; /* the last stays */
    crumb_status status;
} samples;

static crumb_status take(void *user, double *ns, crumb_error *err) {
    samples *s = user;
    (void)err;
    *ns = s->values[s->taken < s->n ? s->taken : s->n - 1];
    s->taken++;
    return s->status;
}

static double price_of(const double *values, size_t n, size_t rounds, size_t *taken) {
    samples s = {.values = values, .n = n};
    double ns = -1;
    assert_int_equal(cli_median_price(take, &s, rounds, &ns, NULL), CRUMB_OK);
    *taken = s.taken;
    return ns;
}

static void medians_above_nothing_stand(void **state) {
    (void)state;
    size_t taken;
    assert_float_equal(price_of((const double[]){300, -20, 100, 0, 200}, 5, 5, &taken), 100, 0);
    assert_int_equal(taken, 5);
}

static void others_are_measured_again(void **state) {
    (void)state;
    size_t taken;
    assert_float_equal(price_of((const double[]){0, 0, 5, -9, 0, 5, 7, 8, 0}, 9, 3, &taken), 7, 0);
    assert_int_equal(taken, 9);
}

static void nothing_costs_nothing(void **state) {
    (void)state;
    size_t taken;
    assert_true(price_of((const double[]){0}, 1, 3, &taken) > 0);
    assert_true(price_of((const double[]){-50}, 1, 1, &taken) > 0);
    assert_in_range(taken, 2, 10); /* it is not tried for ever */
}

static void failures_are_told(void **state) {
    (void)state;
    const double value = 1;
    samples s = {.values = &value, .n = 1, .status = CRUMB_ERR_DEVICE};
    double ns;
    assert_int_equal(cli_median_price(take, &s, 3, &ns, NULL), CRUMB_ERR_DEVICE);
    assert_int_equal(s.taken, 1);
}

static _Atomic bool busy;
static void spin(void *arg) {
    (void)arg;
    while (atomic_load(&busy)) continue;
}

/* The step of a plan, with more threads than cores and others beside them. */
static void a_step_on_a_busy_machine(void **state) {
    (void)state;
    crumb_thread *others[4];
    crumb_probe *probe;
    double ns = 0;
    assert_int_equal(crumb_probe_create(4, NULL, &probe, NULL), CRUMB_OK);
    atomic_store(&busy, true);
    for (int i = 0; i < 4; i++) assert_int_equal(crumb_thread_start(spin, NULL, &others[i], NULL), CRUMB_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(cli_median_price(cli_sample_step, probe, 1, &ns, NULL), CRUMB_OK);
        assert_true(ns > 0);
    }
    atomic_store(&busy, false);
    for (int i = 0; i < 4; i++) crumb_thread_join(others[i]);
    crumb_probe_destroy(probe);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians_above_nothing_stand), cmocka_unit_test(others_are_measured_again),
        cmocka_unit_test(nothing_costs_nothing),       cmocka_unit_test(failures_are_told),
        cmocka_unit_test(a_step_on_a_busy_machine),
    };
    return cmocka_run_group_tests_name("price", tests, NULL, NULL);
}
