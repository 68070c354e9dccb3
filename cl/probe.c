#include "cl/probe.h"

#include "cl/program.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>

enum { LOCAL = 64, LAUNCHES = 32, MAX_ROUNDS = 1 << 20, N_PEAKS = 3, VECTOR = 16, PAGE = 256 };

struct crumb_cl_probe {
    crumb_device *d;
    crumb_cl_memory memory, out;
    uint64_t n_bytes;
    cl_kernel read, empty, dot[N_PEAKS]; /* dot: NULL until asked for, or what does not build */
    uint32_t rounds[N_PEAKS];            /* that take about a millisecond; 0: not known yet */
};

double crumb_cl_event_ns(cl_event first, cl_event last) {
    cl_ulong begin = 0, end = 0;
    bool known = first && last &&
                 clGetEventProfilingInfo(first, CL_PROFILING_COMMAND_START, sizeof begin, &begin, NULL) == CL_SUCCESS &&
                 clGetEventProfilingInfo(last, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) == CL_SUCCESS;
    if (first) clReleaseEvent(first);
    if (last && last != first) clReleaseEvent(last);
    return known && end > begin ? (double)(end - begin) : 0;
}

/* ---- launching ----------------------------------------------------------------------------------------------- */

/* Launches `count` times and waits. *ns: from the first one's begin to the last one's end. */
static cl_int launch(const crumb_cl_probe *p, cl_kernel kernel, size_t groups, size_t local, uint32_t count,
                     double *ns) {
    const size_t global = groups * local;
    cl_event first = NULL, last = NULL;
    cl_int code = CL_SUCCESS;
    for (uint32_t i = 0; i < count && code == CL_SUCCESS; i++) {
        cl_event *event = i == 0 ? &first : i + 1 == count ? &last : NULL;
        code = clEnqueueNDRangeKernel(p->d->profiling, kernel, 1, NULL, &global, &local, 0, NULL, event);
    }
    const cl_int done = clFinish(p->d->profiling);
    if (code == CL_SUCCESS) code = done;
    *ns = crumb_cl_event_ns(first, count > 1 ? last : first);
    if (code != CL_SUCCESS) *ns = 0;
    return code;
}

/* Enough items to fill the device several times over: Intel's units have 8 threads of 16 lanes. */
static size_t fill_groups(const crumb_cl_probe *p) {
    const size_t units = (size_t)(p->d->facts.units ? p->d->facts.units : 1);
    return units * (p->d->facts.is_gpu ? 16 : 4);
}

/* Memory: side by side on a GPU; on a processor each item reads pages of its own, as vectors of what it finds there. */
static cl_int read_all(const crumb_cl_probe *p, double *ns) {
    return launch(p, p->read, fill_groups(p), p->d->facts.is_gpu ? LOCAL : 1, 1, ns);
}

static cl_int set_u32(cl_kernel kernel, cl_uint index, uint32_t value) {
    return clSetKernelArg(kernel, index, sizeof value, &value);
}

/* ---- the probe ----------------------------------------------------------------------------------------------- */

/* Several times the cache, but never much of a small device's memory. */
static uint64_t buffer_bytes(const crumb_device *d) {
    const uint64_t least = 64u << 20, most = d->facts.memory_bytes / 8;
    cl_ulong cache = 0;
    if (clGetDeviceInfo(d->id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof cache, &cache, NULL) != CL_SUCCESS) cache = 0;
    uint64_t n = 4 * cache > least ? 4 * cache : least;
    if (n > most) n = most;
    if (n > d->facts.max_alloc_bytes) n = d->facts.max_alloc_bytes;
    return n / 4096 * 4096;
}

static crumb_status fill(crumb_cl_probe *p, crumb_error *err) {
    crumb_device *d = p->d;
    cl_kernel kernel;
    double ns;
    CRUMB_TRY(crumb_cl_kernel_create(d, "probe.cl", "", "probe_fill", &kernel, err));
    cl_int code = crumb_cl_set_memory(d, kernel, 0, &p->memory);
    if (code == CL_SUCCESS) code = set_u32(kernel, 1, (uint32_t)(p->n_bytes / VECTOR));
    if (code == CL_SUCCESS) code = launch(p, kernel, fill_groups(p), LOCAL, 1, &ns);
    clReleaseKernel(kernel);
    return code == CL_SUCCESS ? CRUMB_OK : crumb_cl_fail(err, d->label, "filling memory", code);
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
    cl_int code = crumb_cl_set_memory(d, p->read, 0, &p->memory);
    if (code == CL_SUCCESS) code = set_u32(p->read, 1, (uint32_t)(p->n_bytes / VECTOR));
    if (code == CL_SUCCESS) code = set_u32(p->read, 2, d->facts.is_gpu ? 1 : PAGE);
    if (code == CL_SUCCESS) code = crumb_cl_set_memory(d, p->read, 3, &p->out);
    if (code == CL_SUCCESS) code = crumb_cl_set_memory(d, p->empty, 0, &p->out);
    return code == CL_SUCCESS ? CRUMB_OK : crumb_cl_fail(err, d->label, "a probe", code);
}

crumb_status crumb_cl_probe_create(crumb_device *d, crumb_cl_probe **out, crumb_error *err) {
    void *memory;
    *out = NULL;
    if (!crumb_cl_device_can_measure(d))
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
    if (p->read) clReleaseKernel(p->read);
    if (p->empty) clReleaseKernel(p->empty);
    for (int i = 0; i < N_PEAKS; i++)
        if (p->dot[i]) clReleaseKernel(p->dot[i]);
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
    const cl_int code = read_all(p, &ns);
    return code == CL_SUCCESS ? CRUMB_OK : crumb_cl_fail(err, p->d->label, "reading memory", code);
}

/* Sums that an item keeps at once: what hides latency, and still lies in registers. */
static uint32_t chains_of(const crumb_cl_probe *p, int peak) {
    return p->d->facts.is_gpu && peak < 2 ? 8 : 4; /* those of matrix instructions are 8 registers each */
}

static cl_kernel dot_kernel(crumb_cl_probe *p, int peak) {
    char options[96];
    crumb_device *d = p->d;
    if (p->dot[peak]) return p->dot[peak];
    snprintf(options, sizeof options, "%s-D PEAK=%d -D SUB_GROUP=%u -D CHAINS=%u", peak ? "-cl-std=CL3.0 " : "", peak,
             peak == 2 ? crumb_cl_device_most(d).sub_group : 0, chains_of(p, peak));
    if (crumb_cl_kernel_create(d, "probe.cl", options, "probe_dot", &p->dot[peak], NULL) != CRUMB_OK)
        return p->dot[peak] = NULL;
    return crumb_cl_set_memory(d, p->dot[peak], 1, &p->out) == CL_SUCCESS ? p->dot[peak] : NULL;
}

double crumb_cl_probe_dot(crumb_cl_probe *p, crumb_cl_rung rung) {
    const double enough_ns = 1e6;
    const int peak = rung >= CRUMB_CL_DPAS_I8 ? 2 : rung == CRUMB_CL_DP4A ? 1 : 0;
    const double items = (double)fill_groups(p) * LOCAL, operations = peak == 2 ? 512 : 8;
    cl_kernel kernel = dot_kernel(p, peak);
    uint32_t *rounds = &p->rounds[peak];
    double ns = 0;
    if (!kernel) return 0;
    for (bool known = *rounds != 0; !known || ns == 0;) {
        if (!known) *rounds = *rounds ? *rounds * 4 : 64;
        if (set_u32(kernel, 0, *rounds) != CL_SUCCESS || launch(p, kernel, fill_groups(p), LOCAL, 1, &ns) != CL_SUCCESS)
            return 0;
        if (ns == 0) return 0;
        known = known || ns >= enough_ns || *rounds >= MAX_ROUNDS;
    }
    return items * operations * chains_of(p, peak) * *rounds / ns;
}
