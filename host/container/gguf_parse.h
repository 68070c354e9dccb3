/* Private to the GGUF reader: what an open file is, and walking the metadata of one file. */
#ifndef CRUMB_CONTAINER_GGUF_PARSE_H
#define CRUMB_CONTAINER_GGUF_PARSE_H

#include "host/base/file.h"
#include "host/container/gguf.h"

/* Metadata: header, key-value pairs and tensor list, everything before the tensors' data. */
typedef struct gguf_header {
    uint32_t version;
    uint64_t n_tensors, n_values;
    uint64_t n_bytes; /* of the metadata, known once it has been walked */
} gguf_header;

/* One file. The metadata is a private copy: a file that shrinks or changes later cannot make checked lengths wrong. */
typedef struct gguf_part {
    char *path;
    crumb_file_map map; /* of the file, or the caller's memory */
    bool mapped;
    gguf_header header;
    uint8_t *metadata;
    crumb_gguf_value *values;
    crumb_gguf_tensor *tensors;
    uint64_t alignment, data_offset;
} gguf_part;

struct crumb_gguf {
    gguf_part *parts;
    uint32_t n_parts;
    crumb_gguf_value *values; /* the first part's */
    size_t n_values;
    crumb_gguf_tensor *tensors; /* of all parts, in order */
    size_t n_tensors;
    /* Sorted by key and by name. Not hashed: colliding names in a hostile file cannot make a sort quadratic. */
    const crumb_gguf_value **values_by_key;
    const crumb_gguf_tensor **tensors_by_name;
    uint32_t q2_0_density, mxfp4_density; /* bytes per 256 weights of tensors with type id 42, 39; 0: unclear */
    uint64_t data_bytes;
    struct gguf_source_state *source; /* NULL: tensors lie in the parts */
};

/* Makes tensors_by_name; FORMAT where a name occurs twice. */
crumb_status gguf_index_tensors(crumb_gguf *g, crumb_error *err);

/* ---- gguf_source.c ---- */

const uint8_t *gguf_source_data(const crumb_gguf *g, const crumb_gguf_tensor *t);
void gguf_source_release(const crumb_gguf *g, const crumb_gguf_tensor *t);
void gguf_source_close(crumb_gguf *g);

/* Walks the metadata at `data` (size bytes; the whole file or only its metadata) and checks every length and count.
 * With values and tensors NULL it only measures, and allocates nothing; else it fills them (header->n_values and
 * n_tensors of them) with views into `data`. A tensor then has name, n_dims, dims, type_id, and in `offset` what the
 * file says; it is checked by shape only. `data` is changed where names end: they become NUL-terminated. */
crumb_status gguf_walk(const char *path, uint8_t *data, uint64_t size, gguf_header *header, crumb_gguf_value *values,
                       crumb_gguf_tensor *tensors, crumb_error *err);

/* For messages: a key's printable length. "%.*s", GGUF_TEXT(key) */
#define GGUF_TEXT(bytes) (int)((bytes).size < 80 ? (bytes).size : 80), (bytes).data

/* Bytes of one element; 0: strings and arrays, which have no fixed size. */
size_t gguf_value_bytes(crumb_gguf_value_type type);
/* Reads a number or bool at p into value, whose type says which. */
void gguf_load_number(const uint8_t *p, crumb_gguf_value *value);

#endif
