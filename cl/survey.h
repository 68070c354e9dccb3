/* Asking every driver of this machine for its devices. A driver may crash or hang while it is asked, so only the
 * program crumb-cl-survey does it, or crumb-ze-survey (tools/cl-survey), in a process of its own. */
#ifndef CRUMB_CL_SURVEY_H
#define CRUMB_CL_SURVEY_H

#include "cl/facts.h"
#include "host/backend.h"

/* No platform and no device are no failure: *out is then empty. `driver`: a file of crumb_cl_driver_files, of which
 * alone the driver is asked; NULL: all are. */
void crumb_cl_survey_take(const char *driver, crumb_cl_survey *out);

/* What the sensors of a device say now, by its numbers in the survey (facts.h). */
void crumb_cl_survey_sense(uint64_t platform, uint64_t device, crumb_device_sensors *out);

#endif
