/* Energy counters that Linux shows as files: of processors and of cards. */
#ifndef CRUMB_KERNEL_ENERGY_H
#define CRUMB_KERNEL_ENERGY_H

#include "host/backend.h"

/* RAPL's counters of all processor packages, in the folder sys/class/powercap of `root` ("": the system's). */
void crumb_energy_read_rapl(const char *root, crumb_device_sensors *out);

/* The counter of the card at `pci` ("0000:03:00.0"), which its kernel driver shows through hwmon. False, and nothing is
 * changed, where it shows none. */
bool crumb_energy_read_hwmon(const char *root, const char *pci, crumb_device_sensors *out);

/* Microjoules from one reading of a counter to a later one, which must not be a whole round of it later. False: they
 * are not readings of one counter. */
bool crumb_energy_between(const crumb_device_sensors *before, const crumb_device_sensors *after, uint64_t *out);

/* Adds a sentence to out->missing. */
void crumb_sensors_miss(crumb_device_sensors *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
