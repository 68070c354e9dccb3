#include "host/engine/verify_copy.h"

#include "host/base/memory.h"

#include <stdlib.h>

static const char purpose[] = "checking the device's kernels";

/* Whose weights are copied, and to where. */
typedef struct source {
    crumb_verify_copies *copies;
    const crumb_backend *backend;
    crumb_device *device;
    crumb_error *err;
} source;

void crumb_verify_drop_copies(crumb_verify_copies *c) {
    for (size_t i = 0; i < c->n; i++) free(c->owned[i]);
    c->n = 0;
}

void crumb_verify_free_copies(crumb_verify_copies *c) {
    crumb_verify_drop_copies(c);
    free((void *)c->owned);
    *c = (crumb_verify_copies){0};
}

crumb_status crumb_verify_own(crumb_verify_copies *c, uint64_t n_bytes, void **out, crumb_error *err) {
    if (c->n == c->capacity) {
        size_t capacity = 2 * c->capacity + 64;
        void **grown = realloc((void *)c->owned, capacity * sizeof *grown);
        if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory to check the device's kernels");
        c->owned = grown;
        c->capacity = capacity;
    }
    /* kernels of the CPU read whole lines */
    CRUMB_TRY(crumb_calloc(1, n_bytes + 64, purpose, out, err));
    c->owned[c->n++] = *out;
    return CRUMB_OK;
}

static crumb_status copy(const source *s, const void *host, uint64_t n_bytes, const void **out) {
    void *memory;
    *out = NULL;
    if (!host || n_bytes == 0) return CRUMB_OK;
    CRUMB_TRY(crumb_verify_own(s->copies, n_bytes, &memory, s->err));
    *out = memory;
    return s->backend->device.buffer_read(s->device, host, n_bytes, memory, s->err);
}

static crumb_status copy_floats(const source *s, const float *host, uint64_t n, const float **out) {
    const void *memory;
    CRUMB_TRY(copy(s, host, n * sizeof *host, &memory));
    *out = memory;
    return CRUMB_OK;
}

/* Rows up to m: the device may have no others. */
static crumb_status copy_matrix(const source *s, const crumb_matrix *w, uint32_t m, const crumb_matrix **out) {
    const crumb_matrix rows = crumb_matrix_rows(w, 0, m);
    const crumb_matrix_bytes n = crumb_matrix_get_bytes(&rows);
    const void *supers, *super_mins;
    void *memory;
    CRUMB_TRY(crumb_verify_own(s->copies, sizeof *w, &memory, s->err));
    crumb_matrix *c = memory;
    *c = *w;
    *out = c;
    CRUMB_TRY(copy(s, w->codes, n.codes, &c->codes));
    CRUMB_TRY(copy(s, w->scales, n.scales, &c->scales));
    CRUMB_TRY(copy(s, w->mins, n.mins, &c->mins));
    CRUMB_TRY(copy(s, w->supers, n.supers, &supers));
    CRUMB_TRY(copy(s, w->super_mins, n.super_mins, &super_mins));
    c->supers = supers;
    c->super_mins = super_mins;
    return CRUMB_OK;
}

crumb_status crumb_verify_copy_weights(crumb_verify_copies *c, const crumb_backend *backend, crumb_device *device,
                                       const crumb_value_info *values, crumb_op *op, crumb_error *err) {
    const source s = {.copies = c, .backend = backend, .device = device, .err = err};
    switch (op->kind) {
    case CRUMB_OP_EMBED: return copy_matrix(&s, op->embed.table, op->embed.table->m, &op->embed.table);
    case CRUMB_OP_RMS_NORM: {
        const uint32_t width = op->norm.head_dim ? op->norm.head_dim : values[op->norm.x].width;
        return copy_floats(&s, op->norm.weight, width, &op->norm.weight);
    }
    case CRUMB_OP_ROPE: return copy_floats(&s, op->rope.inv_freq, op->rope.dims / 2, &op->rope.inv_freq);
    case CRUMB_OP_LINEAR:
        for (int i = 0; i < op->linear.n_parts; i++) {
            crumb_linear_part *part = &op->linear.part[i];
            CRUMB_TRY(copy_floats(&s, part->bias, part->w->m, &part->bias));
            CRUMB_TRY(copy_matrix(&s, part->w, part->m1, &part->w));
        }
        return CRUMB_OK;
    case CRUMB_OP_GATHER: {
        const void *from;
        CRUMB_TRY(copy(&s, op->gather.from, values[op->gather.x].width * sizeof *op->gather.from, &from));
        op->gather.from = from;
        return CRUMB_OK;
    }
    case CRUMB_OP_INPUT:
    case CRUMB_OP_ATTENTION:
    case CRUMB_OP_GATED:
    case CRUMB_OP_SELECT:
    case CRUMB_OP_TOP:
    case CRUMB_OP_PLACE:
    case CRUMB_OP_SIGNAL:
    case CRUMB_OP_WAIT: break;
    }
    return CRUMB_OK;
}
