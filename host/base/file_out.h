/* Writing files that must never be half there: under another name first, synced, then renamed. */
#ifndef CRUMB_BASE_FILE_OUT_H
#define CRUMB_BASE_FILE_OUT_H

#include "host/base/error.h"

typedef struct crumb_file_out {
    char *path;
    int fd;
    uint64_t size; /* when it was opened */
} crumb_file_out;

/* Opens a file for reading and writing, and makes it where it is not there; what it holds stays. Fails with IO, also
 * when another process has it open so. */
crumb_status crumb_file_out_open(const char *path, crumb_file_out *out, crumb_error *err);
void crumb_file_out_close(crumb_file_out *f); /* also of one that was never opened and is all zero */
crumb_status crumb_file_out_write(const crumb_file_out *f, uint64_t offset, const void *bytes, uint64_t n_bytes,
                                  crumb_error *err);
/* Fails with IO where the file is shorter. */
crumb_status crumb_file_out_read(const crumb_file_out *f, uint64_t offset, void *bytes, uint64_t n_bytes,
                                 crumb_error *err);
crumb_status crumb_file_out_truncate(const crumb_file_out *f, uint64_t size, crumb_error *err);
/* Puts it on the disk, then gives it the name `to`, replacing what had it. */
crumb_status crumb_file_out_publish(const crumb_file_out *f, const char *to, crumb_error *err);
void crumb_file_remove(const char *path);

#endif
