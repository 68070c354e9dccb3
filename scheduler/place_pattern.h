/* Patterns that place.c chooses among: how the layers of one phase are handed out, what that costs, and what memory a
 * pattern of each phase takes together. */
#ifndef CRUMB_SCHEDULER_PLACE_PATTERN_H
#define CRUMB_SCHEDULER_PLACE_PATTERN_H

#include "scheduler/place.h"

typedef enum crumb_pattern_kind {
    CRUMB_PATTERN_ALL,   /* every layer on a */
    CRUMB_PATTERN_LAST,  /* the last n on a, the others on b */
    CRUMB_PATTERN_SPLIT, /* `share` of each layer's rows on a, the rest on b */
    CRUMB_PATTERN_TURNS, /* the layers in turns, beginning with a */
} crumb_pattern_kind;

typedef struct crumb_pattern {
    crumb_pattern_kind kind;
    uint8_t a, b;
    uint32_t n;
    double share;
} crumb_pattern;

/* A problem with everything filled in that was left to defaults, and devices as they have been measured to be. */
typedef struct crumb_place_frame {
    crumb_place_problem p;
    crumb_cost_phase phase[CRUMB_PHASE_COUNT];
    crumb_profile_device device[CRUMB_PHASE_COUNT][CRUMB_SPAN_COUNT][CRUMB_PROFILE_MAX_DEVICES]; /* corrected */
    crumb_profile_device together[CRUMB_PHASE_COUNT][CRUMB_SPAN_COUNT]
                                 [CRUMB_PROFILE_MAX_DEVICES]; /* for split layers */
} crumb_place_frame;

void crumb_place_frame_make(const crumb_place_problem *problem, crumb_place_frame *f);

crumb_place_part crumb_pattern_part(const crumb_pattern *q, uint32_t layer, uint32_t n_layers);
/* The costs of all layers, one by one where `each` is not NULL, and their sum. Its ns are infinite where a device lacks
 * a figure. */
void crumb_pattern_cost(const crumb_place_frame *f, const crumb_pattern *q, crumb_phase phase, crumb_cost *each,
                        crumb_cost *sum);
/* The share of rows for a at which a and b are done at the same time; 0 or 1 where one is better left out. */
double crumb_pattern_balance(const crumb_place_frame *f, uint8_t a, uint8_t b, crumb_phase phase);

/* What the two phases' patterns take of each device's memory. */
void crumb_pattern_memory(const crumb_place_frame *f, const crumb_pattern *prefill, const crumb_pattern *decode,
                          uint64_t bytes[CRUMB_PROFILE_MAX_DEVICES]);
uint64_t crumb_place_limit(const crumb_place_frame *f, size_t device); /* bytes that may be taken of it */
/* Bytes by which the fullest device is too small; 0: it fits. */
uint64_t crumb_place_excess(const crumb_place_frame *f, const uint64_t bytes[CRUMB_PROFILE_MAX_DEVICES],
                            size_t *device);

/* Whether some layer's weights lie in two memories, because its phases run beside different ones. */
bool crumb_pattern_copies(const crumb_place_frame *f, const crumb_pattern *prefill, const crumb_pattern *decode);

/* Keys and values of the prompt that are not where decoding wants them, and the time that moving them takes. */
double crumb_pattern_move(const crumb_place_frame *f, const crumb_pattern *prefill, const crumb_pattern *decode,
                          uint64_t *moved_bytes);

/* "gpu0", "cpu+gpu0", "20 of 33 layers gpu0, rest cpu". */
void crumb_pattern_name(const crumb_place_frame *f, const crumb_pattern *q, char *out, size_t size);

#endif
