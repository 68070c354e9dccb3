/* What is known of a device, as one line of text per fact: a process of its own finds out (survey.c) and
 * writes, the backend reads (discover.c) and keeps the text in the user's cache. */
#ifndef CRUMB_CL_FACTS_H
#define CRUMB_CL_FACTS_H

#include "host/base/error.h"

enum { CRUMB_CL_MAX_DEVICES = 16, CRUMB_CL_TEXT = 160 };

/* X(name): texts, control characters replaced. */
#define CRUMB_CL_TEXTS(X) X(name) X(vendor) X(driver) X(version) X(platform_name) X(sub_groups) X(pci) X(unusable)

/* X(name): numbers. */
#define CRUMB_CL_NUMBERS(X)                                                                                            \
    X(platform)  /* its index among the platforms, in the loader's order */                                            \
    X(device)    /* its index among the platform's devices */                                                          \
    X(vendor_id) /* 0x8086: Intel */                                                                                   \
    X(is_cpu)    /* an OpenCL device of CPU type */                                                                    \
    X(is_gpu)                                                                                                          \
    X(unified)  /* shares the machine's memory */                                                                      \
    X(units)    /* compute units; Intel's: execution units */                                                          \
    X(xe_cores) /* 0: unknown */                                                                                       \
    X(clock_mhz)                                                                                                       \
    X(memory_bytes)                                                                                                    \
    X(max_alloc_bytes)                                                                                                 \
    X(local_bytes)                                                                                                     \
    X(max_work_group)                                                                                                  \
    X(cache_bytes)     /* of the cache that all units share; 0: unknown */                                             \
    X(align_bytes)     /* of sub-buffers */                                                                            \
    X(ip_version)      /* Intel's; 0: unknown */                                                                       \
    X(rounds_division) /* -cl-fp32-correctly-rounded-divide-sqrt */                                                    \
    X(has_usm)         /* device and host allocations by pointer, and their functions are there */                     \
    X(has_f16)                                                                                                         \
    X(has_sub_groups)                                                                                                  \
    X(has_intel_sub_groups)                                                                                            \
    X(has_dot_product)                                                                                                 \
    X(has_matrix) /* DPAS */                                                                                           \
    X(has_2d_blocks)                                                                                                   \
    X(has_bf16)                                                                                                        \
    X(has_command_buffer)                                                                                              \
    X(is_wrong) /* unusable because it computes wrong results, and for no other reason */

#define CRUMB_CL_VENDOR_INTEL 0x8086

#define CRUMB_CL_TEXT_MEMBER(name)   char name[CRUMB_CL_TEXT];
#define CRUMB_CL_NUMBER_MEMBER(name) uint64_t name;
typedef struct crumb_cl_facts {
    CRUMB_CL_TEXTS(CRUMB_CL_TEXT_MEMBER)
    CRUMB_CL_NUMBERS(CRUMB_CL_NUMBER_MEMBER)
} crumb_cl_facts;

typedef struct crumb_cl_survey {
    uint64_t n_platforms;
    uint64_t is_partial; /* a driver failed to answer what it may answer another time: not to be kept */
    size_t n_devices;
    crumb_cl_facts device[CRUMB_CL_MAX_DEVICES];
} crumb_cl_survey;

/* Copies what a driver says, without leading spaces and with '?' for control characters. */
void crumb_cl_clean_text(const char *from, char to[CRUMB_CL_TEXT]);

/* The device's name for people to read, also where its driver did not tell it. As long as `f`. */
const char *crumb_cl_shown_name(const crumb_cl_facts *f);

/* The survey as text, NUL-terminated; returns its length, or 0 when `size` is too small. */
size_t crumb_cl_survey_print(const crumb_cl_survey *s, char *out, size_t size);
/* Reads it back. False when the text is not a whole survey of this version. */
bool crumb_cl_survey_parse(const char *text, crumb_cl_survey *out);

#endif
