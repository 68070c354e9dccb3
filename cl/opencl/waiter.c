#include "cl/opencl/waiter.h"

#include "cl/driver.h"
#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdlib.h>

/* `asked` and `done` count waits; atomic, and what threads sleep on. The rest belongs to the thread between the two. */
struct crumb_cl_waiter {
    crumb_lock *lock; /* of those who wait */
    crumb_thread *thread;
    uint32_t asked, done;
    bool stop;
    cl_command_queue queue;
    cl_event event;
    cl_int code;
};

static void announce(uint32_t *word) {
    __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
    crumb_wake_all_u32(word);
}

static void run(void *arg) {
    crumb_cl_waiter *w = arg;
    for (uint32_t n = 0;; n++) {
        while (__atomic_load_n(&w->asked, __ATOMIC_ACQUIRE) == n) crumb_wait_u32(&w->asked, n);
        if (w->stop) return;
        w->code = w->event ? clWaitForEvents(1, &w->event) : clFinish(w->queue);
        announce(&w->done);
    }
}

crumb_status crumb_cl_waiter_create(crumb_cl_waiter **out, crumb_error *err) {
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "the device", (void **)out, err));
    crumb_status status = crumb_lock_create(&(*out)->lock, err);
    if (status == CRUMB_OK) status = crumb_thread_start(run, *out, &(*out)->thread, err);
    if (status == CRUMB_OK) return CRUMB_OK;
    crumb_cl_waiter_destroy(*out);
    *out = NULL;
    return status;
}

void crumb_cl_waiter_destroy(crumb_cl_waiter *w) {
    if (!w) return;
    w->stop = true;
    announce(&w->asked);
    crumb_thread_join(w->thread);
    crumb_lock_destroy(w->lock);
    free(w);
}

/* What takes little time is over before a sleeping thread would have been woken. */
static bool is_done(crumb_cl_waiter *w, uint32_t before, uint64_t limit_ns) {
    enum { SPINS = 1000 };
    for (int i = 0; i < SPINS && __atomic_load_n(&w->done, __ATOMIC_ACQUIRE) == before; i++) crumb_spin_pause();
    const uint64_t since = crumb_now_ns();
    while (__atomic_load_n(&w->done, __ATOMIC_ACQUIRE) == before) {
        const uint64_t passed = crumb_now_ns() - since;
        if (passed >= limit_ns) return false;
        crumb_wait_u32_for(&w->done, before, limit_ns == UINT64_MAX ? limit_ns : limit_ns - passed);
    }
    return true;
}

cl_int crumb_cl_waiter_wait(crumb_cl_waiter *w, crumb_cl_limit *limit, cl_command_queue queue, cl_event event) {
    cl_int code = CRUMB_CL_STUCK;
    crumb_lock_take(w->lock);
    if (!crumb_cl_limit_is_over(limit)) {
        const uint32_t before = __atomic_load_n(&w->done, __ATOMIC_ACQUIRE);
        w->queue = queue;
        w->event = event;
        announce(&w->asked);
        if (is_done(w, before, limit->ns))
            code = w->code;
        else
            crumb_cl_limit_end(limit);
    }
    crumb_lock_release(w->lock);
    return code;
}
