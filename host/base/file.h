/* Files. POSIX calls of the library stay in a few files of host/base, so that another system can follow.
 */
#ifndef CRUMB_BASE_FILE_H
#define CRUMB_BASE_FILE_H

#include "host/base/error.h"

/* A whole regular file, mapped read-only. */
typedef struct crumb_file_map {
    const uint8_t *data;
    size_t size;
} crumb_file_map;

/* Refuses directories, devices and empty files with a message that names the path. */
crumb_status crumb_file_map_open(const char *path, crumb_file_map *out, crumb_error *err);
void crumb_file_map_close(crumb_file_map *map);
/* Drops the pages of [offset, offset + size) from the resident set, and at its ends what shares them: they are read
 * again where somebody needs them. */
void crumb_file_map_release(const crumb_file_map *map, size_t offset, size_t size);

bool crumb_file_exists(const char *path);
bool crumb_folder_exists(const char *path);
bool crumb_file_same(const char *a, const char *b); /* both exist, and are one file under whatever names */
/* Size and time of the last change; zeros where it is not there. */
void crumb_file_stamp(const char *path, uint64_t *size, int64_t *modified_ns);
bool crumb_file_writable(const char *path); /* by this user; devices too */
/* The name of the group that a file belongs to, its number where it has no name; empty where the file is missing. */
void crumb_file_group(const char *path, char *out, size_t size);

typedef struct crumb_folder_entry {
    char name[128];
    int64_t modified_ns;
    uint64_t size;
} crumb_folder_entry;
/* What lies in a folder and ends with `suffix` ("": everything), sorted by name; at most `capacity`. */
size_t crumb_folder_list(const char *path, const char *suffix, crumb_folder_entry *out, size_t capacity);
/* Makes the folders that `path` is to lie in, for the user alone (mode 0700). */
crumb_status crumb_file_make_folder_of(const char *path, crumb_error *err);
/* Waits, ten seconds at most, until no other program holds the folder that `path` lies in, and holds it until it is let
 * go, or the program ends. Below 0, which may be let go as well: it cannot be held, as on some network file systems. */
int crumb_file_hold_folder_of(const char *path);
void crumb_file_let_go(int hold);

/* Runs fn(ctx), which reads mapped files. If a mapped file has shrunk, the access faults: fn is then abandoned where
 * it stands (it must hold no lock and own nothing) and the guard returns IO with a message naming `path`; else it
 * returns fn's status. Any number of threads may be inside; guards do not nest. */
crumb_status crumb_file_guard(const char *path, crumb_status (*fn)(void *ctx, crumb_error *err), void *ctx,
                              crumb_error *err);

#endif
