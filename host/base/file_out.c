#include "host/base/file_out.h"

#include "host/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static crumb_status fail(const crumb_file_out *f, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", f->path, strerror(errno));
}

static crumb_status open_locked(crumb_file_out *f, crumb_error *err) {
    struct stat st;
    f->fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (f->fd < 0) return fail(f, err);
    if (fstat(f->fd, &st) != 0) return fail(f, err);
    if (!S_ISREG(st.st_mode)) return crumb_fail(err, CRUMB_ERR_IO, "%s: is not a regular file", f->path);
    if (flock(f->fd, LOCK_EX | LOCK_NB) != 0)
        return crumb_fail(err, CRUMB_ERR_IO, "%s: another process is writing it", f->path);
    f->size = (uint64_t)st.st_size;
    return CRUMB_OK;
}

crumb_status crumb_file_out_open(const char *path, crumb_file_out *out, crumb_error *err) {
    *out = (crumb_file_out){.fd = -1};
    CRUMB_TRY(crumb_calloc(strlen(path) + 1, 1, "a path", (void **)&out->path, err));
    memcpy(out->path, path, strlen(path));
    const crumb_status status = open_locked(out, err);
    if (status != CRUMB_OK) crumb_file_out_close(out);
    return status;
}

void crumb_file_out_close(crumb_file_out *f) {
    if (f->path && f->fd >= 0) close(f->fd);
    free(f->path);
    *f = (crumb_file_out){.fd = -1};
}

crumb_status crumb_file_out_write(const crumb_file_out *f, uint64_t offset, const void *bytes, uint64_t n_bytes,
                                  crumb_error *err) {
    for (uint64_t done = 0; done < n_bytes;) {
        const ssize_t n = pwrite(f->fd, (const char *)bytes + done, n_bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(f, err);
        done += (uint64_t)n;
    }
    return CRUMB_OK;
}

crumb_status crumb_file_out_read(const crumb_file_out *f, uint64_t offset, void *bytes, uint64_t n_bytes,
                                 crumb_error *err) {
    for (uint64_t done = 0; done < n_bytes;) {
        const ssize_t n = pread(f->fd, (char *)bytes + done, n_bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail(f, err);
        if (n == 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: the file is shorter than it was", f->path);
        done += (uint64_t)n;
    }
    return CRUMB_OK;
}

crumb_status crumb_file_out_truncate(const crumb_file_out *f, uint64_t size, crumb_error *err) {
    return ftruncate(f->fd, (off_t)size) == 0 ? CRUMB_OK : fail(f, err);
}

/* The new name is safe once its folder is on the disk; where a file system cannot sync folders, it is as safe as there.
 */
static void sync_folder_of(const char *path) {
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const int n = slash ? snprintf(folder, sizeof folder, "%.*s/", (int)(slash - path), path)
                        : snprintf(folder, sizeof folder, ".");
    if (n < 0 || (size_t)n >= sizeof folder) return;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

crumb_status crumb_file_out_publish(const crumb_file_out *f, const char *to, crumb_error *err) {
    if (fsync(f->fd) != 0) return fail(f, err);
    if (rename(f->path, to) != 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", to, strerror(errno));
    sync_folder_of(to);
    return CRUMB_OK;
}

void crumb_file_remove(const char *path) {
    unlink(path);
}
