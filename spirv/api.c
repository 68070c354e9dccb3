/* What Level Zero is called, and what its error codes mean to crumb. */
#include "spirv/api.h"

#include "cl/driver.h"

#include <stdio.h>

const crumb_cl_api crumb_cl_api_used = {.backend = "ze",
                                        .name = "Level Zero",
                                        .survey = "crumb-ze-survey",
                                        .survey_cache = "ze-survey",
                                        .without_driver = "remove it, or take another backend (--backend cl)",
                                        .programs = "ze-modules",
                                        .lists_copy = true};

const char *crumb_cl_error_name(crumb_cl_code code) {
    static _Thread_local char number[24];
    switch ((ze_result_t)code) {
#define NAME(name)                                                                                                     \
    case name: return #name;
        NAME(ZE_RESULT_NOT_READY)
        NAME(ZE_RESULT_ERROR_DEVICE_LOST)
        NAME(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
        NAME(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
        NAME(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE)
        NAME(ZE_RESULT_ERROR_MODULE_LINK_FAILURE)
        NAME(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS)
        NAME(ZE_RESULT_ERROR_NOT_AVAILABLE)
        NAME(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE)
        NAME(ZE_RESULT_ERROR_UNINITIALIZED)
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_VERSION)
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
        NAME(ZE_RESULT_ERROR_INVALID_ARGUMENT)
        NAME(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
        NAME(ZE_RESULT_ERROR_INVALID_NULL_POINTER)
        NAME(ZE_RESULT_ERROR_INVALID_SIZE)
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_SIZE)
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT)
        NAME(ZE_RESULT_ERROR_INVALID_ENUMERATION)
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION)
        NAME(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY)
        NAME(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)
        NAME(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION)
        NAME(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX)
        NAME(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE)
        NAME(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE)
        NAME(ZE_RESULT_ERROR_UNKNOWN)
#undef NAME
    default: snprintf(number, sizeof number, "error 0x%x", (unsigned)code); return number;
    }
}

bool crumb_cl_is_refusal(crumb_cl_code code) {
    return (ze_result_t)code == ZE_RESULT_ERROR_MODULE_BUILD_FAILURE ||
           (ze_result_t)code == ZE_RESULT_ERROR_MODULE_LINK_FAILURE;
}

crumb_status crumb_cl_fail(crumb_error *err, const char *device, const char *what, crumb_cl_code code) {
    if (code == CRUMB_CL_STUCK)
        return crumb_fail(err, CRUMB_ERR_DEVICE,
                          "%s: %s failed: the device does not answer (CRUMB_PATIENCE_MS says how long it may take); "
                          "--device cpu runs without it",
                          device, what);
    switch ((ze_result_t)code) {
    case ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY:
    case ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY:
    case ZE_RESULT_ERROR_UNSUPPORTED_SIZE:
        return crumb_fail(err, CRUMB_ERR_MEMORY,
                          "%s: %s failed: %s: not enough memory; a smaller model or context (-c), or --device cpu",
                          device, what, crumb_cl_error_name(code));
    case ZE_RESULT_ERROR_DEVICE_LOST: /* Intel's driver: also a kernel that was ended because it ran too long */
        return crumb_fail(err, CRUMB_ERR_DEVICE,
                          "%s: %s failed: ZE_RESULT_ERROR_DEVICE_LOST: the device was reset; try again, a smaller "
                          "batch (-ub), or --device cpu",
                          device, what);
    default:
        return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: %s failed: %s; --backend cl or --device cpu runs without it",
                          device, what, crumb_cl_error_name(code));
    }
}
