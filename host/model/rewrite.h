/* Writing a model's file anew, with its weights in other types or as they are. */
#ifndef CRUMB_MODEL_REWRITE_H
#define CRUMB_MODEL_REWRITE_H

#include "host/container/gguf.h"
#include "host/lowbit/encode.h"

typedef struct crumb_rewrite {
    const crumb_gguf *from;
    const char *path;                   /* of the new file */
    const crumb_type *types;            /* what each tensor becomes: [crumb_gguf_n_tensors(from)] */
    const crumb_encode_method *methods; /* and how, where that is another type; NULL: by CRUMB_ENCODE_RTN */
    uint64_t identity;                  /* says which file `from` is (file_write.h) */
    int n_threads;
    crumb_progress_fn
        progress; /* may be NULL; called by the calling thread with the part of all weights that is done */
    void *progress_user;
} crumb_rewrite;

/* The smallest type of GGUF that keeps a tensor's codes, and the method that does: its own, or, where GGUF does not
 * have that, what crumb_type_keeps_codes says of Q1_0, TQ2_0, Q2_K, Q4_0 and Q8_0; F16 where none does. All of these
 * have f16 scales: of others no weight is off by more than 2^-11 of it, as in F16. */
crumb_status crumb_rewrite_same_type(const crumb_gguf *g, const crumb_gguf_tensor *t, crumb_type *out,
                                     crumb_encode_method *method, crumb_error *err);

/* Writes all keys (but those about the parts of a split file) and tensors. An earlier run's work is taken up;
 * *n_kept says how many tensors of it. Memory: one tensor's bytes, in the old form where they must be made and in the
 * new. Fails with IO, FORMAT, UNSUPPORTED (a type that has no GGUF id, or that crumb does not write; the tensor is
 * named), INTERRUPTED by `progress`; what is done then stays beside `path`. */
crumb_status crumb_rewrite_run(const crumb_rewrite *r, uint64_t *n_kept, crumb_error *err);

#endif
