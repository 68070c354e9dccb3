#include "host/engine/advice.h"

#include "host/base/memory.h"
#include "host/engine/costs.h"
#include "host/engine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is asked ------------------------------------------------------------------------------------------- */

static crumb_status cost_layers(crumb_engine_advice *a, crumb_engine_outline_fn *outline, const void *source,
                                const crumb_model_params *params, crumb_error *err) {
    crumb_network net = {.arch = NULL};
    CRUMB_TRY(outline(source, &net, err));
    const crumb_hparams *h = &net.hparams;
    const crumb_engine_lengths lengths = crumb_engine_lengths_of(h, params);
    const uint32_t n = h->num_hidden_layers + 1;
    const crumb_status status = crumb_calloc(n, sizeof *a->layers, "a plan", (void **)&a->layers, err);
    if (status == CRUMB_OK) {
        crumb_engine_cost_layers(&net, params->kv_type, a->layers);
        a->problem = (crumb_place_problem){.machine = &a->machine,
                                           .layers = a->layers,
                                           .n_layers = n,
                                           .n_prompt = lengths.n_prompt,
                                           .n_generate = lengths.n_generate,
                                           .n_ctx = lengths.n_ctx,
                                           .n_batch = lengths.n_batch,
                                           .gpu_layers = params->n_gpu_layers,
                                           .split = params->n_gpu_layers < 0 ? params->split : 0,
                                           .whole_prefill = true,
                                           .correction = &a->correction};
        const uint64_t available = crumb_memory_available_bytes();
        a->problem.free_bytes[0] = available == UINT64_MAX ? 0 : available;
        for (int d = 0; d < CRUMB_PROFILE_MAX_DEVICES; d++)
            a->problem.scratch_bytes[d] = crumb_engine_scratch_bytes(h, lengths.n_batch);
        a->kv_type = params->kv_type;
    }
    crumb_engine_outline_close(&net);
    return status;
}

/* Without a profile there is none, and why. */
static crumb_status open_profile(crumb_engine_advice *a, const crumb_model_params *params, crumb_error *err) {
    const char *name = params->profile ? params->profile : "this";
    crumb_history history;
    crumb_error reason = {0};
    if (strcmp(name, "none") == 0) return snprintf(a->note, sizeof a->note, "--profile none"), CRUMB_OK;
    const crumb_status status = crumb_engine_profile_open(name, "crumb", NULL, NULL, &a->machine, &a->id, &reason);
    a->known = status == CRUMB_OK;
    a->learns = a->known && strcmp(name, "this") == 0;
    if (a->learns) {
        crumb_engine_history_read(&a->machine, a->id, &history);
        crumb_history_correct(&history, &a->correction);
    }
    if (a->known || strcmp(name, "this") == 0)
        return snprintf(a->note, sizeof a->note, "%.600s", reason.message), CRUMB_OK;
    return crumb_fail(err, status, "%s", reason.message);
}

/* ---- one GPU, or the best of several ------------------------------------------------------------------------------
 */

/* The devices of the profile that may be used beside, or instead of, this GPU (0: none). */
static unsigned devices_with(const crumb_engine_choice *choice, const crumb_model_params *params, int gpu) {
    const bool cpu = gpu <= 0 || choice->automatic || choice->with_cpu || params->n_gpu_layers >= 0;
    return (cpu ? 1u : 0u) | (gpu > 0 ? 1u << gpu : 0u);
}

/* Takes this GPU's placement where it is the first, or faster than the best so far. */
static bool consider(crumb_engine_advice *a, unsigned devices, int gpu, crumb_error *reason) {
    crumb_placement placement;
    crumb_place_problem problem = a->problem;
    problem.devices = devices;
    if (gpu <= 0) problem.split = 0;
    if (crumb_place(&problem, &placement, reason) != CRUMB_OK) return false;
    if (a->placement.n_layers && a->placement.total_ns <= placement.total_ns) {
        crumb_placement_free(&placement);
        return false;
    }
    crumb_placement_free(&a->placement);
    a->placement = placement;
    a->problem.devices = devices;
    a->gpu = gpu > 0 ? (uint8_t)gpu : 0;
    return true;
}

/* Those that are picked without being named. */
static void consider_all(crumb_engine_advice *a, const crumb_model_params *params, crumb_engine_choice *choice,
                         const crumb_engine_devices *all, crumb_error *reason) {
    for (size_t i = 0; i < all->n; i++) {
        const crumb_device_listing *l = &all->device[i].listing;
        const int gpu = crumb_profile_find(&a->machine, l->name);
        if (gpu <= 0 || *l->unusable || !l->intel || l->kind == CRUMB_DEVICE_PROCESSOR) continue;
        if (consider(a, devices_with(choice, params, gpu), gpu, reason)) choice->device = all->device[i];
    }
}

static crumb_status choose(crumb_engine_advice *a, const crumb_model_params *params, crumb_engine_choice *choice,
                           crumb_error *err) {
    const bool has_gpu = choice->device.backend != &crumb_backend_cpu;
    const int gpu = has_gpu ? crumb_profile_find(&a->machine, choice->device.name) : 0;
    crumb_error reason = {0};
    void *memory;
    snprintf(reason.message, sizeof reason.message, "profile '%s' has no figures for %s", a->machine.name,
             choice->device.name);
    if (gpu >= 0 && (!has_gpu || !choice->automatic)) consider(a, devices_with(choice, params, gpu), gpu, &reason);
    if (has_gpu && choice->automatic) {
        CRUMB_TRY(crumb_calloc(1, sizeof(crumb_engine_devices), "the devices", &memory, err));
        crumb_engine_devices_find(memory);
        consider_all(a, params, choice, memory, &reason);
        free(memory);
    }
    a->known = a->placement.n_layers > 0;
    if (!a->known) snprintf(a->note, sizeof a->note, "%.600s", reason.message);
    return CRUMB_OK;
}

static bool uses_gpu(const crumb_placement *p) {
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
        for (uint32_t i = 0; i < p->n_layers; i++)
            if (p->part[phase][i].device != 0) return true;
    return false;
}

/* A placement that needs no GPU opens none. */
static void apply(const crumb_engine_advice *a, const crumb_model_params *params, crumb_engine_choice *choice) {
    char why[900];
    if (!a->known || !choice->automatic || params->n_gpu_layers >= 0 || choice->device.backend == &crumb_backend_cpu ||
        uses_gpu(&a->placement))
        return;
    snprintf(why, sizeof why, "none is predicted to be faster: %.500s", a->placement.why);
    crumb_engine_choose_cpu(choice, why);
}

/* ---- entries --------------------------------------------------------------------------------------------------- */

static crumb_status advise(crumb_engine_advice *a, const crumb_model_params *params, crumb_engine_outline_fn *outline,
                           const void *source, crumb_engine_choice *choice, crumb_error *err) {
    const char *pattern = getenv("CRUMB_PLACE");
    if (!params->explain && choice->device.backend == &crumb_backend_cpu) return CRUMB_OK;
    if (pattern && *pattern)
        return snprintf(a->note, sizeof a->note, "CRUMB_PLACE says which layers run where"), CRUMB_OK;
    CRUMB_TRY(open_profile(a, params, err));
    if (!a->known) return CRUMB_OK;
    CRUMB_TRY(cost_layers(a, outline, source, params, err));
    CRUMB_TRY(choose(a, params, choice, err));
    apply(a, params, choice);
    return CRUMB_OK;
}

crumb_status crumb_engine_advise(const crumb_model_params *params, crumb_engine_outline_fn *outline, const void *source,
                                 crumb_engine_choice *choice, crumb_engine_advice **out, crumb_error *err) {
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a plan", (void **)out, err));
    const crumb_status status = advise(*out, params, outline, source, choice, err);
    if (status == CRUMB_OK) return status;
    crumb_engine_advice_free(*out);
    *out = NULL;
    return status;
}

void crumb_engine_advice_free(crumb_engine_advice *a) {
    if (!a) return;
    crumb_placement_free(&a->placement);
    free(a->layers);
    free(a);
}

void crumb_engine_advice_leave_gpu(crumb_engine_advice *a, const char *reason) {
    char why[sizeof a->placement.why];
    crumb_error err = {0};
    if (!a->known) {
        snprintf(a->note, sizeof a->note, "%s", reason);
        return;
    }
    crumb_placement_free(&a->placement);
    a->gpu = 0;
    a->problem.devices = 1;
    a->problem.gpu_layers = -1;
    a->problem.split = 0;
    a->known = crumb_place(&a->problem, &a->placement, &err) == CRUMB_OK;
    if (!a->known) {
        snprintf(a->note, sizeof a->note, "%.300s; %.300s", reason, err.message);
        return;
    }
    memcpy(why, a->placement.why, sizeof why);
    snprintf(a->placement.why, sizeof a->placement.why, "%.300s; %.400s", reason, why);
}

crumb_status crumb_engine_advice_copy_to_cpu(const crumb_engine_advice *a, const char *reason,
                                             crumb_engine_advice **out, crumb_error *err) {
    crumb_engine_advice *copy;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *copy, "a plan", (void **)&copy, err));
    *copy = *a;
    copy->placement = (crumb_placement){.n_layers = 0};
    copy->layers = NULL;
    if (a->known) {
        const crumb_status status =
            crumb_calloc(a->problem.n_layers, sizeof *copy->layers, "a plan", (void **)&copy->layers, err);
        if (status != CRUMB_OK) return free(copy), status;
        memcpy(copy->layers, a->layers, a->problem.n_layers * sizeof *copy->layers);
        copy->problem.machine = &copy->machine;
        copy->problem.correction = &copy->correction;
        copy->problem.layers = copy->layers;
    }
    crumb_engine_advice_leave_gpu(copy, reason);
    *out = copy;
    return CRUMB_OK;
}

/* ---- predictions ----------------------------------------------------------------------------------------------- */

double crumb_engine_advice_predict(const crumb_engine_advice *a, size_t device, uint32_t first, uint32_t end,
                                   const crumb_cost_phase *phase) {
    double ns = 0;
    for (uint32_t i = first; i < end; i++) {
        crumb_cost cost;
        crumb_cost_of_layer(&a->machine.device[device], &a->layers[i], phase, 1, false, &cost);
        ns += cost.ns;
    }
    return ns;
}

bool crumb_engine_advice_gpu_decodes_faster(const crumb_engine_advice *a) {
    const crumb_cost_phase phase = {.n_rows = 1, .n_past = a->problem.n_prompt};
    double ns[2];
    for (int side = 0; side < 2; side++) {
        const size_t device = side ? a->gpu : 0;
        ns[side] = crumb_engine_advice_predict(a, device, 0, a->problem.n_layers, &phase) *
                   crumb_correction_factor(&a->correction, device, CRUMB_PHASE_DECODE, CRUMB_SPAN_LAYERS);
    }
    return ns[1] < ns[0];
}
