/* What a layer costs on a device: the arithmetic under every placement.
 *
 *     max(bytes / bandwidth, operations / throughput), for each kind of work, + launches * launch cost
 *
 * One row by itself is bound by bandwidth: the profile's bandwidth is the one that kernels for a row reach, whatever
 * they compute meanwhile.
 *
 * Everything here is plain numbers: the engine fills crumb_cost_layer from the model that it has.
 */
#ifndef CRUMB_SCHEDULER_COST_H
#define CRUMB_SCHEDULER_COST_H

#include "scheduler/profile.h"

/* One layer, or the output matrix with the final norm (`head`), which runs for a phase's last row only. */
typedef struct crumb_cost_layer {
    uint64_t weight_bytes[CRUMB_WORK_COUNT]; /* that reading its matrices once takes, by kind of work */
    uint64_t macs[CRUMB_WORK_COUNT];         /* multiplications per row in these */
    uint64_t attention_macs;                 /* per row and position that it attends to */
    uint64_t kv_bytes;                       /* its keys and values of one position */
    uint64_t vector_bytes;                   /* of one row, that it hands to the next layer */
    uint64_t exchanged_bytes;                /* of one row, that two devices exchange where the layer is split */
    uint64_t resident_bytes;                 /* all that it keeps in memory, KV apart */
    bool head;
} crumb_cost_layer;

typedef struct crumb_cost_phase {
    uint32_t n_rows;  /* a prompt's tokens; 1: one decoded token */
    uint32_t n_batch; /* most rows at once: for each batch the weights are read again; 0: all at once */
    uint32_t n_past;  /* positions in the context before the first row */
} crumb_cost_phase;

typedef enum crumb_bound {
    CRUMB_BOUND_BANDWIDTH,
    CRUMB_BOUND_COMPUTE,
    CRUMB_BOUND_LAUNCH,
    CRUMB_BOUND_EXCHANGE
} crumb_bound;
const char *crumb_bound_name(crumb_bound bound); /* "bandwidth" */

typedef struct crumb_cost {
    double ns;         /* all of the following */
    double read_ns;    /* work that bandwidth bounds */
    double compute_ns; /* work that throughput bounds */
    double launch_ns;
    double exchange_ns; /* with other devices: transfers between layers, exchanges within one */
    double bytes;       /* read from memory */
    crumb_bound bound;  /* the largest of the parts */
} crumb_cost;

/* A part `share` (0..1) of the layer's rows, heads and feed-forward rows alike, on one device; `together`: while the
 * other devices read as well. False where the device has no figure for some work of the layer: *out is infinite then.
 */
bool crumb_cost_of_layer(const crumb_profile_device *d, const crumb_cost_layer *layer, const crumb_cost_phase *phase,
                         double share, bool together, crumb_cost *out);

/* The same split between two: `share` on a, the rest on b, with their exchanges, of which a layer takes 4 and the head
 * 1; what they exchange lies in the host's memory, and crosses to a card with memory of its own. */
bool crumb_cost_of_split(const crumb_profile_device *a, const crumb_profile_device *b, const crumb_cost_layer *layer,
                         const crumb_cost_phase *phase, double share, crumb_cost *out);

/* ns that the phase's vectors take from one device to another. */
double crumb_cost_of_transfer(const crumb_profile_device *from, const crumb_profile_device *to, uint64_t vector_bytes,
                              const crumb_cost_phase *phase);
/* ns that n_bytes of keys and values take from one device's memory to the other's: 0 where these are one. */
double crumb_cost_of_move(const crumb_profile_device *from, const crumb_profile_device *to, uint64_t n_bytes);

void crumb_cost_add(crumb_cost *sum, const crumb_cost *part);

/* ---- corrections ------------------------------------------------------------------------------------------- */

typedef enum crumb_phase { CRUMB_PHASE_PREFILL, CRUMB_PHASE_DECODE, CRUMB_PHASE_COUNT } crumb_phase;
typedef enum crumb_span_kind { CRUMB_SPAN_LAYERS, CRUMB_SPAN_HEAD, CRUMB_SPAN_COUNT } crumb_span_kind;

/* By how much measured times differ from predicted ones, for each device, phase and kind of span: what predictions are
 * multiplied with. Zeroed: nothing has been measured. */
typedef struct crumb_correction {
    double factor[CRUMB_PROFILE_MAX_DEVICES][CRUMB_PHASE_COUNT][CRUMB_SPAN_COUNT]; /* 0: none yet */
    /* Of its part of split layers while decoding, as the other device computes the rest. 0: none yet */
    double together[CRUMB_PROFILE_MAX_DEVICES];
} crumb_correction;

/* After a span has run by itself on a device. Smooths as the cores' ratios are: 0.3 of the old factor stays; the first
 * measurement stands as it is. Times that are not above 0 are not measurements. */
void crumb_correction_update(crumb_correction *c, size_t device, crumb_phase phase, crumb_span_kind kind,
                             double predicted_ns, double measured_ns);
/* 1 where nothing has been measured; c may be NULL. */
double crumb_correction_factor(const crumb_correction *c, size_t device, crumb_phase phase, crumb_span_kind kind);
/* The same for the part of split layers: where none has run, what the device takes alone tells most of it. */
double crumb_correction_together(const crumb_correction *c, size_t device, crumb_phase phase, crumb_span_kind kind);

/* The device as if all that it does took `factor` times as long; what it exchanges with others apart. */
crumb_profile_device crumb_cost_corrected(const crumb_profile_device *device, double factor);

#endif
