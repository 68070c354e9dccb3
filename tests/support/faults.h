/* Calls of a driver's API that fail because a test wants it, in layers and drivers made for tests.
 *
 * CRUMB_FAULT=N        the N-th call fails
 * CRUMB_FAULT=N:lost   and so do all behind it, as when the device has been reset
 * CRUMB_FAULT=N:hang   none fails; but what is enqueued from then on is never done, and what waits for it never returns
 * CRUMB_FAULT=NAME     every call of that function
 * CRUMB_FAULT_CODE     what it fails with: "memory", "lost", "refused" (for good); else what the library has by itself
 * CRUMB_FAULT_LOG=FILE a line for each call, which is its number: the function's name, then where it was called from,
 * as addresses in crumb's module, the innermost first
 */
#ifndef CRUMB_TESTS_FAULTS_H
#define CRUMB_TESTS_FAULTS_H

#include <dlfcn.h>
#include <execinfo.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_ulong crumb_test_n_calls; /* one counter a library */

static bool crumb_test_fault_is(const char *kind) {
    const char *fault = getenv("CRUMB_FAULT"), *colon = fault ? strchr(fault, ':') : NULL;
    return colon && *fault >= '0' && *fault <= '9' && strcmp(colon + 1, kind) == 0;
}

/* Whether the device is lost once a call has failed. */
__attribute__((unused)) static bool crumb_test_device_lost(void) {
    return crumb_test_fault_is("lost");
}

/* Whether it does nothing any more. */
__attribute__((unused)) static bool crumb_test_device_hangs(void) {
    return crumb_test_fault_is("hang") && atomic_load(&crumb_test_n_calls) >= strtoul(getenv("CRUMB_FAULT"), NULL, 10);
}

/* What waits for a device that does nothing. */
__attribute__((unused)) static void crumb_test_wait_for_hanging(void) {
    while (crumb_test_device_hangs()) pause();
}

/* The code that a failing call returns. */
__attribute__((unused)) static int crumb_test_fault_code(int usual, int memory, int lost, int refused) {
    const char *code = getenv("CRUMB_FAULT_CODE");
    if (!code) return usual;
    if (strcmp(code, "refused") == 0) return refused;
    return strcmp(code, "memory") == 0 ? memory : strcmp(code, "lost") == 0 ? lost : usual;
}

static void crumb_test_log_call(const char *path, const char *function) {
    enum { FRAMES = 24, SITES = 4 };
    void *frames[FRAMES];
    const int n = backtrace(frames, FRAMES);
    FILE *f = fopen(path, "a");
    if (!f) return;
    fputs(function, f);
    for (int i = 0, n_sites = 0; i < n && n_sites < SITES; i++) {
        Dl_info at;
        if (!dladdr(frames[i], &at) || !at.dli_fname || !strstr(at.dli_fname, "libcrumb-")) continue;
        fprintf(f, " %lx", (unsigned long)((char *)frames[i] - (char *)at.dli_fbase));
        n_sites++;
    }
    fputc('\n', f);
    fclose(f);
}

/* Counts a call; whether it is to fail. */
static bool crumb_test_call_fails(const char *function) {
    const char *fault = getenv("CRUMB_FAULT"), *log = getenv("CRUMB_FAULT_LOG");
    const unsigned long n = atomic_fetch_add(&crumb_test_n_calls, 1) + 1;
    if (log) crumb_test_log_call(log, function);
    if (!fault) return false;
    if (*fault < '0' || *fault > '9') return strcmp(fault, function) == 0;
    const unsigned long at = strtoul(fault, NULL, 10);
    return !crumb_test_fault_is("hang") && (crumb_test_device_lost() ? n >= at : n == at);
}

#endif
