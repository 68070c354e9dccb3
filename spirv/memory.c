/* Memory in Level Zero: USM, the device's or the host's. */
#include "cl/memory.h"
#include "spirv/driver.h"

#include <string.h>

enum { DEVICE_ALIGN = 256, STAGE_BYTES = 4 << 20 };

crumb_cl_code crumb_cl_driver_allocate(crumb_device *d, crumb_cl_memory *m) {
    const crumb_cl_driver *o = d->driver;
    const ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    if (crumb_cl_limit_is_over(o->limit)) return CRUMB_CL_STUCK;
    return (crumb_cl_code)o->z->zeMemAllocDevice(o->context, &desc, (size_t)m->n_bytes, DEVICE_ALIGN, o->id, &m->usm);
}

static void release(crumb_cl_driver *o, void *p) {
    crumb_lock_take(o->lock);
    const bool settled = crumb_ze_queue_settle(o);
    crumb_lock_release(o->lock);
    if (settled) o->z->zeMemFree(o->context, p);
}

void crumb_cl_driver_free(crumb_device *d, crumb_cl_memory *m) {
    release(d->driver, m->usm);
}

crumb_cl_code crumb_cl_driver_allocate_host(crumb_device *d, uint64_t n_bytes, uint32_t align, void **out) {
    const crumb_cl_driver *o = d->driver;
    const ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    if (crumb_cl_limit_is_over(o->limit)) return CRUMB_CL_STUCK;
    return (crumb_cl_code)o->z->zeMemAllocHost(o->context, &desc, (size_t)n_bytes, align, out);
}

void crumb_cl_driver_free_host(crumb_device *d, void *host) {
    release(d->driver, host);
}

static ze_result_t append_copy(crumb_cl_driver *o, void *to, const void *from, uint64_t n_bytes, bool blocking) {
    ze_command_list_handle_t list;
    ze_result_t code = crumb_ze_queue_open(o, &list);
    if (code == ZE_RESULT_SUCCESS)
        code = o->z->zeCommandListAppendMemoryCopy(list, to, from, (size_t)n_bytes, NULL, 0, NULL);
    return code == ZE_RESULT_SUCCESS && blocking ? crumb_ze_queue_finish(o) : code;
}

/* Whether the driver made it: of other memory nobody promises that the device sees it. */
static bool is_usm(const crumb_cl_driver *o, const void *host) {
    ze_memory_allocation_properties_t p = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    return o->z->zeMemGetAllocProperties(o->context, host, &p, NULL) == ZE_RESULT_SUCCESS &&
           p.type != ZE_MEMORY_TYPE_UNKNOWN;
}

static ze_result_t need_stage(crumb_cl_driver *o) {
    const ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    if (o->stage) return ZE_RESULT_SUCCESS;
    const ze_result_t code = o->z->zeMemAllocHost(o->context, &desc, STAGE_BYTES, 0, &o->stage);
    if (code != ZE_RESULT_SUCCESS) o->stage = NULL;
    return code;
}

/* In pieces through memory that both see; each waits. */
static ze_result_t copy_staged(crumb_cl_driver *o, void *device, void *host, uint64_t n_bytes, bool to_device) {
    ze_result_t code = need_stage(o);
    for (uint64_t done = 0, n; done < n_bytes && code == ZE_RESULT_SUCCESS; done += n) {
        void *there = (char *)device + done, *here = (char *)host + done;
        n = n_bytes - done < STAGE_BYTES ? n_bytes - done : STAGE_BYTES;
        if (to_device) memcpy(o->stage, here, (size_t)n);
        code = append_copy(o, to_device ? there : o->stage, to_device ? o->stage : there, n, true);
        if (code == ZE_RESULT_SUCCESS && !to_device) memcpy(here, o->stage, (size_t)n);
    }
    return code;
}

static crumb_cl_code copy(crumb_device *d, void *device, void *host, uint64_t n_bytes, bool to_device, bool blocking) {
    crumb_cl_driver *o = d->driver;
    crumb_lock_take(o->lock);
    const ze_result_t code =
        is_usm(o, host) ? append_copy(o, to_device ? device : host, to_device ? host : device, n_bytes, blocking)
                        : copy_staged(o, device, host, n_bytes, to_device);
    crumb_lock_release(o->lock);
    return (crumb_cl_code)code;
}

crumb_cl_code crumb_cl_driver_read(crumb_device *d, const crumb_cl_memory *m, uint64_t offset, void *to,
                                   uint64_t n_bytes, bool blocking) {
    return copy(d, (char *)m->usm + offset, to, n_bytes, false, blocking);
}

crumb_cl_code crumb_cl_driver_write(crumb_device *d, const crumb_cl_memory *m, uint64_t offset, const void *from,
                                    uint64_t n_bytes, bool blocking) {
    return copy(d, (char *)m->usm + offset, (void *)(uintptr_t)from, n_bytes, true, blocking);
}

crumb_cl_code crumb_cl_driver_zero(crumb_device *d, const crumb_cl_memory *m) {
    crumb_cl_driver *o = d->driver;
    const uint8_t zero = 0;
    ze_command_list_handle_t list;
    crumb_lock_take(o->lock);
    ze_result_t code = crumb_ze_queue_open(o, &list);
    if (code == ZE_RESULT_SUCCESS)
        code = o->z->zeCommandListAppendMemoryFill(list, m->usm, &zero, sizeof zero, (size_t)m->n_bytes, NULL, 0, NULL);
    crumb_lock_release(o->lock);
    return (crumb_cl_code)code;
}
