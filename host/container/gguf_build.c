#include "host/container/gguf_build.h"

#include "host/base/checked.h"
#include "host/container/gguf_parse.h"

#include <stdlib.h>
#include <string.h>

enum { AT_N_TENSORS = 8, AT_N_VALUES = 16 };

static void append(crumb_gguf_builder *b, const void *bytes, size_t n) {
    if (b->status != CRUMB_OK) return;
    if (b->capacity - b->size < n) {
        const size_t larger = 2 * b->capacity + n + 4096;
        uint8_t *grown = realloc(b->data, larger);
        if (!grown) {
            b->status = crumb_fail(b->err, CRUMB_ERR_MEMORY, "not enough memory for a model's keys");
            return;
        }
        b->data = grown;
        b->capacity = larger;
    }
    memcpy(b->data + b->size, bytes, n);
    b->size += n;
}

static void append_u32(crumb_gguf_builder *b, uint32_t value) {
    append(b, &value, sizeof value);
}
static void append_u64(crumb_gguf_builder *b, uint64_t value) {
    append(b, &value, sizeof value);
}

static void append_key(crumb_gguf_builder *b, const char *key, crumb_gguf_value_type type) {
    crumb_gguf_add_string(b, key, strlen(key));
    append_u32(b, type);
    b->n_values++;
}

void crumb_gguf_build_begin(crumb_gguf_builder *b, crumb_error *err) {
    *b = (crumb_gguf_builder){.err = err};
    append(b, "GGUF", 4);
    append_u32(b, 3);
    append_u64(b, 0); /* tensors */
    append_u64(b, 0); /* keys: known at the end */
}

void crumb_gguf_build_string(crumb_gguf_builder *b, const char *key, const char *text) {
    append_key(b, key, CRUMB_GGUF_STRING);
    crumb_gguf_add_string(b, text, strlen(text));
}

void crumb_gguf_build_u32(crumb_gguf_builder *b, const char *key, uint32_t value) {
    append_key(b, key, CRUMB_GGUF_U32);
    append_u32(b, value);
}

void crumb_gguf_build_f32(crumb_gguf_builder *b, const char *key, float value) {
    append_key(b, key, CRUMB_GGUF_F32);
    append(b, &value, sizeof value);
}

void crumb_gguf_build_bool(crumb_gguf_builder *b, const char *key, bool value) {
    const uint8_t byte = value;
    append_key(b, key, CRUMB_GGUF_BOOL);
    append(b, &byte, 1);
}

void crumb_gguf_build_array(crumb_gguf_builder *b, const char *key, crumb_gguf_value_type element, uint64_t n) {
    append_key(b, key, CRUMB_GGUF_ARRAY);
    append_u32(b, element);
    append_u64(b, n);
}

void crumb_gguf_add_string(crumb_gguf_builder *b, const char *text, size_t n_bytes) {
    append_u64(b, n_bytes);
    append(b, text, n_bytes);
}

void crumb_gguf_add_i32(crumb_gguf_builder *b, int32_t value) {
    append(b, &value, sizeof value);
}

void crumb_gguf_add_f32(crumb_gguf_builder *b, float value) {
    append(b, &value, sizeof value);
}

/* Bytes of an array's elements. */
static uint64_t array_bytes(const crumb_gguf_value *v) {
    const uint8_t *end = v->array.data;
    if (v->array.type != CRUMB_GGUF_STRING) return v->array.n * gguf_value_bytes(v->array.type);
    for (uint64_t i = 0; i < v->array.n; i++) crumb_gguf_next_string(&end);
    return (uint64_t)(end - v->array.data);
}

void crumb_gguf_build_copy(crumb_gguf_builder *b, const crumb_gguf_value *v) {
    crumb_gguf_add_string(b, v->key.data, v->key.size);
    append_u32(b, v->type);
    b->n_values++;
    if (v->type == CRUMB_GGUF_STRING) {
        crumb_gguf_add_string(b, v->string.data, v->string.size);
    } else if (v->type == CRUMB_GGUF_ARRAY) {
        append_u32(b, v->array.type);
        append_u64(b, v->array.n);
        append(b, v->array.data, array_bytes(v));
    } else if (v->type == CRUMB_GGUF_F32) {
        const float f = (float)v->f;
        append(b, &f, sizeof f);
    } else {
        append(b, &v->u, gguf_value_bytes(v->type)); /* little endian, and all members begin alike */
    }
}

static bool note_tensor(crumb_gguf_builder *b, uint64_t n_bytes) {
    if (b->status == CRUMB_OK && (b->n_tensors & (b->n_tensors - 1)) == 0) { /* grows by doubling */
        uint64_t *grown = realloc(b->tensor_bytes, (b->n_tensors ? 2 * b->n_tensors : 1) * sizeof *grown);
        if (grown)
            b->tensor_bytes = grown;
        else
            b->status = crumb_fail(b->err, CRUMB_ERR_MEMORY, "not enough memory for the list of tensors");
    }
    if (b->status != CRUMB_OK) return false;
    b->tensor_bytes[b->n_tensors++] = n_bytes;
    return true;
}

void crumb_gguf_build_tensor(crumb_gguf_builder *b, const char *name, uint32_t n_dims, const uint64_t dims[4],
                             uint32_t type_id, uint64_t n_bytes) {
    if (!note_tensor(b, n_bytes)) return;
    crumb_gguf_add_string(b, name, strlen(name));
    append_u32(b, n_dims);
    append(b, dims, n_dims * sizeof *dims);
    append_u32(b, type_id);
    append_u64(b, b->data_bytes);
    b->data_bytes += crumb_round_up(n_bytes, CRUMB_GGUF_ALIGNMENT);
}

crumb_status crumb_gguf_build_finish(crumb_gguf_builder *b) {
    CRUMB_TRY(b->status);
    memcpy(b->data + AT_N_TENSORS, &b->n_tensors, sizeof b->n_tensors);
    memcpy(b->data + AT_N_VALUES, &b->n_values, sizeof b->n_values);
    return CRUMB_OK;
}

crumb_file_plan crumb_gguf_build_plan(const crumb_gguf_builder *b) {
    return (crumb_file_plan){.head = b->data,
                             .head_bytes = b->size,
                             .tensor_bytes = b->tensor_bytes,
                             .n_tensors = b->n_tensors,
                             .alignment = CRUMB_GGUF_ALIGNMENT};
}

crumb_status crumb_gguf_build_open(crumb_gguf_builder *b, const char *name, crumb_gguf **out) {
    *out = NULL;
    CRUMB_TRY(crumb_gguf_build_finish(b));
    return crumb_gguf_open_memory(b->data, b->size, name, out, b->err);
}

void crumb_gguf_build_free(crumb_gguf_builder *b) {
    free(b->data);
    free(b->tensor_bytes);
    *b = (crumb_gguf_builder){0};
}
