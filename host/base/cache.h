/* The user's cache: files that can be made again. Whoever could write there could make crumb run what he likes on a
 * device, so only files are read that belong to the user and that nobody else can write. */
#ifndef CRUMB_BASE_CACHE_H
#define CRUMB_BASE_CACHE_H

#include "host/base/error.h"

/* The path of the file `name` in $XDG_CACHE_HOME/crumb, else in ~/.cache/crumb; false where there is neither. */
bool crumb_cache_path(const char *name, char *out, size_t size);

/* The whole file, freed by the caller. Fails with IO, naming the path and what is wrong, where it does not exist, is
 * not the user's own, or is larger than max_bytes. */
crumb_status crumb_cache_read(const char *path, size_t max_bytes, void **out, size_t *n_bytes, crumb_error *err);
/* Replaces the file at once or not at all, readable by the user alone, and makes the folder. */
crumb_status crumb_cache_write(const char *path, const void *bytes, size_t n_bytes, crumb_error *err);

/* FNV-1a over bytes, to be continued from `hash`; begins with CRUMB_HASH_SEED. For names, not for security. */
#define CRUMB_HASH_SEED 0xcbf29ce484222325u
uint64_t crumb_hash(uint64_t hash, const void *bytes, size_t n_bytes);

#endif
