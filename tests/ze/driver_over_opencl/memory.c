/* USM. The driver knows every allocation, so that it can refuse addresses that a GPU would not see. */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct allocation {
    struct allocation *next;
    char *at;
    size_t n_bytes;
    ze_memory_type_t type;
} allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static allocation *allocations;

/* Call it with the lock. The link to the allocation that these bytes lie in; NULL: there is none. */
static allocation **find(const void *p, size_t n_bytes) {
    for (allocation **link = &allocations; *link; link = &(*link)->next) {
        const size_t offset = (size_t)((uintptr_t)p - (uintptr_t)(*link)->at);
        if (offset < (*link)->n_bytes && n_bytes <= (*link)->n_bytes - offset) return link;
    }
    return NULL;
}

bool is_usm(const void *p, size_t n_bytes) {
    pthread_mutex_lock(&lock);
    const bool found = find(p, n_bytes) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

static ze_result_t keep(void *at, size_t n_bytes, ze_memory_type_t type, cl_int code, void **out) {
    if (code != CL_SUCCESS || !at) return result_of(code == CL_SUCCESS ? CL_OUT_OF_RESOURCES : code);
    allocation *a = malloc(sizeof *a);
    *out = at;
    if (!a) stop("no memory for a note of an allocation");
    pthread_mutex_lock(&lock);
    *a = (allocation){.next = allocations, .at = at, .n_bytes = n_bytes, .type = type};
    allocations = a;
    pthread_mutex_unlock(&lock);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc,
                                        size_t n_bytes, size_t align, ze_device_handle_t device, void **out) {
    cl_int code = CL_SUCCESS;
    CALL();
    (void)context, (void)desc;
    void *at = device->usm.device_alloc(device->context, device->id, NULL, n_bytes, (cl_uint)align, &code);
    return keep(at, n_bytes, ZE_MEMORY_TYPE_DEVICE, code, out);
}

ze_result_t ZE_APICALL zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t n_bytes,
                                      size_t align, void **out) {
    cl_int code = CL_SUCCESS;
    CALL();
    (void)context, (void)desc;
    void *at = the_device.usm.host_alloc(the_device.context, NULL, n_bytes, (cl_uint)align, &code);
    return keep(at, n_bytes, ZE_MEMORY_TYPE_HOST, code, out);
}

ze_result_t ZE_APICALL zeMemFree(ze_context_handle_t context, void *p) {
    (void)context;
    if (the_device.is_stuck) stop("zeMemFree of what the device may use");
    pthread_mutex_lock(&lock);
    allocation **link = find(p, 1), *a = link ? *link : NULL;
    if (!a || a->at != p) stop("zeMemFree of what is no allocation");
    *link = a->next;
    pthread_mutex_unlock(&lock);
    free(a);
    return result_of(the_device.usm.release(the_device.context, p));
}

ze_result_t ZE_APICALL zeMemGetAllocProperties(ze_context_handle_t context, const void *p,
                                               ze_memory_allocation_properties_t *out, ze_device_handle_t *device) {
    CALL();
    (void)context;
    if (device) *device = &the_device;
    pthread_mutex_lock(&lock);
    allocation **link = find(p, 1);
    out->type = link ? (*link)->type : ZE_MEMORY_TYPE_UNKNOWN;
    pthread_mutex_unlock(&lock);
    return ZE_RESULT_SUCCESS;
}
