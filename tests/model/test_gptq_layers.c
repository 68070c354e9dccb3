/* host/gptq/layers.h: layers computed piece by piece over a calibration text end where the whole model does
 * (tests/oracle's logits with float activations), and what follows a halt is computed with the weights as they then
 * are. */
#include "host/container/gguf_rows.h"
#include "host/gptq/layers.h"
#include "tests/model/fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static float *read_floats(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    float *out = calloc(t->dims[0] * crumb_gguf_n_rows(t), sizeof *out);
    assert_non_null(out);
    assert_int_equal(crumb_gguf_read_tensor(g, t, out, NULL), CRUMB_OK);
    return out;
}

static crumb_layers *open_layers(const crumb_gguf *g, const int32_t *tokens, uint64_t n_tokens, uint32_t length) {
    const crumb_layers_params params = {
        .from = g, .tokens = tokens, .n_tokens = n_tokens, .length = length, .n_threads = 2};
    crumb_layers *l;
    crumb_error err = {0};
    if (crumb_layers_open(&params, &l, &err) != CRUMB_OK) fail_msg("%s", err.message);
    return l;
}

/* Runs to the end of the last layer; each matrix's weights are multiplied by `factor` when their turn comes. *n_stops:
 * how often it halted. The result is valid until the layers are closed. */
static const float *run(crumb_layers *l, float factor, size_t *n_stops, uint64_t *width) {
    crumb_layers_stop stop = {0};
    crumb_error err = {0};
    *n_stops = 0;
    for (uint32_t i = 0; i < crumb_layers_count(l); i++) {
        if (crumb_layers_begin(l, &err) != CRUMB_OK) fail_msg("%s", err.message);
        for (;;) {
            if (crumb_layers_next(l, &stop, &err) != CRUMB_OK) fail_msg("%s", err.message);
            if (!stop.n) break;
            ++*n_stops;
            for (size_t p = 0; p < stop.n; p++) {
                assert_non_null(strstr(stop.tensor[p], ".weight"));
                for (uint64_t w = 0; w < stop.m[p] * stop.k; w++) stop.weights[p][w] *= factor;
            }
        }
    }
    *width = stop.k;
    return stop.x;
}

/* A token's logit, from the residual stream behind the last layer. */
static float logit_of(const float *x, const float *norm, const float *row, uint64_t width) {
    double squares = 0, sum = 0;
    for (uint64_t i = 0; i < width; i++) squares += (double)x[i] * (double)x[i];
    const double scale = 1 / sqrt(squares / (double)width + 1e-5);
    for (uint64_t i = 0; i < width; i++) sum += (double)x[i] * scale * (double)norm[i] * (double)row[i];
    return (float)sum;
}

static double worst_logit(const fixture *f, const crumb_gguf *g, const float *x, uint64_t width, uint64_t first) {
    const crumb_gguf_tensor *head = crumb_gguf_find_tensor(g, "output.weight");
    const float *expected = fixture_logits(f, CRUMB_ACTIVATION_FLOAT);
    float *rows = read_floats(g, head ? head : crumb_gguf_find_tensor(g, "token_embd.weight"));
    float *norm = read_floats(g, crumb_gguf_find_tensor(g, "output_norm.weight"));
    double worst = 0;
    for (uint32_t t = 0; t < f->n_tokens; t++)
        for (uint32_t v = 0; v < f->n_vocab; v++)
            worst = fmax(worst, fabs((double)logit_of(x + (first + t) * width, norm, rows + v * width, width) -
                                     (double)expected[t * f->n_vocab + v]));
    free(rows), free(norm);
    return worst;
}

static void layers_end_where_the_model_does(void **state) {
    (void)state;
    size_t n, n_compared = 0;
    fixture *fixtures = fixtures_load(&n);
    for (size_t i = 0; i < n; i++) {
        const fixture *f = &fixtures[i];
        crumb_gguf *g;
        size_t n_stops;
        uint64_t width;
        crumb_error err = {0};
        if (!fixture_logits(f, CRUMB_ACTIVATION_FLOAT)) continue;
        if (crumb_gguf_open(f->model_path, &g, &err) != CRUMB_OK) fail_msg("%s", err.message);
        int32_t tokens[256]; /* the text twice, and a part of it: sequences that know nothing of each other */
        const uint32_t n_part = f->n_tokens / 2;
        assert_true(2 * f->n_tokens + n_part <= 256);
        for (uint32_t t = 0; t < 2 * f->n_tokens + n_part; t++) tokens[t] = f->tokens[t % f->n_tokens];
        crumb_layers *l = open_layers(g, tokens, 2 * f->n_tokens + n_part, f->n_tokens);
        const float *x = run(l, 1, &n_stops, &width);
        assert_int_equal(n_stops, 4 * crumb_layers_count(l));
        assert_memory_equal(x, x + f->n_tokens * width, f->n_tokens * width * sizeof *x);
        assert_memory_equal(x, x + 2 * f->n_tokens * width, n_part * width * sizeof *x);
        const double worst = worst_logit(f, g, x, width, 0);
        if (!(worst < 0.02)) fail_msg("%s: a logit is off by %g", f->name, worst);
        crumb_layers_close(l);
        crumb_gguf_close(g);
        n_compared++;
    }
    assert_true(n_compared > 10);
    fixtures_free(fixtures, n);
}

/* Without weights nothing is added to the embedding. */
static void changed_weights_are_computed_with(void **state) {
    (void)state;
    static const int32_t tokens[] = {3, 1, 4};
    crumb_gguf *g;
    size_t n_stops;
    uint64_t width;
    assert_int_equal(crumb_gguf_open("tests/oracle/models/llama-f16.gguf", &g, NULL), CRUMB_OK);
    float *embedding = read_floats(g, crumb_gguf_find_tensor(g, "token_embd.weight"));
    crumb_layers *l = open_layers(g, tokens, 3, 2);
    const float *x = run(l, 0, &n_stops, &width);
    for (int t = 0; t < 3; t++)
        assert_memory_equal(x + (uint64_t)t * width, embedding + (uint64_t)tokens[t] * width, width * sizeof *x);
    crumb_layers_close(l);
    crumb_gguf_close(g);
    free(embedding);
}

static bool always(void *user) {
    return *(bool *)user;
}

static void what_cannot_be_computed_is_refused(void **state) {
    (void)state;
    static const int32_t tokens[] = {3, 1 << 20};
    bool stop = true;
    crumb_gguf *g;
    crumb_layers *l;
    crumb_layers_stop halt;
    crumb_error err = {0};
    assert_int_equal(crumb_gguf_open("tests/oracle/models/llama-f16.gguf", &g, NULL), CRUMB_OK);
    crumb_layers_params params = {.from = g, .tokens = tokens, .n_tokens = 2, .length = 2, .n_threads = 1};
    assert_int_equal(crumb_layers_open(&params, &l, &err), CRUMB_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "no token 1048576"));
    params.n_tokens = 1;
    params.should_stop = always;
    params.should_stop_user = &stop;
    assert_int_equal(crumb_layers_open(&params, &l, &err), CRUMB_OK);
    assert_int_equal(crumb_layers_begin(l, &err), CRUMB_OK);
    assert_int_equal(crumb_layers_next(l, &halt, &err), CRUMB_ERR_INTERRUPTED);
    crumb_layers_close(l);
    crumb_gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_end_where_the_model_does),
        cmocka_unit_test(changed_weights_are_computed_with),
        cmocka_unit_test(what_cannot_be_computed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
