/* Launches of a decoded token of each model of tests/oracle, with the choices that are made for a GPU, whose results
 * are the CPU's by the rule of test_cl_models: each launch costs the host as much as any other, whatever it computes.
 *
 * usage: test_cl_launches TARGET   TARGET as in --target: cl:RUNG, of a device that is a GPU, or claims to be one */
#include "tests/cl/model_pair.h"
#include "tests/model/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of the last plan for one row; of these embedding, picking a row, and the largest logits. */
static size_t n_launches, n_outside;

static bool starts(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static void count_launches(const char *message) {
    char name[64];
    size_t n;
    int length;
    const char *plan = strstr(message, "a plan for 1 rows is ");
    if (!plan) return;
    n_outside = 0;
    assert_int_equal(sscanf(plan, "a plan for 1 rows is %zu kernels", &n_launches), 1);
    plan = strstr(plan, "scratch:");
    assert_non_null(plan);
    for (plan = strchr(plan, ' '); plan && sscanf(plan, " %zu %63s%n", &n, name, &length) == 2; plan += length)
        if (starts(name, "embed") || starts(name, "select") || starts(name, "top")) n_outside += n;
}

/* What layers and the head take at most: cl/README.md ("Launches of a layer"). */
enum { HEAD = 1 };

static size_t most_of_layer(const char *name) {
    return strstr(name, "-k-quants") ? 8 : 7; /* queries, keys and values in 2, 3 and 5 bits */
}

static void check_model(const char *name, const char *path) {
    crumb_model_info info;
    crumb_model *cpu = pair_open(path, "cpu"), *gpu = pair_open(path, "gpu0");
    crumb_model_get_info(cpu, &info);
    n_launches = n_outside = 0;
    assert_true(pair_compare_prompt(name, cpu, gpu, CRUMB_KV_F16, 1, 2, 1));
    assert_true(n_launches > n_outside + HEAD);
    const size_t of_layers = n_launches - n_outside - HEAD;
    printf("%s: %zu launches a token, %zu of %u layers\n", name, n_launches, of_layers, info.n_layers);
    assert_true(of_layers <= most_of_layer(name) * info.n_layers);
    crumb_model_close(gpu);
    crumb_model_close(cpu);
}

static void tokens_are_few_launches(void **state) {
    (void)state;
    size_t n;
    fixture *all = fixtures_load(&n);
    for (size_t i = 0; i < n; i++) check_model(all[i].name, all[i].model_path);
    fixtures_free(all, n);
    assert_true(n >= 18);
    check_model("llama-q4_0+order", "tests/oracle/checkpoints/llama-q4_0+order");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_are_few_launches)};
    if (argc != 2) {
        fprintf(stderr, "usage: test_cl_launches TARGET\n");
        return 2;
    }
    pair_set_target(argv[1]);
    pair_listen = count_launches;
    if (!pair_find_device()) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
