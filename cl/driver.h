/* What the files of this folder need of a driver's API. A GPU backend is this folder and one implementation of what is
 * declared here: OpenCL's in cl/opencl, or Level Zero's in spirv. Each is a module of its own.
 *
 * Codes are the API's own: 0 is success. Handles belong to whom they are given, until they are released.
 *
 * Whatever waits for the device does so for as long as d->limit says. Once that is over, what would start or wait for
 * something fails with STUCK, and what releases memory, lists or events of the device does nothing.
 */
#ifndef CRUMB_CL_DRIVER_H
#define CRUMB_CL_DRIVER_H

#include "host/base/error.h"

/* What the API is called, by users and in names of files. */
typedef struct crumb_cl_api {
    const char *backend; /* "cl": of targets and tuning records */
    const char *name;    /* "OpenCL" */
    const char
        *survey; /* the program that asks for devices, beside the module, and the file of its answer in the cache */
    const char *survey_cache;
    const char *without_driver; /* how to do without a driver */
    const char *programs;       /* folder of the cache */
    bool lists_copy;            /* lists may have copies beside launches */
} crumb_cl_api;
extern const crumb_cl_api crumb_cl_api_used;

typedef int crumb_cl_code;
/* STUCK: the device has not answered in time (cl/limit.h). It is Level Zero's NOT_READY, and no error of OpenCL's. */
enum { CRUMB_CL_OK = 0, CRUMB_CL_STUCK = 1 };

/* "CL_OUT_OF_RESOURCES"; the number where it has no name. Valid until the thread's next call. */
const char *crumb_cl_error_name(crumb_cl_code code);
/* Writes "DEVICE: WHAT failed: CL_..." with what to do about it; `device` is a listing's name and the card's. MEMORY
 * where the device or the machine has too little, else DEVICE. */
crumb_status crumb_cl_fail(crumb_error *err, const char *device, const char *what, crumb_cl_code code);

/* Whether building a program failed because of its text, which the driver's compiler would refuse again. */
bool crumb_cl_is_refusal(crumb_cl_code code);

/* ---- devices --------------------------------------------------------------------------------------------------- */

typedef struct crumb_device crumb_device;
typedef struct crumb_cl_memory crumb_cl_memory;
typedef struct crumb_cl_driver crumb_cl_driver; /* the API's own part of a device */
typedef void *crumb_cl_queue;                   /* in order */

/* Finds the device of d->facts in this process; false: it is not where it was when it was asked. */
bool crumb_cl_driver_find(crumb_device *d);
/* Why no driver offers a GPU, where the API knows that better than the system does; false: it does not. */
bool crumb_cl_driver_advise(char *out, size_t size);
/* Makes d->queue, and sets d->has_usm, which needs to be off for CLBlast. */
crumb_status crumb_cl_driver_open(crumb_device *d, crumb_error *err);
/* All that find and open have made, and d->profiling. */
void crumb_cl_driver_close(crumb_device *d);
/* Makes d->profiling, a queue whose events know times; false where the device cannot measure. */
bool crumb_cl_driver_can_measure(crumb_device *d);
/* What the driver itself knows of energy and clocks now. */
typedef struct crumb_device_sensors crumb_device_sensors;
void crumb_cl_driver_sense(crumb_device *d, crumb_device_sensors *out);
/* What a report says of the device beside its facts, a line each: "name: value". */
void crumb_cl_driver_describe(const crumb_device *d, void (*line)(void *user, const char *text), void *user);

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* m->n_bytes of the device's memory, as m->usm or m->mem. */
crumb_cl_code crumb_cl_driver_allocate(crumb_device *d, crumb_cl_memory *m);
void crumb_cl_driver_free(crumb_device *d, crumb_cl_memory *m);
/* Host memory that kernels may read and write, where d->has_usm; `align` 0: the API's own. */
crumb_cl_code crumb_cl_driver_allocate_host(crumb_device *d, uint64_t n_bytes, uint32_t align, void **out);
void crumb_cl_driver_free_host(crumb_device *d, void *host);

/* In the order of d->queue, from or to byte `offset`. What is not `blocking`, or is STUCK, needs the host's memory as
 * it is until the queue is done with it. Blocking copies to the device may come from several threads at once. */
crumb_cl_code crumb_cl_driver_read(crumb_device *d, const crumb_cl_memory *m, uint64_t offset, void *to,
                                   uint64_t n_bytes, bool blocking);
crumb_cl_code crumb_cl_driver_write(crumb_device *d, const crumb_cl_memory *m, uint64_t offset, const void *from,
                                    uint64_t n_bytes, bool blocking);
crumb_cl_code crumb_cl_driver_zero(crumb_device *d, const crumb_cl_memory *m);

/* ---- programs and their functions ------------------------------------------------------------------------------ */

typedef void *crumb_cl_built; /* a program that is built */
typedef void *crumb_cl_call;  /* a kernel of it, with arguments */

/* The texts one after the other, NULL-terminated. `log` gets what the compiler says, where it fails. */
crumb_cl_code crumb_cl_built_compile(crumb_device *d, const char *const *texts, const char *options,
                                     crumb_cl_built *out, char *log, size_t log_size);
/* From what crumb_cl_built_binary has given; NULL: the driver does not take it. */
crumb_cl_built crumb_cl_built_load(crumb_device *d, const void *binary, size_t n_bytes, const char *options);
/* Freed by the caller; NULL: the driver does not give it. */
void *crumb_cl_built_binary(crumb_cl_built built, size_t *n_bytes);
void crumb_cl_built_release(crumb_cl_built built);

crumb_cl_code crumb_cl_call_create(crumb_cl_built built, const char *name, crumb_cl_call *out);
void crumb_cl_call_release(crumb_cl_call call);
/* `value` NULL: that much local memory. */
crumb_cl_code crumb_cl_call_set(crumb_cl_call call, uint32_t index, size_t size, const void *value);
/* `memory` without memory, or NULL: a null pointer. */
crumb_cl_code crumb_cl_call_set_memory(const crumb_device *d, crumb_cl_call call, uint32_t index,
                                       const crumb_cl_memory *memory);

/* ---- queues ---------------------------------------------------------------------------------------------------- */

typedef void *crumb_cl_event;

/* Work-items: `global` are multiples of `local`. `event` may be NULL; of d->profiling it will know times. */
crumb_cl_code crumb_cl_queue_launch(crumb_device *d, crumb_cl_queue queue, crumb_cl_call call, uint32_t n_dims,
                                    const size_t *global, const size_t *local, crumb_cl_event *event);
crumb_cl_code crumb_cl_queue_finish(crumb_device *d, crumb_cl_queue queue);
/* An event that is over when all before it is; what is enqueued goes to the device now. */
crumb_cl_code crumb_cl_queue_mark(crumb_device *d, crumb_cl_queue queue, crumb_cl_event *out);

crumb_cl_code crumb_cl_event_query(crumb_cl_event event, bool *over);
crumb_cl_code crumb_cl_event_wait(crumb_device *d, crumb_cl_event event);
/* From the begin of a launch to the end of one not before it; false: the driver does not say. Not longer than the
 * device's clock counts: minutes. */
bool crumb_cl_event_span(crumb_cl_event first, crumb_cl_event last, uint64_t *ns);
void crumb_cl_event_release(crumb_device *d, crumb_cl_event event);

/* ---- lists: launches that are enqueued together, any number of times ------------------------------------------- */

typedef void *crumb_cl_list;

/* False: the driver has none. */
bool crumb_cl_list_possible(const crumb_device *d);
crumb_cl_code crumb_cl_list_create(crumb_device *d, crumb_cl_list *out);
void crumb_cl_list_release(crumb_device *d, crumb_cl_list list);
/* Arguments are taken as they are now. */
crumb_cl_code crumb_cl_list_add(crumb_device *d, crumb_cl_list list, crumb_cl_call call, uint32_t n_dims,
                                const size_t *global, const size_t *local);
/* Where the API's lists_copy is true: between host memory of crumb_cl_driver_allocate_host and a device's. */
crumb_cl_code crumb_cl_list_copy(crumb_device *d, crumb_cl_list list, void *to, const void *from, uint64_t n_bytes);
crumb_cl_code crumb_cl_list_close(crumb_device *d, crumb_cl_list list);
crumb_cl_code crumb_cl_list_run(crumb_device *d, crumb_cl_list list);

#endif
