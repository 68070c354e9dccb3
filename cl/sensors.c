#include "cl/sensors.h"

#include "cl/device.h"
#include "cl/discover.h"
#include "host/base/process.h"
#include "host/kernel/energy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_MS = 10000, ANSWER_SIZE = 4096 };

/* What `name` was when it was listed; false: it is gone. */
static bool find_facts(const char *name, crumb_cl_facts *out) {
    crumb_cl_found *found = calloc(1, sizeof *found);
    bool is_there = false;
    if (found) crumb_cl_discover(found);
    for (size_t i = 0; found && i < found->n && !is_there; i++) {
        char listed[16];
        crumb_cl_device_name(i, listed);
        is_there = strcmp(name, listed) == 0;
        if (is_there) *out = found->device[i];
    }
    free(found);
    return is_there;
}

/* NULL, or how it went wrong. */
static const char *ask(const crumb_cl_facts *f, crumb_device_sensors *out) {
    char program[800], platform[24], device[24], answer[ANSWER_SIZE];
    const char *const argv[] = {program, "--sensors", platform, device, NULL};
    crumb_process_end end;
    int code;
    snprintf(platform, sizeof platform, "%" PRIu64, f->platform);
    snprintf(device, sizeof device, "%" PRIu64, f->device);
    if (!crumb_cl_survey_program(program, sizeof program) ||
        crumb_process_run(argv, LIMIT_MS, answer, sizeof answer, &end, &code, NULL) != CRUMB_OK)
        return "cannot be asked";
    if (end == CRUMB_PROCESS_TIMED_OUT) return "hangs when it is asked for its sensors";
    if (end == CRUMB_PROCESS_KILLED) return "crashes when it is asked for its sensors";
    return crumb_cl_sensors_parse(answer, out) ? NULL : "ends the process that asks it for its sensors";
}

static void sense_listed(const crumb_cl_facts *f, crumb_device_sensors *out) {
    const char *how = ask(f, out);
    if (!how) return;
    *out = (crumb_device_sensors){0};
    crumb_sensors_miss(out, "the %s driver %s", crumb_cl_api_used.name, how);
}

void crumb_cl_sense(crumb_device *d, const char *name, crumb_device_sensors *out) {
    crumb_cl_facts facts;
    *out = (crumb_device_sensors){0};
    if (!d && !find_facts(name, &facts)) {
        crumb_sensors_miss(out, "the device is not there any more");
        return;
    }
    if (d)
        crumb_cl_driver_sense(d, out);
    else
        sense_listed(&facts, out);
    const char *pci = d ? d->facts.pci : facts.pci;
    if (!*out->energy_source && !crumb_energy_read_hwmon("", pci, out) && !*out->missing)
        crumb_sensors_miss(out, "neither the driver nor the system has an energy counter of it");
}
