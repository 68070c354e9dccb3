/* Keys and a list of tensors in GGUF's form, in memory: what other formats say, for readers that know GGUF, and what
 * file_write.h begins a file with. */
#ifndef CRUMB_CONTAINER_GGUF_BUILD_H
#define CRUMB_CONTAINER_GGUF_BUILD_H

#include "host/container/file_write.h"
#include "host/container/gguf.h"

/* The first error sticks: later calls do nothing, and the caller looks once at the end. */
typedef struct crumb_gguf_builder {
    uint8_t *data;
    size_t size, capacity;
    uint64_t n_values, n_tensors;
    uint64_t *tensor_bytes; /* [n_tensors] */
    uint64_t data_bytes;    /* of all tensors so far, padded */
    crumb_status status;
    crumb_error *err;
} crumb_gguf_builder;

void crumb_gguf_build_begin(crumb_gguf_builder *b, crumb_error *err);
void crumb_gguf_build_string(crumb_gguf_builder *b, const char *key, const char *text);
void crumb_gguf_build_u32(crumb_gguf_builder *b, const char *key, uint32_t value);
void crumb_gguf_build_f32(crumb_gguf_builder *b, const char *key, float value);
void crumb_gguf_build_bool(crumb_gguf_builder *b, const char *key, bool value);
/* An array of n elements, which the caller adds next, one call each. */
void crumb_gguf_build_array(crumb_gguf_builder *b, const char *key, crumb_gguf_value_type element, uint64_t n);
void crumb_gguf_add_string(crumb_gguf_builder *b, const char *text, size_t n_bytes);
void crumb_gguf_add_i32(crumb_gguf_builder *b, int32_t value);
void crumb_gguf_add_f32(crumb_gguf_builder *b, float value);
/* A key and its value as another file has them. */
void crumb_gguf_build_copy(crumb_gguf_builder *b, const crumb_gguf_value *value);
/* A tensor of n_bytes behind those that are already listed; dims[0] is the contiguous one. All keys come first. */
enum { CRUMB_GGUF_ALIGNMENT = 32 };
void crumb_gguf_build_tensor(crumb_gguf_builder *b, const char *name, uint32_t n_dims, const uint64_t dims[4],
                             uint32_t type_id, uint64_t n_bytes);
/* Writes the counts into the header: what is in `data` is then a file up to its tensors' bytes. */
crumb_status crumb_gguf_build_finish(crumb_gguf_builder *b);
/* The file of a finished builder, which must outlive it, as file_write.h writes it. */
crumb_file_plan crumb_gguf_build_plan(const crumb_gguf_builder *b);
/* A file without tensors; what is in it is as valid as long as the builder is not freed. `name` stands for its path in
 * messages. */
crumb_status crumb_gguf_build_open(crumb_gguf_builder *b, const char *name, crumb_gguf **out);
void crumb_gguf_build_free(crumb_gguf_builder *b);

#endif
