/* crumb-cl-survey, crumb-ze-survey [DRIVER]: asks the OpenCL or the Level Zero drivers of this machine for their
 * devices, and prints what they answer (cl/facts.h). crumb runs it in the backend's place, because a driver may crash
 * or hang. DRIVER is a file of crumb_cl_driver_files, so that a driver can be asked alone.
 *
 * crumb-ze-survey --sensors PLATFORM DEVICE: what the sensors of a device say (cl/sensors.h). */
#include "cl/sensors.h"
#include "cl/survey.h"
#include "host/kernel/energy.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_S = 60 }; /* crumb itself waits less; this ends a survey whose crumb is gone */

static int put(const char *text, size_t n) {
    if (n == 0 || fwrite(text, 1, n, stdout) != n || fflush(stdout) != 0) return 1;
    _exit(0); /* without the drivers' own farewells */
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads twice: power is what the counter gains in between. */
static int sense(const char *platform, const char *device) {
    crumb_device_sensors before, s;
    char text[4096];
    uint64_t gained;
    const uint64_t p = strtoull(platform, NULL, 10), d = strtoull(device, NULL, 10);
    crumb_cl_survey_sense(p, d, &before);
    s = before;
    if (*before.energy_source) {
        const double start = now_s();
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        crumb_cl_survey_sense(p, d, &s);
        if (crumb_energy_between(&before, &s, &gained))
            s.power_mw = (uint32_t)((double)gained * 1e-3 / (now_s() - start));
    }
    return put(text, crumb_cl_sensors_print(&s, text, sizeof text));
}

int main(int argc, char **argv) {
    static crumb_cl_survey survey;
    static char text[64 * 1024];
    alarm(LIMIT_S);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0}); /* a driver's crash is expected, and worth no dump */
    if (argc == 4 && strcmp(argv[1], "--sensors") == 0) return sense(argv[2], argv[3]);
    crumb_cl_survey_take(argc > 1 ? argv[1] : NULL, &survey);
    return put(text, crumb_cl_survey_print(&survey, text, sizeof text));
}
