/* posix_spawn and not fork: in a fork of a process with threads nothing may be called but the kernel, and looking at
 * drivers means loading libraries. */
#include "host/base/process.h"

#include "host/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const uint64_t ms = 1000000;

static crumb_status start(const char *const argv[], int output, pid_t *pid, crumb_error *err) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setpgroup(&attributes, 0); /* what it starts can be killed with it */
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int code = posix_spawn(pid, argv[0], &actions, &attributes, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (code == 0) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_IO, "%s: cannot be started: %s", argv[0], strerror(code));
}

/* Reads to the end; false when the time is over before. What does not fit is dropped. */
static bool read_output(int fd, uint64_t deadline_ns, char *output, size_t size) {
    size_t used = 0;
    output[0] = 0;
    for (;;) {
        uint64_t now = crumb_now_ns();
        if (now >= deadline_ns) return false;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)((deadline_ns - now) / ms) + 1) <= 0) continue;
        char block[4096];
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return true;
        size_t room = size - 1 - used, take = (size_t)n < room ? (size_t)n : room;
        memcpy(output + used, block, take);
        used += take;
        output[used] = 0;
    }
}

/* Waits for the end; false when the time is over before. */
static bool wait_for_end(pid_t pid, uint64_t deadline_ns, int *status) {
    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);
        if (got == pid) return true;
        if (got < 0 && errno != EINTR) return *status = -1, true; /* the caller's process ignores its children */
        if (crumb_now_ns() >= deadline_ns) return false;
        nanosleep(&(struct timespec){.tv_nsec = (long)ms}, NULL);
    }
}

crumb_status crumb_process_run(const char *const argv[], uint32_t limit_ms, char *output, size_t size,
                               crumb_process_end *end, int *code, crumb_error *err) {
    int ends[2], status = 0;
    pid_t pid;
    output[0] = 0;
    *end = CRUMB_PROCESS_EXITED;
    *code = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return crumb_fail(err, CRUMB_ERR_IO, "%s: cannot be started: %s", argv[0], strerror(errno));
    crumb_status started = start(argv, ends[1], &pid, err);
    close(ends[1]);
    if (started != CRUMB_OK) {
        close(ends[0]);
        return started;
    }
    uint64_t deadline = crumb_now_ns() + limit_ms * ms;
    bool in_time = read_output(ends[0], deadline, output, size) && wait_for_end(pid, deadline, &status);
    close(ends[0]);
    if (!in_time) {
        kill(-pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
        *end = CRUMB_PROCESS_TIMED_OUT;
    } else if (status != -1 && WIFSIGNALED(status)) {
        *end = CRUMB_PROCESS_KILLED;
        *code = WTERMSIG(status);
    } else if (status != -1) {
        *code = WEXITSTATUS(status);
    }
    return CRUMB_OK;
}
