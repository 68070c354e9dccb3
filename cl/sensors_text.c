/* Sensors as text: "name=value" lines between a first and a last one. */
#include "cl/sensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS(X)   X(energy_source) X(throttling) X(missing)
#define NUMBERS(X) X(energy_uj) X(energy_wrap_uj)
#define SMALL(X)   X(power_mw) X(power_limit_mw) X(clock_mhz) X(clock_most_mhz) X(knows_throttling)

static const char first_line[] = "crumb-sensors 1\n", last_line[] = "end\n";

size_t crumb_cl_sensors_print(const crumb_device_sensors *s, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "%s", first_line);
#define PUT_TEXT(name)                                                                                                 \
    if (used < size) used += (size_t)snprintf(out + used, size - used, #name "=%s\n", s->name);
#define PUT_NUMBER(name)                                                                                               \
    if (used < size) used += (size_t)snprintf(out + used, size - used, #name "=%" PRIu64 "\n", (uint64_t)s->name);
    TEXTS(PUT_TEXT)
    NUMBERS(PUT_NUMBER)
    SMALL(PUT_NUMBER)
#undef PUT_TEXT
#undef PUT_NUMBER
    if (used < size) used += (size_t)snprintf(out + used, size - used, "%s", last_line);
    return used < size ? used : 0;
}

static bool set(crumb_device_sensors *s, const char *name, const char *value) {
    const uint64_t number = strtoull(value, NULL, 10);
#define SET_TEXT(member)                                                                                               \
    if (strcmp(name, #member) == 0) return snprintf(s->member, sizeof s->member, "%s", value) >= 0;
#define SET_NUMBER(member)                                                                                             \
    if (strcmp(name, #member) == 0) return s->member = number, true;
#define SET_SMALL(member)                                                                                              \
    if (strcmp(name, #member) == 0) return s->member = (__typeof__(s->member))number, true;
    TEXTS(SET_TEXT)
    NUMBERS(SET_NUMBER)
    SMALL(SET_SMALL)
#undef SET_TEXT
#undef SET_NUMBER
#undef SET_SMALL
    return false;
}

bool crumb_cl_sensors_parse(const char *text, crumb_device_sensors *out) {
    *out = (crumb_device_sensors){0};
    if (strncmp(text, first_line, strlen(first_line)) != 0) return false;
    for (const char *at = text + strlen(first_line); *at;) {
        char line[sizeof out->missing + 64];
        const size_t n = strcspn(at, "\n");
        if (strcmp(at, last_line) == 0) return true;
        if (!at[n] || n >= sizeof line) return false;
        memcpy(line, at, n);
        line[n] = 0;
        char *equals = strchr(line, '=');
        if (!equals) return false;
        *equals = 0;
        if (!set(out, line, equals + 1)) return false;
        at += n + 1;
    }
    return false;
}
