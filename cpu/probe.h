/* What this machine can do at best: the roofs that speeds are compared with.
 *
 * A probe is measured in turns with what is judged by it, pass by pass, and medians are compared: the machine's clock
 * and its other work drift. Each pass takes a few milliseconds.
 */
#ifndef CRUMB_CPU_PROBE_H
#define CRUMB_CPU_PROBE_H

#include "cpu/kernels.h"
#include "cpu/pool.h"

typedef struct crumb_probe crumb_probe;

/* For n_threads threads (<= 0: one per core) on the cores that `cpu_kind` names, as in crumb_model_params; NULL: auto.
 */
crumb_status crumb_probe_create(int n_threads, const char *cpu_kind, crumb_probe **out, crumb_error *err);
/* Gives it a buffer to read, of more than 4 times the last-level cache: each pass reads the next part of it, and
 * nothing of a part is still in a cache when its turn comes again. Fails with MEMORY where that much is not free. Once
 * it has one, nothing happens. */
crumb_status crumb_probe_add_memory(crumb_probe *probe, crumb_error *err);
const uint8_t *crumb_probe_memory(const crumb_probe *probe, uint64_t *n_bytes); /* that buffer; NULL: it has none */
void crumb_probe_destroy(crumb_probe *probe);                                   /* NULL is allowed */
crumb_pool *crumb_probe_pool(const crumb_probe *probe); /* the probe's own, for what it is compared with */
/* Bytes below which what is read again and again may come from a cache: 4 times the last-level caches that the threads
 * have. 0: unknown. */
uint64_t crumb_probe_cached_bytes(const crumb_probe *probe);

/* Threads that have gone to sleep since the pool's last work wake up, and spin for some 0.1 ms: in a plan they never
 * sleep between two steps, so what is timed alone should not wait for them either. Reading and computing do this first.
 */
void crumb_probe_wake(crumb_probe *probe);
/* GB/s that all threads together read from memory; 0 without a buffer. Each chunk is read as several streams at once,
 * since one does not keep enough cache lines in flight, in the way that was fastest when the buffer was made. */
double crumb_probe_read(crumb_probe *probe);
enum { CRUMB_PROBE_MAX_STEPS = 8 };
/* The same where threads wait for each other as in a plan: they read step_bytes[0], ... [n_steps - 1], each cut into
 * chunks like a matrix, over and over. 0 also where all steps are more than the buffer, or there are none, or
 * more than CRUMB_PROBE_MAX_STEPS. */
double crumb_probe_read_steps(crumb_probe *probe, const uint64_t *step_bytes, uint32_t n_steps);
/* 10^9 operations (2 per multiplication and addition) a second that all threads together reach with the int8 dot
 * product of a tier, on registers. 0 for the scalar tier and for tiers that this machine lacks. */
double crumb_probe_dot(crumb_probe *probe, crumb_isa isa);
/* GHz of the calling thread's core while all threads compute. */
double crumb_probe_clock(crumb_probe *probe);
/* Instructions that a core has on their way at once, of the core that has the fewest of all threads' (probe_reorder.c:
 * rungs of 32 to 64, CRUMB_PROBE_REORDER_MOST for that and more). On Intel's cores another thread on the same core, of
 * this system or, in a virtual machine, of another one, takes half of them away, and much of what is fetched ahead of a
 * kernel's instructions. 0: unknown, without memory or on other processors. */
uint32_t crumb_probe_reorder(crumb_probe *probe);
enum { CRUMB_PROBE_REORDER_MOST = 480 };
/* From this part of the most that was ever seen on, it is whole: its rungs are up to a sixth apart. */
#define CRUMB_REORDER_WHOLE 0.75
/* Nanoseconds that a step of a plan with one item per thread takes beyond the items: the price of a barrier. Items that
 * a thread has taken because others were kept away are no part of it. 0 where other programs kept threads away from
 * nearly all steps: measure again. */
double crumb_probe_step(crumb_probe *probe);
/* Nanoseconds from the moment that the pool's owner calls its threads for a job until one that was waiting for it, and
 * spins, is inside: the price of handing them a plan. 0 with one thread. */
double crumb_probe_call(crumb_probe *probe);

/* rounds * CRUMB_PROBE_CHAINS dot products on registers, as many chains as hide their latency. One per tier
 * (cpu/<tier>/probe.c); each does 4 multiplications per 32-bit lane. Returns something that depends on all. */
enum { CRUMB_PROBE_CHAINS = 12 };
typedef uint64_t crumb_probe_dot_fn(uint64_t rounds);
crumb_probe_dot_fn crumb_probe_dot__avx2, crumb_probe_dot__avxvnni, crumb_probe_dot__avxvnniint8,
    crumb_probe_dot__avx512ymm, crumb_probe_dot__avx512vnni;

/* Reads n_bytes (a multiple of 1 KiB, 64-byte aligned); returns something that depends on all of them. */
typedef uint64_t crumb_probe_read_fn(const void *p, uint64_t n_bytes);
crumb_probe_read_fn crumb_probe_read__avx2, crumb_probe_read_ahead__avx2, crumb_probe_read_far__avx2,
    crumb_probe_read_two__avx2;

#endif
