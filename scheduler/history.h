/* By how much a machine's devices differ from their profile, as sessions have found it, kept between them.
 *
 * A session tells one number for each device and phase, and one for its part of split layers ("together"): the median
 * of its measured times to the predicted ones. Of the last three sessions' numbers the median counts (a session that
 * has not been is one that found what was predicted), and moves the factor by the rule of the cores' ratios. So one odd
 * session changes nothing, three in a row are believed, and no factor leaves 1/4 .. 4: beyond that the profile should
 * be measured again.
 *
 * The text is not trusted: what is missing or out of range is an error. It names the profile that it is about by a
 * hash; with another profile everything begins anew. */
#ifndef CRUMB_SCHEDULER_HISTORY_H
#define CRUMB_SCHEDULER_HISTORY_H

#include "scheduler/cost.h"

enum { CRUMB_HISTORY_SESSIONS = 3, CRUMB_HISTORY_MAX_BYTES = 1 << 14 };

/* What is known of a device: the phases by itself, and decoding of split layers. */
enum { CRUMB_HISTORY_TOGETHER = CRUMB_PHASE_COUNT, CRUMB_HISTORY_KINDS };

typedef struct crumb_history_entry {
    double factor;                       /* 0: none yet */
    double last[CRUMB_HISTORY_SESSIONS]; /* 0: not yet; in turns */
    uint32_t n;                          /* sessions in all */
} crumb_history_entry;

/* Zeroed: nothing is known. Devices are the profile's. */
typedef struct crumb_history {
    crumb_history_entry entry[CRUMB_PROFILE_MAX_DEVICES][CRUMB_HISTORY_KINDS];
} crumb_history;

/* A session has found `ratio`; `kind`: a phase, or CRUMB_HISTORY_TOGETHER. What is not above 0 is ignored. */
void crumb_history_note(crumb_history *h, size_t device, int kind, double ratio);
void crumb_history_correct(const crumb_history *h, crumb_correction *out);

/* Zeroed where the text is about another profile than the one with this id. */
crumb_status crumb_history_parse(const char *text, size_t n_bytes, const crumb_profile *profile, uint64_t id,
                                 crumb_history *out, crumb_error *err);
/* The text, freed by the caller; NULL: no memory. */
char *crumb_history_print(const crumb_history *h, const crumb_profile *profile, uint64_t id);

#endif
