/* Sizes that come from files and users are multiplied and added with overflow checks. */
#ifndef CRUMB_BASE_CHECKED_H
#define CRUMB_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True and *out = a op b, or false on overflow. */
static inline bool crumb_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool crumb_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
/* a rounded up to a multiple of unit (unit > 0, a + unit must not overflow). */
static inline uint64_t crumb_round_up(uint64_t a, uint64_t unit) {
    return (a + unit - 1) / unit * unit;
}
static inline uint64_t crumb_div_up(uint64_t a, uint64_t unit) {
    return a / unit + (a % unit != 0);
}

#endif
