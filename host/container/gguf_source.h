/* Models of other formats as if they were GGUF files, so that whoever reads a model knows one form. */
#ifndef CRUMB_CONTAINER_GGUF_SOURCE_H
#define CRUMB_CONTAINER_GGUF_SOURCE_H

#include "host/container/gguf_build.h"

typedef struct crumb_gguf_source {
    void *user;
    const crumb_gguf_tensor *tensors; /* [n]: name, n_dims, dims, type_id, type, order; names and orders live as
                                       * long as the source */
    size_t n;
    /* Where the tensor's bytes are mapped as they are; NULL: they must be made. */
    const uint8_t *(*view)(void *user, size_t index);
    /* Writes all bytes of a tensor; messages name what is damaged. Any threads, not inside a guard. */
    crumb_status (*make)(void *user, size_t index, uint8_t *out, crumb_error *err);
    /* Gives back the memory of what a tensor is made from, or viewed in, which is not needed for now. Any threads. */
    void (*release)(void *user, size_t index);
    void (*close)(void *user);
} crumb_gguf_source;

/* The keys and these tensors as an open file; `name` stands for its path. The source is the file's from then on, and
 * closed with it; also where opening fails. */
crumb_status crumb_gguf_open_source(crumb_gguf_builder *keys, const char *name, const crumb_gguf_source *source,
                                    crumb_gguf **out, crumb_error *err);

#endif
