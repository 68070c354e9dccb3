/* Level Zero as the files of this folder use it. Nothing links its loader: functions are found when it can be loaded.
 * Headers of version 1.4 do (Debian 12's), so what is newer is declared here. */
#ifndef CRUMB_ZE_API_H
#define CRUMB_ZE_API_H

#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>

#include "host/base/error.h"

#include <assert.h>
#include <string.h>

/* X(name): every loader has them. */
#define CRUMB_ZE_FUNCTIONS(X)                                                                                          \
    X(zeInit)                                                                                                          \
    X(zeDriverGet)                                                                                                     \
    X(zeDriverGetApiVersion)                                                                                           \
    X(zeDriverGetProperties)                                                                                           \
    X(zeDriverGetExtensionProperties)                                                                                  \
    X(zeDriverGetExtensionFunctionAddress)                                                                             \
    X(zeDeviceGet)                                                                                                     \
    X(zeDeviceGetProperties)                                                                                           \
    X(zeDeviceGetComputeProperties)                                                                                    \
    X(zeDeviceGetModuleProperties)                                                                                     \
    X(zeDeviceGetMemoryProperties)                                                                                     \
    X(zeDeviceGetCacheProperties)                                                                                      \
    X(zeDeviceGetCommandQueueGroupProperties)                                                                          \
    X(zeDevicePciGetPropertiesExt)                                                                                     \
    X(zeContextCreate)                                                                                                 \
    X(zeContextDestroy)                                                                                                \
    X(zeMemAllocDevice)                                                                                                \
    X(zeMemAllocHost)                                                                                                  \
    X(zeMemFree)                                                                                                       \
    X(zeMemGetAllocProperties)                                                                                         \
    X(zeModuleCreate)                                                                                                  \
    X(zeModuleDestroy)                                                                                                 \
    X(zeModuleBuildLogGetString)                                                                                       \
    X(zeModuleBuildLogDestroy)                                                                                         \
    X(zeModuleGetNativeBinary)                                                                                         \
    X(zeKernelCreate)                                                                                                  \
    X(zeKernelDestroy)                                                                                                 \
    X(zeKernelSetGroupSize)                                                                                            \
    X(zeKernelSetArgumentValue)                                                                                        \
    X(zeCommandQueueCreate)                                                                                            \
    X(zeCommandQueueDestroy)                                                                                           \
    X(zeCommandQueueExecuteCommandLists)                                                                               \
    X(zeCommandQueueSynchronize)                                                                                       \
    X(zeCommandListCreate)                                                                                             \
    X(zeCommandListCreateImmediate)                                                                                    \
    X(zeCommandListDestroy)                                                                                            \
    X(zeCommandListClose)                                                                                              \
    X(zeCommandListReset)                                                                                              \
    X(zeCommandListAppendLaunchKernel)                                                                                 \
    X(zeCommandListAppendMemoryCopy)                                                                                   \
    X(zeCommandListAppendMemoryFill)                                                                                   \
    X(zeCommandListAppendSignalEvent)                                                                                  \
    X(zeEventPoolCreate)                                                                                               \
    X(zeEventPoolDestroy)                                                                                              \
    X(zeEventCreate)                                                                                                   \
    X(zeEventDestroy)                                                                                                  \
    X(zeEventHostReset)                                                                                                \
    X(zeEventQueryStatus)                                                                                              \
    X(zeEventHostSynchronize)                                                                                          \
    X(zeEventQueryKernelTimestamp)

/* Version 1.6, in the loader since 1.11. */
typedef ze_result_t(ZE_APICALL *crumb_ze_list_synchronize_fn)(ze_command_list_handle_t list, uint64_t timeout_ns);
/* ZE_experimental_immediate_command_list_append, in the loader since 1.17. */
typedef ze_result_t(ZE_APICALL *crumb_ze_append_lists_fn)(ze_command_list_handle_t immediate, uint32_t n,
                                                          ze_command_list_handle_t *lists, ze_event_handle_t signal,
                                                          uint32_t n_waits, ze_event_handle_t *waits);
/* ZE_intel_get_driver_version_string */
typedef ze_result_t(ZE_APICALL *crumb_ze_version_fn)(ze_driver_handle_t driver, char *text, size_t *size);

#define CRUMB_ZE_MEMBER(name) __typeof__(&name) name;
typedef struct crumb_ze_functions {
    CRUMB_ZE_FUNCTIONS(CRUMB_ZE_MEMBER)
    crumb_ze_list_synchronize_fn list_synchronize;
    crumb_ze_append_lists_fn append_lists; /* NULL: the loader is older */
} crumb_ze_functions;

/* Sysman: X(name), in headers of version 1.4. */
#define CRUMB_ZE_SYSMAN_FUNCTIONS(X)                                                                                   \
    X(zesDeviceGetProperties)                                                                                          \
    X(zesDevicePciGetProperties)                                                                                       \
    X(zesDeviceEnumPowerDomains)                                                                                       \
    X(zesPowerGetProperties)                                                                                           \
    X(zesPowerGetEnergyCounter)                                                                                        \
    X(zesDeviceEnumFrequencyDomains)                                                                                   \
    X(zesFrequencyGetProperties)                                                                                       \
    X(zesFrequencyGetState)
/* Version 1.5: Sysman with drivers and devices of its own. */
typedef ze_result_t(ZE_APICALL *crumb_zes_init_fn)(uint32_t flags);
typedef ze_result_t(ZE_APICALL *crumb_zes_driver_get_fn)(uint32_t *n, zes_driver_handle_t *out);
typedef ze_result_t(ZE_APICALL *crumb_zes_device_get_fn)(zes_driver_handle_t driver, uint32_t *n,
                                                         zes_device_handle_t *out);
typedef struct crumb_ze_sysman_functions {
    CRUMB_ZE_SYSMAN_FUNCTIONS(CRUMB_ZE_MEMBER)
    crumb_zes_init_fn init;
    crumb_zes_driver_get_fn driver_get;
    crumb_zes_device_get_fn device_get;
} crumb_ze_sysman_functions;

/* Flags of version 1.7: what is appended is done in its order. */
#define CRUMB_ZE_QUEUE_IN_ORDER ((ze_command_queue_flags_t)ZE_BIT(1))
#define CRUMB_ZE_LIST_IN_ORDER  ((ze_command_list_flags_t)ZE_BIT(3))

/* Intel's driver takes OpenCL C as it stands, as a format that the specification does not name. */
static inline ze_module_format_t crumb_ze_format_opencl_c(void) {
    const uint32_t number = 3;
    ze_module_format_t format;
    static_assert(sizeof format == sizeof number, "enumerations are numbers of 32 bits");
    memcpy(&format, &number, sizeof format);
    return format;
}

/* The loader's functions, loaded once and then kept; NULL: it is not there, or too old, which `err` says. */
const crumb_ze_functions *crumb_ze_load(crumb_error *err);
/* Of the same loader; false: it has no Sysman. */
bool crumb_ze_load_sysman(crumb_ze_sysman_functions *out);

#endif
