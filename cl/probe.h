/* What an OpenCL device does at best, by small kernels (kernels/probe.cl) and the times that its driver tells: the
 * roofs that speeds are compared with. Each call measures once more, some milliseconds long; 0 where the device tells
 * no times, or does not build or run the probe. */
#ifndef CRUMB_CL_PROBE_H
#define CRUMB_CL_PROBE_H

#include "cl/memory.h"

typedef struct crumb_cl_probe crumb_cl_probe;

/* For a device whose queue can measure. The memory that is read is several times the device's cache. */
crumb_status crumb_cl_probe_create(crumb_device *d, crumb_cl_probe **out, crumb_error *err);
void crumb_cl_probe_destroy(crumb_cl_probe *p); /* NULL is allowed */

double crumb_cl_probe_read(crumb_cl_probe *p); /* GB/s from memory */
/* 10^9 operations a second with what kernels of a rung multiply with. */
double crumb_cl_probe_dot(crumb_cl_probe *p, crumb_cl_rung rung);
double crumb_cl_probe_launch(crumb_cl_probe *p); /* ns that each of many kernels without work takes in a row */
/* Puts other data in the place of what the device's caches hold. */
crumb_status crumb_cl_probe_flush(crumb_cl_probe *p, crumb_error *err);
uint64_t crumb_cl_probe_flushed(const crumb_cl_probe *p); /* bytes of such data since it was created; NULL: 0 */

/* Nanoseconds from the begin of one launch to the end of another, once both are done; releases the events, of which
 * the first may be NULL: there is one. 0: the driver does not say. */
double crumb_cl_events_ns(crumb_device *d, crumb_cl_event first, crumb_cl_event last);

#endif
