/* The energy that a model's devices take, by their own counters. */
#ifndef CRUMB_ENGINE_ENERGY_H
#define CRUMB_ENGINE_ENERGY_H

#include "host/engine/engine.h"

/* Between the first reading and the last; of all devices that compute for the model, or unknown. */
typedef struct crumb_engine_energy {
    double joules, seconds; /* 0: a device has no counter, or none has passed */
    double clock_mhz;       /* mean of the readings but the first, of the first device; 0: unknown */
    bool knows_throttling;
    char throttling[128]; /* what was held against its clock, as the last reading that was held says; empty: nothing */
    char source[224];     /* "gpu0: Level Zero Sysman, card; cpu: RAPL, 1 processor package"; empty: unknown */
    char missing[512];    /* "gpu0: ...": why something is unknown, and what to do about it; empty: nothing is */
    /* its own */
    crumb_device_sensors last[CRUMB_ENGINE_MAX_UNITS];
    uint64_t start_ns;
    double clock_sum;
    uint32_t n_clocks;
    bool is_unknown;
} crumb_engine_energy;

void crumb_engine_energy_begin(const crumb_model *m, crumb_engine_energy *out);
/* Reads again. More often than any counter wraps (RAPL's: after a minute at most), or what has passed is lost. */
void crumb_engine_energy_add(const crumb_model *m, crumb_engine_energy *e);

#endif
