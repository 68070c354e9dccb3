#include "host/kernel/rendezvous.h"

#include "host/base/thread.h"

#include <ctype.h>
#include <stdlib.h>

void crumb_flag_raise(uint32_t *flag, uint32_t number) {
    __atomic_store_n(flag, number, __ATOMIC_RELEASE);
}

bool crumb_flag_is_raised(const uint32_t *flag, uint32_t number) {
    return (int32_t)(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - number) >= 0;
}

uint64_t crumb_patience_ns(uint64_t default_ms) {
    const char *text = getenv("CRUMB_PATIENCE_MS");
    char *end = NULL;
    unsigned long long ms = text && isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : default_ms;
    if (end && *end) ms = default_ms;
    return ms && ms < UINT64_MAX / 1000000 ? ms * 1000000 : UINT64_MAX;
}

bool crumb_patience_wait(crumb_patience *p, const uint32_t *given_up) {
    const uint64_t yield_after_ns = 50000;
    crumb_spin_pause();
    if (++p->spins % 64) return true;
    if (given_up && __atomic_load_n(given_up, __ATOMIC_ACQUIRE)) return false;
    const uint64_t now = crumb_now_ns();
    if (p->since_ns == 0) {
        p->since_ns = now;
        p->limit_ns = crumb_patience_ns(CRUMB_PATIENCE_DEFAULT_MS);
    }
    if (now - p->since_ns > yield_after_ns) crumb_thread_yield();
    return now - p->since_ns <= p->limit_ns;
}

crumb_status crumb_patience_fail(const char *device, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: another device has failed, or has not answered in time", device);
}
