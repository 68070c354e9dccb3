/* The cores of this machine that threads should run on: what kinds there are, and one logical processor of each core
 * that this process may use.
 *
 * Read through hwloc, and where crumb was built without it, from the system's files, which tell no kinds. HWLOC_XMLFILE
 * and HWLOC_SYNTHETIC show another machine's cores instead: for looking, since nothing can be pinned to them.
 */
#ifndef CRUMB_SCHEDULER_TOPOLOGY_H
#define CRUMB_SCHEDULER_TOPOLOGY_H

#include "host/base/error.h"

enum { CRUMB_TOPOLOGY_MAX_CORES = 1024 };

typedef enum crumb_core_kind {
    CRUMB_CORE_P, /* the fastest; all cores of a machine that has one kind */
    CRUMB_CORE_E,
    CRUMB_CORE_LOW_POWER, /* E cores much slower than the other E cores, on another die than the caches */
    CRUMB_CORE_KINDS
} crumb_core_kind;

typedef struct crumb_core {
    int cpu;             /* its logical processor to run on: the first that this process may use; -1: unknown */
    uint32_t n_siblings; /* logical processors of the core, this one included */
    uint32_t max_mhz;    /* 0: unknown */
    crumb_core_kind kind;
} crumb_core;

typedef struct crumb_topology {
    crumb_core cores[CRUMB_TOPOLOGY_MAX_CORES]; /* usable ones: the P cores, then E, then low-power */
    int n_cores;
    int n_of_kind[CRUMB_CORE_KINDS];
    int limit;         /* most processors' worth of time that the cgroup allows; INT32_MAX: no limit */
    bool this_machine; /* and not one that HWLOC_XMLFILE shows */
    char source[96];   /* for people: "hwloc 2.8", "the system's files ..." */
} crumb_topology;

void crumb_topology_read(crumb_topology *out);

/* What --cpu-kind says. */
typedef enum crumb_cores_wanted {
    CRUMB_CORES_AUTO, /* all but the low-power ones */
    CRUMB_CORES_P,
    CRUMB_CORES_E, /* with the low-power ones where there are no others */
    CRUMB_CORES_ALL,
} crumb_cores_wanted;

/* "auto", "p", "e", "all"; NULL: auto. */
bool crumb_cores_wanted_parse(const char *text, crumb_cores_wanted *out);

/* The logical processors for up to `capacity` threads, one for each core wanted, no more than the cgroup's limit; never
 * fewer than one. Fails with ARGUMENT where the machine has no such cores. */
crumb_status crumb_topology_choose(const crumb_topology *t, crumb_cores_wanted wanted, int *cpus, int capacity,
                                   int *n_cpus, crumb_error *err);

/* "4 P + 8 E cores", "2 cores". */
void crumb_topology_describe(const crumb_topology *t, char *out, size_t size);

#endif
