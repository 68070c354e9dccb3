/* An OpenCL layer (the loader's OPENCL_LAYERS) that counts: calls, calls that return an error, and objects that are
 * made and never released. When a process ends, what it has counted is added to the file CRUMB_CALLS_LOG, in lines:
 *     error FUNCTION CODE       a call that failed
 *     left KIND N               objects that are there still, or that were released too often (N < 0)
 *     calls N                   all that were counted: the last line of each process
 */
#include "tests/cl/layer.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- counting ------------------------------------------------------------------------------------------------ */

static const char *const kinds[LAYER_N_KINDS] = {"contexts", "queues", "buffers", "programs",
                                                 "kernels",  "events", "usm"};
static atomic_ulong n_calls;
static atomic_long left[LAYER_N_KINDS];

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    const char *path = getenv("CRUMB_CALLS_LOG");
    FILE *f = path ? fopen(path, "a") : NULL;
    va_list args;
    if (!f) return;
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    fclose(f);
}

static cl_int count(const char *function, cl_int code) {
    atomic_fetch_add(&n_calls, 1);
    if (code != CL_SUCCESS) say("error %s %d\n", function, code);
    return code;
}

static void *count_made(const char *function, enum layer_kind k, void *made, cl_int code) {
    count(function, code);
    if (made) atomic_fetch_add(&left[k], 1);
    return made;
}

static cl_int count_released(const char *function, enum layer_kind k, cl_int code) {
    if (code == CL_SUCCESS) atomic_fetch_sub(&left[k], 1);
    return count(function, code);
}

static cl_int count_enqueued(const char *function, const cl_event *event, cl_int code) {
    if (code == CL_SUCCESS && event) atomic_fetch_add(&left[LAYER_EVENT], 1);
    return count(function, code);
}

__attribute__((destructor)) static void tell(void) {
    if (!below) return;
    for (int k = 0; k < LAYER_N_KINDS; k++)
        if (left[k]) say("left %s %ld\n", kinds[k], left[k]);
    say("calls %lu\n", n_calls);
}

/* ---- functions ------------------------------------------------------------------------------------------------ */

#define COUNT_OBJECT(kind, result, name, parameters, arguments)                                                        \
    static result CL_API_CALL layer_##name parameters {                                                                \
        cl_int own_code = CL_SUCCESS, *const theirs = code;                                                            \
        code = &own_code;                                                                                              \
        result made = name##_below arguments;                                                                          \
        if (theirs) *theirs = own_code;                                                                                \
        return count_made(#name, LAYER_##kind, made, own_code);                                                        \
    }
#define COUNT_RELEASE(kind, result, name, parameters, arguments)                                                       \
    static cl_int CL_API_CALL layer_##name parameters {                                                                \
        return count_released(#name, LAYER_##kind, name##_below arguments);                                            \
    }
#define COUNT_CODE(kind, result, name, parameters, arguments)                                                          \
    static cl_int CL_API_CALL layer_##name parameters {                                                                \
        return count(#name, name##_below arguments);                                                                   \
    }
#define COUNT_ENQUEUE(kind, result, name, parameters, arguments)                                                       \
    static cl_int CL_API_CALL layer_##name parameters {                                                                \
        return count_enqueued(#name, event, name##_below arguments);                                                   \
    }

#define FUNCTIONS(X)                                                                                                   \
    LAYER_OBJECTS(X)                                                                                                   \
    LAYER_RELEASES(X)                                                                                                  \
    LAYER_CODES(X)                                                                                                     \
    LAYER_EVENTS(X)                                                                                                    \
    LAYER_BARRIERS(X)                                                                                                  \
    LAYER_ENQUEUES(X)                                                                                                  \
    LAYER_COPIES(X)

FUNCTIONS(LAYER_DECLARE)
LAYER_OBJECTS(COUNT_OBJECT)
LAYER_RELEASES(COUNT_RELEASE)
LAYER_CODES(COUNT_CODE)
LAYER_EVENTS(COUNT_CODE)
LAYER_BARRIERS(COUNT_CODE)
LAYER_ENQUEUES(COUNT_ENQUEUE)
LAYER_COPIES(COUNT_ENQUEUE)

LAYER_USM_FUNCTIONS(LAYER_DECLARE_FOUND)
LAYER_USM_OBJECTS(COUNT_OBJECT)
LAYER_USM_RELEASES(COUNT_RELEASE)
LAYER_USM_CODES(COUNT_CODE)
LAYER_USM_ENQUEUES(COUNT_ENQUEUE)
LAYER_USM_COPIES(COUNT_ENQUEUE)

static void *CL_API_CALL find_extension(cl_platform_id p, const char *function) {
    void *address = below->clGetExtensionFunctionAddressForPlatform(p, function);
    LAYER_USM_FUNCTIONS(LAYER_TAKE_FOUND)
    return address;
}

static void layer_take(void) {
    FUNCTIONS(LAYER_TAKE)
    layer_own.clGetExtensionFunctionAddressForPlatform = find_extension;
}
