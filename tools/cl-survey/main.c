/* crumb-cl-survey, crumb-ze-survey [DRIVER]: asks the OpenCL or the Level Zero drivers of this machine for their
 * devices, and prints what they answer (cl/facts.h). crumb runs it in the backend's place, because a driver may crash
 * or hang. DRIVER is a file of crumb_cl_driver_files, so that a driver can be asked alone. */
#include "cl/survey.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LIMIT_S = 60 }; /* crumb itself waits less; this ends a survey whose crumb is gone */

int main(int argc, char **argv) {
    static crumb_cl_survey survey;
    static char text[64 * 1024];
    alarm(LIMIT_S);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0}); /* a driver's crash is expected, and worth no dump */
    crumb_cl_survey_take(argc > 1 ? argv[1] : NULL, &survey);
    size_t n = crumb_cl_survey_print(&survey, text, sizeof text);
    if (n == 0 || fwrite(text, 1, n, stdout) != n || fflush(stdout) != 0) return 1;
    _exit(0); /* without the drivers' own farewells */
}
