#include "tools/crumb/suite_kernels.h"

#include "cpu/suite.h"

#include <string.h>

size_t suite_pick(const suite_state *s, const crumb_kernel_problem *p, const char *tier) {
    crumb_isa isa;
    if (!tier) return kernels_chosen(&s->choice, p);
    return crumb_isa_parse(tier, &isa) ? crumb_suite_chosen_in(s->choice.machine, isa, p) : SIZE_MAX;
}

size_t suite_lower_tiers(const suite_state *s, const crumb_kernel_problem *p, const char *out[SUITE_LOWER_TIERS]) {
    static const char *const lower[SUITE_LOWER_TIERS] = {"avxvnni", "avx512ymm", "avx2"};
    size_t seen[1 + SUITE_LOWER_TIERS] = {suite_pick(s, p, s->tier)}, n = 0;
    for (size_t i = 0; i < SUITE_LOWER_TIERS && !s->tier; i++) {
        crumb_isa isa;
        if (!crumb_isa_parse(lower[i], &isa) || !crumb_isa_available(isa)) continue;
        const size_t kernel = suite_pick(s, p, lower[i]);
        bool is_new = kernel != SIZE_MAX; /* look-ups serve several tiers */
        for (size_t j = 0; j <= n; j++) is_new &= kernel != seen[j];
        if (!is_new) continue;
        out[n++] = lower[i];
        seen[n] = kernel;
    }
    return n;
}

crumb_kernel_problem suite_problem(const suite_state *s, const char *format, uint32_t group, kernels_shape shape) {
    const crumb_kernel_info any = {.acts = 0};
    return kernels_problem(&s->choice, &any, crumb_kernel_format_find(format), group, shape);
}

crumb_kernel_problem suite_usual_problem(const suite_state *s, const char *format, kernels_shape shape) {
    const uint32_t group = crumb_kernel_format_find(format)->group;
    return suite_problem(s, format, group && shape.k % group == 0 ? group : 0, shape);
}

crumb_status suite_turns(const suite_state *s, const crumb_kernel_problem *p, size_t first, size_t second,
                         size_t rounds, kernels_turns *out, crumb_error *err) {
    CRUMB_TRY(kernels_turns_create(&s->choice, p, rounds, true, out, err));
    CRUMB_TRY(kernels_turns_add(out, first, "", err));
    if (second != SIZE_MAX) CRUMB_TRY(kernels_turns_add(out, second, "", err));
    return kernels_turns_run(out, err);
}

void suite_alone(suite_row *row, const kernels_turns *turns, size_t over, size_t under, turns_measure measure) {
    row->n_rounds = turns->most_reorder > 0 ? turns->rounds : 0;
    row->alone_ratio = kernels_turns_alone(turns, over, under, measure, &row->n_alone);
}

crumb_status suite_skip(suite_state *s, suite_row *row, const char *why, crumb_error *err) {
    row->skipped = true;
    snprintf(row->note, sizeof row->note, "%s", why);
    return suite_row_add(s, row, err);
}

const char *suite_weights_name(const char *format, char out[16]) {
    const bool number = format[0] >= '0' && format[0] <= '9';
    snprintf(out, 16, "%s%s", strcmp(format, "1.58") == 0 ? "ternary" : format,
             number && strcmp(format, "1.58") != 0 ? "-bit" : "");
    return out;
}
