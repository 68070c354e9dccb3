/* What the scheduler says of a model on a machine whose profile is known: which device computes which layer, and how
 * long that should take. */
#ifndef CRUMB_ENGINE_ADVICE_H
#define CRUMB_ENGINE_ADVICE_H

#include "host/crumb.h"
#include "host/engine/devices.h"
#include "host/model/network.h"
#include "scheduler/place.h"

/* Fills the shapes and types of a model's network, without weights; free(out->layers) when it is done with. */
typedef crumb_status crumb_engine_outline_fn(const void *source, crumb_network *out, crumb_error *err);

typedef struct crumb_engine_advice {
    bool known;     /* the following is there; else `note` says why nothing is predicted */
    char note[640]; /* or, where it is known, why the placement is not carried out; else empty */
    crumb_profile machine;
    uint64_t id;                 /* of the profile's text */
    bool learns;                 /* it is the stored one: what sessions measure corrects it */
    crumb_correction correction; /* by earlier ones */
    crumb_cost_layer *layers;    /* the head is the last */
    crumb_kv_type kv_type;       /* that these count with */
    crumb_place_problem problem;
    crumb_placement placement;
    uint8_t gpu; /* of the profile's devices, the one that the placement is about; 0: none */
} crumb_engine_advice;

/* Asks for a placement on the devices that `choice` leaves open, and under the memory that is free. Where nobody named
 * a device, the choice becomes what is predicted to be fastest. Without a profile nothing is advised, unless
 * params->profile names one: then that is an error. */
crumb_status crumb_engine_advise(const crumb_model_params *params, crumb_engine_outline_fn *outline, const void *source,
                                 crumb_engine_choice *choice, crumb_engine_advice **out, crumb_error *err);
void crumb_engine_advice_free(crumb_engine_advice *a); /* NULL too */
/* The CPU computes all, for `reason`: from now on it is what is placed and predicted. */
void crumb_engine_advice_leave_gpu(crumb_engine_advice *a, const char *reason);
/* A copy that has that done to it, for a model that takes the other one's place. */
crumb_status crumb_engine_advice_copy_to_cpu(const crumb_engine_advice *a, const char *reason,
                                             crumb_engine_advice **out, crumb_error *err);

/* ns that layers [first, end), the head being the last, take on a device of the profile, by its figures alone. */
double crumb_engine_advice_predict(const crumb_engine_advice *a, size_t device, uint32_t first, uint32_t end,
                                   const crumb_cost_phase *phase);
/* Whether a token takes the GPU by itself less time than the CPU by itself. */
bool crumb_engine_advice_gpu_decodes_faster(const crumb_engine_advice *a);

#endif
