#include "cl/commands.h"

#include "cl/plan.h"

#include <stdlib.h>
#include <string.h>

static bool has_extension(cl_device_id id, const char *name) {
    size_t n = 0;
    if (clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, 0, NULL, &n) != CL_SUCCESS || n == 0) return false;
    char *list = calloc(1, n + 1);
    const bool has = list && clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, n, list, NULL) == CL_SUCCESS;
    bool found = false;
    for (const char *at = list; has && !found && (at = strstr(at, name)); at++) {
        const char after = at[strlen(name)];
        found = (at == list || at[-1] == ' ') && (after == ' ' || after == 0);
    }
    free(list);
    return found;
}

/* A pointer to a function and one to data are different things to C, and the same to every system with OpenCL. */
static bool find_function(const crumb_device *d, const char *name, void *out) {
    void *address = clGetExtensionFunctionAddressForPlatform(d->platform, name);
    memcpy(out, &address, sizeof address);
    return address != NULL;
}

void crumb_cl_commands_find(const crumb_device *d, crumb_cl_commands *out) {
    *out = (crumb_cl_commands){0};
    out->usable = has_extension(d->id, "cl_khr_command_buffer") &&
                  find_function(d, "clCreateCommandBufferKHR", &out->create) &&
                  find_function(d, "clFinalizeCommandBufferKHR", &out->finalize) &&
                  find_function(d, "clReleaseCommandBufferKHR", &out->release) &&
                  find_function(d, "clEnqueueCommandBufferKHR", &out->enqueue) &&
                  find_function(d, "clCommandNDRangeKernelKHR", &out->add_kernel);
}

void crumb_cl_commands_free(crumb_cl_commands *c) {
    if (c->buffer) c->release(c->buffer);
    c->buffer = NULL;
}

/* The queue is in order, and so are the commands recorded for it. */
static cl_int record(crumb_plan *p) {
    crumb_cl_commands *c = &p->commands;
    cl_int code;
    c->buffer = c->create(1, &p->device->queue, NULL, &code);
    if (code != CL_SUCCESS) c->buffer = NULL;
    for (size_t i = 0; i < p->n_launches && code == CL_SUCCESS; i++) {
        const crumb_cl_launch *l = &p->launches[i];
        size_t global[3];
        if (crumb_cl_launch_sizes(p, l, global))
            code =
                c->add_kernel(c->buffer, NULL, NULL, l->kernel, l->n_dims, NULL, global, l->local, 0, NULL, NULL, NULL);
    }
    return code == CL_SUCCESS ? c->finalize(c->buffer) : code;
}

static bool same(const crumb_cl_sizes *a, const crumb_cl_sizes *b) {
    return a->n_rows == b->n_rows && a->n_outputs == b->n_outputs && a->chunks == b->chunks;
}

bool crumb_cl_commands_ready(crumb_plan *p, const crumb_cl_sizes *sizes) {
    crumb_cl_commands *c = &p->commands;
    const bool again = same(&c->last, sizes);
    c->last = *sizes;
    if (!c->usable || !again) return false;
    if (c->buffer && same(&c->recorded, sizes)) return true;
    crumb_cl_commands_free(c);
    c->recorded = *sizes;
    c->usable = record(p) == CL_SUCCESS;
    if (!c->usable) crumb_cl_commands_free(c);
    return c->usable;
}

cl_int crumb_cl_commands_run(const crumb_plan *p) {
    return p->commands.enqueue(0, NULL, p->commands.buffer, 0, NULL, NULL);
}
