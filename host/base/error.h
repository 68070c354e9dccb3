/* Errors: how library code fails. See host/crumb.h for the statuses. */
#ifndef CRUMB_BASE_ERROR_H
#define CRUMB_BASE_ERROR_H

#include "host/crumb.h"

#include <stdarg.h>

/* Writes status and message to err (may be NULL) and returns status, so that `return crumb_fail(err, ...)` works.
 * Control characters in the formatted text are escaped: names come from untrusted files. */
crumb_status crumb_fail(crumb_error *err, crumb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message of an error that a callee has written. Returns err's status. */
crumb_status crumb_fail_prefix(crumb_error *err, crumb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The static analyzer reads one file at a time; this tells it that failing never returns CRUMB_OK. */
#ifdef __clang_analyzer__
#define crumb_fail(err, status, ...)        ((crumb_fail)(err, status, __VA_ARGS__), (status))
#define crumb_fail_prefix(err, status, ...) ((crumb_fail_prefix)(err, status, __VA_ARGS__), (status))
#endif

/* Forwards a failure: CRUMB_TRY(call(..., err)); */
#define CRUMB_TRY(expression)                                                                                          \
    do {                                                                                                               \
        crumb_status crumb_try_status_ = (expression);                                                                 \
        if (crumb_try_status_ != CRUMB_OK) return crumb_try_status_;                                                   \
    } while (0)

#endif
