#include "cl/probe.h"

#include "cl/program.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { LOCAL = 64, LAUNCHES = 32, MAX_ROUNDS = 1 << 20, N_PEAKS = 3, VECTOR = 16, PAGE = 256 };

struct crumb_cl_probe {
    crumb_device *d;
    crumb_cl_memory memory, out;
    uint64_t n_bytes, flushed_bytes;
    crumb_cl_call read, empty, dot[N_PEAKS]; /* dot: NULL until asked for, or what does not build */
    uint32_t rounds[N_PEAKS];                /* that take about a millisecond; 0: not known yet */
};

double crumb_cl_events_ns(crumb_device *d, crumb_cl_event first, crumb_cl_event last) {
    uint64_t ns = 0;
    const bool known = last && crumb_cl_event_span(first ? first : last, last, &ns);
    if (first) crumb_cl_event_release(d, first);
    if (last) crumb_cl_event_release(d, last);
    return known ? (double)ns : 0;
}

/* ---- launching ----------------------------------------------------------------------------------------------- */

/* Launches `count` times and waits. *ns: from the first one's begin to the last one's end. */
static crumb_cl_code launch(const crumb_cl_probe *p, crumb_cl_call call, size_t groups, size_t local, uint32_t count,
                            double *ns) {
    const size_t global = groups * local;
    crumb_cl_event first = NULL, last = NULL;
    crumb_cl_code code = CRUMB_CL_OK;
    for (uint32_t i = 0; i < count && code == CRUMB_CL_OK; i++) {
        crumb_cl_event *event = i + 1 == count ? &last : i == 0 ? &first : NULL;
        code = crumb_cl_queue_launch(p->d, p->d->profiling, call, 1, &global, &local, event);
    }
    const crumb_cl_code done = crumb_cl_queue_finish(p->d, p->d->profiling);
    if (code == CRUMB_CL_OK) code = done;
    *ns = crumb_cl_events_ns(p->d, first, last);
    if (code != CRUMB_CL_OK) *ns = 0;
    return code;
}

/* Enough items to fill the device several times over: Intel's units have 8 threads of 16 lanes. */
static size_t fill_groups(const crumb_cl_probe *p) {
    const size_t units = (size_t)(p->d->facts.units ? p->d->facts.units : 1);
    return units * (p->d->facts.is_gpu ? 16 : 4);
}

/* Memory: side by side on a GPU; on a processor each item reads pages of its own, as vectors of what it finds there. */
static crumb_cl_code read_all(const crumb_cl_probe *p, double *ns) {
    return launch(p, p->read, fill_groups(p), p->d->facts.is_gpu ? LOCAL : 1, 1, ns);
}

static crumb_cl_code set_u32(crumb_cl_call call, uint32_t index, uint32_t value) {
    return crumb_cl_call_set(call, index, sizeof value, &value);
}

/* ---- the probe ----------------------------------------------------------------------------------------------- */

/* Several times the cache, but never much of a small device's memory. */
static uint64_t buffer_bytes(const crumb_device *d) {
    const uint64_t least = 64u << 20, most = d->facts.memory_bytes / 8;
    uint64_t n = 4 * d->facts.cache_bytes > least ? 4 * d->facts.cache_bytes : least;
    if (n > most) n = most;
    if (n > d->facts.max_alloc_bytes) n = d->facts.max_alloc_bytes;
    return n / 4096 * 4096;
}

static crumb_status fill(crumb_cl_probe *p, crumb_error *err) {
    crumb_device *d = p->d;
    crumb_cl_call call;
    double ns;
    CRUMB_TRY(crumb_cl_kernel_create(d, "probe.cl", "", "probe_fill", &call, err));
    crumb_cl_code code = crumb_cl_call_set_memory(d, call, 0, &p->memory);
    if (code == CRUMB_CL_OK) code = set_u32(call, 1, (uint32_t)(p->n_bytes / VECTOR));
    if (code == CRUMB_CL_OK) code = launch(p, call, fill_groups(p), LOCAL, 1, &ns);
    crumb_cl_call_release(call);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, d->label, "filling memory", code);
}

static crumb_status set_up(crumb_cl_probe *p, crumb_error *err) {
    crumb_device *d = p->d;
    p->n_bytes = buffer_bytes(d);
    CRUMB_TRY(crumb_cl_memory_create(d, p->n_bytes, "a probe", &p->memory, err));
    CRUMB_TRY(crumb_cl_memory_create(d, sizeof(uint32_t), "a probe", &p->out, err));
    CRUMB_TRY(fill(p, err));
    CRUMB_TRY(
        crumb_cl_kernel_create(d, "probe.cl", "", d->facts.is_gpu ? "probe_stream" : "probe_read", &p->read, err));
    CRUMB_TRY(crumb_cl_kernel_create(d, "probe.cl", "", "probe_empty", &p->empty, err));
    crumb_cl_code code = crumb_cl_call_set_memory(d, p->read, 0, &p->memory);
    if (code == CRUMB_CL_OK) code = set_u32(p->read, 1, (uint32_t)(p->n_bytes / VECTOR));
    if (code == CRUMB_CL_OK) code = set_u32(p->read, 2, d->facts.is_gpu ? 1 : PAGE);
    if (code == CRUMB_CL_OK) code = crumb_cl_call_set_memory(d, p->read, 3, &p->out);
    if (code == CRUMB_CL_OK) code = crumb_cl_call_set_memory(d, p->empty, 0, &p->out);
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, d->label, "a probe", code);
}

crumb_status crumb_cl_probe_create(crumb_device *d, crumb_cl_probe **out, crumb_error *err) {
    void *memory;
    *out = NULL;
    if (!crumb_cl_driver_can_measure(d))
        return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: its driver cannot measure kernels", d->label);
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "a probe", &memory, err));
    crumb_cl_probe *p = memory;
    p->d = d;
    crumb_status status = set_up(p, err);
    if (status == CRUMB_OK)
        *out = p;
    else
        crumb_cl_probe_destroy(p);
    return status;
}

void crumb_cl_probe_destroy(crumb_cl_probe *p) {
    if (!p) return;
    if (p->read) crumb_cl_call_release(p->read);
    if (p->empty) crumb_cl_call_release(p->empty);
    for (int i = 0; i < N_PEAKS; i++)
        if (p->dot[i]) crumb_cl_call_release(p->dot[i]);
    crumb_cl_memory_free(p->d, &p->memory);
    crumb_cl_memory_free(p->d, &p->out);
    free(p);
}

/* ---- measurements -------------------------------------------------------------------------------------------- */

double crumb_cl_probe_read(crumb_cl_probe *p) {
    double ns;
    read_all(p, &ns);
    return ns > 0 ? (double)p->n_bytes / ns : 0;
}

double crumb_cl_probe_launch(crumb_cl_probe *p) {
    double ns;
    launch(p, p->empty, 1, LOCAL, LAUNCHES, &ns);
    return ns / LAUNCHES;
}

crumb_status crumb_cl_probe_flush(crumb_cl_probe *p, crumb_error *err) {
    double ns;
    const crumb_cl_code code = read_all(p, &ns);
    if (code == CRUMB_CL_OK) p->flushed_bytes += p->n_bytes;
    return code == CRUMB_CL_OK ? CRUMB_OK : crumb_cl_fail(err, p->d->label, "reading memory", code);
}

uint64_t crumb_cl_probe_flushed(const crumb_cl_probe *p) {
    return p ? p->flushed_bytes : 0;
}

/* Sums that an item keeps at once: what hides latency, and still lies in registers. */
static uint32_t chains_of(const crumb_cl_probe *p, int peak) {
    return p->d->facts.is_gpu && peak < 2 ? 8 : 4; /* those of matrix instructions are 8 registers each */
}

static crumb_cl_call dot_call(crumb_cl_probe *p, int peak) {
    char options[96];
    crumb_device *d = p->d;
    if (p->dot[peak]) return p->dot[peak];
    snprintf(options, sizeof options, "%s-D PEAK=%d -D SUB_GROUP=%u -D CHAINS=%u", peak ? "-cl-std=CL3.0 " : "", peak,
             peak == 2 ? crumb_cl_device_most(d).sub_group : 0, chains_of(p, peak));
    if (crumb_cl_kernel_create(d, "probe.cl", options, "probe_dot", &p->dot[peak], NULL) != CRUMB_OK)
        return p->dot[peak] = NULL;
    return crumb_cl_call_set_memory(d, p->dot[peak], 1, &p->out) == CRUMB_CL_OK ? p->dot[peak] : NULL;
}

double crumb_cl_probe_dot(crumb_cl_probe *p, crumb_cl_rung rung) {
    const double enough_ns = 1e6;
    const int peak = rung >= CRUMB_CL_DPAS_I8 ? 2 : rung == CRUMB_CL_DP4A ? 1 : 0;
    const double items = (double)fill_groups(p) * LOCAL, operations = peak == 2 ? 512 : 8;
    crumb_cl_call call = dot_call(p, peak);
    uint32_t *rounds = &p->rounds[peak];
    double ns = 0;
    if (!call) return 0;
    for (bool known = *rounds != 0; !known || ns == 0;) {
        if (!known) *rounds = *rounds ? *rounds * 4 : 64;
        if (set_u32(call, 0, *rounds) != CRUMB_CL_OK || launch(p, call, fill_groups(p), LOCAL, 1, &ns) != CRUMB_CL_OK)
            return 0;
        if (ns == 0) return 0;
        known = known || ns >= enough_ns || *rounds >= MAX_ROUNDS;
    }
    return items * operations * chains_of(p, peak) * *rounds / ns;
}
