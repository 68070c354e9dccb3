#include "host/kernel/rendezvous.h"

#include "host/base/thread.h"

void crumb_flag_raise(uint32_t *flag, uint32_t number) {
    __atomic_store_n(flag, number, __ATOMIC_RELEASE);
}

bool crumb_flag_is_raised(const uint32_t *flag, uint32_t number) {
    return (int32_t)(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - number) >= 0;
}

bool crumb_patience_wait(crumb_patience *p) {
    const uint64_t give_up_ns = 10u * 1000000000ull, yield_after_ns = 50000;
    crumb_spin_pause();
    if (++p->spins % 64) return true;
    const uint64_t now = crumb_now_ns();
    if (p->since_ns == 0) p->since_ns = now;
    if (now - p->since_ns > yield_after_ns) crumb_thread_yield();
    return now - p->since_ns <= give_up_ns;
}

crumb_status crumb_patience_fail(const char *device, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: another device did not signal within ten seconds", device);
}
