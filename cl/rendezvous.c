#include "cl/rendezvous.h"

#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/kernel/rendezvous.h"

#include <stdlib.h>
#include <string.h>

/* ---- shared memory ------------------------------------------------------------------------------------------- */

typedef struct crumb_cl_shared {
    struct crumb_cl_shared *next;
    char *memory;
    uint64_t n_bytes;
} crumb_cl_shared;

crumb_status crumb_cl_shared_create(crumb_device *d, uint64_t n_bytes, void **out, crumb_error *err) {
    void *memory;
    *out = NULL;
    if (d->ladder.bf16)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "%s has values in bf16 (its target ends with +bf16): it cannot work on a layer together with "
                          "another device",
                          d->label);
    if (!d->has_usm)
        return crumb_fail(
            err, CRUMB_ERR_UNSUPPORTED,
            "%s has no memory that host and kernels share (cl_intel_unified_shared_memory): it cannot work "
            "on a layer together with another device",
            d->label);
    CRUMB_TRY(crumb_calloc(1, sizeof(crumb_cl_shared), "what devices share", &memory, err));
    crumb_cl_shared *s = memory;
    s->n_bytes = n_bytes ? n_bytes : 64;
    const crumb_cl_code code = crumb_cl_driver_allocate_host(d, s->n_bytes, 64, &memory);
    if (code != CRUMB_CL_OK) {
        free(s);
        return crumb_cl_fail(err, d->label, "what devices share", code);
    }
    s->memory = memory;
    memset(s->memory, 0, (size_t)s->n_bytes);
    s->next = d->shared;
    d->shared = s;
    *out = s->memory;
    return CRUMB_OK;
}

void crumb_cl_shared_destroy(crumb_device *d, void *shared, uint64_t n_bytes) {
    (void)n_bytes;
    for (crumb_cl_shared **at = &d->shared; *at; at = &(*at)->next) {
        crumb_cl_shared *s = *at;
        if (s->memory != shared) continue;
        *at = s->next;
        crumb_cl_driver_free_host(d, s->memory);
        free(s);
        return;
    }
}

bool crumb_cl_shared_has(const crumb_device *d, const void *at, uint64_t n_bytes) {
    for (const crumb_cl_shared *s = d->shared; s; s = s->next) {
        const uint64_t offset = (uint64_t)((uintptr_t)at - (uintptr_t)s->memory);
        if (offset < s->n_bytes && n_bytes <= s->n_bytes - offset) return true;
    }
    return false;
}

/* ---- meetings ------------------------------------------------------------------------------------------------ */

crumb_status crumb_cl_meetings_add(crumb_cl_meetings *m, size_t launch, const crumb_op *op, crumb_error *err) {
    crumb_cl_rendezvous *grown = realloc(m->items, (m->n + 1) * sizeof *grown);
    if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a plan");
    m->items = grown;
    m->items[m->n++] = (crumb_cl_rendezvous){.launch = launch,
                                             .waits = op->kind == CRUMB_OP_WAIT,
                                             .flag = op->rendezvous.flag,
                                             .waited = op->rendezvous.waited,
                                             .given_up = op->rendezvous.given_up};
    return CRUMB_OK;
}

/* Raises the flags of signals that are due. The queue is in order, and so are they. */
static crumb_cl_code raise_flags(crumb_cl_meetings *m, crumb_device *d, uint32_t number) {
    for (; m->raised < m->next; m->raised++) {
        crumb_cl_rendezvous *r = &m->items[m->raised];
        bool over;
        if (r->waits) continue;
        const crumb_cl_code code = crumb_cl_event_query(r->done, &over);
        if (code != CRUMB_CL_OK || !over) return code;
        crumb_cl_event_release(d, r->done);
        r->done = NULL;
        crumb_flag_raise(r->flag, number);
    }
    return CRUMB_CL_OK;
}

/* What the device works at until its own flags are raised is no waiting of it. */
static crumb_status wait_for(crumb_cl_meetings *m, crumb_device *d, const crumb_cl_rendezvous *r, uint32_t number,
                             crumb_error *err) {
    crumb_patience patience = {0};
    uint64_t idle_since = 0;
    while (!crumb_flag_is_raised(r->flag, number)) {
        const crumb_cl_code code = raise_flags(m, d, number);
        if (code != CRUMB_CL_OK) return crumb_cl_fail(err, d->label, "running a plan", code);
        if (!idle_since && m->raised == m->next) idle_since = crumb_now_ns();
        if (!crumb_patience_wait(&patience, r->given_up)) {
            /* It may be this device whose signal the other has waited for in vain, and which must not be waited for. */
            if (m->raised < m->next) crumb_cl_limit_end(&d->limit);
            return m->raised < m->next ? crumb_cl_fail(err, d->label, "running a plan", CRUMB_CL_STUCK)
                                       : crumb_patience_fail(d->label, err);
        }
    }
    if (r->waited && idle_since) *r->waited += crumb_now_ns() - idle_since;
    return CRUMB_OK;
}

crumb_status crumb_cl_meet(crumb_cl_meetings *m, crumb_device *d, crumb_cl_queue queue, size_t launch, uint32_t number,
                           crumb_error *err) {
    crumb_cl_code code = CRUMB_CL_OK;
    if (launch == 0) m->next = m->raised = 0;
    while (m->next < m->n && m->items[m->next].launch == launch && code == CRUMB_CL_OK) {
        crumb_cl_rendezvous *r = &m->items[m->next];
        if (r->waits)
            CRUMB_TRY(wait_for(m, d, r, number, err));
        else
            code = crumb_cl_queue_mark(d, queue, &r->done);
        if (code == CRUMB_CL_OK) m->next++;
    }
    if (code == CRUMB_CL_OK) code = raise_flags(m, d, number);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, d->label, "running a plan", code);
}

crumb_status crumb_cl_meetings_end(crumb_cl_meetings *m, crumb_device *d, uint32_t number, crumb_error *err) {
    for (; m->raised < m->next; m->raised++) { /* the last are waited for, which costs no attention */
        crumb_cl_rendezvous *r = &m->items[m->raised];
        if (r->waits) continue;
        const crumb_cl_code code = crumb_cl_event_wait(d, r->done);
        if (code != CRUMB_CL_OK) return crumb_cl_fail(err, d->label, "running a plan", code);
        crumb_cl_event_release(d, r->done);
        r->done = NULL;
        crumb_flag_raise(r->flag, number);
    }
    return CRUMB_OK;
}

void crumb_cl_meetings_drop(crumb_cl_meetings *m, crumb_device *d) {
    for (size_t i = 0; i < m->n; i++) {
        if (m->items[i].done) crumb_cl_event_release(d, m->items[i].done);
        m->items[i].done = NULL;
    }
}

void crumb_cl_meetings_free(crumb_cl_meetings *m, crumb_device *d) {
    crumb_cl_meetings_drop(m, d);
    free(m->items);
    *m = (crumb_cl_meetings){0};
}
