/* Machine profiles: a JSON text of anyone's, whose figures then place a model. */
#include "scheduler/place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

static void check_device(const crumb_profile_device *d) {
    require(memchr(d->name, 0, sizeof d->name) && memchr(d->detail, 0, sizeof d->detail), "texts end");
    require(d->read_gb_s > 0 && d->together_gb_s > 0 && d->together_gb_s <= d->read_gb_s, "bandwidths are above 0");
    require(d->kind != CRUMB_PROFILE_DISCRETE || d->transfer_gb_s > 0, "a card has a way to the host");
    require(d->n_cores <= CRUMB_PROFILE_MAX_CORES, "cores fit");
    for (int w = 0; w < CRUMB_WORK_COUNT; w++)
        require(d->gops[w] == 0 || crumb_profile_work_gb_s(d, (crumb_work)w, d->read_gb_s) > 0, "work has a speed");
}

/* Whatever the figures are, a model is placed on what there is, or refused with a reason. */
static void check_placement(const crumb_profile *p) {
    crumb_cost_layer layers[3] = {{.vector_bytes = 4096, .kv_bytes = 512, .attention_macs = 2048}};
    crumb_placement placement;
    crumb_error err = {0};
    for (int i = 0; i < 3; i++) {
        layers[i].weight_bytes[CRUMB_WORK_U2] = layers[i].resident_bytes = 1000000;
        layers[i].macs[CRUMB_WORK_U2] = 4000000;
    }
    layers[2].head = true;
    const crumb_place_problem problem = {.machine = p, .layers = layers, .n_layers = 3, .gpu_layers = -1, .split = -1};
    const crumb_status status = crumb_place(&problem, &placement, &err);
    require(status == CRUMB_OK || *err.message, "a refusal has a reason");
    if (status != CRUMB_OK) return;
    require(isfinite(placement.total_ns) && placement.total_ns >= 0, "times are finite");
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
        for (uint32_t i = 0; i < 3; i++)
            require(placement.part[phase][i].device < p->n_devices && placement.part[phase][i].other < p->n_devices,
                    "devices are the machine's");
    crumb_placement_free(&placement);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const kernels[] = {"crumb", "paper"};
    for (int i = 0; i < 2; i++) {
        crumb_profile p;
        crumb_error err = {0};
        if (crumb_profile_parse((const char *)data, size, "fuzz", kernels[i], NULL, NULL, &p, &err) != CRUMB_OK) {
            require(err.status == CRUMB_ERR_FORMAT && *err.message, "a refusal has a reason");
            continue;
        }
        require(p.n_devices >= 1 && p.n_devices <= CRUMB_PROFILE_MAX_DEVICES, "devices fit");
        for (size_t d = 0; d < p.n_devices; d++) check_device(&p.device[d]);
        check_placement(&p);
    }
    return 0;
}
