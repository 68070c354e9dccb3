#include "host/container/gguf_rows.h"

#include "host/base/file.h"
#include "host/base/memory.h"

#include <stdlib.h>

typedef struct reading {
    const crumb_gguf *g;
    const crumb_gguf_tensor *t;
    uint64_t first, n;
    float *out;
    float *stored; /* [dims[0]] a row as it is in the file, where its columns stand in an order of their own */
} reading;

uint64_t crumb_gguf_n_rows(const crumb_gguf_tensor *t) {
    return t->dims[1] * t->dims[2] * t->dims[3];
}

/* Runs inside crumb_file_guard. */
static crumb_status read_guarded(void *ctx, crumb_error *err) {
    const reading *r = ctx;
    const crumb_gguf_tensor *t = r->t;
    const uint64_t k = t->dims[0], row_bytes = crumb_type_row_bytes(t->type, k);
    const uint8_t *data = crumb_gguf_tensor_data(r->g, t);
    const float scale = t->type == CRUMB_TYPE_I2_S ? crumb_type_i2_s_scale(data, crumb_gguf_n_rows(t), k) : 0;
    for (uint64_t i = 0; i < r->n; i++) {
        float *row = r->out + i * k, sum = 0;
        crumb_type_row_to_f32(t->type, data + (r->first + i) * row_bytes, k, scale, t->order ? r->stored : row);
        for (uint64_t c = 0; t->order && c < k; c++) row[t->order[c]] = r->stored[c];
        for (uint64_t c = 0; c < k; c++) sum += row[c] * 0; /* NaN where any is not finite */
        if (sum != 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT,
                              "tensor '%.80s': row %llu: a weight is NaN or infinite; the file is damaged", t->name,
                              (unsigned long long)(r->first + i));
    }
    return CRUMB_OK;
}

crumb_status crumb_gguf_read_rows(const crumb_gguf *g, const crumb_gguf_tensor *t, uint64_t first, uint64_t n,
                                  float *out, crumb_error *err) {
    reading r = {.g = g, .t = t, .first = first, .n = n, .out = out};
    if (t->order) CRUMB_TRY(crumb_calloc(t->dims[0], sizeof *r.stored, "a row of weights", (void **)&r.stored, err));
    const crumb_status status = crumb_file_guard(crumb_gguf_path(g), read_guarded, &r, err);
    free(r.stored);
    return status;
}

crumb_status crumb_gguf_read_tensor(const crumb_gguf *g, const crumb_gguf_tensor *t, float *out, crumb_error *err) {
    CRUMB_TRY(crumb_gguf_tensor_hold(g, t, err));
    const crumb_status status = crumb_gguf_read_rows(g, t, 0, crumb_gguf_n_rows(t), out, err);
    crumb_gguf_tensor_drop(g, t);
    crumb_gguf_tensor_release(g, t);
    return status;
}
