/* Reading a record's knobs: backends that are modules do this without linking the database. */
#include "host/kernel/tuning.h"

#include <stdlib.h>
#include <string.h>

uint32_t crumb_tuning_knob(const char *knobs, const char *name, uint32_t standard) {
    size_t n = strlen(name);
    for (const char *p = knobs; (p = strstr(p, name)); p += n)
        if ((p == knobs || p[-1] == ' ') && p[n] == '=' && p[n + 1] >= '0' && p[n + 1] <= '9') {
            unsigned long value = strtoul(p + n + 1, NULL, 10);
            return value > UINT32_MAX ? standard : (uint32_t)value;
        }
    return standard;
}
