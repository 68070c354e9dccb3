/* A model's layers as a checkpoint in GPTQ's form. */
#ifndef CRUMB_GPTQ_RUN_H
#define CRUMB_GPTQ_RUN_H

#include "host/checkpoint/gptq_write.h"
#include "host/gptq/solve.h"

typedef struct crumb_gptq_run {
    crumb_gptq_form form; /* free_groups is set from `order` */
    int n_threads;
    crumb_progress_fn progress; /* may be NULL; called by the calling thread with the part of all work that is done */
    void *progress_user;
    /* GPTQ's method; without tokens weights are rounded to the nearest code */
    const int32_t *tokens; /* of the calibration text; NULL: none */
    uint64_t n_tokens;
    uint32_t length; /* of the sequences that it is cut into */
    double damping;  /* part of the mean of the second derivatives that is added to them */
    crumb_gptq_order order;
} crumb_gptq_run;

/* Writes the checkpoint layer by layer: the inputs of q, k and v, then of the attention's output, of gate and up, of
 * down, each as what has been rounded before makes them. Matrices that are not packed stay as they are. An earlier
 * run's work is taken up, with the same result; *n_kept says how many matrices of it. Memory: one layer's weights as
 * f32, 8 k^2 bytes twice for its widest matrix, and its activations for the whole calibration text. Fails as
 * crumb_gptq_writer_open and crumb_layers_open do, and with INTERRUPTED by `progress`. */
crumb_status crumb_gptq_run_all(const crumb_gptq_run *run, uint64_t *n_kept, crumb_error *err);

#endif
