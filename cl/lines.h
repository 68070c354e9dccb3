/* Lines "name: value" of a report on a device. */
#ifndef CRUMB_CL_LINES_H
#define CRUMB_CL_LINES_H

#include "cl/facts.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct crumb_cl_lines {
    void (*line)(void *user, const char *text);
    void *user;
} crumb_cl_lines;

static inline void crumb_cl_put_text(const crumb_cl_lines *to, const char *name, const char *value) {
    char text[CRUMB_CL_TEXT + 64];
    snprintf(text, sizeof text, "%s: %s", name, value);
    to->line(to->user, text);
}

static inline void crumb_cl_put_number(const crumb_cl_lines *to, const char *name, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    crumb_cl_put_text(to, name, text);
}

#endif
