/* scheduler/profile: the machines that are part of crumb, texts of anyone's, and the paper's bandwidth model. */
#include "scheduler/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_profile load(const char *name, const char *kernels) {
    crumb_profile p;
    crumb_error err = {0};
    size_t n;
    const char *text = crumb_profile_embedded(name, &n);
    assert_non_null(text);
    if (crumb_profile_parse(text, n, name, kernels, NULL, NULL, &p, &err) != CRUMB_OK) fail_msg("%s", err.message);
    return p;
}

static void count_figure(void *user, const char *key, double value, const char *source) {
    assert_true(strlen(key) > 4 && value >= 0);
    assert_true(strlen(source) > 5);
    ++*(size_t *)user;
}

static void every_machine_has_figures_with_sources(void **state) {
    (void)state;
    for (const char *const *name = crumb_profile_names; *name; name++) {
        crumb_profile p;
        size_t n, n_figures = 0;
        const char *text = crumb_profile_embedded(*name, &n);
        assert_int_equal(crumb_profile_parse(text, n, *name, "crumb", count_figure, &n_figures, &p, NULL), CRUMB_OK);
        assert_string_equal(p.name, *name);
        assert_true(n_figures > 20 * p.n_devices);
        for (size_t d = 0; d < p.n_devices; d++)
            for (int w = 0; w < CRUMB_WORK_COUNT; w++) assert_true(p.device[d].gops[w] > 0 && p.device[d].share[w] > 0);
    }
    size_t n;
    assert_null(crumb_profile_embedded("nothing", &n));
    assert_int_equal(n, 0);
}

static void near(double value, double wanted, double part) {
    if (value < wanted * (1 - part) || value > wanted * (1 + part)) fail_msg("%g is not near %g", value, wanted);
}

/* Section IV-B of the paper: modelled and observed bandwidth of 1 and 2 bits. */
static void bandwidth_follows_the_papers_model(void **state) {
    (void)state;
    crumb_profile lnl = load("lnl", "paper"), arlh = load("arlh", "paper"), arl = load("arl", "paper");
    for (int w = 0; w < CRUMB_WORK_COUNT; w++)
        lnl.device[0].share[w] = arlh.device[0].share[w] = arl.device[0].share[w] = 1;
    near(crumb_profile_work_gb_s(&lnl.device[0], CRUMB_WORK_U1, 97), 37, 0.09);
    near(crumb_profile_work_gb_s(&arlh.device[0], CRUMB_WORK_U1, 75), 55, 0.05);
    near(crumb_profile_work_gb_s(&arl.device[0], CRUMB_WORK_U1, 98), 98, 0.05); /* the E-cores stand at the knee */
    near(crumb_profile_work_gb_s(&lnl.device[0], CRUMB_WORK_U2, 97), 97, 1e-9);
    near(crumb_profile_work_gb_s(&lnl.device[0], CRUMB_WORK_U2, 48.5), 48.5, 1e-9);
    near(crumb_profile_work_gb_s(&lnl.device[1], CRUMB_WORK_U2, 97), 0.8 * 97, 1e-9);
}

/* The paper has run nothing on an A770. */
static void devices_without_the_kernels_are_left_out(void **state) {
    (void)state;
    const crumb_profile paper = load("a770", "paper"), own = load("a770", "crumb");
    assert_int_equal(paper.n_devices, 1);
    assert_string_equal(paper.left_out, "gpu0");
    assert_int_equal(own.n_devices, 2);
    assert_string_equal(own.left_out, "");
}

/* A sound text, of which tests damage a part. */
static const char sound[] =
    "{\"schema_version\":1,\"name\":\"x\",\"detail\":\"y\",\"devices\":["
    "{\"name\":\"cpu\",\"kind\":\"processor\",\"detail\":\"c\",\"memory_gb\":[16,\"s\"],\"read_gb_s\":[90,\"s\"],"
    "\"together_gb_s\":[45,\"s\"],\"exchange_us\":[1,\"s\"],"
    "\"cores\":[{\"kind\":\"P\",\"count\":[4,\"s\"],\"clock_ghz\":[4,\"s\"]}],"
    "\"kernels\":{\"crumb\":{\"launch_us\":[1,\"s\"],\"layer_launches\":[8,\"s\"],\"head_launches\":[2,\"s\"],"
    "\"work\":{\"u2\":{\"gops\":[100,\"s\"],\"share\":[0.5,\"s\"]}},\"gamma\":{\"P\":{\"u2\":[1.25,\"s\"]}}}}},"
    "{\"name\":\"gpu0\",\"kind\":\"discrete\",\"detail\":\"g\",\"memory_gb\":[8,\"s\"],\"read_gb_s\":[400,\"s\"],"
    "\"together_gb_s\":[400,\"s\"],\"transfer_gb_s\":[13,\"s\"],\"transfer_us\":[10,\"s\"],\"exchange_us\":[9,\"s\"],"
    "\"kernels\":{\"crumb\":{\"launch_us\":[2,\"s\"],\"layer_launches\":[7,\"s\"],\"head_launches\":[2,\"s\"],"
    "\"work\":{\"u2\":{\"gops\":[1e5,\"s\"],\"share\":[0.8,\"s\"]}}}}}]}";

/* The sound text with the first `from` replaced. */
static void damaged(const char *from, const char *to, char out[4096]) {
    const char *at = strstr(sound, from);
    assert_non_null(at);
    snprintf(out, 4096, "%.*s%s%s", (int)(at - sound), sound, to, at + strlen(from));
}

static void errors_name_the_key(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"{\"schema", "[{\"schema", "not JSON"},
        {"\"schema_version\":1", "\"schema_version\":2", "'schema_version'"},
        {"\"name\":\"x\",", "", "'name'"},
        {"\"detail\":\"c\"", "\"detail\":\"\\u001b[31m\"", "'cpu.detail'"},
        {"\"name\":\"cpu\"", "\"name\":\"a-name-that-is-far-too-long\"", "'name'"},
        {"\"name\":\"gpu0\"", "\"name\":\"cpu\"", "two of the name 'cpu'"},
        {"\"kind\":\"processor\"", "\"kind\":\"npu\"", "'cpu.kind'"},
        {"\"kind\":\"processor\"", "\"kind\":\"integrated\"", "the processor"},
        {"\"kind\":\"discrete\"", "\"kind\":\"processor\"", "the processor"},
        {"\"memory_gb\":[16,\"s\"],", "", "'cpu.memory_gb': is missing"},
        {"[90,\"s\"]", "90", "'cpu.read_gb_s': is not [value"},
        {"[90,\"s\"]", "[90,\"\"]", "'cpu.read_gb_s': is not [value"},
        {"[90,\"s\"]", "[-1,\"s\"]", "'cpu.read_gb_s': -1 is not in"},
        {"[90,\"s\"]", "[1e400,\"s\"]", "'cpu.read_gb_s'"},
        {"[45,\"s\"]", "[95,\"s\"]", "95 GB/s together"},
        {"\"exchange_us\":[1,\"s\"],", "\"exchange\":[1,\"s\"],", "'cpu.exchange': is not known"},
        {"\"count\":[4,\"s\"]", "\"count\":[0,\"s\"]", "'cpu.cores.count'"},
        {"\"u2\":{\"gops\"", "\"u7\":{\"gops\"", "'cpu.kernels.crumb.work.u7'"},
        {"\"share\":[0.5", "\"share\":[1.5", "'cpu.kernels.crumb.work.u2.share'"},
        {"\"gamma\":{\"P\"", "\"gamma\":{\"E\"", "'cpu.kernels.crumb.gamma.E'"},
        {"\"crumb\":{", "\"other\":{", "'cpu.kernels.crumb': is missing"},
        {"\"transfer_gb_s\":[13,\"s\"],", "", "'gpu0.transfer_gb_s'"},
        {"\"devices\":[", "\"devices\":[1,", "'devices'"},
    };
    crumb_profile p;
    crumb_error err = {0};
    assert_int_equal(crumb_profile_parse(sound, strlen(sound), "f.json", "crumb", NULL, NULL, &p, &err), CRUMB_OK);
    assert_int_equal(p.n_devices, 2);
    assert_int_equal(crumb_profile_find(&p, "gpu0"), 1);
    assert_int_equal(crumb_profile_find(&p, "gpu1"), -1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096];
        damaged(cases[i].from, cases[i].to, text);
        err = (crumb_error){0};
        assert_int_equal(crumb_profile_parse(text, strlen(text), "f.json", "crumb", NULL, NULL, &p, &err),
                         CRUMB_ERR_FORMAT);
        assert_non_null(strstr(err.message, "f.json"));
        if (!strstr(err.message, cases[i].says)) fail_msg("'%s' does not say '%s'", err.message, cases[i].says);
    }
}

/* Cut anywhere, in memory that ends there. */
static void no_cut_text_is_read_past_its_end(void **state) {
    (void)state;
    for (size_t n = 0; n < strlen(sound); n++) {
        char *text = malloc(n ? n : 1);
        crumb_profile p;
        memcpy(text, sound, n);
        assert_int_equal(crumb_profile_parse(text, n, "cut", "crumb", NULL, NULL, &p, NULL), CRUMB_ERR_FORMAT);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_machine_has_figures_with_sources),
        cmocka_unit_test(bandwidth_follows_the_papers_model),
        cmocka_unit_test(devices_without_the_kernels_are_left_out),
        cmocka_unit_test(errors_name_the_key),
        cmocka_unit_test(no_cut_text_is_read_past_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
