#include "tests/support/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void give_up(const char *why) {
    perror(why);
    exit(1);
}

void gguf_put(gguf_writer *w, const void *bytes, size_t n) {
    uint8_t *grown = realloc(w->data, w->size + n);
    if (!grown) give_up("gguf_writer");
    w->data = grown;
    if (bytes)
        memcpy(w->data + w->size, bytes, n);
    else
        memset(w->data + w->size, 0, n);
    w->size += n;
}

void gguf_put_u32(gguf_writer *w, uint32_t value) {
    gguf_put(w, &value, 4);
}
void gguf_put_u64(gguf_writer *w, uint64_t value) {
    gguf_put(w, &value, 8);
}
void gguf_put_string(gguf_writer *w, const char *text) {
    gguf_put_u64(w, strlen(text));
    gguf_put(w, text, strlen(text));
}

void gguf_patch_u32(gguf_writer *w, size_t at, uint32_t value) {
    memcpy(w->data + at, &value, 4);
}
void gguf_patch_u64(gguf_writer *w, size_t at, uint64_t value) {
    memcpy(w->data + at, &value, 8);
}

static void count_one(gguf_writer *w, size_t at) {
    uint64_t n;
    memcpy(&n, w->data + at, 8);
    gguf_patch_u64(w, at, n + 1);
}

gguf_writer gguf_writer_begin(void) {
    gguf_writer w = {0};
    gguf_put(&w, "GGUF", 4);
    gguf_put_u32(&w, 3);
    gguf_put(&w, NULL, 16);
    return w;
}

void gguf_writer_free(gguf_writer *w) {
    free(w->data);
    *w = (gguf_writer){0};
}

void gguf_put_key(gguf_writer *w, const char *key, crumb_gguf_value_type type) {
    count_one(w, GGUF_AT_N_VALUES);
    gguf_put_string(w, key);
    gguf_put_u32(w, type);
}

void gguf_put_array(gguf_writer *w, const char *key, crumb_gguf_value_type element, uint64_t n) {
    gguf_put_key(w, key, CRUMB_GGUF_ARRAY);
    gguf_put_u32(w, element);
    gguf_put_u64(w, n);
}

void gguf_key_u32(gguf_writer *w, const char *key, uint32_t value) {
    gguf_put_key(w, key, CRUMB_GGUF_U32);
    gguf_put_u32(w, value);
}

void gguf_key_u16(gguf_writer *w, const char *key, uint16_t value) {
    gguf_put_key(w, key, CRUMB_GGUF_U16);
    gguf_put(w, &value, 2);
}

void gguf_key_string(gguf_writer *w, const char *key, const char *value) {
    gguf_put_key(w, key, CRUMB_GGUF_STRING);
    gguf_put_string(w, value);
}

void gguf_put_tensor(gguf_writer *w, const char *name, uint32_t type_id, uint32_t n_dims, const uint64_t *dims,
                     uint64_t offset) {
    count_one(w, GGUF_AT_N_TENSORS);
    gguf_put_string(w, name);
    gguf_put_u32(w, n_dims);
    for (uint32_t i = 0; i < n_dims; i++) gguf_put_u64(w, dims[i]);
    gguf_put_u32(w, type_id);
    gguf_put_u64(w, offset);
}

void gguf_put_data(gguf_writer *w, size_t alignment, const void *data, size_t n_bytes) {
    gguf_put(w, NULL, (alignment - w->size % alignment) % alignment);
    gguf_put(w, data, n_bytes);
}

void gguf_save(const gguf_writer *w, const char *path) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(w->data, 1, w->size, f) != w->size || fclose(f) != 0) give_up(path);
}
