/* crumb-cl-survey [VENDORS]: asks the OpenCL drivers of this machine for their devices, and prints what they answer
 * (cl/facts.h). crumb runs it in the backend's place, because a driver may crash or hang. VENDORS is what the loader
 * takes for OCL_ICD_VENDORS: one .icd file, so that a driver can be asked alone. */
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
    if (argc > 1) setenv("OCL_ICD_VENDORS", argv[1], 1);
    crumb_cl_survey_take(&survey);
    size_t n = crumb_cl_survey_print(&survey, text, sizeof text);
    if (n == 0 || fwrite(text, 1, n, stdout) != n || fflush(stdout) != 0) return 1;
    _exit(0); /* without the drivers' own farewells */
}
