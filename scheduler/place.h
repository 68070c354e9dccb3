/* Which device computes which layer, in prefill and in decoding.
 *
 * Candidates are compared by predicted time under the devices' memory: all layers on one device; the last layers on a
 * GPU and what does not fit on the processor; prefill on one device and decoding on another, keys and values moving
 * once; layers in turns; and each layer's rows split between two devices. The first of the fastest wins, in an order
 * that depends on nothing but the problem, so that equal problems have equal answers.
 */
#ifndef CRUMB_SCHEDULER_PLACE_H
#define CRUMB_SCHEDULER_PLACE_H

#include "scheduler/cost.h"

/* Predictions are not better than that, and what is not foreseen costs two devices more than one: below it the simpler
 * placement is taken, by whoever asks, so that what is planned is what runs. */
#define CRUMB_PLACE_MARGIN 0.05

typedef struct crumb_place_problem {
    const crumb_profile *machine;
    const crumb_cost_layer *layers; /* in order; the head, where there is one, is the last */
    uint32_t n_layers;
    uint32_t n_prompt;   /* tokens of the prompt; 0: as if it were 1 */
    uint32_t n_generate; /* tokens that are expected after it: the weight of decoding; 0: 128 */
    uint32_t n_ctx;      /* positions that memory for keys and values is taken for; less than what is used: that */
    uint32_t n_batch;    /* rows at once in prefill; 0: 512 */
    uint64_t scratch_bytes[CRUMB_PROFILE_MAX_DEVICES]; /* of a device that computes anything */
    uint64_t free_bytes[CRUMB_PROFILE_MAX_DEVICES];    /* 0: 15/16 of the profile's memory */
    unsigned devices;   /* bits of those that may be used; 0: all but those used by name */
    int32_t gpu_layers; /* -ngl: so many of the last layers, the head being one, on the first GPU, the others on the
                         * processor; -1: as it pays */
    double split; /* rows of every layer that the first GPU computes, the processor the others; 0: no layer is split;
                   * -1: as it pays */
    bool copies;  /* a layer's weights may lie in the host's memory and in a card's: prefill on one and decoding on the
                   * other  takes both. Without, weights exist once */
    bool whole_prefill; /* no layer is split while a prompt is computed, but between a card and another device, whose
                         * weights are then divided for both phases: what the engine can carry out */
    double margin;      /* by this part of its time a more involved placement must be faster; 0: CRUMB_PLACE_MARGIN */
    const crumb_correction *correction; /* NULL: none */
} crumb_place_problem;

/* Who computes a layer: `share` of its rows `device`, the rest `other`. */
typedef struct crumb_place_part {
    uint8_t device, other; /* indices into the profile; equal where share is 1 */
    double share;
} crumb_place_part;

enum { CRUMB_PLACE_NAME_BYTES = 112 };

/* One way of placing that was considered: the best of its kind. */
typedef struct crumb_place_candidate {
    char name[CRUMB_PLACE_NAME_BYTES]; /* "prefill gpu0, decode cpu+gpu0" */
    double prefill_ns, decode_ns, total_ns;
    bool fits; /* in memory; else only the times are known */
} crumb_place_candidate;

enum { CRUMB_PLACE_MAX_CONSIDERED = 24 };

typedef struct crumb_placement {
    uint32_t n_layers;
    crumb_place_part *part[CRUMB_PHASE_COUNT]; /* [phase][layer] */
    crumb_cost *cost[CRUMB_PHASE_COUNT];       /* [phase][layer]: predicted; transfers into a layer count with it */
    crumb_cost sum[CRUMB_PHASE_COUNT];         /* prefill of the prompt; one token in the middle of what is generated */
    double move_ns;                            /* keys and values at the phases' boundary, once */
    uint64_t moved_bytes;
    double ttft_ns;  /* until the first token: the prompt, and moving */
    double total_ns; /* with n_generate tokens: what is minimized */
    /* Taken of each device's memory. The processor's holds what the integrated GPUs compute as well, once. */
    uint64_t memory_bytes[CRUMB_PROFILE_MAX_DEVICES];
    char name[CRUMB_PLACE_NAME_BYTES];
    char why[768];
    size_t n_considered;
    crumb_place_candidate considered[CRUMB_PLACE_MAX_CONSIDERED]; /* the chosen one first, then by rising time */
} crumb_placement;

/* Fails with MEMORY where nothing fits (naming what the smallest candidate lacks), and with ARGUMENT where constraints
 * contradict each other. */
crumb_status crumb_place(const crumb_place_problem *problem, crumb_placement *out, crumb_error *err);
void crumb_placement_free(crumb_placement *p); /* zeroed ones too */

#endif
