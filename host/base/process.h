/* Running a program that may crash or hang, in a process of its own. */
#ifndef CRUMB_BASE_PROCESS_H
#define CRUMB_BASE_PROCESS_H

#include "host/base/error.h"

typedef enum crumb_process_end {
    CRUMB_PROCESS_EXITED,    /* code: what it exited with; -1 where the system keeps it back */
    CRUMB_PROCESS_KILLED,    /* by a signal, whose number is the code */
    CRUMB_PROCESS_TIMED_OUT, /* it was killed after the limit, with all that it had started */
} crumb_process_end;

/* Runs argv[0] (a path; argv ends with NULL) with the caller's environment, nothing to read and errors dropped, until
 * it ends or limit_ms are over. What it writes goes to `output`, NUL-terminated and cut to size - 1 bytes. Fails only
 * when it cannot be started. */
crumb_status crumb_process_run(const char *const argv[], uint32_t limit_ms, char *output, size_t size,
                               crumb_process_end *end, int *code, crumb_error *err);

#endif
