/* OpenCL has no sensors. */
#include "cl/driver.h"
#include "cl/survey.h"
#include "host/kernel/energy.h"

void crumb_cl_survey_sense(uint64_t platform, uint64_t device, crumb_device_sensors *out) {
    (void)platform, (void)device;
    *out = (crumb_device_sensors){0};
    crumb_sensors_miss(out, "OpenCL tells nothing of energy and clocks; Level Zero may (--backend ze)");
}

void crumb_cl_driver_sense(crumb_device *d, crumb_device_sensors *out) {
    (void)d;
    crumb_cl_survey_sense(0, 0, out);
}
