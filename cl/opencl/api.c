/* What OpenCL is called, and what its error codes mean to crumb. */
#include "cl/opencl/api.h"

#include "cl/driver.h"

#include <stdio.h>

const crumb_cl_api crumb_cl_api_used = {.backend = "cl",
                                        .name = "OpenCL",
                                        .survey = "crumb-cl-survey",
                                        .survey_cache = "cl-survey",
                                        .without_driver = "remove it, or let OCL_ICD_VENDORS name a folder without it",
                                        .programs = "cl-programs",
                                        .lists_copy = false};

const char *crumb_cl_error_name(crumb_cl_code code) {
    static _Thread_local char number[16];
    switch (code) {
    case CL_DEVICE_NOT_FOUND: return "CL_DEVICE_NOT_FOUND";
    case CL_DEVICE_NOT_AVAILABLE: return "CL_DEVICE_NOT_AVAILABLE";
    case CL_COMPILER_NOT_AVAILABLE: return "CL_COMPILER_NOT_AVAILABLE";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case CL_OUT_OF_RESOURCES: return "CL_OUT_OF_RESOURCES";
    case CL_OUT_OF_HOST_MEMORY: return "CL_OUT_OF_HOST_MEMORY";
    case CL_BUILD_PROGRAM_FAILURE: return "CL_BUILD_PROGRAM_FAILURE";
    case CL_MISALIGNED_SUB_BUFFER_OFFSET: return "CL_MISALIGNED_SUB_BUFFER_OFFSET";
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: return "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
    case CL_COMPILE_PROGRAM_FAILURE: return "CL_COMPILE_PROGRAM_FAILURE";
    case CL_LINK_PROGRAM_FAILURE: return "CL_LINK_PROGRAM_FAILURE";
    case CL_INVALID_VALUE: return "CL_INVALID_VALUE";
    case CL_INVALID_DEVICE: return "CL_INVALID_DEVICE";
    case CL_INVALID_CONTEXT: return "CL_INVALID_CONTEXT";
    case CL_INVALID_COMMAND_QUEUE: return "CL_INVALID_COMMAND_QUEUE";
    case CL_INVALID_MEM_OBJECT: return "CL_INVALID_MEM_OBJECT";
    case CL_INVALID_BINARY: return "CL_INVALID_BINARY";
    case CL_INVALID_BUILD_OPTIONS: return "CL_INVALID_BUILD_OPTIONS";
    case CL_INVALID_PROGRAM: return "CL_INVALID_PROGRAM";
    case CL_INVALID_PROGRAM_EXECUTABLE: return "CL_INVALID_PROGRAM_EXECUTABLE";
    case CL_INVALID_KERNEL_NAME: return "CL_INVALID_KERNEL_NAME";
    case CL_INVALID_KERNEL: return "CL_INVALID_KERNEL";
    case CL_INVALID_ARG_INDEX: return "CL_INVALID_ARG_INDEX";
    case CL_INVALID_ARG_VALUE: return "CL_INVALID_ARG_VALUE";
    case CL_INVALID_ARG_SIZE: return "CL_INVALID_ARG_SIZE";
    case CL_INVALID_KERNEL_ARGS: return "CL_INVALID_KERNEL_ARGS";
    case CL_INVALID_WORK_GROUP_SIZE: return "CL_INVALID_WORK_GROUP_SIZE";
    case CL_INVALID_WORK_ITEM_SIZE: return "CL_INVALID_WORK_ITEM_SIZE";
    case CL_INVALID_GLOBAL_WORK_SIZE: return "CL_INVALID_GLOBAL_WORK_SIZE";
    case CL_INVALID_BUFFER_SIZE: return "CL_INVALID_BUFFER_SIZE";
    case CL_INVALID_OPERATION: return "CL_INVALID_OPERATION";
    case CL_INVALID_PROPERTY: return "CL_INVALID_PROPERTY";
    case CL_PLATFORM_NOT_FOUND_KHR: return "CL_PLATFORM_NOT_FOUND_KHR";
    default: snprintf(number, sizeof number, "error %d", (int)code); return number;
    }
}

bool crumb_cl_is_refusal(crumb_cl_code code) {
    return code == CL_BUILD_PROGRAM_FAILURE || code == CL_COMPILE_PROGRAM_FAILURE || code == CL_LINK_PROGRAM_FAILURE ||
           code == CL_INVALID_BUILD_OPTIONS;
}

crumb_status crumb_cl_fail(crumb_error *err, const char *device, const char *what, crumb_cl_code code) {
    if (code == CRUMB_CL_STUCK)
        return crumb_fail(err, CRUMB_ERR_DEVICE,
                          "%s: %s failed: the device does not answer (CRUMB_PATIENCE_MS says how long it may take); "
                          "--device cpu runs without it",
                          device, what);
    switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
        return crumb_fail(err, CRUMB_ERR_MEMORY,
                          "%s: %s failed: %s: not enough memory; a smaller model or context (-c), or --device cpu",
                          device, what, crumb_cl_error_name(code));
    case CL_OUT_OF_RESOURCES: /* Intel's driver: also a kernel that was killed because it ran too long */
        return crumb_fail(err, CRUMB_ERR_DEVICE,
                          "%s: %s failed: CL_OUT_OF_RESOURCES: the device is full, or was reset; try again, a smaller "
                          "model, context (-c) or batch (-ub), or --device cpu",
                          device, what);
    default:
        return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: %s failed: %s; --device cpu runs without it", device, what,
                          crumb_cl_error_name(code));
    }
}
