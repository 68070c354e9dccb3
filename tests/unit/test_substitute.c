/* host/engine/substitute: the CPU that takes a failed device's place is opened as the user has asked for it. */
#include "host/engine/substitute.h"

#include "cpu/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_error err;

/* The caller's texts are gone by the time that a device fails, and the environment says something else. */
static void the_users_options_of_the_cpu_are_kept(void **state) {
    (void)state;
    char kind[] = "all", balance[] = "chunks", tuning[] = "none";
    crumb_model_params params = crumb_model_params_default();
    crumb_model *m, *cpu, *again;
    params.device = "cpu";
    params.n_threads = 1;
    params.cpu_kind = kind;
    params.balance = balance;
    params.tuning = tuning;
    assert_int_equal(crumb_model_open_embedded(&params, &m, &err), CRUMB_OK);
    memset(kind, 'x', sizeof kind - 1);
    memset(balance, 'x', sizeof balance - 1);
    memset(tuning, 'x', sizeof tuning - 1);
    setenv("CRUMB_BALANCE", "split", 1);
    setenv("CRUMB_CPU_KIND", "p", 1);
    assert_int_equal(crumb_engine_substitute(m, &cpu, &err), CRUMB_OK);
    assert_int_equal(cpu->units[0].info.n_threads, 1);
    assert_int_equal(cpu->units[0].device->way, CRUMB_WAY_ONLY_CHUNKS);
    assert_string_equal(cpu->origin.cpu_kind, "all");
    assert_string_equal(cpu->origin.balance, "chunks");
    assert_string_equal(cpu->origin.tuning, "none");
    assert_null(cpu->tuning);
    assert_int_equal(crumb_engine_substitute(m, &again, &err), CRUMB_OK);
    assert_ptr_equal(again, cpu);
    crumb_model_close(m);
}

/* Nobody said how many threads: not as many as another device's driver counts, but as the CPU's own default has it. */
static void without_options_it_has_its_own_threads(void **state) {
    (void)state;
    crumb_model_params params = crumb_model_params_default();
    crumb_model *m, *cpu;
    unsetenv("CRUMB_BALANCE");
    unsetenv("CRUMB_CPU_KIND");
    params.device = "cpu";
    assert_int_equal(crumb_model_open_embedded(&params, &m, &err), CRUMB_OK);
    const int own = m->units[0].info.n_threads;
    m->units[0].info.n_threads = own + 7;
    assert_int_equal(crumb_engine_substitute(m, &cpu, &err), CRUMB_OK);
    assert_int_equal(cpu->units[0].info.n_threads, own);
    crumb_model_close(m);
}

/* As the failed one was, by the same profile. */
static void what_it_takes_is_predicted(void **state) {
    (void)state;
    crumb_model_params params = crumb_model_params_default();
    crumb_model *m, *cpu;
    params.device = "cpu";
    params.profile = "lnl";
    params.explain = true;
    assert_int_equal(crumb_model_open_embedded(&params, &m, &err), CRUMB_OK);
    assert_true(m->advice->known);
    assert_int_equal(crumb_engine_substitute(m, &cpu, &err), CRUMB_OK);
    assert_true(cpu->advice->known && cpu->advice != m->advice);
    assert_string_equal(cpu->advice->machine.name, "lnl");
    assert_non_null(strstr(cpu->advice->placement.why, "has failed; prefill on cpu"));
    crumb_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_users_options_of_the_cpu_are_kept),
        cmocka_unit_test(what_it_takes_is_predicted),
        cmocka_unit_test(without_options_it_has_its_own_threads),
    };
    return cmocka_run_group_tests_name("substitute", tests, NULL, NULL);
}
