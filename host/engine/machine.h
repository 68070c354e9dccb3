/* What is known of a machine's devices: the profile that `crumb devices --measure` has stored in the user's cache, one
 * that is part of crumb, or a file; and beside the first what sessions have measured since. */
#ifndef CRUMB_ENGINE_MACHINE_H
#define CRUMB_ENGINE_MACHINE_H

#include "host/engine/devices.h"
#include "scheduler/history.h"

enum { CRUMB_ENGINE_KEY_BYTES = 20 };

/* Where the profile of this machine is stored; false where there is no place for it. */
bool crumb_engine_profile_path(char *out, size_t size);
/* What figures hold for: the processor, its kernels and memory, and each GPU with its driver. Where one of these is
 * another, they are void. */
void crumb_engine_profile_key(const crumb_engine_devices *all, char key[CRUMB_ENGINE_KEY_BYTES]);
/* The stored profile, ended by a 0 that n_bytes does not count; freed by the caller. Fails with DEVICE where nothing
 * has been measured, or for other hardware, drivers or kernels. */
crumb_status crumb_engine_profile_read(char **text, size_t *n_bytes, crumb_error *err);

/* `name`: "this" (as stored), one of crumb_profile_names, or a file. `kernels`, `fn` and `user` as for
 * crumb_profile_parse. *id gets a hash of the profile's text. */
crumb_status crumb_engine_profile_open(const char *name, const char *kernels, crumb_profile_figure_fn *fn, void *user,
                                       crumb_profile *out, uint64_t *id, crumb_error *err);

/* The processor's cores by a profile named as above, by none ("none"), or by the stored one (NULL), which must be of
 * this processor. Fails where a profile that is named cannot be read. No driver is asked anything. */
crumb_status crumb_engine_profile_cores(const char *name, crumb_core_speeds *out, crumb_error *err);

/* What sessions have found out about the stored profile with this id. What cannot be read is as if it were not there.
 */
void crumb_engine_history_read(const crumb_profile *profile, uint64_t id, crumb_history *out);
/* Adds what a session has found: the ratios of the profile's devices of each kind, 0 where it knows none. The file is
 * replaced at once or not at all; of two programs that end at the same moment one may be forgotten. */
crumb_status crumb_engine_history_note(const crumb_profile *profile, uint64_t id,
                                       const double ratios[CRUMB_PROFILE_MAX_DEVICES][CRUMB_HISTORY_KINDS],
                                       crumb_error *err);

#endif
