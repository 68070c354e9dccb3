/* What one core of this machine can do at best, measured beside the kernels since other work comes and goes. */
#ifndef CRUMB_TESTS_PROBES_H
#define CRUMB_TESTS_PROBES_H

#include <stddef.h>
#include <stdint.h>

/* Reads n_bytes (a multiple of 1024, 64-byte aligned) from memory; returns something that depends on all of them. */
uint64_t probe_read(const void *p, size_t n_bytes);
/* rounds * PROBE_DOT_MACS multiplications and additions by vpmaddubsw + vpaddw on registers. */
enum { PROBE_DOT_MACS = 12 * 32 };
uint64_t probe_dot(uint64_t rounds);

#endif
