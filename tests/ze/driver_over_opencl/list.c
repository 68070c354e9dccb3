/* Command lists: recorded, and replayed on the queue of an immediate one. All are in order. */
#include "driver.h"

#include <level_zero/ze_api.h>

#include <stdlib.h>
#include <string.h>

typedef enum command_kind { COMMAND_LAUNCH, COMMAND_COPY, COMMAND_FILL, COMMAND_SIGNAL } command_kind;

typedef struct command {
    command_kind kind;
    ze_event_handle_t signal; /* or NULL */
    cl_kernel kernel;
    uint32_t n_arguments;
    parameter *arguments; /* as they were when the launch was appended */
    size_t global[3], local[3];
    void *to;
    const void *from;
    size_t n_bytes;
    uint8_t pattern;
} command;

struct _ze_command_list_handle_t {
    cl_command_queue queue; /* an immediate list's; else NULL */
    bool is_closed;
    size_t n, capacity;
    command *commands;
    cl_event last; /* of its commands, when it was replayed; or NULL */
    bool is_stuck; /* they were given to a device that hangs */
};

/* ---- replaying ----------------------------------------------------------------------------------------------------
 */

static bool is_to_be_wrong(cl_kernel kernel) {
    const char *wrong = getenv("CRUMB_DRIVER_WRONG");
    char name[64] = "";
    if (!wrong) return false;
    clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    return strncmp(name, wrong, strlen(wrong)) == 0;
}

static cl_int set_arguments(const command *c) {
    cl_int code = CL_SUCCESS;
    for (uint32_t i = 0; i < c->n_arguments && code == CL_SUCCESS; i++) {
        const parameter *p = &c->arguments[i];
        code =
            p->kind == PARAMETER_GLOBAL
                ? the_device.usm.set_arg(c->kernel, i, (const void *)(uintptr_t)p->value)
                : clSetKernelArg(c->kernel, i, p->n_bytes, p->kind == PARAMETER_LOCAL ? NULL : (const void *)&p->value);
    }
    return code;
}

static cl_int enqueue(cl_command_queue q, const command *c, cl_event *done) {
    const usm_functions *usm = &the_device.usm;
    cl_int code;
    switch (c->kind) {
    case COMMAND_COPY: return usm->copy(q, CL_FALSE, c->to, c->from, c->n_bytes, 0, NULL, done);
    case COMMAND_FILL: return usm->fill(q, c->to, &c->pattern, sizeof c->pattern, c->n_bytes, 0, NULL, done);
    case COMMAND_SIGNAL: return clEnqueueMarkerWithWaitList(q, 0, NULL, done);
    default: break;
    }
    if (is_to_be_wrong(c->kernel)) return clEnqueueMarkerWithWaitList(q, 0, NULL, done);
    code = set_arguments(c);
    return code == CL_SUCCESS ? clEnqueueNDRangeKernel(q, c->kernel, 3, NULL, c->global, c->local, 0, NULL, done)
                              : code;
}

/* Commands of a list. `last` NULL: nobody asks for the last one's event. */
static ze_result_t replay(cl_command_queue q, ze_command_list_handle_t list, const command *commands, size_t n,
                          cl_event *last) {
    static atomic_ullong n_launches;
    cl_int code = CL_SUCCESS;
    if (device_hangs()) {
        list->is_stuck = the_device.is_stuck = true;
        return ZE_RESULT_SUCCESS;
    }
    for (size_t i = 0; i < n && code == CL_SUCCESS; i++) {
        const bool is_last = last && i + 1 == n;
        cl_event done = NULL;
        code = enqueue(q, &commands[i], commands[i].signal || is_last ? &done : NULL);
        if (code != CL_SUCCESS) break;
        if (commands[i].kind == COMMAND_LAUNCH) n_launches++;
        if (is_last) {
            if (*last) clReleaseEvent(*last);
            if (commands[i].signal) clRetainEvent(done);
            *last = done;
        }
        if (commands[i].signal) event_attach(commands[i].signal, done, n_launches);
    }
    if (code == CL_SUCCESS) code = clFlush(q);
    return result_of(code);
}

/* ---- appending ----------------------------------------------------------------------------------------------------
 */

static void drop(command *c) {
    if (c->kernel) clReleaseKernel(c->kernel);
    free(c->arguments);
}

static ze_result_t append(ze_command_list_handle_t list, command c) {
    if (list->is_closed) return drop(&c), ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (list->queue) {
        const ze_result_t code = replay(list->queue, list, &c, 1, NULL);
        drop(&c);
        return code;
    }
    if (list->n == list->capacity) {
        list->capacity = 2 * list->capacity + 16;
        command *grown = realloc(list->commands, list->capacity * sizeof *grown);
        if (!grown) stop("no memory for a list");
        list->commands = grown;
    }
    list->commands[list->n++] = c;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeCommandListAppendLaunchKernel(ze_command_list_handle_t list, ze_kernel_handle_t k,
                                                       const ze_group_count_t *groups, ze_event_handle_t signal,
                                                       uint32_t n_waits, ze_event_handle_t *waits) {
    const size_t counts[] = {groups->groupCountX, groups->groupCountY, groups->groupCountZ};
    command c = {.kind = COMMAND_LAUNCH, .signal = signal, .kernel = k->kernel, .n_arguments = k->arguments.n};
    CALL();
    if (n_waits || waits) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    for (uint32_t i = 0; i < k->arguments.n; i++)
        if (!k->arguments.parameter[i].is_set) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < 3; i++) {
        if (!k->local[i] || !counts[i]) return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
        c.local[i] = k->local[i];
        c.global[i] = k->local[i] * counts[i];
    }
    c.arguments = malloc((k->arguments.n + 1) * sizeof *c.arguments);
    if (!c.arguments) stop("no memory for a launch");
    memcpy(c.arguments, k->arguments.parameter, k->arguments.n * sizeof *c.arguments);
    clRetainKernel(c.kernel);
    return append(list, c);
}

ze_result_t ZE_APICALL zeCommandListAppendMemoryCopy(ze_command_list_handle_t list, void *to, const void *from,
                                                     size_t n_bytes, ze_event_handle_t signal, uint32_t n_waits,
                                                     ze_event_handle_t *waits) {
    CALL();
    if (n_waits || waits) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (!is_usm(to, n_bytes) || !is_usm(from, n_bytes)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return append(list, (command){.kind = COMMAND_COPY, .signal = signal, .to = to, .from = from, .n_bytes = n_bytes});
}

ze_result_t ZE_APICALL zeCommandListAppendMemoryFill(ze_command_list_handle_t list, void *to, const void *pattern,
                                                     size_t pattern_size, size_t n_bytes, ze_event_handle_t signal,
                                                     uint32_t n_waits, ze_event_handle_t *waits) {
    CALL();
    if (n_waits || waits || pattern_size != 1) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (!is_usm(to, n_bytes)) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return append(list, (command){.kind = COMMAND_FILL,
                                  .signal = signal,
                                  .to = to,
                                  .n_bytes = n_bytes,
                                  .pattern = *(const uint8_t *)pattern});
}

ze_result_t ZE_APICALL zeCommandListAppendSignalEvent(ze_command_list_handle_t list, ze_event_handle_t signal) {
    CALL();
    return append(list, (command){.kind = COMMAND_SIGNAL, .signal = signal});
}

/* ---- lists --------------------------------------------------------------------------------------------------------
 */

ze_result_t ZE_APICALL zeCommandListCreate(ze_context_handle_t context, ze_device_handle_t device,
                                           const ze_command_list_desc_t *desc, ze_command_list_handle_t *out) {
    CALL();
    (void)context, (void)device;
    if (desc->commandQueueGroupOrdinal != 1 || desc->flags != ZE_COMMAND_LIST_FLAG_IN_ORDER)
        return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    *out = calloc(1, sizeof **out);
    return *out ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static cl_command_queue create_queue(ze_device_handle_t device, cl_int *code) {
    const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    return clCreateCommandQueueWithProperties(device->context, device->id, properties, code);
}

ze_result_t ZE_APICALL zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device,
                                                    const ze_command_queue_desc_t *desc,
                                                    ze_command_list_handle_t *out) {
    cl_int code;
    CALL();
    (void)context;
    if (desc->flags != ZE_COMMAND_QUEUE_FLAG_IN_ORDER) return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    cl_command_queue queue = create_queue(device, &code);
    if (code != CL_SUCCESS) return result_of(code);
    *out = calloc(1, sizeof **out);
    if (!*out) stop("no memory for a list");
    (*out)->queue = queue;
    return ZE_RESULT_SUCCESS;
}

static void check_idle(const struct _ze_command_list_handle_t *list, const char *what) {
    cl_int state = CL_COMPLETE;
    if (list->is_stuck) stop(what);
    if (list->last) clGetEventInfo(list->last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    if (state > CL_COMPLETE) stop(what);
}

static void empty(ze_command_list_handle_t list) {
    for (size_t i = 0; i < list->n; i++) drop(&list->commands[i]);
    list->n = 0;
    list->is_closed = false;
}

ze_result_t ZE_APICALL zeCommandListDestroy(ze_command_list_handle_t list) {
    check_idle(list, "zeCommandListDestroy of a list that runs");
    empty(list);
    free(list->commands);
    if (list->last) clReleaseEvent(list->last);
    if (list->queue) clReleaseCommandQueue(list->queue);
    free(list);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeCommandListClose(ze_command_list_handle_t list) {
    CALL();
    if (list->queue || list->is_closed) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    list->is_closed = true;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeCommandListReset(ze_command_list_handle_t list) {
    CALL();
    check_idle(list, "zeCommandListReset of a list that runs");
    empty(list);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeCommandListImmediateAppendCommandListsExp(ze_command_list_handle_t immediate, uint32_t n,
                                                                   ze_command_list_handle_t *lists,
                                                                   ze_event_handle_t signal, uint32_t n_waits,
                                                                   ze_event_handle_t *waits) {
    ze_result_t code = ZE_RESULT_SUCCESS;
    CALL();
    if (!immediate->queue || signal || n_waits || waits) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    for (uint32_t i = 0; i < n; i++) count_list();
    for (uint32_t i = 0; i < n && code == ZE_RESULT_SUCCESS; i++)
        code = lists[i]->is_closed
                   ? replay(immediate->queue, lists[i], lists[i]->commands, lists[i]->n, &lists[i]->last)
                   : ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return code;
}

/* A device that is lost runs nothing any more. */
ze_result_t ZE_APICALL zeCommandListHostSynchronize(ze_command_list_handle_t list, uint64_t timeout_ns) {
    if (!list->queue) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (hangs_for(timeout_ns)) return ZE_RESULT_NOT_READY;
    const cl_int code = clFinish(list->queue);
    CALL();
    return result_of(code);
}

/* ---- queues: what lists go through where the loader cannot append them ---------------------------------------------
 */

struct _ze_command_queue_handle_t {
    cl_command_queue queue;
    bool may_run; /* a list has been given, and nobody has waited since */
};

ze_result_t ZE_APICALL zeCommandQueueCreate(ze_context_handle_t context, ze_device_handle_t device,
                                            const ze_command_queue_desc_t *desc, ze_command_queue_handle_t *out) {
    cl_int code;
    CALL();
    (void)context;
    if (desc->ordinal != 1 || desc->flags || desc->mode != ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS)
        return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    cl_command_queue queue = create_queue(device, &code);
    if (code != CL_SUCCESS) return result_of(code);
    *out = calloc(1, sizeof **out);
    if (!*out) stop("no memory for a queue");
    (*out)->queue = queue;
    return ZE_RESULT_SUCCESS;
}

ze_result_t ZE_APICALL zeCommandQueueDestroy(ze_command_queue_handle_t q) {
    clReleaseCommandQueue(q->queue);
    free(q);
    return ZE_RESULT_SUCCESS;
}

/* One list is not ordered behind another: who gives a second one before it has waited is told. */
ze_result_t ZE_APICALL zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t q, uint32_t n,
                                                         ze_command_list_handle_t *lists, ze_fence_handle_t fence) {
    CALL();
    if (n != 1 || fence) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (!lists[0]->is_closed) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (q->may_run) stop("zeCommandQueueExecuteCommandLists while another list may run");
    q->may_run = true;
    count_list();
    return replay(q->queue, lists[0], lists[0]->commands, lists[0]->n, &lists[0]->last);
}

ze_result_t ZE_APICALL zeCommandQueueSynchronize(ze_command_queue_handle_t q, uint64_t timeout_ns) {
    if (hangs_for(timeout_ns)) return ZE_RESULT_NOT_READY;
    const cl_int code = clFinish(q->queue);
    q->may_run = false;
    CALL();
    return result_of(code);
}
