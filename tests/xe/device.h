/* What the tests of OpenCL kernels share: a device, programs made of cl/kernels/, buffers and launches. Every failure
 * of OpenCL ends the test with a message. */
#ifndef CRUMB_TESTS_XE_DEVICE_H
#define CRUMB_TESTS_XE_DEVICE_H

#define CL_TARGET_OPENCL_VERSION          300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS /* clCreateCommandQueue: Oclgrind has no other */
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct crumb_xe_device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    char name[128];
    char version[128]; /* or what CRUMB_XE_VERSION says */
    bool sub_groups;   /* has Intel's sub-groups: block reads, and a linker for the software builtins */
    bool dot;          /* cl_khr_integer_dot_product */
    uint64_t local_bytes;
} crumb_xe_device;

/* Runs tests, n of cmocka's, on the first device of any platform: what main returns, 1 where there is none. */
struct CMUnitTest;
int crumb_xe_run_tests(crumb_xe_device *d, const struct CMUnitTest *tests, size_t n);

/* The first device of any platform; false: there is none. */
bool crumb_xe_open(crumb_xe_device *out);
void crumb_xe_close(crumb_xe_device *d);
/* Ends a test that needs what the device has not: skipped, or failed with CRUMB_XE_HAS_ALL in the environment, which
 * says that its runtime has all. */
void crumb_xe_skip(const char *lacking);

/* The texts common.cl and FILE of cl/kernels (or the file FILE alone where it has a folder) built with the options,
 * linked with tests/xe/xe_builtins.cl where `matrix`. With CRUMB_CL_ROUND_DIVISION among them the device's own division
 * need not be rounded correctly. Programs are kept until the device is closed. */
cl_kernel crumb_xe_kernel(crumb_xe_device *d, const char *file, const char *options, bool matrix, const char *entry);

/* Random numbers of one sequence; floats of up to +-scale, freed by the caller. */
extern uint64_t crumb_xe_seed;
float *crumb_xe_random_floats(size_t n, float scale);

/* A buffer of n_bytes with a copy of data, or of 0xa5 where data is NULL. n_bytes 0: NULL. */
cl_mem crumb_xe_buffer(crumb_xe_device *d, const void *data, size_t n_bytes);
void crumb_xe_fill(crumb_xe_device *d, cl_mem buffer, size_t n_bytes); /* 0xa5 again */
void crumb_xe_release(size_t n, const cl_mem *buffers);                /* NULL among them allowed */
void crumb_xe_read(crumb_xe_device *d, cl_mem buffer, void *out, size_t n_bytes);

/* Sets arguments from `first` on: b cl_mem (NULL allowed), u uint32_t, i int, f double as float, o uint64_t, l local
 * memory of size_t bytes. */
void crumb_xe_args(cl_kernel kernel, cl_uint first, const char *types, ...);
/* Launches and waits; groups and local size along three dimensions, local size along the first alone. */
void crumb_xe_run(crumb_xe_device *d, cl_kernel kernel, size_t local, size_t groups0, size_t groups1, size_t groups2);

#endif
