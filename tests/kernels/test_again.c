/* crumb kernels test: what it runs whatever the seed, and that the line which a failure prints makes the same failure
 * again. The kernels' results are spoilt on their way to the comparison; what was expected instead depends on all of
 * the random data. */
#include "tools/crumb/kernels.h"

#include "cpu/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_WORDS = 24, MAX_FORMATS = 16, N_KINDS = 12, SOME_KERNELS = 24 };

/* The run (of a kernel by itself), or the plan and its result, that is spoilt. */
static struct {
    size_t n_runs, wrong_run;
    size_t n_plans, n_reads, wrong_plan, wrong_read;
} fault;

/* What weights of each format were run with, a bit for each kind: activations, mins and scales together. */
static unsigned seen[MAX_FORMATS];

static crumb_kernel_suite suite;
static crumb_backend backend;

static unsigned kind_of(bool by_group, bool has_min, bool scales_f32, bool two_levels) {
    return (unsigned)by_group + 2 * (unsigned)has_min + 4 * (two_levels ? 2u : (unsigned)scales_f32);
}

static void note(const crumb_trial_params *p) {
    for (size_t f = 0; f < crumb_n_kernel_formats; f++) {
        const crumb_kernel_format *format = &crumb_kernel_formats[f];
        if (format->bits == p->bits && format->max_code == p->max_code && format->mul == p->mul &&
            format->codebook == p->codebook)
            seen[f] |= 1u << kind_of(p->act == CRUMB_ACT_GROUP, p->has_min, p->scales_f32, p->super_group);
    }
}

static crumb_status run(crumb_kernel_machine *machine, size_t kernel, const char *knobs, crumb_trial *trial, float *y,
                        crumb_error *err) {
    CRUMB_TRY(crumb_kernel_suite_cpu.run(machine, kernel, knobs, trial, y, err));
    note(&trial->params);
    if (fault.n_runs++ == fault.wrong_run) y[trial->params.m / 2] += 1;
    return CRUMB_OK;
}

static crumb_status plan_record(crumb_kernel_machine *machine, size_t kernel, const crumb_plan_desc *desc,
                                crumb_plan **out, size_t *n_launches, crumb_error *err) {
    CRUMB_TRY(crumb_kernel_suite_cpu.plan_record(machine, kernel, desc, out, n_launches, err));
    fault.n_plans += *n_launches > 0; /* plans without the kernel are not compared */
    fault.n_reads = 0;
    return CRUMB_OK;
}

static crumb_status read_value(crumb_plan *plan, crumb_value value, const float **out, uint32_t *n_rows,
                               crumb_error *err) {
    CRUMB_TRY(crumb_backend_cpu.plan.read(plan, value, out, n_rows, err));
    if (fault.n_plans == fault.wrong_plan && fault.n_reads++ == fault.wrong_read) ((float *)*out)[*n_rows - 1] += 1000;
    return CRUMB_OK;
}

/* What `line` ("--filter norm__avx2 ...") prints of the one kernel that it names; empty: it is right. */
static void test_line(const char *line, char failure[KERNELS_FAILURE_BYTES]) {
    char text[KERNELS_FAILURE_BYTES], *words[MAX_WORDS] = {"test"};
    int n = 1;
    cli_options o;
    kernels_choice choice;
    uint64_t n_values;
    fault.n_runs = fault.n_plans = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word && n < MAX_WORDS; word = strtok(NULL, " ")) words[n++] = word;
    assert_int_equal(cli_options_parse("kernels", CLI_KERNELS, n, words, &o), 0);
    assert_int_equal(kernels_choose_tests(&o, &choice, NULL), CRUMB_OK);
    choice.suite = &suite;
    choice.backend = &backend;
    size_t kernel = 0;
    for (size_t i = 0; i < suite.n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(&choice, i);
        if (strcmp(info.name, o.kernel_filter) == 0) kernel = i;
    }
    assert_int_equal(kernels_test_one(&choice, kernel, (uint64_t)o.kernel_seed, &n_values, failure, NULL), CRUMB_OK);
    assert_true(n_values > 0);
    kernels_release(&choice);
    cli_options_release(&o);
}

/* Each place in turn fails, and the line that this prints says the very same. Returns whether there was one. */
static bool fails_again(const char *line, size_t run_again, size_t read_again) {
    static const char begins[] = "; again: crumb kernels test ";
    char failure[KERNELS_FAILURE_BYTES], again[KERNELS_FAILURE_BYTES];
    test_line(line, failure);
    if (!*failure) return false;
    const char *found = strstr(failure, begins);
    assert_non_null(found);
    fault.wrong_run = run_again;
    fault.wrong_plan = 1;
    fault.wrong_read = read_again;
    test_line(found + strlen(begins), again);
    assert_string_equal(again, failure);
    assert_non_null(strstr(again, "--threads 1"));
    return true;
}

static void kernels_in_plans_fail_again(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t n_failures; /* results of all forms */
    } cases[] = {{"norm__ref", 2},     {"rope__ref", 6},         {"gated__ref", 2},
                 {"quantize__ref", 2}, {"gemm_f16_f32__ref", 1}, {"attention_f16__ref", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[96];
        size_t n = 0;
        snprintf(line, sizeof line, "--filter %s --seed %zu -t 1", cases[i].name, 40 + i);
        for (size_t plan = 1; plan <= 4; plan++)
            for (size_t read = 0; read < 2; read++) {
                fault.wrong_plan = plan;
                fault.wrong_read = read;
                n += fails_again(line, SIZE_MAX, read);
            }
        if (n != cases[i].n_failures) fail_msg("%s: %zu failures, not %zu", line, n, cases[i].n_failures);
    }
}

/* Each problem is run with random data and then with extreme data. */
static void products_fail_again(void **state) {
    (void)state;
    fault.wrong_plan = SIZE_MAX;
    for (size_t wrong = 0; wrong < 28; wrong += 3) {
        fault.wrong_run = wrong;
        assert_true(fails_again("--filter gemm_u2_i8__ref --shape 17x96x2,33x64x3 --seed 50 -t 1", wrong % 2, 0));
    }
}

/* Whether some kind of those in `wanted` was run. */
static void check_any(const char *line, size_t format, unsigned wanted, const char *what) {
    if (!(seen[format] & wanted))
        fail_msg("%s: no %s with %s bits: %#x", line, what, crumb_kernel_formats[format].name, seen[format]);
}

/* Where there are few problems for a kernel, each kind of activations and of scales is still there. */
static void check_seen(const char *line, size_t format, bool all) {
    const bool codebook = crumb_kernel_formats[format].codebook;
    unsigned by_group = 0, mins = 0, two_levels = 0, possible = 0;
    for (unsigned kind = 0; kind < N_KINDS; kind++) {
        if (kind & 1) by_group |= 1u << kind;
        if (kind & 2) mins |= 1u << kind;
        if (kind & 8) two_levels |= 1u << kind;
        if (!(codebook && kind & 2)) possible |= 1u << kind;
    }
    if (all && seen[format] != possible)
        fail_msg("%s: %s bits: %#x, not %#x", line, crumb_kernel_formats[format].name, seen[format], possible);
    check_any(line, format, by_group, "activations by group");
    check_any(line, format, ~by_group, "activations by row");
    check_any(line, format, two_levels, "scales in two levels");
    check_any(line, format, ~two_levels, "scales in one level");
    check_any(line, format, ~mins, "weights without mins");
    if (!codebook) check_any(line, format, mins, "mins");
}

/* All formats that a kernel has run with, whatever the seed. */
static void check_kernel(const char *name, int seed, bool all) {
    char line[96], failure[KERNELS_FAILURE_BYTES];
    size_t n_formats = 0;
    memset(seen, 0, sizeof seen);
    snprintf(line, sizeof line, "--filter %s --seed %d -t 1", name, seed);
    fault.wrong_run = fault.wrong_plan = SIZE_MAX;
    test_line(line, failure);
    assert_string_equal(failure, "");
    for (size_t f = 0; f < crumb_n_kernel_formats; f++) {
        if (seen[f]) check_seen(line, f, all);
        n_formats += seen[f] != 0;
    }
    assert_true(n_formats > 0);
}

static void every_kind_of_problem_is_run(void **state) {
    (void)state;
    static const char *const names[] = {"gemm_u4_i8__ref", "gemm_c4_i8__ref"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_kernel(names[i], 3 * (int)i, true);
}

/* As on a GPU, where each kernel gets a part of the shapes: which, goes by its number. */
static void few_problems_are_of_every_kind(void **state) {
    (void)state;
    suite.compiles = true;
    for (size_t i = 0; i < SOME_KERNELS; i++) {
        const crumb_kernel_info info = suite.info(NULL, i);
        if (info.available && strcmp(info.layout, "tile") == 0 && info.acts >> CRUMB_ACT_GROUP & 1)
            check_kernel(info.name, (int)i, false);
    }
    suite.compiles = false;
}

int main(void) {
    suite = crumb_kernel_suite_cpu;
    suite.run = run;
    suite.plan_record = plan_record;
    backend = crumb_backend_cpu;
    backend.plan.read = read_value;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_in_plans_fail_again),
        cmocka_unit_test(products_fail_again),
        cmocka_unit_test(every_kind_of_problem_is_run),
        cmocka_unit_test(few_problems_are_of_every_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
