/* The int8 peak of one core: as many chains of the tier's dot product as hide its latency, on registers alone.
 * Included after a tier's simd.h. */
#include "cpu/lowbit/linear.h"
#include "cpu/probe.h"

/* Sanitized code says nothing of speed: there it need only run. */
#if defined(CRUMB_SANITIZED)
enum { PROBE_SHARE = 64 };
#else
enum { PROBE_SHARE = 1 };
#endif

SIMD_INLINE uint64_t probe_dot(uint64_t rounds) {
    vint acc[CRUMB_PROBE_CHAINS], codes = v_broadcast_bytes(1), q = v_broadcast_bytes(1);
    UNROLL for (int i = 0; i < CRUMB_PROBE_CHAINS; i++) acc[i] = v_zero();
    for (uint64_t r = 0; r < rounds / PROBE_SHARE; r++) UNROLL for (int i = 0; i < CRUMB_PROBE_CHAINS; i += 2) {
            q = v_pin(q); /* else one product would serve all, and with equal weights one would serve two */
            vint weights[2] = {codes, q};
            dot_steps(&acc[i], weights, q, 2);
        }
    uint8_t bytes[SIMD_LANES * 4];
    UNROLL for (int i = 1; i < CRUMB_PROBE_CHAINS; i++) acc[0] = v_add(acc[0], acc[i]);
    v_store(bytes, acc[0]);
    return bytes[0];
}

#define PROBE_DOT_INSTANCE                                                                                             \
    uint64_t SIMD_NAME(crumb_probe_dot)(uint64_t rounds) {                                                             \
        return probe_dot(rounds);                                                                                      \
    }
