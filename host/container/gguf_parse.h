/* Private to the GGUF reader: walking the metadata of one file. */
#ifndef CRUMB_CONTAINER_GGUF_PARSE_H
#define CRUMB_CONTAINER_GGUF_PARSE_H

#include "host/container/gguf.h"

/* Metadata: header, key-value pairs and tensor list, everything before the tensors' data. */
typedef struct gguf_header {
    uint32_t version;
    uint64_t n_tensors, n_values;
    uint64_t n_bytes; /* of the metadata, known once it has been walked */
} gguf_header;

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
