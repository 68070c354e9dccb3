/* Cores and their kinds: of made-up machines that hwloc is told to show, and of this one. */
#include "scheduler/topology.h"

#include "host/base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* ---- control groups ---------------------------------------------------------------------------------------- */

/* Writes a file below the made-up /sys/fs/cgroup, and the folders that it is in. */
static void put(const char *root, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int limit_of(const char *root, const char *groups) {
    char path[256];
    snprintf(path, sizeof path, "%s/groups", root);
    put(root, "groups", groups);
    return crumb_cpu_limit_by(root, path);
}

/* The group's quota in whole processors, or that of a group which it lies in, whichever is less. */
static void quotas_of_control_groups(void **state) {
    (void)state;
    char two[] = "made-cgroup2-XXXXXX", one[] = "made-cgroup1-XXXXXX", path[64];
    assert_non_null(mkdtemp(two));
    put(two, "user/cpu.max", "400000 100000\n");
    put(two, "user/a/cpu.max", "250000 100000\n");
    put(two, "user/b/cpu.max", "max 100000\n");
    put(two, "user/c/cpu.max", "50000 100000\n");
    put(two, "user/d/cpu.max", "nonsense\n");
    put(two, "free/cpu.max", "max 100000\n");
    assert_int_equal(limit_of(two, "0::/user/a\n"), 2);
    assert_int_equal(limit_of(two, "0::/user/b\n"), 4);
    assert_int_equal(limit_of(two, "0::/user/c\n"), 1); /* never none */
    assert_int_equal(limit_of(two, "0::/user/d\n"), 4);
    assert_int_equal(limit_of(two, "0::/user/gone/deep\n"), 4);
    assert_int_equal(limit_of(two, "0::/free\n"), INT32_MAX);
    assert_int_equal(limit_of(two, ""), INT32_MAX);
    put(two, "cpu.max", "300000 100000\n"); /* a container's own root, whose group has another name outside */
    assert_int_equal(limit_of(two, "0::/machine/of/the/host\n"), 3);
    assert_int_equal(crumb_cpu_limit_by(two, "made-cgroup-nowhere"), 3);
    assert_non_null(mkdtemp(one)); /* version 1 */
    put(one, "cpu/cpu.cfs_quota_us", "-1\n");
    put(one, "cpu/cpu.cfs_period_us", "100000\n");
    put(one, "cpu/docker/x/cpu.cfs_quota_us", "350000\n");
    put(one, "cpu/docker/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(limit_of(one, "9:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n"), 3);
    assert_int_equal(limit_of(one, "4:cpuset:/docker/x\n"), INT32_MAX);
    assert_int_equal(limit_of(one, "4:cpuacct,cpu:/docker\n"), INT32_MAX);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "rm -r %s", i ? one : two);
        assert_int_equal(system(path), 0);
    }
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

/* Cores of one kind, in the order of their logical processors, of which each has `threads`. */
typedef struct made_cores {
    unsigned n, threads;
    const char *type, *mhz;
} made_cores;

static void put_kinds(FILE *f, const made_cores *cores, size_t n) {
    for (unsigned first = 0; n > 0; n--, first += cores->n * cores->threads, cores++)
        fprintf(f,
                "  <cpukind cpuset=\"0x%08x\">\n    <info name=\"CoreType\" value=\"%s\"/>\n"
                "    <info name=\"FrequencyMaxMHz\" value=\"%s\"/>\n  </cpukind>\n",
                ((1u << cores->n * cores->threads) - 1) << first, cores->type, cores->mhz);
}

static void put_core(FILE *f, unsigned number, unsigned first, unsigned threads) {
    static const char sets[] = "complete_cpuset=\"0x%08x\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"%u\"";
    const unsigned cpus = ((1u << threads) - 1) << first;
    fprintf(f, "    <object type=\"Core\" os_index=\"%u\" cpuset=\"0x%08x\" ", number, cpus);
    fprintf(f, sets, cpus, 100 + number);
    fputs(">\n", f);
    for (unsigned pu = first; pu < first + threads; pu++) {
        fprintf(f, "      <object type=\"PU\" os_index=\"%u\" cpuset=\"0x%08x\" ", pu, 1u << pu);
        fprintf(f, sets, 1u << pu, 200 + pu);
        fputs("/>\n", f);
    }
    fputs("    </object>\n", f);
}

/* The same of a machine on which only some cores have two threads, as hwloc's own synthetic ones never are: the text
 * that lstopo would write there. */
static void make_hybrid(const made_cores *cores, size_t n) {
    unsigned n_cpus = 0, number = 0;
    for (size_t i = 0; i < n; i++) n_cpus += cores[i].n * cores[i].threads;
    const unsigned all = n_cpus < 32 ? (1u << n_cpus) - 1 : UINT32_MAX;
    FILE *f = fopen(made_file, "w");
    assert_non_null(f);
    fprintf(f,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
            "<topology version=\"2.0\">\n  <object type=\"Machine\" os_index=\"0\" cpuset=\"0x%08x\" "
            "complete_cpuset=\"0x%08x\" allowed_cpuset=\"0x%08x\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
            "allowed_nodeset=\"0x1\" gp_index=\"1\">\n    <object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x%08x\" "
            "complete_cpuset=\"0x%08x\" nodeset=\"0x1\" complete_nodeset=\"0x1\" gp_index=\"2\" "
            "local_memory=\"1073741824\"/>\n",
            all, all, all, all, all);
    unsigned first = 0;
    for (size_t i = 0; i < n; i++)
        for (unsigned c = 0; c < cores[i].n; c++, first += cores[i].threads)
            put_core(f, number++, first, cores[i].threads);
    fputs("  </object>\n", f);
    put_kinds(f, cores, n);
    fputs("</topology>\n", f);
    fclose(f);
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

/* How many threads each choice gives, and that each is the first thread of a core of that kind. */
typedef struct chosen {
    int automatic, p, e, all;
} chosen;

static void check_choices(const crumb_topology *t, const chosen *expected) {
    const int n[] = {[CRUMB_CORES_AUTO] = expected->automatic,
                     [CRUMB_CORES_P] = expected->p,
                     [CRUMB_CORES_E] = expected->e,
                     [CRUMB_CORES_ALL] = expected->all};
    for (int wanted = CRUMB_CORES_AUTO; wanted <= CRUMB_CORES_ALL; wanted++) {
        int cpus[CRUMB_TOPOLOGY_MAX_CORES], n_cpus = 0;
        crumb_topology_choose(t, (crumb_cores_wanted)wanted, cpus, CRUMB_TOPOLOGY_MAX_CORES, &n_cpus, &err);
        assert_int_equal(n_cpus, n[wanted]);
        for (int i = 0; i < n_cpus; i++) {
            const crumb_core *core = NULL;
            for (int c = 0; c < t->n_cores; c++)
                if (t->cores[c].cpu == cpus[i]) core = &t->cores[c];
            assert_non_null(core);
            if (wanted == CRUMB_CORES_P) assert_int_equal(core->kind, CRUMB_CORE_P);
            if (wanted == CRUMB_CORES_E) assert_int_equal(core->kind, CRUMB_CORE_E);
            for (int j = 0; j < i; j++) assert_true(cpus[i] != cpus[j]);
        }
    }
}

/* Processors as Linux and hwloc tell of them: a Core i9-12900K, two of whose P cores clock higher; a Core Ultra 5 125H
 * with two low-power cores; a Core Ultra 7 258V, whose P cores have one thread; a Core Ultra 9 285K. */
static void known_processors(void **state) {
    (void)state;
    static const struct {
        made_cores cores[4];
        size_t n;
        const char *description;
        chosen expected;
    } known[] = {
        {{{6, 2, "IntelCore", "5100"}, {2, 2, "IntelCore", "5200"}, {8, 1, "IntelAtom", "3900"}},
         3,
         "8 P + 8 E cores",
         {16, 8, 8, 16}},
        {{{4, 2, "IntelCore", "4500"}, {8, 1, "IntelAtom", "3600"}, {2, 1, "IntelAtom", "2500"}},
         3,
         "4 P + 8 E + 2 low-power E cores",
         {12, 4, 8, 14}},
        {{{4, 1, "IntelCore", "4800"}, {4, 1, "IntelAtom", "3700"}}, 2, "4 P + 4 E cores", {8, 4, 4, 8}},
        {{{6, 1, "IntelCore", "5500"}, {2, 1, "IntelCore", "5700"}, {16, 1, "IntelAtom", "4600"}},
         3,
         "8 P + 16 E cores",
         {24, 8, 16, 24}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        crumb_topology t;
        make_hybrid(known[i].cores, known[i].n);
        read_made(&t, known[i].description);
        assert_int_equal(t.cores[0].n_siblings, known[i].cores[0].threads);
        assert_int_equal(t.cores[1].cpu, (int)known[i].cores[0].threads);
        check_choices(&t, &known[i].expected);
    }
}

/* This machine's first two processors shown as a P and an E core: threads go where --cpu-kind says, as far as the mask
 * lets them. */
static void kinds_and_masks(void **state) {
    (void)state;
    crumb_topology t;
    crumb_thread_cpus saved[2];
    int cpus[4], n_cpus;
    char text[64];
    for (int cpu = 0; cpu < 2; cpu++) {
        if (!crumb_thread_pin_begin(cpu, &saved[cpu])) skip();
        crumb_topology_read(&t);
        crumb_thread_pin_end(&saved[cpu]);
        if (t.n_cores != 1 || t.cores[0].cpu != cpu) skip(); /* this process may not use it */
    }
    make_hybrid((made_cores[]){{1, 1, "IntelCore", "5000"}, {1, 1, "IntelAtom", "3700"}}, 2);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    crumb_topology_read(&t);
    assert_true(t.this_machine);
    crumb_topology_describe(&t, text, sizeof text);
    assert_string_equal(text, "1 P + 1 E cores");
    t.limit = INT32_MAX;
    assert_int_equal(crumb_topology_choose(&t, CRUMB_CORES_E, cpus, 4, &n_cpus, &err), CRUMB_OK);
    assert_true(n_cpus == 1 && cpus[0] == 1);
    assert_true(crumb_thread_pin_begin(1, &saved[1]));
    crumb_topology_read(&t);
    crumb_thread_pin_end(&saved[1]);
    unsetenv("HWLOC_THISSYSTEM");
    unsetenv("HWLOC_XMLFILE");
    remove(made_file);
    assert_int_equal(t.n_of_kind[CRUMB_CORE_P], 0);
    assert_int_equal(crumb_topology_choose(&t, CRUMB_CORES_AUTO, cpus, 4, &n_cpus, &err), CRUMB_OK);
    assert_true(n_cpus == 1 && cpus[0] == 1);
    assert_int_equal(crumb_topology_choose(&t, CRUMB_CORES_P, cpus, 4, &n_cpus, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "no P cores to run on: this process may use 1 E cores"));
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
        cmocka_unit_test(of_this_machine),
        cmocka_unit_test(affinity_is_respected),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(the_limit_counts),
        cmocka_unit_test(quotas_of_control_groups),
#ifdef CRUMB_HAVE_HWLOC
        cmocka_unit_test(meteor_lake),
        cmocka_unit_test(favoured_cores_are_p_cores),
        cmocka_unit_test(known_processors),
        cmocka_unit_test(kinds_and_masks),
        cmocka_unit_test(kinds_by_clock),
        cmocka_unit_test(siblings_are_one_core),
#endif
    };
    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
