/* Writes small GGUF files by hand, sound or damaged on purpose. Running out of memory ends the test program. */
#ifndef CRUMB_TESTS_GGUF_WRITER_H
#define CRUMB_TESTS_GGUF_WRITER_H

#include "host/container/gguf.h"

typedef struct gguf_writer {
    uint8_t *data; /* size bytes, exactly allocated: a sanitizer sees a read past the end */
    size_t size;
} gguf_writer;

/* Where the header's fields stand. */
enum { GGUF_AT_VERSION = 4, GGUF_AT_N_TENSORS = 8, GGUF_AT_N_VALUES = 16, GGUF_HEADER_BYTES = 24 };

gguf_writer gguf_writer_begin(void); /* version 3, nothing in it */
void gguf_writer_free(gguf_writer *w);

/* Raw bytes at the end, or over what is there. */
void gguf_put(gguf_writer *w, const void *bytes, size_t n);
void gguf_put_u32(gguf_writer *w, uint32_t value);
void gguf_put_u64(gguf_writer *w, uint64_t value);
void gguf_put_string(gguf_writer *w, const char *text);
void gguf_patch_u32(gguf_writer *w, size_t at, uint32_t value);
void gguf_patch_u64(gguf_writer *w, size_t at, uint64_t value);

/* A key and its type; the value is put by the caller. Counts one more key. */
void gguf_put_key(gguf_writer *w, const char *key, crumb_gguf_value_type type);
void gguf_put_array(gguf_writer *w, const char *key, crumb_gguf_value_type element, uint64_t n);
void gguf_key_u32(gguf_writer *w, const char *key, uint32_t value);
void gguf_key_u16(gguf_writer *w, const char *key, uint16_t value);
void gguf_key_string(gguf_writer *w, const char *key, const char *value);

/* A tensor's entry of n_dims dimensions; counts one more tensor. All keys come before. */
void gguf_put_tensor(gguf_writer *w, const char *name, uint32_t type_id, uint32_t n_dims, const uint64_t *dims,
                     uint64_t offset);
/* Zeros up to a multiple of alignment, then n_bytes of data (NULL: zeros). */
void gguf_put_data(gguf_writer *w, size_t alignment, const void *data, size_t n_bytes);

void gguf_save(const gguf_writer *w, const char *path);

#endif
