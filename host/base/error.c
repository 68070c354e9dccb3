#include "host/base/error.h"

#include <stdio.h>
#include <string.h>

#define STR_(x) #x
#define STR(x)  STR_(x)

/* The one table behind status names, exit codes and `crumb help errors`. */
static const struct {
    const char *name;
    const char *description;
    int exit_code;
} statuses[CRUMB_STATUS_COUNT] = {
    [CRUMB_OK] = {"ok", "Everything asked for was done.", 0},
    [CRUMB_ERR_ARGUMENT] = {"argument", "An argument is missing, out of range or contradicts another.", 2},
    [CRUMB_ERR_IO] = {"io", "A file could not be opened, read or written.", 1},
    [CRUMB_ERR_FORMAT] = {"format", "A file is damaged or is not what it claims to be.", 3},
    [CRUMB_ERR_UNSUPPORTED] = {"unsupported", "A sound file that crumb would run wrongly, and therefore refuses.", 3},
    [CRUMB_ERR_MEMORY] = {"memory", "Not enough memory for the weights, the context or the batch.", 5},
    [CRUMB_ERR_CONTEXT] = {"context", "The context is full: a larger -c, or a shorter prompt, is needed.", 1},
    [CRUMB_ERR_DEVICE] = {"device", "A device is missing or failed.", 4},
    [CRUMB_ERR_VERIFY] = {"verify", "A result differs from the reference.", 6},
    [CRUMB_ERR_INTERRUPTED] = {"interrupted", "Stopped by Ctrl-C or by a callback.", 130},
    [CRUMB_ERR_INTERNAL] = {"internal", "A bug in crumb: please report it with the message.", 1},
};

const char *crumb_version(void) {
    return STR(CRUMB_VERSION_MAJOR) "." STR(CRUMB_VERSION_MINOR) "." STR(CRUMB_VERSION_PATCH);
}

static crumb_status known(crumb_status status) {
    return (unsigned)status < CRUMB_STATUS_COUNT ? status : CRUMB_ERR_INTERNAL;
}

const char *crumb_status_name(crumb_status status) {
    return statuses[known(status)].name;
}
const char *crumb_status_description(crumb_status status) {
    return statuses[known(status)].description;
}
int crumb_status_exit_code(crumb_status status) {
    return statuses[known(status)].exit_code;
}

/* Copies text into out (size bytes), control characters as \xNN, cut at a character's start when it is too long. */
static void copy_escaped(char *out, size_t size, const char *text) {
    size_t used = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        char piece[5] = {(char)*p, 0};
        if (*p < 0x20 || *p == 0x7f) snprintf(piece, sizeof piece, "\\x%02x", *p);
        size_t n = strlen(piece);
        if (used + n + 1 > size) {
            while (used > 0 && ((unsigned char)out[used - 1] & 0xC0) == 0x80) used--;
            if (used > 0 && (unsigned char)out[used - 1] >= 0xC0) used--;
            break;
        }
        memcpy(out + used, piece, n);
        used += n;
    }
    out[used] = 0;
}

#undef crumb_fail /* what error.h tells the static analyzer */
#undef crumb_fail_prefix

crumb_status crumb_fail(crumb_error *err, crumb_status status, const char *format, ...) {
    if (err) {
        char raw[sizeof err->message];
        va_list args;
        va_start(args, format);
        vsnprintf(raw, sizeof raw, format, args);
        va_end(args);
        err->status = status;
        copy_escaped(err->message, sizeof err->message, raw);
    }
    return status;
}

crumb_status crumb_fail_prefix(crumb_error *err, crumb_status status, const char *format, ...) {
    if (err) {
        char prefix[512], whole[sizeof err->message];
        va_list args;
        va_start(args, format);
        vsnprintf(prefix, sizeof prefix, format, args);
        va_end(args);
        snprintf(whole, sizeof whole, "%s: %.*s", prefix, (int)(sizeof whole - sizeof prefix - 3), err->message);
        err->status = status;
        copy_escaped(err->message, sizeof err->message, whole);
    }
    return status;
}
