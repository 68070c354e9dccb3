/* What each way of submitting a token's launches costs the host, on whatever driver Level Zero's loader finds; the null
 * device of ze_null_device.py, which runs it: enqueuing each kernel, recording them in a list, submitting a closed
 * list, changing arguments of a mutable list before that, a graph. Prints a line each: "NAME MICROSECONDS", the least
 * of its rounds, or "NAME not there: WHY".
 *
 * usage: list_costs LAUNCHES CHANGED    CHANGED of them have an argument changed for each token */
#include "spirv/api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 200, ARGUMENTS = 4, MAX_LAUNCHES = 4096 };

static const char source[] =
    "kernel void add(global int *a, global int *b, global int *c, int n) { a[n] = b[n] + c[n]; }";

static crumb_ze_functions z;
static crumb_ze_list_synchronize_fn synchronize;
static ze_driver_handle_t driver;
static ze_device_handle_t device;
static ze_context_handle_t context;
static ze_command_list_handle_t immediate;
static ze_kernel_handle_t kernel;
static int *memory;
static uint32_t n_launches, n_changed;

static void *find(const char *name) {
    static void *loader;
    void *address;
    if (!loader) loader = dlopen("libze_loader.so.1", RTLD_NOW);
    if (!loader) exit(77);
    address = dlsym(loader, name);
    if (!address && driver && z.zeDriverGetExtensionFunctionAddress(driver, name, &address) != ZE_RESULT_SUCCESS)
        address = NULL;
    return address;
}

static void want(ze_result_t code, const char *what) {
    if (code == ZE_RESULT_SUCCESS) return;
    fprintf(stderr, "list_costs: %s: 0x%x\n", what, (unsigned)code);
    exit(1);
}
#define WANT(call) want(call, #call)

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void set_up(void) {
    const ze_context_desc_t of_context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    const ze_command_queue_desc_t of_queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                              .flags = CRUMB_ZE_QUEUE_IN_ORDER,
                                              .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    const ze_module_desc_t of_module = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                        .format = crumb_ze_format_opencl_c(),
                                        .inputSize = sizeof source,
                                        .pInputModule = (const uint8_t *)source};
    const ze_kernel_desc_t of_kernel = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC, .pKernelName = "add"};
    const ze_device_mem_alloc_desc_t of_memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    uint32_t one = 1;
    void *made;
    ze_module_handle_t module;
#define FIND(name) *(void **)&z.name = find(#name);
    CRUMB_ZE_FUNCTIONS(FIND)
    *(void **)&z.append_lists = find("zeCommandListImmediateAppendCommandListsExp");
    *(void **)&synchronize = find("zeCommandListHostSynchronize");
    WANT(z.zeInit(0));
    WANT(z.zeDriverGet(&one, &driver));
    WANT(z.zeDeviceGet(driver, &one, &device));
    WANT(z.zeContextCreate(driver, &of_context, &context));
    WANT(z.zeCommandListCreateImmediate(context, device, &of_queue, &immediate));
    WANT(z.zeModuleCreate(context, device, &of_module, &module, NULL));
    WANT(z.zeKernelCreate(module, &of_kernel, &kernel));
    WANT(z.zeMemAllocDevice(context, &of_memory, 1 << 20, 64, device, &made));
    memory = made;
}

/* ---- a list of all launches ------------------------------------------------------------------------------------ */

static void set_arguments(void) {
    const int n = 0;
    WANT(z.zeKernelSetGroupSize(kernel, 64, 1, 1));
    for (uint32_t i = 0; i + 1 < ARGUMENTS; i++) WANT(z.zeKernelSetArgumentValue(kernel, i, sizeof memory, &memory));
    WANT(z.zeKernelSetArgumentValue(kernel, ARGUMENTS - 1, sizeof n, &n));
}

static ze_command_list_handle_t create_list(const void *more) {
    const ze_command_list_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, .pNext = more, .flags = CRUMB_ZE_LIST_IN_ORDER};
    ze_command_list_handle_t list = NULL;
    return z.zeCommandListCreate(context, device, &desc, &list) == ZE_RESULT_SUCCESS ? list : NULL;
}

static void append_one(ze_command_list_handle_t list) {
    const ze_group_count_t groups = {16, 1, 1};
    set_arguments();
    WANT(z.zeCommandListAppendLaunchKernel(list, kernel, &groups, NULL, 0, NULL));
}

static void append_all(ze_command_list_handle_t list) {
    for (uint32_t i = 0; i < n_launches; i++) append_one(list);
}

static void submit(ze_command_list_handle_t list) {
    WANT(z.append_lists(immediate, 1, &list, NULL, 0, NULL));
    WANT(synchronize(immediate, UINT64_MAX));
}

/* ---- the ways -------------------------------------------------------------------------------------------------- */

static void each(void) {
    append_all(immediate);
    WANT(synchronize(immediate, UINT64_MAX));
}

static ze_command_list_handle_t list;

static void record(void) {
    WANT(z.zeCommandListReset(list));
    append_all(list);
    WANT(z.zeCommandListClose(list));
}

static void closed(void) {
    submit(list);
}

static __typeof__(&zeCommandListGetNextCommandIdExp) next_id;
static __typeof__(&zeCommandListUpdateMutableCommandsExp) update;
static ze_command_list_handle_t changing;
static uint64_t ids[MAX_LAUNCHES];

static const char *make_mutable(void) {
    const ze_mutable_command_list_exp_desc_t more = {.stype = ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC};
    const ze_mutable_command_id_exp_desc_t of_id = {.stype = ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_ID_EXP_DESC,
                                                    .flags = ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS};
    *(void **)&next_id = find("zeCommandListGetNextCommandIdExp");
    *(void **)&update = find("zeCommandListUpdateMutableCommandsExp");
    if (!next_id || !update) return "the loader does not have them";
    changing = create_list(&more);
    if (!changing) return "the driver does not create one";
    for (uint32_t i = 0; i < n_launches; i++) {
        set_arguments();
        if (i < n_changed && next_id(changing, &of_id, &ids[i]) != ZE_RESULT_SUCCESS)
            return "the driver gives commands no numbers";
        append_one(changing);
    }
    WANT(z.zeCommandListClose(changing));
    return NULL;
}

static void mutate(void) {
    static int n;
    static ze_mutable_kernel_argument_exp_desc_t changes[MAX_LAUNCHES];
    n ^= 1;
    for (uint32_t i = 0; i < n_changed; i++)
        changes[i] =
            (ze_mutable_kernel_argument_exp_desc_t){.stype = ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC,
                                                    .pNext = i ? &changes[i - 1] : NULL,
                                                    .commandId = ids[i],
                                                    .argIndex = ARGUMENTS - 1,
                                                    .argSize = sizeof n,
                                                    .pArgValue = &n};
    const ze_mutable_commands_exp_desc_t all = {.stype = ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC,
                                                .pNext = &changes[n_changed - 1]};
    WANT(update(changing, &all));
    WANT(z.zeCommandListClose(changing));
    submit(changing);
}

static ze_result_t (*append_graph)(ze_command_list_handle_t, void *, const void *, ze_event_handle_t, uint32_t,
                                   ze_event_handle_t *);
static void *executable;

/* Of an extension whose functions end in Ext, with drivers that have it as an experiment in Exp. */
static void *find_graph(const char *stem) {
    char name[64];
    snprintf(name, sizeof name, "%sExt", stem);
    void *address = find(name);
    snprintf(name, sizeof name, "%sExp", stem);
    return address ? address : find(name);
}

static const char *make_graph(void) {
    ze_result_t (*begin)(ze_command_list_handle_t, const void *);
    ze_result_t (*end)(ze_command_list_handle_t, const void *, void **);
    ze_result_t (*instantiate)(void *, const void *, void **);
    void *graph = NULL;
    *(void **)&begin = find_graph("zeCommandListBeginGraphCapture");
    *(void **)&end = find_graph("zeCommandListEndGraphCapture");
    *(void **)&instantiate = find_graph("zeGraphInstantiate");
    *(void **)&append_graph = find_graph("zeCommandListAppendGraph");
    if (!begin || !end || !instantiate || !append_graph) return "neither loader nor driver has them";
    if (begin(immediate, NULL) != ZE_RESULT_SUCCESS) return "the driver does not begin one";
    append_all(immediate);
    if (end(immediate, NULL, &graph) != ZE_RESULT_SUCCESS) return "the driver does not end one";
    return instantiate(graph, NULL, &executable) == ZE_RESULT_SUCCESS ? NULL : "the driver does not instantiate one";
}

static void run_graph(void) {
    WANT(append_graph(immediate, executable, NULL, NULL, 0, NULL));
    WANT(synchronize(immediate, UINT64_MAX));
}

static void measure(const char *name, const char *missing, void (*way)(void)) {
    double least = 1e12;
    for (int i = 0; i < ROUNDS && !missing; i++) {
        const double start = now_us();
        way();
        const double took = now_us() - start;
        if (took < least) least = took;
    }
    if (missing)
        printf("%s not there: %s\n", name, missing);
    else
        printf("%s %.2f\n", name, least);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    n_launches = (uint32_t)atoi(argv[1]);
    n_changed = (uint32_t)atoi(argv[2]);
    if (!n_launches || n_launches > MAX_LAUNCHES || !n_changed || n_changed > n_launches) return 2;
    set_up();
    list = create_list(NULL);
    if (!list || !z.append_lists) return 1;
    measure("each", NULL, each);
    measure("record", NULL, record);
    measure("closed", NULL, closed);
    measure("mutable", make_mutable(), mutate);
    measure("graph", make_graph(), run_graph);
    fflush(stdout);
    _Exit(0); /* what is there goes with the process */
}
