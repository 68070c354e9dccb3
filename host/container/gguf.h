/* GGUF files (v3, and v2, which has the same layout): bytes on disk -> validated views. Nothing read from a file is
 * trusted: every length, offset, count and product is checked before it is used. Metadata is copied before it is
 * parsed, so that keys, values and names stay valid whatever happens to the file; tensors' bytes stay mapped.
 *
 * Messages of opening name the file; those of the reads below name the key or tensor, and who opened the file puts its
 * path before them.
 */
#ifndef CRUMB_CONTAINER_GGUF_H
#define CRUMB_CONTAINER_GGUF_H

#include "host/base/error.h"
#include "host/lowbit/types.h"

typedef struct crumb_gguf crumb_gguf;

typedef enum crumb_gguf_value_type {
    CRUMB_GGUF_U8,
    CRUMB_GGUF_I8,
    CRUMB_GGUF_U16,
    CRUMB_GGUF_I16,
    CRUMB_GGUF_U32,
    CRUMB_GGUF_I32,
    CRUMB_GGUF_F32,
    CRUMB_GGUF_BOOL,
    CRUMB_GGUF_STRING,
    CRUMB_GGUF_ARRAY,
    CRUMB_GGUF_U64,
    CRUMB_GGUF_I64,
    CRUMB_GGUF_F64,
    CRUMB_GGUF_VALUE_TYPE_COUNT
} crumb_gguf_value_type;

typedef struct crumb_bytes {
    const char *data; /* not NUL-terminated */
    size_t size;
} crumb_bytes;

typedef struct crumb_gguf_value {
    crumb_bytes key;
    crumb_gguf_value_type type;
    union {
        uint64_t u; /* U8 U16 U32 U64 BOOL */
        int64_t i;  /* I8 I16 I32 I64 */
        double f;   /* F32 F64 */
        crumb_bytes string;
        struct {
            crumb_gguf_value_type type; /* of the elements; arrays of arrays are refused */
            uint64_t n;
            const uint8_t *data; /* packed little-endian elements; strings: u64 length + bytes each, all checked */
        } array;
    };
} crumb_gguf_value;

typedef struct crumb_gguf_tensor {
    const char *name; /* NUL-terminated, without control characters */
    uint32_t n_dims;
    uint64_t dims[4]; /* dims[0] = K, the contiguous one; unused ones are 1 */
    uint32_t type_id; /* as on disk */
    crumb_type type;  /* valid where `supported` */
    bool supported;   /* false: crumb does not run the type (crumb_gguf_require_tensor says why); listing it is fine */
    uint32_t part;    /* which file of a split model */
    uint64_t offset;  /* of its bytes in that file, checked to lie inside */
    uint64_t n_bytes; /* 0 where not supported */
    /* [dims[0]], each number once: what stands in column i of the rows belongs in column order[i] of the matrix. NULL:
     * columns stand where they belong, as they do in every GGUF file. The source's (gguf_source.h). */
    const uint32_t *order;
} crumb_gguf_tensor;

/* Opens a file, or all parts of a split one (split.count; path is the first part, and the others are found beside it by
 * llama.cpp's naming -00001-of-0000N.gguf). Keys are those of the first part. */
crumb_status crumb_gguf_open(const char *path, crumb_gguf **out, crumb_error *err);
/* Reads from memory, which must outlive the object. `name` stands for the path in messages. */
crumb_status crumb_gguf_open_memory(const void *data, size_t n_bytes, const char *name, crumb_gguf **out,
                                    crumb_error *err);
void crumb_gguf_close(crumb_gguf *g);

const char *crumb_gguf_path(const crumb_gguf *g);
uint32_t crumb_gguf_n_parts(const crumb_gguf *g); /* files that it is split into; 1 where it is whole */
const char *crumb_gguf_part_path(const crumb_gguf *g, uint32_t part);
uint32_t crumb_gguf_version(const crumb_gguf *g);
uint64_t crumb_gguf_data_bytes(const crumb_gguf *g); /* all tensors together */

size_t crumb_gguf_n_values(const crumb_gguf *g);
const crumb_gguf_value *crumb_gguf_value_at(const crumb_gguf *g, size_t index);
const crumb_gguf_value *crumb_gguf_find(const crumb_gguf *g, const char *key); /* NULL: absent; O(log n) */

/* Typed reads. A missing key leaves *out as it is and is CRUMB_OK (set defaults first), unless `required`; another
 * type, or an integer out of range, is FORMAT with the key named. Integers of any width are accepted for u32/i32. */
crumb_status crumb_gguf_get_u32(const crumb_gguf *g, const char *key, bool required, uint32_t *out, crumb_error *err);
crumb_status crumb_gguf_get_i32(const crumb_gguf *g, const char *key, bool required, int32_t *out, crumb_error *err);
crumb_status crumb_gguf_get_f32(const crumb_gguf *g, const char *key, bool required, float *out, crumb_error *err);
crumb_status crumb_gguf_get_bool(const crumb_gguf *g, const char *key, bool required, bool *out, crumb_error *err);
crumb_status crumb_gguf_get_string(const crumb_gguf *g, const char *key, bool required, crumb_bytes *out,
                                   crumb_error *err);
/* An array whose elements have the given type; *out stays NULL when it is missing and not required. */
crumb_status crumb_gguf_get_array(const crumb_gguf *g, const char *key, bool required, crumb_gguf_value_type element,
                                  const crumb_gguf_value **out, crumb_error *err);

/* Walks an array of strings: start with *cursor = array.data; returns the string and advances. */
crumb_bytes crumb_gguf_next_string(const uint8_t **cursor);

size_t crumb_gguf_n_tensors(const crumb_gguf *g);
const crumb_gguf_tensor *crumb_gguf_tensor_at(const crumb_gguf *g, size_t index);
const crumb_gguf_tensor *crumb_gguf_find_tensor(const crumb_gguf *g, const char *name); /* NULL: absent; O(log n) */
/* The tensor, which must be there (else FORMAT) and of a type that crumb runs (else UNSUPPORTED, with the reason). */
crumb_status crumb_gguf_require_tensor(const crumb_gguf *g, const char *name, const crumb_gguf_tensor **out,
                                       crumb_error *err);

/* Before a tensor's bytes are read, and after: where they are made from another format's (gguf_source.h), this makes
 * them, and keeps them until they are released. Any number of threads, not inside a guard. */
crumb_status crumb_gguf_tensor_hold(const crumb_gguf *g, const crumb_gguf_tensor *t, crumb_error *err);
void crumb_gguf_tensor_drop(const crumb_gguf *g, const crumb_gguf_tensor *t);
/* The mapped bytes of a tensor that is held. Reading them can fault if the file shrinks meanwhile: read inside
 * crumb_file_guard(). */
const uint8_t *crumb_gguf_tensor_data(const crumb_gguf *g, const crumb_gguf_tensor *t);
/* Says that the tensor's bytes will not be needed again soon (they leave the process's resident set), but by those who
 * hold it. */
void crumb_gguf_tensor_release(const crumb_gguf *g, const crumb_gguf_tensor *t);

#endif
