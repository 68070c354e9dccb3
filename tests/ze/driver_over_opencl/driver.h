/* A Level Zero driver for tests, over the first OpenCL device: Intel's runtime for CPUs. It has the functions that
 * spirv/ calls and no others, and computes what a GPU's driver would: modules are SPIR-V, lists are recorded and
 * replayed. So the whole backend gives real numbers without a GPU, and does not know it. Where a GPU's driver would do
 * something undefined, this one refuses or aborts: memory that no driver has made, lists that still run, waits for what
 * nobody will signal.
 *
 * From the environment:
 *   CRUMB_DRIVER_GPU       which GPU it claims to be, by Intel's names: bmg, dg2, lnl or tgllp
 *   CRUMB_LAYER_BUILTINS   path of tests/xe/xe_builtins.cl, the matrix instructions, which modules are linked with
 *   CRUMB_DRIVER_WRONG     launches of kernels whose name begins so do nothing
 *   CRUMB_DRIVER_TICKS     timestamps say that every launch takes so many ticks, and the clock wraps behind the tenth;
 *                          else they are OpenCL's times
 *   CRUMB_DRIVER_SYSMAN    "none": Sysman has no domains; "denied": its counters may not be read
 *   CRUMB_FAULT...         calls that fail: tests/support/faults.h. What releases something or polls is not counted
 */
#ifndef CRUMB_TESTS_ZE_DRIVER_H
#define CRUMB_TESTS_ZE_DRIVER_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <level_zero/ze_ddi.h>
#include <level_zero/zes_ddi.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At the head of a function: fails where a test wants it. */
#define CALL()                                                                                                         \
    if (call_fails(__func__)) return call_code()
bool call_fails(const char *function);
ze_result_t call_code(void);
/* Where a test wants a device that does nothing any more: whether it does so. */
bool device_hangs(void);
/* The same for a call that waits: it returns after so many ns; UINT64_MAX: never. */
bool hangs_for(uint64_t timeout_ns);

/* Ends the process: whoever uses this driver has done what no driver can answer. */
_Noreturn void stop(const char *what);

/* ---- the one driver, its one device ----------------------------------------------------------------------------- */

typedef struct usm_functions {
    clDeviceMemAllocINTEL_fn device_alloc;
    clHostMemAllocINTEL_fn host_alloc;
    clMemFreeINTEL_fn release;
    clSetKernelArgMemPointerINTEL_fn set_arg;
    clEnqueueMemcpyINTEL_fn copy;
    clEnqueueMemFillINTEL_fn fill;
} usm_functions;

struct _ze_driver_handle_t {
    bool is_there;
};
extern struct _ze_driver_handle_t the_driver;

/* Opened by the first zeInit, and kept. */
struct _ze_device_handle_t {
    cl_device_id id;
    cl_context context;
    usm_functions usm;
    atomic_bool is_stuck; /* it hangs, and has been given something to do */
};
extern struct _ze_device_handle_t the_device;

struct _ze_context_handle_t {
    bool is_there;
};

enum { TICKS_PER_SECOND = 19200000, TICK_BITS = 32 }; /* of timestamps */

/* What the energy counter gains by a list that is submitted, and by each reading: whoever reads it counts lists. */
enum { LIST_UJ = 1000000, READING_UJ = 1 };
void count_list(void);

/* Its number of its own, by which Sysman's device is known for the same. */
extern const ze_device_uuid_t the_uuid;

/* OpenCL's codes as Level Zero's. */
ze_result_t result_of(cl_int code);

/* ---- memory -------------------------------------------------------------------------------------------------------
 */

/* Whether these bytes lie in one allocation of the driver. */
bool is_usm(const void *p, size_t n_bytes);

/* ---- modules ------------------------------------------------------------------------------------------------------
 */

typedef enum parameter_kind { PARAMETER_VALUE, PARAMETER_GLOBAL, PARAMETER_LOCAL } parameter_kind;
enum { MAX_PARAMETERS = 64, MAX_KERNELS = 16 };

/* A kernel's parameter, and what it is set to. */
typedef struct parameter {
    parameter_kind kind;
    bool is_set;
    size_t n_bytes; /* of a VALUE; what a LOCAL is set to */
    uint64_t value; /* of a VALUE, or a GLOBAL's address */
} parameter;
typedef struct signature {
    char name[64];
    uint32_t n;
    parameter parameter[MAX_PARAMETERS];
} signature;

/* Signatures of the kernels of a SPIR-V module; 0: it is none, or has parameters that this driver does not know.
 * `imports` says whether it calls functions of other modules. */
size_t spirv_read(const uint32_t *words, size_t n_words, signature out[MAX_KERNELS], bool *imports);

struct _ze_module_handle_t {
    cl_program program;
    void *spirv;
    size_t n_spirv_bytes;
    size_t n_kernels;
    signature kernel[MAX_KERNELS];
};
struct _ze_module_build_log_handle_t {
    char text[1 << 14];
};
struct _ze_kernel_handle_t {
    cl_kernel kernel;
    signature arguments;
    size_t local[3]; /* 0: not set */
};

/* ---- lists and events ---------------------------------------------------------------------------------------------
 */

struct _ze_event_pool_handle_t {
    uint32_t n_events;
};
struct _ze_event_handle_t {
    cl_event signal;   /* the command that signals it; NULL: none is submitted */
    uint64_t n_launch; /* how many launches there had been with it */
};

/* Takes `signal` over. */
void event_attach(ze_event_handle_t event, cl_event signal, uint64_t n_launch);

#endif
