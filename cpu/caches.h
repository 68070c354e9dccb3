/* The caches that block sizes follow: those of the machine, which is asked once.
 *
 * One set of blocks serves all cores, so where they differ the least counts: of L1 that of the smallest core, of L2 the
 * smallest part that one core has of one.
 */
#ifndef CRUMB_CPU_CACHES_H
#define CRUMB_CPU_CACHES_H

#include <stdint.h>

enum {
    /* Of the first CPUs with AVX2, and of all of AMD's since; smaller ones than assumed would cost more than larger
     * ones give. */
    CRUMB_CACHES_L1_UNKNOWN = 32 << 10,
    CRUMB_CACHES_L2_UNKNOWN = 512 << 10
};

typedef struct crumb_caches {
    uint32_t l1_bytes; /* for data */
    uint32_t l2_bytes; /* a core's part */
} crumb_caches;

/* What is said of them, in bytes; 0 is unknown, and becomes a size that suits most. */
crumb_caches crumb_caches_of(uint64_t l1_bytes, uint64_t l2_bytes);
crumb_caches crumb_caches_get(void);
/* Others from now on; NULL: the machine's again. For tests: what was packed, recorded or given scratch before is not to
 * be used any more. */
void crumb_caches_set(const crumb_caches *caches);

#endif
