/* Opening a device through Level Zero. */
#include "spirv/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DRIVERS = 16, MAX_GROUPS = 16 };

/* It may be gone since it was asked, or the drivers' order may be another. */
static bool find_id(crumb_cl_driver *o, const crumb_cl_facts *f) {
    ze_driver_handle_t drivers[MAX_DRIVERS];
    ze_device_handle_t devices[CRUMB_CL_MAX_DEVICES];
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2};
    uint32_t n_drivers = MAX_DRIVERS, n = CRUMB_CL_MAX_DEVICES;
    char name[CRUMB_CL_TEXT];
    if (o->z->zeInit(0) != ZE_RESULT_SUCCESS || o->z->zeDriverGet(&n_drivers, drivers) != ZE_RESULT_SUCCESS ||
        f->platform >= n_drivers || f->platform >= MAX_DRIVERS)
        return false;
    o->handle = drivers[f->platform];
    if (o->z->zeDeviceGet(o->handle, &n, devices) != ZE_RESULT_SUCCESS || f->device >= n ||
        f->device >= CRUMB_CL_MAX_DEVICES)
        return false;
    o->id = devices[f->device];
    if (o->z->zeDeviceGetProperties(o->id, &p) != ZE_RESULT_SUCCESS) return false;
    o->ns_per_tick = p.timerResolution ? 1e9 / (double)p.timerResolution : 0;
    o->tick_mask = p.kernelTimestampValidBits && p.kernelTimestampValidBits < 64
                       ? ((uint64_t)1 << p.kernelTimestampValidBits) - 1
                       : UINT64_MAX;
    p.name[sizeof p.name - 1] = 0;
    crumb_cl_clean_text(p.name, name);
    return strcmp(name, f->name) == 0;
}

bool crumb_cl_driver_find(crumb_device *d) {
    if (!d->driver) d->driver = calloc(1, sizeof *d->driver);
    if (!d->driver) return false;
    d->driver->limit = &d->limit;
    d->driver->z = crumb_ze_load(NULL);
    return d->driver->z && find_id(d->driver, &d->facts);
}

/* The first group of queues that kernels run in. */
static crumb_status find_ordinal(crumb_device *d, crumb_error *err) {
    crumb_cl_driver *o = d->driver;
    ze_command_queue_group_properties_t groups[MAX_GROUPS];
    uint32_t n = MAX_GROUPS;
    for (int i = 0; i < MAX_GROUPS; i++)
        groups[i] = (ze_command_queue_group_properties_t){.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES};
    const ze_result_t code = o->z->zeDeviceGetCommandQueueGroupProperties(o->id, &n, groups);
    if (code != ZE_RESULT_SUCCESS) return crumb_cl_fail(err, d->label, "asking for its queues", (crumb_cl_code)code);
    for (o->ordinal = 0; o->ordinal < n && o->ordinal < MAX_GROUPS; o->ordinal++)
        if (groups[o->ordinal].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: its driver (%.60s) has no queue for kernels", d->label,
                      d->facts.driver);
}

static ze_result_t create_queue(crumb_cl_driver *o) {
    const ze_context_desc_t context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    const ze_result_t code = o->z->zeContextCreate(o->handle, &context, &o->context);
    if (code == ZE_RESULT_SUCCESS) return crumb_ze_queue_create(o);
    o->context = NULL;
    return code;
}

crumb_status crumb_cl_driver_open(crumb_device *d, crumb_error *err) {
    CRUMB_TRY(crumb_lock_create(&d->driver->lock, err));
    CRUMB_TRY(find_ordinal(d, err));
    const ze_result_t code = create_queue(d->driver);
    if (code != ZE_RESULT_SUCCESS) return crumb_cl_fail(err, d->label, "creating a queue", (crumb_cl_code)code);
    d->queue = &d->driver->queue;
    d->has_usm = true;
    return CRUMB_OK;
}

bool crumb_cl_driver_advise(char *out, size_t size) {
    crumb_error err = {0};
    if (!crumb_ze_load(&err))
        snprintf(out, size, "%.300s", err.message);
    else
        snprintf(out, size,
                 "no Level Zero driver offers a GPU; Intel's is libze-intel-gpu1 (Debian, Ubuntu) or "
                 "intel-level-zero (Fedora)");
    return true;
}

/* All events know times. */
bool crumb_cl_driver_can_measure(crumb_device *d) {
    d->profiling = d->queue;
    return d->driver->ns_per_tick > 0;
}

void crumb_cl_driver_close(crumb_device *d) {
    crumb_cl_driver *o = d->driver;
    if (!o) return;
    if (!crumb_ze_queue_settle(o)) return;
    crumb_ze_events_free(o);
    if (o->stage) o->z->zeMemFree(o->context, o->stage);
    crumb_ze_queue_destroy(o);
    if (o->context) o->z->zeContextDestroy(o->context);
    crumb_lock_destroy(o->lock);
    free(o->sysman);
    free(o);
}

void crumb_cl_driver_sense(crumb_device *d, crumb_device_sensors *out) {
    crumb_cl_driver *o = d->driver;
    if (!o->sysman) {
        o->sysman = malloc(sizeof *o->sysman);
        if (!o->sysman) return;
        crumb_ze_sysman_find(o->z, o->id, o->sysman);
    }
    crumb_ze_sysman_read(o->sysman, out);
}

/* ---- what a report says ---------------------------------------------------------------------------------------- */

static void put_extensions(const crumb_cl_driver *o, void (*line)(void *user, const char *text), void *user) {
    uint32_t n = 0;
    if (o->z->zeDriverGetExtensionProperties(o->handle, &n, NULL) != ZE_RESULT_SUCCESS || n > 4096) return;
    ze_driver_extension_properties_t *all = calloc(n ? n : 1, sizeof *all);
    if (all && o->z->zeDriverGetExtensionProperties(o->handle, &n, all) == ZE_RESULT_SUCCESS)
        for (uint32_t i = 0; i < n; i++) {
            char text[ZE_MAX_EXTENSION_NAME + 64], clean[CRUMB_CL_TEXT];
            crumb_cl_clean_text(all[i].name, clean);
            snprintf(text, sizeof text, "extension: %s", clean);
            line(user, text);
        }
    free(all);
}

void crumb_cl_driver_describe(const crumb_device *d, void (*line)(void *user, const char *text), void *user) {
    const crumb_cl_driver *o = d->driver;
    char text[96];
    snprintf(text, sizeof text, "timer_resolution_ns: %.3f", o->ns_per_tick);
    line(user, text);
    snprintf(text, sizeof text, "lists_are_appended: %d", o->z->append_lists != NULL);
    line(user, text);
    put_extensions(o, line, user);
}
