#include "scheduler/device_sim.h"

#include <math.h>

/* About normal, mean 0, deviation 1: twelve uniform numbers. */
static double noise(uint64_t *state) {
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) * 0x1p-53;
    }
    return sum;
}

static double slowness(const crumb_sim_device *d, uint32_t token) {
    return d->slower > 1 && token >= d->from && token < d->until ? d->slower : 1;
}

/* ns that both need for their bytes where they draw on one memory: until the first is done each gets at most half of
 * it, or what the other leaves; then the second reads alone. */
static void read_shared(double shared, const double bytes[2], const double gb_s[2], double ns[2]) {
    double rate[2];
    for (int i = 0; i < 2; i++) {
        const double left = shared - (gb_s[1 - i] < shared / 2 ? gb_s[1 - i] : shared / 2);
        rate[i] = gb_s[i] < left ? gb_s[i] : left;
        ns[i] = bytes[i] / rate[i];
    }
    const int last = ns[1] > ns[0], first = 1 - last;
    const double alone = gb_s[last] < shared ? gb_s[last] : shared;
    ns[last] = ns[first] + (bytes[last] - ns[first] * rate[last]) / alone;
}

crumb_sim_token crumb_sim_run_token(const crumb_sim_machine *m, uint32_t token, double share, uint64_t *state) {
    const double bytes[2] = {share * m->token_bytes, (1 - share) * m->token_bytes};
    double gb_s[2], ns[2];
    for (int i = 0; i < 2; i++) {
        gb_s[i] = m->device[i].gb_s / slowness(&m->device[i], token);
        if (m->shared_gb_s > 0 && gb_s[i] > m->shared_gb_s) gb_s[i] = m->shared_gb_s;
        ns[i] = bytes[i] / gb_s[i];
    }
    if (m->shared_gb_s > 0 && share > 0 && share < 1) read_shared(m->shared_gb_s, bytes, gb_s, ns);
    for (int i = 0; i < 2; i++) {
        const double factor =
            fmax(0.5, 1 + m->device[i].noise * noise(state)); /* drawn in any case: same for any share */
        ns[i] = bytes[i] > 0 ? (ns[i] + m->device[i].fixed_ns) * factor : 0;
    }
    const double wall = fmax(ns[0], ns[1]) + (share > 0 && share < 1 ? m->exchange_ns : 0);
    return (crumb_sim_token){ns[0], ns[1], wall};
}

/* Adds what a token takes either device alone, with the noise that the split one has. */
static void add_alone(const crumb_sim_machine *m, uint32_t token, uint64_t state, crumb_sim_result *out) {
    uint64_t same[2] = {state, state};
    out->first_ns += crumb_sim_run_token(m, token, 1, &same[0]).wall_ns;
    out->second_ns += crumb_sim_run_token(m, token, 0, &same[1]).wall_ns;
}

void crumb_sim_decode(const crumb_sim_machine *m, const crumb_split_params *params, uint32_t n_tokens,
                      crumb_sim_token_fn *each, void *user, crumb_sim_result *out) {
    crumb_split split;
    uint64_t state = m->seed;
    crumb_split_init(&split, params);
    *out = (crumb_sim_result){.total_ns = 0};
    uint32_t prepared = split.share;
    for (uint32_t i = 0; i < n_tokens; i++) {
        const uint32_t share = crumb_split_next(&split);
        const bool both = share > 0 && share < params->n_steps;
        if (both && share != prepared) {
            crumb_split_spent(&split, m->change_ns);
            out->total_ns += m->change_ns;
            out->changes_ns += m->change_ns;
            prepared = share;
        }
        add_alone(m, i, state, out);
        const crumb_sim_token t = crumb_sim_run_token(m, i, (double)share / params->n_steps, &state);
        out->total_ns += t.wall_ns;
        out->n_split += both;
        crumb_split_done(&split, t.first_ns, t.second_ns, t.wall_ns);
        if (each) each(user, i, share, &t);
    }
    out->n_changes = split.n_changes;
    out->on = crumb_split_is_on(&split);
    out->share = (double)split.share / params->n_steps;
}

void crumb_sim_decode_fixed(const crumb_sim_machine *m, double share, uint32_t n_tokens, crumb_sim_result *out) {
    uint64_t state = m->seed;
    *out = (crumb_sim_result){.n_split = share > 0 && share < 1 ? n_tokens : 0, .on = true, .share = share};
    for (uint32_t i = 0; i < n_tokens; i++) {
        add_alone(m, i, state, out);
        out->total_ns += crumb_sim_run_token(m, i, share, &state).wall_ns;
    }
}
