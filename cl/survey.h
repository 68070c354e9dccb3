/* Asking every OpenCL driver of this machine for its devices. A driver may crash or hang while it is asked, so only the
 * program crumb-cl-survey does it (tools/cl-survey), in a process of its own. */
#ifndef CRUMB_CL_SURVEY_H
#define CRUMB_CL_SURVEY_H

#include "cl/facts.h"

/* No platform and no device are no failure: *out is then empty. */
void crumb_cl_survey_take(crumb_cl_survey *out);

#endif
