/* An open device: its queue, memory, programs. */
#ifndef CRUMB_CL_DEVICE_H
#define CRUMB_CL_DEVICE_H

#include "cl/driver.h"
#include "cl/facts.h"
#include "cl/limit.h"
#include "cl/registry.h"
#include "host/backend.h"

typedef struct crumb_cl_program {
    char *key; /* file and options */
    crumb_cl_built built;
} crumb_cl_program;

struct crumb_device {
    crumb_cl_facts facts;
    char name[16];           /* "gpu0" */
    char label[128];         /* "gpu0 (Intel(R) Arc(TM) B580 Graphics)", for messages */
    crumb_cl_target ladder;  /* which kernels run on it */
    crumb_cl_driver *driver; /* the API's own part */
    crumb_cl_limit limit;
    crumb_cl_queue queue;       /* in order */
    crumb_cl_queue profiling;   /* NULL until a plan is measured; may be `queue` */
    bool has_usm;               /* memory has addresses, also the host's that kernels use */
    struct crumb_cl_blas *blas; /* NULL: CLBlast is not asked for */
    uint64_t allocated_bytes;   /* on the device */
    crumb_buffer *buffers;      /* all that are open */
    struct crumb_cl_shared *shared;
    crumb_cl_program *programs; /* built so far */
    size_t n_programs;
    bool refused; /* its compiler has refused a program */
    bool unkept;  /* programs are not kept, and it has been said */
    int n_threads;
    crumb_tuning *tuning; /* measured choices; not owned; NULL: none */
    crumb_tuning_find_fn *find_tuning;
    crumb_log_fn log; /* NULL: none */
    void *log_user;
};

crumb_status crumb_cl_device_open(const crumb_device_params *params, crumb_device **out, crumb_error *err);
/* The same, also for a device that is refused because its results are wrong: for tests of its kernels. */
crumb_status crumb_cl_device_open_to_test(const crumb_device_params *params, crumb_device **out, crumb_error *err);
void crumb_cl_device_close(crumb_device *d);
/* All that the device's kernels could use, whatever rung plans stand on. */
crumb_cl_target crumb_cl_device_most(const crumb_device *d);
void crumb_cl_device_get_info(const crumb_device *d, crumb_device_info *out);
size_t crumb_cl_device_list(crumb_device_listing *out, size_t capacity, char *note, size_t note_size);

#endif
