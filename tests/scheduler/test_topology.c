/* Cores and their kinds: of made-up machines that hwloc is told to show, and of this one. */
#include "scheduler/topology.h"

#include "host/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_error err;

static void of_this_machine(void **state) {
    (void)state;
    crumb_topology t;
    int cpus[CRUMB_TOPOLOGY_MAX_CORES], n_cpus;
    crumb_topology_read(&t);
    assert_true(t.this_machine);
    assert_in_range(t.n_cores, 1, CRUMB_TOPOLOGY_MAX_CORES);
    assert_true(t.limit >= 1);
    assert_int_equal(t.n_of_kind[CRUMB_CORE_P] + t.n_of_kind[CRUMB_CORE_E] + t.n_of_kind[CRUMB_CORE_LOW_POWER],
                     t.n_cores);
    assert_int_equal(crumb_topology_choose(&t, CRUMB_CORES_AUTO, cpus, CRUMB_TOPOLOGY_MAX_CORES, &n_cpus, &err),
                     CRUMB_OK);
    assert_true(n_cpus <= t.limit);
    for (int i = 0; i < n_cpus; i++)
        for (int j = 0; j < i; j++) assert_true(cpus[i] != cpus[j]);
}

/* A thread that may use one processor sees one core, and a pinned one gets back what it had. */
static void affinity_is_respected(void **state) {
    (void)state;
    crumb_topology before, pinned, after;
    crumb_thread_cpus saved;
    crumb_topology_read(&before);
    if (before.cores[0].cpu < 0) skip();
    const crumb_core *last = &before.cores[before.n_cores - 1];
    assert_true(crumb_thread_pin_begin(last->cpu, &saved));
    crumb_topology_read(&pinned);
    crumb_thread_pin_end(&saved);
    crumb_topology_read(&after);
    assert_int_equal(pinned.n_cores, 1);
    assert_int_equal(pinned.cores[0].cpu, last->cpu);
    assert_int_equal(after.n_cores, before.n_cores);
}

static void kinds_have_names(void **state) {
    (void)state;
    crumb_cores_wanted wanted;
    const char *const names[] = {"auto", "p", "e", "all"};
    for (int i = 0; i < 4; i++) {
        assert_true(crumb_cores_wanted_parse(names[i], &wanted));
        assert_int_equal(wanted, i);
    }
    assert_true(crumb_cores_wanted_parse(NULL, &wanted));
    assert_int_equal(wanted, CRUMB_CORES_AUTO);
    assert_false(crumb_cores_wanted_parse("P cores", &wanted));
}

/* No more threads than the control group gives time for, and the fast cores first. */
static void the_limit_counts(void **state) {
    (void)state;
    crumb_topology t = {.n_cores = 3, .limit = 2, .n_of_kind = {1, 2}, .source = "a test"};
    int cpus[8], n_cpus;
    for (int i = 0; i < 3; i++) t.cores[i] = (crumb_core){.cpu = 10 + i, .kind = i ? CRUMB_CORE_E : CRUMB_CORE_P};
    assert_int_equal(crumb_topology_choose(&t, CRUMB_CORES_ALL, cpus, 8, &n_cpus, &err), CRUMB_OK);
    assert_int_equal(n_cpus, 2);
    assert_int_equal(cpus[0], 10);
    assert_int_equal(crumb_topology_choose(&t, CRUMB_CORES_E, cpus, 8, &n_cpus, &err), CRUMB_OK);
    assert_int_equal(n_cpus, 2);
    assert_int_equal(cpus[0], 11);
    t = (crumb_topology){.n_cores = 1, .limit = 8, .n_of_kind = {1}, .source = "a test"};
    assert_int_equal(crumb_topology_choose(&t, CRUMB_CORES_E, cpus, 8, &n_cpus, &err), CRUMB_ERR_ARGUMENT);
    assert_string_equal(err.message, "no E cores to run on: this process may use 1 core, found through a test");
}

#ifdef CRUMB_HAVE_HWLOC
#include <hwloc.h>

/* ---- made-up machines -------------------------------------------------------------------------------------- */

/* One kind of cores: those whose logical processors are [first, last]. */
typedef struct made_kind {
    unsigned first, last;
    const char *type, *mhz; /* NULL: not said */
} made_kind;

static const char made_file[] = "made-topology.xml";

/* Writes what hwloc would tell of a machine, and has it shown from now on. */
static void make(const char *synthetic, const made_kind *kinds, size_t n_kinds) {
    hwloc_topology_t topology;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, synthetic), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    for (size_t i = 0; i < n_kinds; i++) {
        hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
        hwloc_bitmap_set_range(cpus, kinds[i].first, (int)kinds[i].last);
        struct hwloc_info_s infos[2];
        unsigned n = 0;
        if (kinds[i].type) infos[n++] = (struct hwloc_info_s){(char *)"CoreType", (char *)kinds[i].type};
        if (kinds[i].mhz) infos[n++] = (struct hwloc_info_s){(char *)"FrequencyMaxMHz", (char *)kinds[i].mhz};
        assert_int_equal(hwloc_cpukinds_register(topology, cpus, -1, n, infos, 0), 0);
        hwloc_bitmap_free(cpus);
    }
    assert_int_equal(hwloc_topology_export_xml(topology, made_file, 0), 0);
    hwloc_topology_destroy(topology);
    assert_int_equal(setenv("HWLOC_XMLFILE", made_file, 1), 0);
}

static void read_made(crumb_topology *t, const char *description) {
    char text[64];
    crumb_topology_read(t);
    unsetenv("HWLOC_XMLFILE");
    remove(made_file);
    crumb_topology_describe(t, text, sizeof text);
    assert_string_equal(text, description);
    assert_false(t->this_machine);
    assert_int_equal(t->limit, INT32_MAX);
}

static int n_wanted(const crumb_topology *t, crumb_cores_wanted wanted) {
    int cpus[CRUMB_TOPOLOGY_MAX_CORES], n = 0;
    crumb_topology_choose(t, wanted, cpus, CRUMB_TOPOLOGY_MAX_CORES, &n, &err);
    return n;
}

/* As a Core Ultra 7 155H is: E cores and low-power ones come before P cores in the numbering, to be hard. */
static void meteor_lake(void **state) {
    (void)state;
    crumb_topology t;
    const made_kind kinds[] = {{0, 1, "IntelAtom", "2500"}, {2, 9, "IntelAtom", "3800"}, {10, 15, "IntelCore", "4800"}};
    make("core:16 pu:1", kinds, 3);
    read_made(&t, "6 P + 8 E + 2 low-power E cores");
    assert_int_equal(t.cores[0].cpu, 10);
    assert_int_equal(t.cores[0].max_mhz, 4800);
    assert_int_equal(t.cores[6].cpu, 2);
    assert_int_equal(t.cores[15].cpu, 1);
    assert_int_equal(n_wanted(&t, CRUMB_CORES_AUTO), 14);
    assert_int_equal(n_wanted(&t, CRUMB_CORES_P), 6);
    assert_int_equal(n_wanted(&t, CRUMB_CORES_E), 8);
    assert_int_equal(n_wanted(&t, CRUMB_CORES_ALL), 16);
}

/* Two P cores may clock higher than the others: they are no other kind. */
static void favoured_cores_are_p_cores(void **state) {
    (void)state;
    crumb_topology t;
    const made_kind kinds[] = {{0, 3, "IntelCore", "5700"}, {4, 7, "IntelCore", "4600"}, {8, 11, "IntelAtom", "4600"}};
    make("core:12 pu:1", kinds, 3);
    read_made(&t, "8 P + 4 E cores");
}

/* Other makers name no types: a fifth less clock is another kind, a few percent are not. */
static void kinds_by_clock(void **state) {
    (void)state;
    crumb_topology t;
    make("core:8 pu:1", (made_kind[]){{0, 3, NULL, "5100"}, {4, 7, NULL, "3300"}}, 2);
    read_made(&t, "4 P + 4 E cores");
    make("core:8 pu:1", (made_kind[]){{0, 3, NULL, "5100"}, {4, 7, NULL, "4900"}}, 2);
    read_made(&t, "8 cores");
    assert_int_equal(n_wanted(&t, CRUMB_CORES_P), 8);
    assert_int_equal(n_wanted(&t, CRUMB_CORES_E), 0);
}

/* Threads of one core are one core. */
static void siblings_are_one_core(void **state) {
    (void)state;
    crumb_topology t;
    make("core:4 pu:2", NULL, 0);
    read_made(&t, "4 cores");
    assert_int_equal(t.cores[0].n_siblings, 2);
    assert_int_equal(t.cores[1].cpu, 2);
    make("pu:6", NULL, 0); /* a machine that tells no cores */
    read_made(&t, "6 cores");
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_this_machine),  cmocka_unit_test(affinity_is_respected),
        cmocka_unit_test(kinds_have_names), cmocka_unit_test(the_limit_counts),
#ifdef CRUMB_HAVE_HWLOC
        cmocka_unit_test(meteor_lake),      cmocka_unit_test(favoured_cores_are_p_cores),
        cmocka_unit_test(kinds_by_clock),   cmocka_unit_test(siblings_are_one_core),
#endif
    };
    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
