#include "host/container/gguf_source.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/container/gguf_parse.h"

#include <stdlib.h>

enum { N_LOCKS = 16 }; /* tensors share them: threads make different tensors at once */

typedef struct made_tensor {
    uint8_t *bytes; /* NULL: not made, or released */
    uint32_t n_holders;
} made_tensor;

struct gguf_source_state {
    crumb_gguf_source source;
    made_tensor *made; /* [source.n] */
    crumb_lock *locks[N_LOCKS];
};

static size_t index_of(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    return (size_t)(t - g->tensors);
}

static crumb_lock *lock_of(const crumb_gguf *g, size_t index) {
    return g->source->locks[index % N_LOCKS];
}

static crumb_status make(const struct gguf_source_state *s, size_t index, uint64_t n_bytes, made_tensor *made,
                         crumb_error *err) {
    if (made->bytes || s->source.view(s->source.user, index)) return CRUMB_OK;
    CRUMB_TRY(crumb_pages_alloc(n_bytes, "a tensor", (void **)&made->bytes, err));
    const crumb_status status = s->source.make(s->source.user, index, made->bytes, err);
    s->source.release(s->source.user, index);
    if (status == CRUMB_OK) return CRUMB_OK;
    crumb_pages_free(made->bytes, n_bytes);
    made->bytes = NULL;
    return status;
}

crumb_status crumb_gguf_tensor_hold(const crumb_gguf *g, const crumb_gguf_tensor *t, crumb_error *err) {
    if (!g->source) return CRUMB_OK;
    const size_t index = index_of(g, t);
    made_tensor *made = &g->source->made[index];
    crumb_lock_take(lock_of(g, index));
    const crumb_status status = make(g->source, index, t->n_bytes, made, err);
    if (status == CRUMB_OK) made->n_holders++;
    crumb_lock_release(lock_of(g, index));
    return status;
}

void crumb_gguf_tensor_drop(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    if (!g->source) return;
    const size_t index = index_of(g, t);
    crumb_lock_take(lock_of(g, index));
    g->source->made[index].n_holders--;
    crumb_lock_release(lock_of(g, index));
}

const uint8_t *gguf_source_data(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    const struct gguf_source_state *s = g->source;
    const size_t index = index_of(g, t);
    const uint8_t *bytes = s->made[index].bytes;
    return bytes ? bytes : s->source.view(s->source.user, index);
}

void gguf_source_release(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    const size_t index = index_of(g, t);
    made_tensor *made = &g->source->made[index];
    crumb_lock_take(lock_of(g, index));
    if (made->n_holders == 0) {
        if (made->bytes) crumb_pages_free(made->bytes, t->n_bytes);
        made->bytes = NULL;
        g->source->source.release(g->source->source.user, index);
    }
    crumb_lock_release(lock_of(g, index));
}

void gguf_source_close(crumb_gguf *g) {
    struct gguf_source_state *s = g->source;
    if (!s) return;
    for (size_t i = 0; s->made && i < s->source.n; i++)
        if (s->made[i].bytes) crumb_pages_free(s->made[i].bytes, g->tensors[i].n_bytes);
    for (int i = 0; i < N_LOCKS; i++)
        if (s->locks[i]) crumb_lock_destroy(s->locks[i]);
    s->source.close(s->source.user);
    free(s->made);
    free(s);
    g->source = NULL;
}

static crumb_status size_tensor(crumb_gguf *g, crumb_gguf_tensor *t, crumb_error *err) {
    uint64_t rows = 0;
    crumb_status status = CRUMB_OK;
    t->supported = true;
    if (!crumb_mul_u64(t->dims[1], t->dims[2], &rows) || !crumb_mul_u64(rows, t->dims[3], &rows))
        status = crumb_fail(err, CRUMB_ERR_FORMAT, "its size overflows");
    if (status == CRUMB_OK) status = crumb_type_tensor_bytes(t->type, rows, t->dims[0], &t->n_bytes, err);
    if (status != CRUMB_OK) return crumb_fail_prefix(err, status, "%s: tensor '%.80s'", g->parts[0].path, t->name);
    if (!crumb_add_u64(g->data_bytes, t->n_bytes, &g->data_bytes)) g->data_bytes = UINT64_MAX;
    return CRUMB_OK;
}

static crumb_status attach(crumb_gguf *g, const crumb_gguf_source *source, crumb_error *err) {
    struct gguf_source_state *s = g->source;
    free(g->tensors);
    free(g->tensors_by_name);
    g->tensors = NULL;
    g->tensors_by_name = NULL;
    CRUMB_TRY(crumb_calloc(s->source.n, sizeof *s->made, "the list of tensors", (void **)&s->made, err));
    CRUMB_TRY(crumb_calloc(s->source.n, sizeof *g->tensors, "the list of tensors", (void **)&g->tensors, err));
    g->n_tensors = s->source.n;
    for (int i = 0; i < N_LOCKS; i++) CRUMB_TRY(crumb_lock_create(&s->locks[i], err));
    for (size_t i = 0; i < g->n_tensors; i++) {
        g->tensors[i] = source->tensors[i];
        CRUMB_TRY(size_tensor(g, &g->tensors[i], err));
    }
    return gguf_index_tensors(g, err);
}

crumb_status crumb_gguf_open_source(crumb_gguf_builder *keys, const char *name, const crumb_gguf_source *source,
                                    crumb_gguf **out, crumb_error *err) {
    struct gguf_source_state *state = NULL;
    crumb_status status = crumb_gguf_build_open(keys, name, out);
    if (status == CRUMB_OK) status = crumb_calloc(1, sizeof *state, "a model's tensors", (void **)&state, err);
    if (status != CRUMB_OK) {
        source->close(source->user);
    } else {
        state->source = *source;
        (*out)->source = state;
        status = attach(*out, source, err);
    }
    if (status == CRUMB_OK) return status;
    crumb_gguf_close(*out);
    *out = NULL;
    return status;
}
