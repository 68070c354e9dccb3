/* The queue, lists that are recorded, and events. */
#include "spirv/driver.h"

#include <stdlib.h>

enum { POOL_EVENTS = 128, SUBMIT_AT = 16 };

/* ---- the queue ------------------------------------------------------------------------------------------------- */

static ze_result_t create_list(const crumb_cl_driver *o, ze_command_list_handle_t *out) {
    const ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                         .commandQueueGroupOrdinal = o->ordinal,
                                         .flags = CRUMB_ZE_LIST_IN_ORDER};
    const ze_result_t code = o->z->zeCommandListCreate(o->context, o->id, &desc, out);
    if (code != ZE_RESULT_SUCCESS) *out = NULL;
    return code;
}

ze_result_t crumb_ze_queue_create(crumb_cl_driver *o) {
    crumb_ze_queue *q = &o->queue;
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .ordinal = o->ordinal,
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_result_t code;
    if (o->z->append_lists) {
        desc.flags = CRUMB_ZE_QUEUE_IN_ORDER;
        code = o->z->zeCommandListCreateImmediate(o->context, o->id, &desc, &q->immediate);
        if (code != ZE_RESULT_SUCCESS) q->immediate = NULL;
    } else {
        code = o->z->zeCommandQueueCreate(o->context, o->id, &desc, &q->plain);
        if (code != ZE_RESULT_SUCCESS) q->plain = NULL;
    }
    return code;
}

void crumb_ze_queue_destroy(crumb_cl_driver *o) {
    crumb_ze_queue *q = &o->queue;
    crumb_ze_queue_settle(o);
    for (uint32_t i = 0; i < q->n_lists; i++) o->z->zeCommandListDestroy(q->lists[i]);
    if (q->plain) o->z->zeCommandQueueDestroy(q->plain);
    if (q->immediate) o->z->zeCommandListDestroy(q->immediate);
    *q = (crumb_ze_queue){0};
}

/* What a wait with a limit has come to. */
static ze_result_t waited(const crumb_cl_driver *o, ze_result_t code) {
    if (code != ZE_RESULT_NOT_READY) return code;
    crumb_cl_limit_end(o->limit);
    return (ze_result_t)CRUMB_CL_STUCK;
}

/* A plain queue promises nothing of one list to the next: there each is waited for. */
static ze_result_t submit_list(crumb_cl_driver *o, ze_command_list_handle_t list) {
    o->queue.may_run = o->queue.immediate != NULL;
    if (o->queue.immediate) return o->z->append_lists(o->queue.immediate, 1, &list, NULL, 0, NULL);
    const ze_result_t code = o->z->zeCommandQueueExecuteCommandLists(o->queue.plain, 1, &list, NULL);
    return code == ZE_RESULT_SUCCESS ? waited(o, o->z->zeCommandQueueSynchronize(o->queue.plain, o->limit->ns)) : code;
}

ze_result_t crumb_ze_queue_submit(crumb_cl_driver *o) {
    ze_command_list_handle_t list = o->queue.open;
    if (crumb_cl_limit_is_over(o->limit)) return (ze_result_t)CRUMB_CL_STUCK;
    if (!list) return ZE_RESULT_SUCCESS;
    o->queue.open = NULL;
    const ze_result_t code = o->z->zeCommandListClose(list);
    return code == ZE_RESULT_SUCCESS ? submit_list(o, list) : code;
}

/* When it fails nothing runs any more, since the device is lost; but where it is stuck. */
static ze_result_t wait_for_all(crumb_cl_driver *o) {
    if (crumb_cl_limit_is_over(o->limit)) return (ze_result_t)CRUMB_CL_STUCK;
    o->queue.may_run = false;
    return o->queue.immediate ? waited(o, o->z->list_synchronize(o->queue.immediate, o->limit->ns)) : ZE_RESULT_SUCCESS;
}

bool crumb_ze_queue_settle(crumb_cl_driver *o) {
    if (o->queue.may_run) wait_for_all(o);
    return !crumb_cl_limit_is_over(o->limit);
}

ze_result_t crumb_ze_queue_finish(crumb_cl_driver *o) {
    crumb_ze_queue *q = &o->queue;
    ze_result_t code = crumb_ze_queue_submit(o);
    const ze_result_t done = wait_for_all(o);
    if (code == ZE_RESULT_SUCCESS) code = done;
    for (uint32_t i = 0; i < q->n_used && code == ZE_RESULT_SUCCESS; i++) code = o->z->zeCommandListReset(q->lists[i]);
    q->n_used = 0;
    return code;
}

ze_result_t crumb_ze_queue_open(crumb_cl_driver *o, ze_command_list_handle_t *out) {
    crumb_ze_queue *q = &o->queue;
    if (crumb_cl_limit_is_over(o->limit)) return (ze_result_t)CRUMB_CL_STUCK;
    ze_result_t code = q->open && q->n_open == SUBMIT_AT ? crumb_ze_queue_submit(o) : ZE_RESULT_SUCCESS;
    if (code == ZE_RESULT_SUCCESS && !q->open) {
        if (q->n_used == CRUMB_ZE_LISTS) code = crumb_ze_queue_finish(o);
        if (code == ZE_RESULT_SUCCESS && q->n_used == q->n_lists) {
            code = create_list(o, &q->lists[q->n_lists]);
            q->n_lists += code == ZE_RESULT_SUCCESS;
        }
        if (code != ZE_RESULT_SUCCESS) return code;
        q->open = q->lists[q->n_used++];
        q->n_open = 0;
    }
    *out = q->open;
    q->n_open++;
    return code;
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

/* Events that were made together, from one pool of the driver. */
struct crumb_ze_events {
    crumb_ze_events *next;
    ze_event_pool_handle_t pool;
    crumb_ze_event event[POOL_EVENTS];
};

static ze_result_t fill_pool(crumb_cl_driver *o, crumb_ze_events *events) {
    ze_event_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_DESC, .signal = ZE_EVENT_SCOPE_FLAG_HOST, .wait = ZE_EVENT_SCOPE_FLAG_HOST};
    ze_result_t code = ZE_RESULT_SUCCESS;
    for (uint32_t i = 0; i < POOL_EVENTS && code == ZE_RESULT_SUCCESS; i++) {
        crumb_ze_event *e = &events->event[i];
        desc.index = i;
        code = o->z->zeEventCreate(events->pool, &desc, &e->handle);
        if (code != ZE_RESULT_SUCCESS) {
            e->handle = NULL;
            break;
        }
        *e = (crumb_ze_event){.next = o->unused, .driver = o, .handle = e->handle};
        o->unused = e;
    }
    return o->unused ? ZE_RESULT_SUCCESS : code;
}

static ze_result_t add_events(crumb_cl_driver *o) {
    const ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                       .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                                       .count = POOL_EVENTS};
    crumb_ze_events *events = calloc(1, sizeof *events);
    if (!events) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    const ze_result_t code = o->z->zeEventPoolCreate(o->context, &desc, 1, &o->id, &events->pool);
    if (code != ZE_RESULT_SUCCESS) {
        free(events);
        return code;
    }
    events->next = o->events;
    o->events = events;
    return fill_pool(o, events);
}

void crumb_ze_events_free(crumb_cl_driver *o) {
    for (crumb_ze_events *events = o->events, *next; events; events = next) {
        next = events->next;
        for (int i = 0; i < POOL_EVENTS; i++)
            if (events->event[i].handle) o->z->zeEventDestroy(events->event[i].handle);
        o->z->zeEventPoolDestroy(events->pool);
        free(events);
    }
    o->events = NULL;
    o->unused = NULL;
}

static ze_result_t take_event(crumb_cl_driver *o, crumb_ze_event **out) {
    ze_result_t code = o->unused ? ZE_RESULT_SUCCESS : add_events(o);
    *out = NULL;
    if (code == ZE_RESULT_SUCCESS) code = o->z->zeEventHostReset(o->unused->handle);
    if (code != ZE_RESULT_SUCCESS) return code;
    *out = o->unused;
    o->unused = (*out)->next;
    return code;
}

void crumb_cl_event_release(crumb_device *d, crumb_cl_event event) {
    crumb_ze_event *e = event;
    e->next = d->driver->unused;
    d->driver->unused = e;
}

crumb_cl_code crumb_cl_event_query(crumb_cl_event event, bool *over) {
    const crumb_ze_event *e = event;
    const ze_result_t code = e->driver->z->zeEventQueryStatus(e->handle);
    *over = code == ZE_RESULT_SUCCESS;
    return code == ZE_RESULT_NOT_READY ? CRUMB_CL_OK : (crumb_cl_code)code;
}

crumb_cl_code crumb_cl_event_wait(crumb_device *d, crumb_cl_event event) {
    const crumb_cl_driver *o = d->driver;
    const crumb_ze_event *e = event;
    if (crumb_cl_limit_is_over(o->limit)) return CRUMB_CL_STUCK;
    return (crumb_cl_code)waited(o, o->z->zeEventHostSynchronize(e->handle, o->limit->ns));
}

/* The device's clock wraps, within minutes where it has 32 bits: what counts is the difference. */
bool crumb_cl_event_span(crumb_cl_event first, crumb_cl_event last, uint64_t *ns) {
    const crumb_ze_event *a = first, *b = last;
    const crumb_cl_driver *o = a->driver;
    ze_kernel_timestamp_result_t begin = {0}, end = {0};
    if (o->z->zeEventQueryKernelTimestamp(a->handle, &begin) != ZE_RESULT_SUCCESS ||
        o->z->zeEventQueryKernelTimestamp(b->handle, &end) != ZE_RESULT_SUCCESS)
        return false;
    *ns = (uint64_t)((double)((end.global.kernelEnd - begin.global.kernelStart) & o->tick_mask) * o->ns_per_tick);
    return true;
}

/* ---- launches -------------------------------------------------------------------------------------------------- */

/* A list takes a kernel's arguments and sizes as they are at this moment. */
static ze_result_t append(const crumb_cl_driver *o, ze_command_list_handle_t list, crumb_cl_call call, uint32_t n_dims,
                          const size_t *global, const size_t *local, ze_event_handle_t signal) {
    uint32_t sizes[3] = {1, 1, 1}, groups[3] = {1, 1, 1};
    for (uint32_t i = 0; i < n_dims; i++) {
        sizes[i] = (uint32_t)local[i];
        groups[i] = (uint32_t)(global[i] / local[i]);
    }
    const ze_group_count_t counts = {groups[0], groups[1], groups[2]};
    const ze_result_t code = o->z->zeKernelSetGroupSize(call, sizes[0], sizes[1], sizes[2]);
    if (code != ZE_RESULT_SUCCESS) return code;
    return o->z->zeCommandListAppendLaunchKernel(list, call, &counts, signal, 0, NULL);
}

crumb_cl_code crumb_cl_queue_launch(crumb_device *d, crumb_cl_queue queue, crumb_cl_call call, uint32_t n_dims,
                                    const size_t *global, const size_t *local, crumb_cl_event *event) {
    crumb_cl_driver *o = d->driver;
    crumb_ze_event *made = NULL;
    ze_command_list_handle_t list;
    (void)queue; /* there is one */
    ze_result_t code = event ? take_event(o, &made) : ZE_RESULT_SUCCESS;
    if (code == ZE_RESULT_SUCCESS) code = crumb_ze_queue_open(o, &list);
    if (code == ZE_RESULT_SUCCESS) code = append(o, list, call, n_dims, global, local, made ? made->handle : NULL);
    if (code != ZE_RESULT_SUCCESS && made) {
        crumb_cl_event_release(d, made);
        made = NULL;
    }
    if (event) *event = made;
    return (crumb_cl_code)code;
}

crumb_cl_code crumb_cl_queue_finish(crumb_device *d, crumb_cl_queue queue) {
    (void)queue;
    return (crumb_cl_code)crumb_ze_queue_finish(d->driver);
}

crumb_cl_code crumb_cl_queue_mark(crumb_device *d, crumb_cl_queue queue, crumb_cl_event *out) {
    crumb_cl_driver *o = d->driver;
    crumb_ze_event *made;
    ze_command_list_handle_t list;
    (void)queue;
    ze_result_t code = take_event(o, &made);
    if (code == ZE_RESULT_SUCCESS) code = crumb_ze_queue_open(o, &list);
    if (code == ZE_RESULT_SUCCESS) code = o->z->zeCommandListAppendSignalEvent(list, made->handle);
    if (code == ZE_RESULT_SUCCESS) code = crumb_ze_queue_submit(o);
    if (code != ZE_RESULT_SUCCESS && made) {
        crumb_cl_event_release(d, made);
        made = NULL;
    }
    *out = made;
    return (crumb_cl_code)code;
}

/* ---- lists ----------------------------------------------------------------------------------------------------- */

bool crumb_cl_list_possible(const crumb_device *d) {
    (void)d;
    return true;
}

crumb_cl_code crumb_cl_list_create(crumb_device *d, crumb_cl_list *out) {
    ze_command_list_handle_t list;
    const ze_result_t code = create_list(d->driver, &list);
    *out = list;
    return (crumb_cl_code)code;
}

void crumb_cl_list_release(crumb_device *d, crumb_cl_list list) {
    if (crumb_ze_queue_settle(d->driver)) d->driver->z->zeCommandListDestroy(list);
}

crumb_cl_code crumb_cl_list_add(crumb_device *d, crumb_cl_list list, crumb_cl_call call, uint32_t n_dims,
                                const size_t *global, const size_t *local) {
    return (crumb_cl_code)append(d->driver, list, call, n_dims, global, local, NULL);
}

crumb_cl_code crumb_cl_list_copy(crumb_device *d, crumb_cl_list list, void *to, const void *from, uint64_t n_bytes) {
    return (crumb_cl_code)d->driver->z->zeCommandListAppendMemoryCopy(list, to, from, (size_t)n_bytes, NULL, 0, NULL);
}

crumb_cl_code crumb_cl_list_close(crumb_device *d, crumb_cl_list list) {
    return (crumb_cl_code)d->driver->z->zeCommandListClose(list);
}

crumb_cl_code crumb_cl_list_run(crumb_device *d, crumb_cl_list list) {
    const ze_result_t code = crumb_ze_queue_submit(d->driver);
    return (crumb_cl_code)(code == ZE_RESULT_SUCCESS ? submit_list(d->driver, list) : code);
}
