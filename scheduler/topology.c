#include "scheduler/topology.h"

#include "host/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- from the system's files ------------------------------------------------------------------------------- */

static void read_files(crumb_topology *t) {
    static const char source[] = "the system's files: this build has no hwloc, so all cores count as alike";
    int cpus[CRUMB_TOPOLOGY_MAX_CORES];
    t->n_cores = crumb_cpu_physical(cpus, CRUMB_TOPOLOGY_MAX_CORES);
    for (int i = 0; i < t->n_cores; i++)
        t->cores[i] = (crumb_core){.cpu = cpus[i], .n_siblings = 1, .kind = CRUMB_CORE_P};
    if (t->n_cores == 0)
        t->cores[t->n_cores++] = (crumb_core){.cpu = -1, .n_siblings = 1}; /* the files are not there */
    t->this_machine = true;
    memcpy(t->source, source, sizeof source);
}

/* ---- through hwloc ----------------------------------------------------------------------------------------- */

#ifdef CRUMB_HAVE_HWLOC
#include <hwloc.h>

enum { MAX_KINDS = 16 };

typedef struct kind {
    hwloc_bitmap_t cpus;
    uint32_t max_mhz; /* 0: unknown */
    int efficiency;   /* higher is faster; -1: unknown */
    bool atom, core;  /* what Intel calls them */
    crumb_core_kind is;
} kind;

typedef struct kinds {
    kind kind[MAX_KINDS];
    int n;
} kinds;

static void read_infos(kind *k, const struct hwloc_info_s *infos, unsigned n) {
    uint32_t base_mhz = 0;
    for (unsigned i = 0; i < n; i++) {
        const uint32_t number = (uint32_t)strtoul(infos[i].value, NULL, 10);
        if (strcmp(infos[i].name, "CoreType") == 0) {
            k->atom = strcmp(infos[i].value, "IntelAtom") == 0;
            k->core = strcmp(infos[i].value, "IntelCore") == 0;
        }
        if (strcmp(infos[i].name, "FrequencyMaxMHz") == 0) k->max_mhz = number;
        if (strcmp(infos[i].name, "FrequencyBaseMHz") == 0) base_mhz = number;
    }
    if (!k->max_mhz) k->max_mhz = base_mhz;
}

/* Among Intel's cores the type decides, since turbo frequencies differ between P cores as well; a low-power core is an
 * E core that is much slower than others. Other makers' kinds differ by frequency, or are only ranked. */
static void name_kinds(kinds *all) {
    uint32_t fastest = 0, fastest_atom = 0;
    int best = -1;
    for (int i = 0; i < all->n; i++) {
        const kind *k = &all->kind[i];
        if (k->max_mhz > fastest) fastest = k->max_mhz;
        if (k->atom && k->max_mhz > fastest_atom) fastest_atom = k->max_mhz;
        if (k->efficiency > best) best = k->efficiency;
    }
    for (int i = 0; i < all->n; i++) {
        kind *k = &all->kind[i];
        k->is = CRUMB_CORE_P;
        if (k->atom)
            k->is = k->max_mhz * 4 < fastest_atom * 3 ? CRUMB_CORE_LOW_POWER : CRUMB_CORE_E;
        else if (!k->core && (k->max_mhz ? k->max_mhz * 20 < fastest * 17 : k->efficiency < best))
            k->is = CRUMB_CORE_E;
    }
}

static void read_kinds(hwloc_topology_t topology, kinds *all) {
    const int n = hwloc_cpukinds_get_nr(topology, 0);
    for (int i = 0; i < n && i < MAX_KINDS; i++) {
        kind *k = &all->kind[all->n];
        *k = (kind){.cpus = hwloc_bitmap_alloc(), .efficiency = -1};
        struct hwloc_info_s *infos = NULL;
        unsigned n_infos = 0;
        if (!k->cpus) return;
        if (hwloc_cpukinds_get_info(topology, (unsigned)i, k->cpus, &k->efficiency, &n_infos, &infos, 0) != 0) {
            hwloc_bitmap_free(k->cpus);
            continue;
        }
        read_infos(k, infos, n_infos);
        all->n++;
    }
}

static void add_core(crumb_topology *t, const kinds *all, hwloc_obj_t core, hwloc_const_cpuset_t allowed) {
    int first = -1;
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0 && first < 0; cpu = hwloc_bitmap_next(core->cpuset, cpu))
        if (!allowed || hwloc_bitmap_isset(allowed, (unsigned)cpu)) first = cpu;
    if (first < 0 || t->n_cores == CRUMB_TOPOLOGY_MAX_CORES) return;
    crumb_core *c = &t->cores[t->n_cores++];
    *c = (crumb_core){.cpu = first, .kind = CRUMB_CORE_P, .n_siblings = (uint32_t)hwloc_bitmap_weight(core->cpuset)};
    for (int i = 0; i < all->n; i++)
        if (hwloc_bitmap_isset(all->kind[i].cpus, (unsigned)first)) {
            c->kind = all->kind[i].is;
            c->max_mhz = all->kind[i].max_mhz;
        }
}

/* All cores in the order of their kinds, and of their numbers within a kind. */
static void add_cores(crumb_topology *t, hwloc_topology_t topology, const kinds *all) {
    hwloc_bitmap_t allowed = t->this_machine ? hwloc_bitmap_alloc() : NULL;
    if (allowed && hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) != 0) {
        hwloc_bitmap_free(allowed);
        allowed = NULL;
    }
    const hwloc_obj_type_t type =
        hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology, type, core));)
        add_core(t, all, core, allowed);
    hwloc_bitmap_free(allowed);
    crumb_core sorted[CRUMB_TOPOLOGY_MAX_CORES];
    int n = 0;
    for (int k = 0; k < CRUMB_CORE_KINDS; k++)
        for (int i = 0; i < t->n_cores; i++)
            if ((int)t->cores[i].kind == k) sorted[n++] = t->cores[i];
    memcpy(t->cores, sorted, (size_t)n * sizeof *sorted);
}

/* Cores and processors are all that is asked for: looking for caches, memory and buses takes longer. */
static bool load(hwloc_topology_t *out) {
    if (hwloc_topology_init(out) != 0) return false;
    hwloc_topology_set_all_types_filter(*out, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(*out, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(*out) == 0) return true;
    hwloc_topology_destroy(*out);
    return false;
}

static bool read_hwloc(crumb_topology *t) {
    hwloc_topology_t topology;
    if (!load(&topology)) return false;
    const unsigned version = hwloc_get_api_version();
    snprintf(t->source, sizeof t->source, "hwloc %u.%u", version >> 16 & 255, version >> 8 & 255);
    t->this_machine = hwloc_topology_is_thissystem(topology) != 0;
    kinds all = {.n = 0};
    read_kinds(topology, &all);
    name_kinds(&all);
    add_cores(t, topology, &all);
    for (int i = 0; i < all.n; i++) hwloc_bitmap_free(all.kind[i].cpus);
    hwloc_topology_destroy(topology);
    return t->n_cores > 0;
}
#else
static bool read_hwloc(crumb_topology *t) {
    (void)t;
    return false;
}
#endif

void crumb_topology_read(crumb_topology *out) {
    *out = (crumb_topology){.limit = INT32_MAX};
    if (!read_hwloc(out)) {
        *out = (crumb_topology){.limit = INT32_MAX};
        read_files(out);
    }
    if (out->this_machine) out->limit = crumb_cpu_limit();
    for (int i = 0; i < out->n_cores; i++) out->n_of_kind[out->cores[i].kind]++;
}

/* ---- choosing ---------------------------------------------------------------------------------------------- */

bool crumb_cores_wanted_parse(const char *text, crumb_cores_wanted *out) {
    static const char *const names[] = {
        [CRUMB_CORES_AUTO] = "auto", [CRUMB_CORES_P] = "p", [CRUMB_CORES_E] = "e", [CRUMB_CORES_ALL] = "all"};
    *out = CRUMB_CORES_AUTO;
    for (int i = 0; text && i < 4; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *out = (crumb_cores_wanted)i;
        return true;
    }
    return text == NULL;
}

static bool is_wanted(const crumb_topology *t, crumb_core_kind is, crumb_cores_wanted wanted) {
    switch (wanted) {
    case CRUMB_CORES_P: return is == CRUMB_CORE_P;
    case CRUMB_CORES_E: return is == CRUMB_CORE_E || (is == CRUMB_CORE_LOW_POWER && !t->n_of_kind[CRUMB_CORE_E]);
    case CRUMB_CORES_AUTO: return is != CRUMB_CORE_LOW_POWER || t->n_of_kind[CRUMB_CORE_LOW_POWER] == t->n_cores;
    case CRUMB_CORES_ALL: break;
    }
    return true;
}

crumb_status crumb_topology_choose(const crumb_topology *t, crumb_cores_wanted wanted, int *cpus, int capacity,
                                   int *n_cpus, crumb_error *err) {
    int n = 0;
    for (int i = 0; i < t->n_cores && n < capacity && n < t->limit; i++)
        if (is_wanted(t, t->cores[i].kind, wanted)) cpus[n++] = t->cores[i].cpu;
    *n_cpus = n;
    if (n > 0) return CRUMB_OK;
    char cores[64];
    crumb_topology_describe(t, cores, sizeof cores);
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "no %s cores to run on: this process may use %s, found through %s",
                      wanted == CRUMB_CORES_E ? "E" : "P", cores, t->source);
}

void crumb_topology_describe(const crumb_topology *t, char *out, size_t size) {
    static const char *const names[] = {"P", "E", "low-power E"};
    size_t used = 0;
    *out = 0;
    if (t->n_of_kind[CRUMB_CORE_P] == t->n_cores) {
        snprintf(out, size, "%d core%s", t->n_cores, t->n_cores == 1 ? "" : "s");
        return;
    }
    for (int k = 0; k < CRUMB_CORE_KINDS; k++)
        if (t->n_of_kind[k] && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%d %s", used ? " + " : "", t->n_of_kind[k], names[k]);
    if (used < size) snprintf(out + used, size - used, " cores");
}
