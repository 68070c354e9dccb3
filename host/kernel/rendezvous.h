/* Meeting the plans of other devices (CRUMB_OP_SIGNAL, CRUMB_OP_WAIT): flags in the host's memory. */
#ifndef CRUMB_KERNEL_RENDEZVOUS_H
#define CRUMB_KERNEL_RENDEZVOUS_H

#include "host/base/error.h"

/* What was written before is seen by whoever finds the flag raised. */
void crumb_flag_raise(uint32_t *flag, uint32_t number);
/* The other plan may already be at its next replay: any number that is not behind counts. */
bool crumb_flag_is_raised(const uint32_t *flag, uint32_t number);

/* How long a device may take to answer before it counts as failed: CRUMB_PATIENCE_MS where that is set, else
 * `default_ms`; 0 in either: for ever, UINT64_MAX. */
enum { CRUMB_PATIENCE_DEFAULT_MS = 120000 };
uint64_t crumb_patience_ns(uint64_t default_ms);

/* For a loop that waits for a flag; begins as zeros. */
typedef struct crumb_patience {
    uint64_t since_ns; /* 0: not for long */
    uint64_t limit_ns;
    uint32_t spins;
} crumb_patience;

/* Pauses for a moment, which gets longer. False when patience is over: a device that never answers must not hang the
 * engine. `given_up`: set by another thread when the flag will not be raised, since the other replay has failed; NULL:
 * nobody would say so. */
bool crumb_patience_wait(crumb_patience *p, const uint32_t *given_up);
/* The error that such a replay ends with. */
crumb_status crumb_patience_fail(const char *device, crumb_error *err);

#endif
