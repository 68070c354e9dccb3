/* Which OpenCL devices there are. Drivers are asked by a process of its own (crumb-cl-survey, beside this module),
 * which may crash or hang without harm; its answer is kept in the user's cache for as long as drivers, kernel and
 * render nodes stay the same. */
#ifndef CRUMB_CL_DISCOVER_H
#define CRUMB_CL_DISCOVER_H

#include "cl/facts.h"
#include "host/backend.h"

typedef struct crumb_cl_found {
    size_t n;
    crumb_cl_facts device[CRUMB_CL_MAX_DEVICES]; /* in the order of their names: discrete, integrated, CPU type */
    char note[400]; /* why there is no GPU and what to do; a driver that failed; empty: nothing to say */
} crumb_cl_found;

void crumb_cl_discover(crumb_cl_found *out);
/* Forgets the answer that is kept: a device was not where it said. */
void crumb_cl_discover_again(void);

/* "gpu3" for the fourth of crumb_cl_found.device. */
void crumb_cl_device_name(size_t index, char out[16]);
void crumb_cl_describe(const crumb_cl_facts *f, size_t index, crumb_device_listing *out);

/* Why no driver offers a GPU, and what to do, from what the system says of its PCI devices and render nodes (advice.c).
 * n_icds: OpenCL drivers that are installed. */
void crumb_cl_advise(size_t n_icds, char *out, size_t size);
/* What keeps a device that is there from its best, where it can be known: its driver's age, resizable BAR. */
void crumb_cl_advise_device(const crumb_cl_facts *f, char *out, size_t size);

#endif
