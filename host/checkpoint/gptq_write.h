/* Writing a checkpoint with weights packed as GPTQ does. */
#ifndef CRUMB_CHECKPOINT_GPTQ_WRITE_H
#define CRUMB_CHECKPOINT_GPTQ_WRITE_H

#include "host/base/error.h"

typedef struct crumb_gptq_write {
    const char *from, *to; /* folders; `to` is made where it is not there */
    uint32_t bits;         /* 2, 3, 4 */
    uint32_t group;        /* weights of a row that share scale and zero point; 0: all */
    uint64_t identity;     /* says which model `from` is (file_write.h) */
    int n_threads;
    crumb_progress_fn progress; /* may be NULL; called by the calling thread */
    void *progress_user;
} crumb_gptq_write;

/* Writes model.safetensors, the vocabulary's files, and config.json at last, without which the folder is no checkpoint.
 * The layers' matrices whose rows are whole groups, and both of whose sides are multiples of 32, are rounded to the
 * nearest code between their group's least and largest weight; everything else stays as it is. Version 1 of GPTQ's
 * form, whose zero points are at least 1. An earlier run's work is taken up; *n_kept says how many tensors of it.
 * Memory: one matrix. Fails with IO, FORMAT, UNSUPPORTED (what is packed already), INTERRUPTED by `progress`. */
crumb_status crumb_gptq_write_run(const crumb_gptq_write *w, uint64_t *n_kept, crumb_error *err);

#endif
