#include "host/base/cache.h"

#include "host/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool crumb_cache_path(const char *name, char *out, size_t size) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && *cache == '/')
        n = snprintf(out, size, "%s/crumb/%s", cache, name);
    else if (home && *home == '/')
        n = snprintf(out, size, "%s/.cache/crumb/%s", home, name);
    return n > 0 && (size_t)n < size;
}

static crumb_status check_owner(const char *path, const struct stat *st, crumb_error *err) {
    if (st->st_uid != geteuid()) return crumb_fail(err, CRUMB_ERR_IO, "%s: belongs to another user", path);
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return crumb_fail(err, CRUMB_ERR_IO, "%s: others may write it (chmod go-w makes it safe)", path);
    return CRUMB_OK;
}

/* The folder counts as well: in one that others may write, a file can be exchanged. */
static crumb_status check_folder_of(const char *path, crumb_error *err) {
    char folder[1024];
    struct stat st;
    int n = snprintf(folder, sizeof folder, "%s", path);
    char *slash = n > 0 && (size_t)n < sizeof folder ? strrchr(folder, '/') : NULL;
    if (!slash) return crumb_fail(err, CRUMB_ERR_IO, "%s: the name is too long", path);
    *slash = 0;
    if (stat(folder, &st) != 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", folder, strerror(errno));
    return check_owner(folder, &st, err);
}

static crumb_status check_file(const char *path, int fd, size_t max_bytes, size_t *n_bytes, crumb_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return crumb_fail(err, CRUMB_ERR_IO, "%s: is not a regular file", path);
    if ((uint64_t)st.st_size > max_bytes)
        return crumb_fail(err, CRUMB_ERR_IO, "%s: is larger than crumb writes it", path);
    *n_bytes = (size_t)st.st_size;
    return check_owner(path, &st, err);
}

static crumb_status read_all(const char *path, int fd, char *to, size_t n_bytes, crumb_error *err) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = read(fd, to + done, n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: cannot be read whole", path);
        done += (size_t)n;
    }
    return CRUMB_OK;
}

crumb_status crumb_cache_read(const char *path, size_t max_bytes, void **out, size_t *n_bytes, crumb_error *err) {
    *out = NULL;
    *n_bytes = 0;
    CRUMB_TRY(check_folder_of(path, err));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
    size_t size = 0;
    crumb_status status = check_file(path, fd, max_bytes, &size, err);
    char *bytes = status == CRUMB_OK ? malloc(size + 1) : NULL;
    if (status == CRUMB_OK && !bytes) status = crumb_fail(err, CRUMB_ERR_MEMORY, "%s: not enough memory", path);
    if (status == CRUMB_OK) status = read_all(path, fd, bytes, size, err);
    close(fd);
    if (status != CRUMB_OK) {
        free(bytes);
        return status;
    }
    bytes[size] = 0;
    *out = bytes;
    *n_bytes = size;
    return CRUMB_OK;
}

static crumb_status write_all(const char *path, int fd, const char *from, size_t n_bytes, crumb_error *err) {
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = write(fd, from + done, n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
        done += (size_t)n;
    }
    return CRUMB_OK;
}

crumb_status crumb_cache_write(const char *path, const void *bytes, size_t n_bytes, crumb_error *err) {
    char temporary[1100];
    CRUMB_TRY(crumb_file_make_folder_of(path, err));
    CRUMB_TRY(check_folder_of(path, err));
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkostemp(temporary, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
    crumb_status status = write_all(path, fd, bytes, n_bytes, err);
    if (close(fd) != 0 && status == CRUMB_OK) status = crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
    if (status == CRUMB_OK && rename(temporary, path) != 0)
        status = crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
    if (status != CRUMB_OK) unlink(temporary);
    return status;
}

uint64_t crumb_hash(uint64_t hash, const void *bytes, size_t n_bytes) {
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n_bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}
