/* host/engine/shares: layers that two devices share meet at most four times each, of every architecture, however they
 * are divided. */
#include "host/engine/engine.h"
#include "host/engine/shares.h"
#include "tests/model/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MOST = 4 };

static crumb_error err;

/* Beside the layers' the logits are one exchange, and the embedding where the second device alone does it. */
static void check_part(const crumb_share_plan *plan, int device, uint32_t n_layers) {
    uint32_t signals = 0, waits = 0;
    crumb_share_part sizes, part;
    uint64_t waited;
    assert_int_equal(crumb_share_make(plan, device, NULL, &sizes, &err), CRUMB_OK);
    crumb_share_memory memory = {.values = calloc(sizes.n_floats + 1, sizeof(float)),
                                 .flags = calloc(2 * sizes.n_exchanges + 1, CRUMB_SHARE_FLAG_BYTES),
                                 .waited = {&waited, &waited}};
    assert_true(memory.values && memory.flags);
    assert_int_equal(crumb_share_make(plan, device, &memory, &part, &err), CRUMB_OK);
    for (size_t i = 0; i < part.n_ops; i++) {
        signals += part.ops[i].kind == CRUMB_OP_SIGNAL;
        waits += part.ops[i].kind == CRUMB_OP_WAIT;
    }
    assert_in_range(signals, 1, MOST * n_layers + 1 + plan->second_embeds);
    assert_int_equal(signals, waits);
    assert_int_equal(signals, part.n_exchanges);
    crumb_share_free(&sizes);
    crumb_share_free(&part);
    free(memory.values);
    free(memory.flags);
}

static void four_a_layer(void **state) {
    size_t n, n_models = 0;
    fixture *all = fixtures_load(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        crumb_model_params params = crumb_model_params_default();
        crumb_model *m;
        params.device = params.target = "cpu";
        params.n_threads = 1;
        assert_int_equal(crumb_model_open(all[i].model_path, &params, &m, &err), CRUMB_OK);
        const crumb_hparams *h = &m->net.hparams;
        crumb_graph whole;
        crumb_graph_init(&whole, CRUMB_ACTIVATION_AUTO, &err);
        const crumb_value logits = crumb_network_span(&m->net, &whole, 0, h->num_hidden_layers + 1);
        crumb_share_plan plan = {.whole = &whole,
                                 .result = logits,
                                 .heads = crumb_share_heads(h, 0.5),
                                 .share = 0.5,
                                 .max_rows = 4,
                                 .max_outputs = 1};
        crumb_share_part sizes;
        const crumb_status status = crumb_share_make(&plan, 0, NULL, &sizes, &err);
        crumb_share_free(&sizes);
        if (status != CRUMB_ERR_UNSUPPORTED) { /* heads that are no whole tiles */
            for (int second = 0; second < 2; second++) {
                plan.second_embeds = second;
                for (int device = 0; device < 2; device++) check_part(&plan, device, h->num_hidden_layers);
            }
            n_models++;
        }
        crumb_graph_free(&whole);
        crumb_model_close(m);
    }
    fixtures_free(all, n);
    print_message("  %zu models are divided\n", n_models);
    assert_true(n_models >= 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(four_a_layer)};
    return cmocka_run_group_tests_name("exchanges", tests, NULL, NULL);
}
