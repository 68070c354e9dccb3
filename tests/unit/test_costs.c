/* host/engine/costs: what the scheduler is told of a model, with its weights and without. */
#include "host/engine/costs.h"
#include "host/engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_cost_layer *layers_of(const crumb_network *net, crumb_kv_type kv) {
    crumb_cost_layer *layers = calloc((size_t)net->hparams.num_hidden_layers + 1, sizeof *layers);
    assert_non_null(layers);
    crumb_engine_cost_layers(net, kv, layers);
    return layers;
}

static void a_known_shape_has_known_numbers(void **state) {
    (void)state;
    crumb_network net;
    char name[256];
    assert_int_equal(crumb_engine_outline_open(NULL, "llama3-8b:u2", &net, name, NULL), CRUMB_OK);
    assert_string_equal(name, "llama3-8b:u2");
    crumb_cost_layer *layers = layers_of(&net, CRUMB_KV_F16), *q8 = layers_of(&net, CRUMB_KV_Q8), *head = &layers[32];
    const uint64_t macs = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336), rows = 3 * 4096 + 2 * 1024 + 2 * 14336;
    for (int i = 0; i < 32; i++) {
        assert_int_equal(layers[i].macs[CRUMB_WORK_U2], macs);
        assert_int_equal(layers[i].weight_bytes[CRUMB_WORK_U2], macs / 4 + 4 * rows); /* a scale for each row */
        assert_int_equal(layers[i].kv_bytes, 2 * 1024 * 2);
        assert_int_equal(q8[i].kv_bytes, 2 * 1024 * 34 / 32);
        assert_int_equal(layers[i].attention_macs, 2 * 4096);
        assert_int_equal(layers[i].vector_bytes, 4 * 4096);
        assert_false(layers[i].head);
    }
    assert_true(head->head);
    assert_int_equal(head->weight_bytes[CRUMB_WORK_F16], 128256 * 4096 * 2);
    assert_int_equal(layers[0].resident_bytes, layers[1].resident_bytes + head->resident_bytes); /* the embedding */
    free(layers);
    free(q8);
    crumb_engine_outline_close(&net);
}

/* Tied: the head is the embedding, and exists once. */
static void a_file_without_its_weights_costs_what_it_costs_with_them(void **state) {
    (void)state;
    crumb_model_params params = crumb_model_params_default();
    crumb_model *m;
    crumb_network net;
    char name[256];
    params.device = "cpu";
    assert_int_equal(crumb_model_open_embedded(&params, &m, NULL), CRUMB_OK);
    assert_int_equal(crumb_engine_outline_open(NULL, NULL, &net, name, NULL), CRUMB_OK);
    crumb_cost_layer *with = layers_of(&m->net, CRUMB_KV_F16), *without = layers_of(&net, CRUMB_KV_F16);
    uint64_t macs = 0;
    assert_int_equal(net.hparams.num_hidden_layers, m->net.hparams.num_hidden_layers);
    for (uint32_t i = 0; i <= net.hparams.num_hidden_layers; i++) {
        assert_memory_equal(with[i].macs, without[i].macs, sizeof with[i].macs);
        assert_int_equal(with[i].kv_bytes, without[i].kv_bytes);
        for (int w = 0; w < CRUMB_WORK_COUNT && !with[i].head; w++) macs += with[i].macs[w];
        for (int w = 0; w < CRUMB_WORK_COUNT; w++) /* the CPU's layout of ternary weights is smaller */
            assert_true(with[i].weight_bytes[w] <= without[i].weight_bytes[w] + without[i].weight_bytes[w] / 8);
    }
    assert_int_equal(macs, crumb_engine_layer_macs(m));
    free(with);
    free(without);
    crumb_engine_outline_close(&net);
    crumb_model_close(m);
}

static void what_is_no_model_is_refused(void **state) {
    (void)state;
    crumb_network net;
    crumb_error err = {0};
    char name[256];
    assert_int_equal(crumb_engine_outline_open(NULL, "llama3-8b:u9", &net, name, &err), CRUMB_ERR_ARGUMENT);
    crumb_engine_outline_close(&net);
    assert_int_equal(crumb_engine_outline_open("/nonexistent/x", NULL, &net, name, &err), CRUMB_ERR_IO);
    crumb_engine_outline_close(&net);
    assert_int_equal(crumb_engine_outline_open("README.md", NULL, &net, name, &err), CRUMB_ERR_FORMAT);
    assert_non_null(strstr(err.message, "README.md"));
    crumb_engine_outline_close(&net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_shape_has_known_numbers),
        cmocka_unit_test(a_file_without_its_weights_costs_what_it_costs_with_them),
        cmocka_unit_test(what_is_no_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
