/* Opening a device through OpenCL. */
#include "cl/opencl/driver.h"

#include "cl/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the device says of itself what it said when it was asked: nothing, where that fails. */
static bool says(cl_device_id id, cl_device_info what, const char *then) {
    char text[2048] = "", now[CRUMB_CL_TEXT];
    if (clGetDeviceInfo(id, what, sizeof text - 1, text, NULL) != CL_SUCCESS) text[0] = 0;
    crumb_cl_clean_text(text, now);
    return strcmp(now, then) == 0;
}

/* It may be gone since it was asked, the drivers' order may be another, or a driver's library, which the .icd file only
 * names: what has been built and checked is another driver's then. */
bool crumb_cl_driver_find(crumb_device *d) {
    cl_platform_id platforms[16];
    cl_device_id ids[CRUMB_CL_MAX_DEVICES];
    cl_uint n_platforms = 0, n_ids = 0;
    const crumb_cl_facts *f = &d->facts;
    if (!d->driver) d->driver = calloc(1, sizeof *d->driver);
    if (!d->driver) return false;
    if (clGetPlatformIDs(16, platforms, &n_platforms) != CL_SUCCESS || f->platform >= n_platforms || f->platform >= 16)
        return false;
    d->driver->platform = platforms[f->platform];
    if (clGetDeviceIDs(d->driver->platform, CL_DEVICE_TYPE_ALL, CRUMB_CL_MAX_DEVICES, ids, &n_ids) != CL_SUCCESS ||
        f->device >= n_ids || f->device >= CRUMB_CL_MAX_DEVICES)
        return false;
    d->driver->id = ids[f->device];
    return says(d->driver->id, CL_DEVICE_NAME, f->name) && says(d->driver->id, CL_DRIVER_VERSION, f->driver);
}

/* A function of an extension, into a pointer to it; false: the platform has none. A pointer to a function and one to
 * data are different things to C, and the same to every system with OpenCL. */
static bool find_function(const crumb_cl_driver *o, const char *name, void *out) {
    void *address = clGetExtensionFunctionAddressForPlatform(o->platform, name);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

static bool find_usm(crumb_cl_driver *o) {
    return find_function(o, "clDeviceMemAllocINTEL", &o->usm.device_alloc) &&
           find_function(o, "clHostMemAllocINTEL", &o->usm.host_alloc) &&
           find_function(o, "clMemBlockingFreeINTEL", &o->usm.release) &&
           find_function(o, "clSetKernelArgMemPointerINTEL", &o->usm.set_arg) &&
           find_function(o, "clEnqueueMemcpyINTEL", &o->usm.copy) &&
           find_function(o, "clEnqueueMemFillINTEL", &o->usm.fill);
}

static void find_lists(crumb_cl_driver *o) {
    if (!find_function(o, "clCreateCommandBufferKHR", &o->lists.create) ||
        !find_function(o, "clFinalizeCommandBufferKHR", &o->lists.finalize) ||
        !find_function(o, "clReleaseCommandBufferKHR", &o->lists.release) ||
        !find_function(o, "clEnqueueCommandBufferKHR", &o->lists.enqueue) ||
        !find_function(o, "clCommandNDRangeKernelKHR", &o->lists.add_kernel))
        o->lists = (crumb_cl_lists){0};
}

crumb_status crumb_cl_driver_open(crumb_device *d, crumb_error *err) {
    crumb_cl_driver *o = d->driver;
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)o->platform, 0};
    cl_int code;
    CRUMB_TRY(crumb_cl_waiter_create(&o->waiter, err));
    d->has_usm = !d->blas && d->facts.has_usm && find_usm(o); /* CLBlast takes cl_mem only */
    if (d->facts.has_command_buffer) find_lists(o);
    o->context = clCreateContext(properties, 1, &o->id, NULL, NULL, &code);
    if (code != CL_SUCCESS) return crumb_cl_fail(err, d->label, "creating a context", code);
    d->queue = clCreateCommandQueue(o->context, o->id, 0, &code);
    if (code != CL_SUCCESS) return crumb_cl_fail(err, d->label, "creating a queue", code);
    return CRUMB_OK;
}

bool crumb_cl_driver_advise(char *out, size_t size) {
    (void)out, (void)size;
    return false;
}

bool crumb_cl_driver_can_measure(crumb_device *d) {
    cl_int code = CL_SUCCESS;
    if (!d->profiling)
        d->profiling = clCreateCommandQueue(d->driver->context, d->driver->id, CL_QUEUE_PROFILING_ENABLE, &code);
    if (code != CL_SUCCESS) d->profiling = NULL;
    return d->profiling != NULL;
}

void crumb_cl_driver_close(crumb_device *d) {
    if (!d->driver || !crumb_cl_settles(d)) return;
    if (d->profiling) clReleaseCommandQueue(d->profiling);
    if (d->queue) clReleaseCommandQueue(d->queue);
    if (d->driver->context) clReleaseContext(d->driver->context);
    crumb_cl_waiter_destroy(d->driver->waiter);
    free(d->driver);
}

/* ---- what a report says ---------------------------------------------------------------------------------------- */

/* A list of words in lines of some 100 characters. */
static void put_words(const crumb_cl_lines *w, const char *name, const char *words) {
    char text[CRUMB_CL_TEXT] = "", clean[CRUMB_CL_TEXT];
    for (const char *p = words + strspn(words, " "); *p; p += strspn(p, " ")) {
        const size_t n = strcspn(p, " "), used = strlen(text);
        if (used && used + n > 100) {
            crumb_cl_put_text(w, name, text);
            *text = 0;
        }
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.*s", *text ? " " : "", (int)n, p);
        p += n;
    }
    crumb_cl_clean_text(text, clean);
    crumb_cl_put_text(w, name, clean);
}

static void put_query(const crumb_cl_lines *w, cl_device_id id, cl_device_info what, const char *name) {
    size_t n_bytes = 0;
    if (clGetDeviceInfo(id, what, 0, NULL, &n_bytes) != CL_SUCCESS || n_bytes == 0 || n_bytes > 1u << 20) return;
    char *text = calloc(1, n_bytes + 1);
    if (text && clGetDeviceInfo(id, what, n_bytes, text, NULL) == CL_SUCCESS) put_words(w, name, text);
    free(text);
}

static void put_numbers(const crumb_cl_lines *w, cl_device_id id) {
    static const struct {
        cl_device_info what;
        const char *name;
    } queries[] = {{CRUMB_CL_NUM_SLICES, "slices"},
                   {CRUMB_CL_SUB_SLICES, "sub_slices_per_slice"},
                   {CRUMB_CL_EUS_PER_SUB_SLICE, "eus_per_sub_slice"},
                   {CRUMB_CL_THREADS_PER_EU, "threads_per_eu"},
                   {CRUMB_CL_FEATURES, "feature_bits"},
                   {CL_DEVICE_MAX_COMPUTE_UNITS, "compute_units"},
                   {CL_DEVICE_PROFILING_TIMER_RESOLUTION, "timer_resolution_ns"}};
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        uint64_t value = 0;
        size_t n_bytes = 0;
        if (clGetDeviceInfo(id, queries[i].what, sizeof value, &value, &n_bytes) == CL_SUCCESS && n_bytes <= 8)
            crumb_cl_put_number(w, queries[i].name, value);
    }
}

void crumb_cl_driver_describe(const crumb_device *d, void (*line)(void *user, const char *text), void *user) {
    const crumb_cl_lines w = {line, user};
    put_numbers(&w, d->driver->id);
    put_query(&w, d->driver->id, CL_DEVICE_OPENCL_C_VERSION, "opencl_c");
    put_query(&w, d->driver->id, CL_DEVICE_EXTENSIONS, "extensions");
}
