/* crumb plan: which device of a machine would compute which layer, how long it would take, and why. */
#include "tools/crumb/plan.h"

#include "host/base/memory.h"
#include "host/engine/costs.h"
#include "host/engine/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIMULATED_TOKENS = 512,
    CHANGE_TOKENS = 4, /* that a change of the share takes as long as */
    MAX_FIGURES = 4096
};

/* ---- the machine --------------------------------------------------------------------------------------------- */

static void keep_figure(void *user, const char *key, double value, const char *source) {
    plan_machine *m = user;
    if (m->n_figures == m->capacity && m->capacity < MAX_FIGURES) {
        const size_t larger = m->capacity ? 2 * m->capacity : 128;
        plan_figure *grown = realloc(m->figures, larger * sizeof *grown);
        if (!grown) {
            m->out_of_memory = true;
            return;
        }
        m->figures = grown;
        m->capacity = larger;
    }
    if (m->n_figures == m->capacity) return;
    plan_figure *f = &m->figures[m->n_figures++];
    snprintf(f->key, sizeof f->key, "%s", key);
    snprintf(f->source, sizeof f->source, "%s", source);
    f->value = value;
}

bool plan_is_estimated(const plan_figure *f) {
    return strncmp(f->source, "estimated", 9) == 0;
}

crumb_status plan_machine_open(const char *name, const char *kernels, plan_machine *out, crumb_error *err) {
    uint64_t id;
    *out = (plan_machine){.figures = NULL};
    crumb_status status = crumb_engine_profile_open(name, kernels, keep_figure, out, &out->profile, &id, err);
    if (status == CRUMB_OK && out->out_of_memory)
        status = crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for the figures of a profile");
    if (status == CRUMB_OK && strcmp(name, "this") == 0) {
        crumb_history history;
        crumb_engine_history_read(&out->profile, id, &history);
        crumb_history_correct(&history, &out->correction);
    }
    if (status != CRUMB_OK) plan_machine_close(out);
    return status;
}

void plan_machine_close(plan_machine *m) {
    free(m->figures);
    *m = (plan_machine){.figures = NULL};
}

/* ---- the problem --------------------------------------------------------------------------------------------- */

/* "auto", or names joined by '+'. */
static crumb_status choose_devices(const char *names, const crumb_profile *machine, unsigned *out, crumb_error *err) {
    *out = 0;
    if (strcmp(names, "auto") == 0) return CRUMB_OK;
    for (const char *at = names;; at++) {
        char name[32];
        const size_t n = strcspn(at, "+");
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), at);
        const int device = crumb_profile_find(machine, name);
        if (device < 0)
            return crumb_fail(err, CRUMB_ERR_DEVICE, "machine '%s' has no device '%s'", machine->name, name);
        *out |= 1u << device;
        at += n;
        if (!*at) return CRUMB_OK;
    }
}

static crumb_status read_model(const cli_options *o, plan *p, crumb_error *err) {
    crumb_network net;
    crumb_kv_type kv_type;
    void *memory = NULL;
    CRUMB_TRY(cli_kv_type(o, &kv_type, err));
    if (o->model && o->plan_synthetic)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "a model and --synthetic: only one can be planned");
    CRUMB_TRY(crumb_engine_outline_open(o->model, o->plan_synthetic, &net, p->model, err));
    const uint32_t n = net.hparams.num_hidden_layers + 1;
    const crumb_status status = crumb_calloc(n, sizeof *p->layers, "a plan", &memory, err);
    if (status == CRUMB_OK) {
        p->layers = memory;
        p->problem.n_layers = n;
        crumb_engine_cost_layers(&net, kv_type, p->layers);
        for (int d = 0; d < CRUMB_PROFILE_MAX_DEVICES; d++)
            p->problem.scratch_bytes[d] = crumb_engine_scratch_bytes(&net.hparams, (uint32_t)o->n_ubatch);
    }
    crumb_engine_outline_close(&net);
    return status;
}

static crumb_status state_problem(const cli_options *o, plan *p, crumb_error *err) {
    CRUMB_TRY(read_model(o, p, err));
    CRUMB_TRY(plan_machine_open(o->profile, o->plan_kernels, &p->machine, err));
    CRUMB_TRY(choose_devices(o->device, &p->machine.profile, &p->problem.devices, err));
    CRUMB_TRY(cli_read_split(o->split, &p->problem.split, err));
    p->problem.machine = &p->machine.profile;
    p->problem.correction = &p->machine.correction;
    p->problem.whole_prefill = strcmp(o->plan_kernels, "crumb") == 0; /* as the engine has it */
    p->problem.layers = p->layers;
    p->problem.n_prompt = (uint32_t)o->plan_prompt;
    p->problem.n_generate = (uint32_t)o->n_predict;
    p->problem.n_ctx = (uint32_t)o->n_ctx;
    p->problem.n_batch = (uint32_t)o->n_ubatch;
    p->problem.gpu_layers = (int32_t)o->gpu_layers;
    return CRUMB_OK;
}

/* ---- decoding split, on virtual devices ------------------------------------------------------------------------ */

/* As measured since, where it has been. */
static crumb_profile_device decoding_device(const plan *p, size_t device, bool together) {
    double (*const factor)(const crumb_correction *, size_t, crumb_phase, crumb_span_kind) =
        together ? crumb_correction_together : crumb_correction_factor;
    return crumb_cost_corrected(&p->machine.profile.device[device],
                                factor(&p->machine.correction, device, CRUMB_PHASE_DECODE, CRUMB_SPAN_LAYERS));
}

/* Both as fast as the placement's figures say: what a device takes for a whole token alone is its time for bytes and
 * for launches. */
static crumb_sim_device virtual_device(const plan *p, size_t device, const crumb_cost_phase *phase) {
    const crumb_profile_device alone = decoding_device(p, device, false);
    crumb_cost sum = {.ns = 0}, one;
    for (uint32_t i = 0; i < p->problem.n_layers; i++) {
        crumb_cost_of_layer(&alone, &p->layers[i], phase, 1, false, &one);
        crumb_cost_add(&sum, &one);
    }
    return (crumb_sim_device){.gb_s = sum.bytes / (sum.ns - sum.launch_ns), .fixed_ns = sum.launch_ns};
}

/* Of its bandwidth, while the other device reads as well. */
static double kept_together(const plan *p, size_t device) {
    return decoding_device(p, device, true).together_gb_s / decoding_device(p, device, false).read_gb_s;
}

/* A share that was asked for stays; the predicted one is learned from, and left if it does not pay. */
static void simulate_split(plan *p) {
    const crumb_place_part *part = &p->placement.part[CRUMB_PHASE_DECODE][0];
    const crumb_cost *sum = &p->placement.sum[CRUMB_PHASE_DECODE];
    if (part->share >= 1) return;
    const crumb_cost_phase phase = {.n_rows = 1, .n_past = p->problem.n_prompt + p->problem.n_generate / 2};
    const crumb_profile_device *a = &p->machine.profile.device[part->device],
                               *b = &p->machine.profile.device[part->other];
    crumb_sim_machine m = {.device = {virtual_device(p, part->device, &phase), virtual_device(p, part->other, &phase)},
                           .token_bytes = sum->bytes,
                           .exchange_ns = sum->exchange_ns,
                           .seed = 1};
    if (a->kind != CRUMB_PROFILE_DISCRETE && b->kind != CRUMB_PROFILE_DISCRETE)
        m.shared_gb_s =
            m.device[0].gb_s * kept_together(p, part->device) + m.device[1].gb_s * kept_together(p, part->other);
    uint64_t state = 0; /* there is no noise */
    m.change_ns = CHANGE_TOKENS *
                  fmin(crumb_sim_run_token(&m, 0, 0, &state).wall_ns, crumb_sim_run_token(&m, 0, 1, &state).wall_ns);
    const crumb_split_params params = {.n_steps = CRUMB_SPLIT_STEPS,
                                       .share = (uint32_t)lround(part->share * CRUMB_SPLIT_STEPS),
                                       .alone = m.device[0].gb_s >= m.device[1].gb_s ? CRUMB_SPLIT_STEPS : 0,
                                       .settle = CRUMB_SPLIT_SETTLE,
                                       .change_ns = m.change_ns};
    p->n_simulated = SIMULATED_TOKENS;
    p->fixed = p->problem.split > 0;
    if (p->fixed)
        crumb_sim_decode_fixed(&m, part->share, p->n_simulated, &p->split);
    else
        crumb_sim_decode(&m, &params, p->n_simulated, NULL, NULL, &p->split);
    p->simulated = true;
}

/* ---- the subcommand -------------------------------------------------------------------------------------------- */

double plan_decode_tok_s(const plan *p) {
    return 1e9 / p->placement.sum[CRUMB_PHASE_DECODE].ns;
}

static void release(plan *p) {
    crumb_placement_free(&p->placement);
    plan_machine_close(&p->machine);
    free(p->layers);
    free(p);
}

static crumb_status make_plan(const cli_options *options, plan *p, crumb_error *err) {
    CRUMB_TRY(state_problem(options, p, err));
    CRUMB_TRY(crumb_place(&p->problem, &p->placement, err));
    simulate_split(p);
    if (options->json) return plan_print_json(p, err);
    plan_print_text(p);
    return CRUMB_OK;
}

int cli_plan(const cli_options *options) {
    crumb_error err = {0};
    if (strcmp(options->plan_kernels, "paper") == 0 && !options->model && !options->plan_synthetic)
        return plan_paper(options);
    plan *p = calloc(1, sizeof *p);
    crumb_status status = p ? make_plan(options, p, &err) : crumb_fail(&err, CRUMB_ERR_MEMORY, "no memory for a plan");
    if (p) release(p);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
