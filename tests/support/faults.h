/* Calls of a driver's API that fail because a test wants it, in layers and drivers made for tests.
 *
 * CRUMB_FAULT=N        the N-th call fails
 * CRUMB_FAULT=N:lost   and so do all behind it, as when the device has been reset
 * CRUMB_FAULT=NAME     every call of that function
 * CRUMB_FAULT_LOG=FILE names of the functions called, a line each: a call's number is its line's
 */
#ifndef CRUMB_TESTS_FAULTS_H
#define CRUMB_TESTS_FAULTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the device is lost once a call has failed. */
__attribute__((unused)) static bool crumb_test_device_lost(void) {
    const char *fault = getenv("CRUMB_FAULT");
    return fault && *fault >= '0' && *fault <= '9' && strchr(fault, ':');
}

/* Counts a call; whether it is to fail. One counter a library. */
static bool crumb_test_call_fails(const char *function) {
    static atomic_ulong n_calls;
    const char *fault = getenv("CRUMB_FAULT"), *log = getenv("CRUMB_FAULT_LOG");
    const unsigned long n = atomic_fetch_add(&n_calls, 1) + 1;
    if (log) {
        FILE *f = fopen(log, "a");
        if (f) fprintf(f, "%s\n", function), fclose(f);
    }
    if (!fault) return false;
    if (*fault < '0' || *fault > '9') return strcmp(fault, function) == 0;
    const unsigned long at = strtoul(fault, NULL, 10);
    return crumb_test_device_lost() ? n >= at : n == at;
}

#endif
