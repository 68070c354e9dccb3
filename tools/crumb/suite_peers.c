/* crumb bench --suite: what is wanted of a model's speed beside other programs'. crumb does not run these: the rows say
 * which command does, in turns with it. */
#include "tools/crumb/suite.h"
#include "tools/crumb/suite_kernels.h"

#include <stdio.h>

static const struct peer_target {
    const char *case_name, *model, *peer; /* case_name: as tools/compare-peers.py --only has it; model: its title */
    const char *more;                     /* what else that is given */
    double decoding, prompt;              /* crumb's speed over the peer's */
} targets[] = {
    {"smollm2", "SmolLM2-135M Q4_1", "llama.cpp", "", 2, 6},
    {"ternary", "ternary 1.26B, f16 head", "llama.cpp", "", 2, 4},
    {"ternary8", "ternary 1.26B, 8-bit head", "llama.cpp", "", 2, 4},
    {"ternary", "ternary 1.26B, f16 head", "bitnet.cpp", " --peer bitnet.cpp:I2_S=FOLDER", 2, 4},
    {"ternary8", "ternary 1.26B, 8-bit head", "bitnet.cpp", " --peer bitnet.cpp:I2_S=FOLDER", 2, 4},
    {"ternary", "ternary 1.26B, f16 head", "ik_llama.cpp", " --peer ik_llama.cpp:IQ2_BN=FOLDER", 2, 1.3},
    {"ternary8", "ternary 1.26B, 8-bit head", "ik_llama.cpp", " --peer ik_llama.cpp:IQ2_BN=FOLDER", 2, 1.3},
    {"smollm2", "SmolLM2-135M Q4_1", "llama.cpp, both on plain AVX2", " --avx2", 2, 1.3},
    {"ternary", "ternary 1.26B, f16 head", "llama.cpp, both on plain AVX2", " --avx2", 2, 1.3},
    {"ternary8", "ternary 1.26B, 8-bit head", "llama.cpp, both on plain AVX2", " --avx2", 2, 1.3},
};

static crumb_status peer_row(suite_state *s, const struct peer_target *t, const char *test, double wanted,
                             crumb_error *err) {
    char how[160];
    suite_row row = {.section = "peers", .wanted = wanted, .factor = true};
    snprintf(row.what, sizeof row.what, "%s, %s, beside %s", t->model, test, t->peer);
    snprintf(how, sizeof how, "skipped: by tools/compare-peers.py --only %s%s", t->case_name, t->more);
    return suite_skip(s, &row, how, err);
}

crumb_status suite_peers(suite_state *s, crumb_error *err) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (!suite_case(s, "peers/%s/%s", targets[i].case_name, targets[i].peer)) continue;
        CRUMB_TRY(peer_row(s, &targets[i], "decoding", targets[i].decoding, err));
        CRUMB_TRY(peer_row(s, &targets[i], "reading a prompt", targets[i].prompt, err));
    }
    return CRUMB_OK;
}
