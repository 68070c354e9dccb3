#include "host/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HOLD_MS = 10000 };

bool crumb_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool crumb_file_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool crumb_folder_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

void crumb_file_stamp(const char *path, uint64_t *size, int64_t *modified_ns) {
    struct stat st;
    const bool there = stat(path, &st) == 0;
    *size = there ? (uint64_t)st.st_size : 0;
    *modified_ns = there ? (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec : 0;
}

bool crumb_file_writable(const char *path) {
    return access(path, R_OK | W_OK) == 0;
}

void crumb_file_group(const char *path, char *out, size_t size) {
    struct stat st;
    struct group group, *found = NULL;
    char text[4096];
    out[0] = 0;
    if (stat(path, &st) != 0) return;
    if (getgrgid_r(st.st_gid, &group, text, sizeof text, &found) == 0 && found)
        snprintf(out, size, "%s", found->gr_name);
    else
        snprintf(out, size, "%u", (unsigned)st.st_gid);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const crumb_folder_entry *)a)->name, ((const crumb_folder_entry *)b)->name);
}

size_t crumb_folder_list(const char *path, const char *suffix, crumb_folder_entry *out, size_t capacity) {
    DIR *folder = opendir(path);
    size_t n = 0, n_suffix = strlen(suffix);
    const int fd = folder ? dirfd(folder) : -1;
    if (fd < 0) {
        if (folder) closedir(folder);
        return 0;
    }
    for (struct dirent *e; n < capacity && (e = readdir(folder));) {
        size_t length = strlen(e->d_name);
        struct stat st;
        if (e->d_name[0] == '.' || length < n_suffix || length >= sizeof out->name ||
            strcmp(e->d_name + length - n_suffix, suffix) != 0 || fstatat(fd, e->d_name, &st, 0) != 0)
            continue;
        out[n] = (crumb_folder_entry){.modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                                      .size = (uint64_t)st.st_size};
        memcpy(out[n++].name, e->d_name, length + 1);
    }
    closedir(folder);
    qsort(out, n, sizeof *out, by_name);
    return n;
}

crumb_status crumb_file_make_folder_of(const char *path, crumb_error *err) {
    char folder[1024];
    int n = snprintf(folder, sizeof folder, "%s", path);
    if (n < 0 || (size_t)n >= sizeof folder)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: the name is too long", path);
    for (char *p = folder + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        if (mkdir(folder, 0700) != 0 && errno != EEXIST)
            return crumb_fail(err, CRUMB_ERR_IO, "%s: cannot make the folder: %s", folder, strerror(errno));
        *p = '/';
    }
    return CRUMB_OK;
}

int crumb_file_hold_folder_of(const char *path) {
    char folder[1024];
    const char *end = strrchr(path, '/');
    const int n = end ? snprintf(folder, sizeof folder, "%.*s", (int)(end - path + 1), path)
                      : snprintf(folder, sizeof folder, ".");
    if (n < 0 || (size_t)n >= sizeof folder) return -1;
    const struct timespec ms = {.tv_nsec = 1000000};
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int waited_ms = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; waited_ms++) {
        if ((errno == EWOULDBLOCK || errno == EINTR) && waited_ms < HOLD_MS) {
            nanosleep(&ms, NULL);
            continue;
        }
        close(fd);
        return -1;
    }
    return fd;
}

void crumb_file_let_go(int hold) {
    if (hold >= 0) close(hold);
}

static crumb_status check_regular(const char *path, int fd, size_t *size, crumb_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return crumb_fail(err, CRUMB_ERR_IO, "%s: is a directory, not a model file", path);
    if (!S_ISREG(st.st_mode)) return crumb_fail(err, CRUMB_ERR_IO, "%s: is not a regular file", path);
    if (st.st_size == 0) return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: the file is empty", path);
    *size = (size_t)st.st_size;
    return CRUMB_OK;
}

crumb_status crumb_file_map_open(const char *path, crumb_file_map *out, crumb_error *err) {
    *out = (crumb_file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return crumb_fail(err, CRUMB_ERR_IO, "%s: %s", path, strerror(errno));
    size_t size = 0;
    crumb_status status = check_regular(path, fd, &size, err);
    void *data = status == CRUMB_OK ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (status == CRUMB_OK && data == MAP_FAILED)
        status = crumb_fail(err, CRUMB_ERR_IO, "%s: cannot map %zu bytes: %s", path, size, strerror(errno));
    close(fd);
    if (status == CRUMB_OK) *out = (crumb_file_map){data, size};
    return status;
}

void crumb_file_map_close(crumb_file_map *map) {
    if (map->data) munmap((void *)map->data, map->size);
    *map = (crumb_file_map){0};
}

void crumb_file_map_release(const crumb_file_map *map, size_t offset, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t begin = offset / page * page, end = offset + size;
    if (begin < end) madvise((void *)(map->data + begin), end - begin, MADV_DONTNEED);
}

/* While at least one guard is active our SIGBUS handler is installed; a fault in a thread without a guard goes to the
 * handler that was there before. */
static pthread_mutex_t guard_mutex = PTHREAD_MUTEX_INITIALIZER;
static int n_guards;
static struct sigaction previous_action;
static _Thread_local sigjmp_buf *guard_jump;

static void on_sigbus(int number, siginfo_t *info, void *context) {
    if (guard_jump) siglongjmp(*guard_jump, 1);
    if (previous_action.sa_flags & SA_SIGINFO && previous_action.sa_sigaction)
        previous_action.sa_sigaction(number, info, context);
    else
        sigaction(SIGBUS, &previous_action, NULL); /* returning repeats the access, which now acts as it would have */
}

static void guard_enter(void) {
    pthread_mutex_lock(&guard_mutex);
    if (n_guards++ == 0) {
        struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};
        sigemptyset(&action.sa_mask);
        sigaction(SIGBUS, &action, &previous_action);
    }
    pthread_mutex_unlock(&guard_mutex);
}

static void guard_leave(void) {
    pthread_mutex_lock(&guard_mutex);
    if (--n_guards == 0) sigaction(SIGBUS, &previous_action, NULL);
    pthread_mutex_unlock(&guard_mutex);
}

crumb_status crumb_file_guard(const char *path, crumb_status (*fn)(void *ctx, crumb_error *err), void *ctx,
                              crumb_error *err) {
    sigjmp_buf jump;
    volatile crumb_status status;
    guard_enter();
    if (sigsetjmp(jump, 1) == 0) {
        guard_jump = &jump;
        status = fn(ctx, err);
    } else {
        status = crumb_fail(err, CRUMB_ERR_IO,
                            "%s: the file became shorter, or its disk failed, while it was being read", path);
    }
    guard_jump = NULL;
    guard_leave();
    return status;
}
