/* What a GPU's sensors say: the driver's, or the system's where that has none. */
#ifndef CRUMB_CL_SENSORS_H
#define CRUMB_CL_SENSORS_H

#include "host/backend.h"

/* crumb_backend.device.sense */
void crumb_cl_sense(crumb_device *d, const char *name, crumb_device_sensors *out);

/* As text, a line each, by which the survey's process tells. Returns its length; 0: `size` is too small. */
size_t crumb_cl_sensors_print(const crumb_device_sensors *s, char *out, size_t size);
/* False: the text is not whole. */
bool crumb_cl_sensors_parse(const char *text, crumb_device_sensors *out);

#endif
