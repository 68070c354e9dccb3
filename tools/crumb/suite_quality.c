/* crumb bench --suite: what is wanted of quality. It takes a model and a text, which are no part of crumb: the rows say
 * which test measures it, and which command does so for any model. */
#include "tools/crumb/suite.h"
#include "tools/crumb/suite_kernels.h"

#include <stdio.h>

crumb_status suite_quality(suite_state *s, crumb_error *err) {
    static const char *const types[] = {"Q4_1", "Q8_0"};
    if (!suite_case(s, "quality/kv-q8")) return CRUMB_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char how[160];
        suite_row row = {.section = "quality", .wanted = 0.999};
        snprintf(row.what, sizeof row.what, "SmolLM2-135M %s, perplexity: f16 cache over 8-bit one", types[i]);
        snprintf(how, sizeof how,
                 "skipped: by ctest -R llama_perplexity_smollm2-%s; other models: crumb perplexity -m FILE -f TEXT "
                 "--kv-cache q8, and f16",
                 types[i]);
        CRUMB_TRY(suite_skip(s, &row, how, err));
    }
    return CRUMB_OK;
}
