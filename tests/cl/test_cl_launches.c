/* Launches of a decoded token of each kind of model, with the choices that are made for a GPU, whose results are the
 * CPU's by the rule of test_cl_models: each launch costs the host as much as any other, whatever it computes.
 *
 * usage: test_cl_launches TARGET   TARGET as in --target: cl:RUNG, of a device that is a GPU, or claims to be one.
 * Exits with 77 where there is none. */
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

/* What a layer and the head take at most; cl/README.md ("Launches of a layer") says why some take more than 8. */
typedef struct limit {
    const char *part, *kind; /* of a model's name; what it has */
    size_t layer, head;
} limit;
static const limit limits[] = {{"bitnet-f32", "floats", 15, 2}, {"-f32", "floats", 13, 2},  {"-bf16", "floats", 13, 2},
                               {"-f16", "floats", 14, 2},       {"+order", "order", 15, 2}, {"", "low bits", 8, 1}};

static const limit *limit_of(const char *name) {
    const limit *l = limits;
    while (!strstr(name, l->part)) l++;
    return l;
}

/* The first model of its architecture and kind? */
static bool is_new(const char *kind, const char *architecture) {
    static char known[32][48];
    char key[48];
    size_t i = 0;
    snprintf(key, sizeof key, "%.15s %.30s", kind, architecture);
    while (i < 32 && known[i][0] && strcmp(known[i], key) != 0) i++;
    assert_true(i < 32);
    const bool added = !known[i][0];
    memcpy(known[i], key, sizeof key);
    return added;
}

/* Returns whether the model has been counted. */
static bool check_model(const char *name, const char *path, const limit *most) {
    crumb_model_info info;
    crumb_model *cpu = pair_open(path, "cpu");
    crumb_model_get_info(cpu, &info);
    const bool counts = is_new(most->kind, info.architecture);
    if (counts) {
        crumb_model *gpu = pair_open(path, "gpu0");
        n_launches = n_outside = 0;
        assert_true(pair_compare_prompt(name, cpu, gpu, CRUMB_KV_F16, 1, 2, 1));
        assert_true(n_launches > n_outside + most->head);
        const size_t of_layers = n_launches - n_outside - most->head;
        printf("%s (%s, %s): %zu launches a token, %zu of %u layers; %zu of each at most\n", name, info.architecture,
               most->kind, n_launches, of_layers, info.n_layers, most->layer);
        assert_true(of_layers <= most->layer * info.n_layers);
        crumb_model_close(gpu);
    }
    crumb_model_close(cpu);
    return counts;
}

static void tokens_are_few_launches(void **state) {
    (void)state;
    static const char order[] = "llama-q4_0+order", order_path[] = "tests/oracle/checkpoints/llama-q4_0+order";
    size_t n, n_architectures = 0;
    fixture *all = fixtures_load(&n);
    for (size_t i = 0; i < n; i++) {
        const limit *most = limit_of(all[i].name);
        if (check_model(all[i].name, all[i].model_path, most) && most->layer == 8) n_architectures++;
    }
    fixtures_free(all, n);
    assert_true(n_architectures >= 6);
    assert_true(check_model(order, order_path, limit_of(order)));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_are_few_launches)};
    if (argc != 2) {
        fprintf(stderr, "usage: test_cl_launches TARGET\n");
        return 2;
    }
    pair_set_target(argv[1]);
    pair_listen = count_launches;
    if (!pair_has_device()) {
        fprintf(stderr, "skipped: %s\n", pair_err.message);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
