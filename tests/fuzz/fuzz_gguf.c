/* Any bytes as a GGUF file: opening either fails with a message or gives values and tensors that can all be read. */
#include "host/base/error.h"
#include "host/container/gguf_describe.h"
#include "host/lowbit/tile.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold whatever the input; a failure is a crash that the fuzzer reports. */
static void require(bool condition) {
    if (!condition) abort();
}

static void read_value(const crumb_gguf *g, const crumb_gguf_value *v) {
    char text[256], key[128];
    uint32_t u32;
    float f32;
    crumb_bytes string;
    const crumb_gguf_value *array;
    require(crumb_gguf_value_text(v, 40, 8, text, sizeof text) > 0);
    if (v->type == CRUMB_GGUF_ARRAY && v->array.type == CRUMB_GGUF_STRING) {
        const uint8_t *cursor = v->array.data;
        volatile char last;
        for (uint64_t i = 0; i < v->array.n; i++) {
            string = crumb_gguf_next_string(&cursor);
            if (string.size > 0) last = string.data[string.size - 1];
        }
        (void)last;
    }
    if (v->key.size >= sizeof key) return;
    memcpy(key, v->key.data, v->key.size);
    key[v->key.size] = 0;
    require(crumb_gguf_find(g, key) == v);
    crumb_gguf_get_u32(g, key, true, &u32, NULL);
    crumb_gguf_get_f32(g, key, true, &f32, NULL);
    crumb_gguf_get_string(g, key, true, &string, NULL);
    if (crumb_gguf_get_array(g, key, true, CRUMB_GGUF_I32, &array, NULL) == CRUMB_OK) require(array == v);
}

/* Packs a small tensor and reads its last row both ways: the same floats, or a refusal of its scales. */
static void read_tensor(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    crumb_error err = {0};
    crumb_matrix matrix;
    crumb_matrix_layout layout;
    uint64_t k = t->dims[0], m = t->dims[1] * t->dims[2] * t->dims[3];
    require(crumb_gguf_find_tensor(g, t->name) == t);
    if (!t->supported || t->n_bytes > 1 << 16) return;
    require(crumb_matrix_plan(t->type, m, k, &matrix, &layout, &err) == CRUMB_OK);
    const uint8_t *data = crumb_gguf_tensor_data(g, t);
    uint8_t *base = aligned_alloc(64, layout.total_bytes);
    float *want = malloc(k * 4), *got = malloc(k * 4);
    require(base && want && got);
    crumb_matrix_bind(&matrix, &layout, base);
    if (crumb_matrix_pack(t->type, data, &matrix, &layout, base, 0, (m + 15) / 16, &err) == CRUMB_OK) {
        float scale = t->type == CRUMB_TYPE_I2_S ? crumb_type_i2_s_scale(data, m, k) : 0;
        crumb_type_row_to_f32(t->type, data + (m - 1) * crumb_type_row_bytes(t->type, k), k, scale, want);
        crumb_matrix_row_to_f32(&matrix, m - 1, got);
        require(memcmp(want, got, k * 4) == 0);
    } else {
        require(err.status == CRUMB_ERR_FORMAT && err.message[0]);
    }
    free(base);
    free(want);
    free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    crumb_gguf *g;
    crumb_error err = {0};
    crumb_status status = crumb_gguf_open_memory(data, size, "fuzz.gguf", &g, &err);
    if (status != CRUMB_OK) {
        require(!g && err.status == status && strncmp(err.message, "fuzz.gguf: ", 11) == 0);
        return 0;
    }
    for (size_t i = 0; i < crumb_gguf_n_values(g); i++) read_value(g, crumb_gguf_value_at(g, i));
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++) {
        char name[24];
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        require(crumb_gguf_tensor_type_name(t, name)[0] != 0);
        read_tensor(g, t);
    }
    crumb_gguf_close(g);
    return 0;
}
