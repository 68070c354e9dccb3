/* safetensors files (huggingface/safetensors, format of version 0.4): a JSON header, then the tensors' bytes. Nothing
 * read from a file is trusted: names, shapes, offsets and their products are checked, the tensors fill the file without
 * gaps or overlaps, and the header is copied before it is parsed. Messages name the file and the tensor.
 */
#ifndef CRUMB_CONTAINER_SAFETENSORS_H
#define CRUMB_CONTAINER_SAFETENSORS_H

#include "host/base/error.h"

typedef struct crumb_safetensors crumb_safetensors;

enum { CRUMB_SAFETENSORS_MAX_DIMS = 8 };

typedef enum crumb_dtype {
    CRUMB_DTYPE_BOOL,
    CRUMB_DTYPE_U8,
    CRUMB_DTYPE_I8,
    CRUMB_DTYPE_F8_E4M3,
    CRUMB_DTYPE_F8_E5M2,
    CRUMB_DTYPE_U16,
    CRUMB_DTYPE_I16,
    CRUMB_DTYPE_F16,
    CRUMB_DTYPE_BF16,
    CRUMB_DTYPE_U32,
    CRUMB_DTYPE_I32,
    CRUMB_DTYPE_F32,
    CRUMB_DTYPE_U64,
    CRUMB_DTYPE_I64,
    CRUMB_DTYPE_F64,
    CRUMB_DTYPE_COUNT
} crumb_dtype;

const char *crumb_dtype_name(crumb_dtype dtype); /* as the header spells it: "BF16" */

typedef struct crumb_safetensor {
    const char *name;
    crumb_dtype dtype;
    uint32_t n_dims;                           /* 0: a single value */
    uint64_t dims[CRUMB_SAFETENSORS_MAX_DIMS]; /* the last one is contiguous; a dimension may be 0 */
    uint64_t n_values;                         /* their product */
    uint64_t offset, n_bytes;                  /* in its file, checked to lie inside */
    uint32_t part;                             /* which file of several */
} crumb_safetensor;

/* Opens a file, or, where the path is a model.safetensors.index.json, all files that it names in its own folder. */
crumb_status crumb_safetensors_open(const char *path, crumb_safetensors **out, crumb_error *err);
/* One file in memory, which must outlive the object; `name` stands for the path in messages. */
crumb_status crumb_safetensors_open_memory(const void *data, size_t n_bytes, const char *name, crumb_safetensors **out,
                                           crumb_error *err);
void crumb_safetensors_close(crumb_safetensors *s);

size_t crumb_safetensors_n(const crumb_safetensors *s);
const crumb_safetensor *crumb_safetensors_at(const crumb_safetensors *s, size_t index);       /* sorted by name */
const crumb_safetensor *crumb_safetensors_find(const crumb_safetensors *s, const char *name); /* NULL: absent */
/* The tensor's mapped bytes. Reading them can fault if the file shrinks meanwhile: read inside crumb_file_guard(). */
const uint8_t *crumb_safetensors_data(const crumb_safetensors *s, const crumb_safetensor *t);
/* Gives the memory of its mapped pages back: they are read again where somebody needs them. */
void crumb_safetensors_release(const crumb_safetensors *s, const crumb_safetensor *t);
const char *crumb_safetensors_path(const crumb_safetensors *s, const crumb_safetensor *t); /* its file's */

#endif
