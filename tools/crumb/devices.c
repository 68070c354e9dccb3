/* crumb devices: what crumb can run on, and with --measure what that can do at best. */
#include "cpu/probe.h"
#include "tools/crumb/json_util.h"
#include "tools/crumb/plan.h"

#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/engine/devices.h"
#include "host/engine/modules.h"
#include "scheduler/topology.h"

#include <stdlib.h>
#include <string.h>

typedef struct measurement {
    double read_gb_s, dot_gops[CRUMB_ISA_COUNT], clock_ghz, step_ns, call_ns;
    double reorder, most_reorder; /* the median, and the most of all rounds; 0: unknown */
    int n_threads;
} measurement;

/* Probes in turns, so that all see the same machine; medians of the rounds. */
static crumb_status measure(int n_threads, size_t rounds, measurement *out, crumb_error *err) {
    crumb_probe *probe;
    CRUMB_TRY(crumb_probe_create(n_threads, NULL, &probe, err));
    crumb_status status = crumb_probe_add_memory(probe, err);
    if (status != CRUMB_OK) {
        crumb_probe_destroy(probe);
        return status;
    }
    enum { READ, CLOCK, STEP, CALL, REORDER, DOT, SERIES = DOT + CRUMB_ISA_COUNT };
    double *values = calloc(SERIES * rounds, sizeof *values);
    for (size_t r = 0; values && r < rounds; r++) {
        values[READ * rounds + r] = crumb_probe_read(probe);
        values[CLOCK * rounds + r] = crumb_probe_clock(probe);
        cli_median_price(cli_sample_step, probe, 1, &values[STEP * rounds + r], NULL);
        values[CALL * rounds + r] = crumb_probe_call(probe);
        values[REORDER * rounds + r] = crumb_probe_reorder(probe);
        if (values[REORDER * rounds + r] > out->most_reorder) out->most_reorder = values[REORDER * rounds + r];
        for (size_t isa = 0; isa < CRUMB_ISA_COUNT; isa++)
            values[(DOT + isa) * rounds + r] = crumb_probe_dot(probe, (crumb_isa)isa);
    }
    out->n_threads = crumb_pool_threads(crumb_probe_pool(probe));
    crumb_probe_destroy(probe);
    if (!values) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for %zu rounds", rounds);
    out->read_gb_s = cli_median(values + READ * rounds, rounds);
    out->clock_ghz = cli_median(values + CLOCK * rounds, rounds);
    out->step_ns = cli_median(values + STEP * rounds, rounds);
    out->call_ns = cli_median(values + CALL * rounds, rounds);
    out->reorder = cli_median(values + REORDER * rounds, rounds);
    for (size_t isa = 0; isa < CRUMB_ISA_COUNT; isa++)
        out->dot_gops[isa] = cli_median(values + (DOT + isa) * rounds, rounds);
    free(values);
    return CRUMB_OK;
}

static bool is_gpu(const crumb_engine_device *d) {
    return d->backend != &crumb_backend_cpu;
}

static const char *kind_name(crumb_device_kind kind) {
    static const char *const names[] = {[CRUMB_DEVICE_PROCESSOR] = "OpenCL on the processor",
                                        [CRUMB_DEVICE_INTEGRATED] = "integrated",
                                        [CRUMB_DEVICE_DISCRETE] = "discrete"};
    return names[kind];
}

static void print_gpu(const crumb_engine_device *d) {
    const crumb_device_listing *l = &d->listing;
    bool by_itself = l->intel && l->kind != CRUMB_DEVICE_PROCESSOR;
    cli_print("%s: %s, %s, %u %s\n", d->name, l->detail, kind_name(l->kind), l->n_units, l->units);
    cli_print("  through %s (--backend %s), driver %s\n", d->backend_name, d->backend->name, l->driver);
    cli_print("  memory %.1f GB, at most %.1f GB at once; %s\n", (double)l->memory_bytes * 1e-9,
              (double)l->max_alloc_bytes * 1e-9, l->features);
    if (*l->unusable)
        cli_print("  cannot be used: %s\n", l->unusable);
    else
        cli_print("  kernels %s: %s; %s\n", l->target, l->reason,
                  by_itself ? "used by itself" : "used only when it is named (--device)");
    if (*d->lowered.target) cli_print("  lowered to %s by an earlier run: %s\n", d->lowered.target, d->lowered.why);
    if (*l->advice) cli_print("  advice: %s\n", l->advice);
}

/* ---- sensors: of a card once, through the first backend that lists it ----------------------------------------------
 */

static bool has_sensors(const crumb_engine_devices *all, size_t i) {
    const crumb_engine_device *d = &all->device[i];
    return d->backend->device.sense && d->listing.kind != CRUMB_DEVICE_PROCESSOR && !*d->listing.unusable &&
           (i == 0 || strcmp(d->name, all->device[i - 1].name) != 0 || *all->device[i - 1].listing.unusable);
}

static void print_sensors(const crumb_device_sensors *s) {
    if (s->clock_mhz) cli_print("  clock %u MHz", s->clock_mhz);
    if (s->clock_mhz && s->clock_most_mhz) cli_print(" of %u", s->clock_most_mhz);
    if (s->clock_mhz && s->knows_throttling)
        cli_print(*s->throttling ? ", held down by: %s" : ", not held down", s->throttling);
    if (s->clock_mhz) cli_print("\n");
    if (*s->energy_source) {
        cli_print("  power %.1f W", s->power_mw * 1e-3);
        if (s->power_limit_mw) cli_print(" of %.0f", s->power_limit_mw * 1e-3);
        cli_print(", by its energy counter (%s)\n", s->energy_source);
    }
    if (*s->missing) cli_print("  sensors: %s\n", s->missing);
}

static void add_sensors(cJSON *device, const crumb_device_sensors *s) {
    cJSON *o = cJSON_AddObjectToObject(device, "sensors");
    json_add_text(o, "energy_source", s->energy_source);
    if (*s->energy_source) {
        json_add_u64(o, "energy_uj", s->energy_uj);
        json_add_u64(o, "power_mw", s->power_mw);
    }
    if (s->power_limit_mw) json_add_u64(o, "power_limit_mw", s->power_limit_mw);
    if (s->clock_mhz) json_add_u64(o, "clock_mhz", s->clock_mhz);
    if (s->clock_most_mhz) json_add_u64(o, "clock_most_mhz", s->clock_most_mhz);
    if (s->knows_throttling) json_add_text(o, "throttling", s->throttling);
    json_add_text(o, "missing", s->missing);
}

/* ---- devices --------------------------------------------------------------------------------------------------- */

static const crumb_engine_devices *find_devices(void) {
    static crumb_engine_devices all;
    crumb_engine_devices_find(&all);
    return &all;
}

static void print_gpus(void) {
    const crumb_engine_devices *all = find_devices();
    for (size_t i = 0; i < all->n; i++) {
        crumb_device_sensors sensors;
        if (!is_gpu(&all->device[i])) continue;
        print_gpu(&all->device[i]);
        if (!has_sensors(all, i)) continue;
        all->device[i].backend->device.sense(NULL, all->device[i].listing.name, &sensors);
        print_sensors(&sensors);
    }
    if (*all->note) cli_print("no GPU: %s\n", all->note);
    for (size_t i = 0; i < CRUMB_ENGINE_MAX_BACKENDS; i++)
        if (*all->notes[i] && strcmp(all->notes[i], all->note) != 0)
            cli_print("not through %s: %s\n", crumb_engine_backend_name(crumb_engine_module_names[i]), all->notes[i]);
}

void cli_list_devices(void) {
    const crumb_engine_devices *all = find_devices();
    cli_print("Available devices:\n");
    for (size_t i = 0; i < all->n; i++) {
        const crumb_device_listing *l = &all->device[i].listing;
        if (is_gpu(&all->device[i]) && i && strcmp(all->device[i].name, all->device[i - 1].name) == 0) continue;
        cli_print("  %s: %s%s%s\n", all->device[i].name, l->detail, *l->unusable ? ", cannot be used: " : "",
                  l->unusable);
    }
    if (*all->note) cli_print("No GPU: %s\n", all->note);
}

static void add_gpus(cJSON *document, cJSON *devices) {
    const crumb_engine_devices *all = find_devices();
    for (size_t i = 0; i < all->n; i++) {
        const crumb_device_listing *l = &all->device[i].listing;
        if (!is_gpu(&all->device[i])) continue;
        cJSON *o = cJSON_CreateObject();
        json_add_text(o, "name", all->device[i].name);
        json_add_text(o, "detail", l->detail);
        json_add_text(o, "backend", all->device[i].backend->name);
        json_add_text(o, "kind", kind_name(l->kind));
        json_add_text(o, "driver", l->driver);
        json_add_text(o, "target", l->target);
        json_add_text(o, "reason", l->reason);
        json_add_text(o, "lowered_target", all->device[i].lowered.target);
        json_add_text(o, "lowered_reason", all->device[i].lowered.why);
        json_add_text(o, "features", l->features);
        json_add_text(o, "unusable", l->unusable);
        json_add_text(o, "advice", l->advice);
        json_add_u64(o, "units", l->n_units);
        json_add_text(o, "units_are", l->units);
        json_add_u64(o, "memory_bytes", l->memory_bytes);
        json_add_u64(o, "max_alloc_bytes", l->max_alloc_bytes);
        crumb_device_sensors sensors;
        if (has_sensors(all, i)) {
            all->device[i].backend->device.sense(NULL, l->name, &sensors);
            add_sensors(o, &sensors);
        }
        cJSON_AddItemToArray(devices, o);
    }
    json_add_text(document, "no_gpu", all->note);
}

static const char *const core_kinds[] = {
    [CRUMB_CORE_P] = "P", [CRUMB_CORE_E] = "E", [CRUMB_CORE_LOW_POWER] = "low-power E"};

/* The fastest core of a kind; NULL: there are none. */
static const crumb_core *core_of_kind(const crumb_topology *t, int kind) {
    const crumb_core *best = NULL;
    for (int i = 0; i < t->n_cores; i++)
        if ((int)t->cores[i].kind == kind && (!best || t->cores[i].max_mhz > best->max_mhz)) best = &t->cores[i];
    return best;
}

static void print_cores(const crumb_topology *t) {
    for (int k = 0; k < CRUMB_CORE_KINDS; k++) {
        const crumb_core *core = core_of_kind(t, k);
        if (!core || t->n_of_kind[k] == t->n_cores) continue;
        cli_print("  %s cores: %d", core_kinds[k], t->n_of_kind[k]);
        if (core->max_mhz) cli_print(", up to %.2f GHz", core->max_mhz * 1e-3);
        if (core->n_siblings > 1) cli_print(", %u logical processors each", core->n_siblings);
        cli_print("%s\n", k == CRUMB_CORE_LOW_POWER ? "; used only with --cpu-kind all" : "");
    }
    cli_print("  cores found through %s\n", t->source);
    if (t->limit < t->n_cores) cli_print("  the control group allows %d at a time\n", t->limit);
    if (!t->this_machine) cli_print("  these are the cores of another machine: hwloc was told to show them\n");
}

/* Of the core that has the least. */
static void print_reorder(const measurement *m) {
    if (m->most_reorder <= 0) return;
    cli_print("  reorder window %.0f instructions%s", m->most_reorder,
              m->most_reorder < CRUMB_PROBE_REORDER_MOST ? "" : " or more");
    if (m->reorder < CRUMB_REORDER_WHOLE * m->most_reorder)
        cli_print(", and %.0f in most rounds: another thread shares a core, here or in another virtual machine",
                  m->reorder);
    cli_print("\n");
}

static void print_text(const crumb_topology *t, const measurement *m) {
    char cores[64];
    crumb_topology_describe(t, cores, sizeof cores);
    cli_print("cpu: %s, %s, %s\n", cli_cpu_name(), cores, crumb_isa_name(crumb_isa_best()));
    print_cores(t);
    cli_print("  memory %.1f GB, of which %.1f GB are free\n", (double)crumb_memory_total_bytes() * 1e-9,
              (double)crumb_memory_available_bytes() * 1e-9);
    cli_print("  data caches: L1 %llu kB, L2 %llu kB, L3 %llu kB\n", (unsigned long long)(crumb_cache_bytes(1) >> 10),
              (unsigned long long)(crumb_cache_bytes(2) >> 10), (unsigned long long)(crumb_cache_bytes(3) >> 10));
    if (m) {
        print_reorder(m);
        cli_print("  %d threads: read %.1f GB/s, clock %.2f GHz, a step of a plan %.0f ns", m->n_threads, m->read_gb_s,
                  m->clock_ghz, m->step_ns);
        if (m->n_threads > 1) cli_print(", calling waiting threads %.0f ns", m->call_ns);
        cli_print("\n");
        for (int isa = 0; isa < CRUMB_ISA_COUNT; isa++)
            if (m->dot_gops[isa] > 0)
                cli_print("  int8 dot products, %s: %.0f GOPS\n", crumb_isa_name((crumb_isa)isa), m->dot_gops[isa]);
    }
    print_gpus();
}

static void add_cores(cJSON *cpu, const crumb_topology *t) {
    json_add_u64(cpu, "cores", (uint64_t)t->n_cores);
    json_add_text(cpu, "cores_source", t->source);
    if (t->limit < t->n_cores) json_add_u64(cpu, "cores_limit", (uint64_t)t->limit);
    cJSON *kinds = cJSON_AddArrayToObject(cpu, "core_kinds");
    for (int k = 0; k < CRUMB_CORE_KINDS; k++) {
        const crumb_core *core = core_of_kind(t, k);
        if (!core) continue;
        cJSON *o = cJSON_CreateObject();
        json_add_text(o, "kind", core_kinds[k]);
        json_add_u64(o, "cores", (uint64_t)t->n_of_kind[k]);
        json_add_u64(o, "siblings", core->n_siblings);
        if (core->max_mhz) json_add_u64(o, "max_mhz", core->max_mhz);
        cJSON_AddItemToArray(kinds, o);
    }
}

static crumb_status print_json(const crumb_topology *t, const measurement *m, crumb_error *err) {
    cJSON *document = json_document(), *cpu = cJSON_CreateObject();
    json_add_text(cpu, "name", "cpu");
    json_add_text(cpu, "detail", cli_cpu_name());
    add_cores(cpu, t);
    json_add_text(cpu, "isa", crumb_isa_name(crumb_isa_best()));
    json_add_u64(cpu, "memory_bytes", crumb_memory_total_bytes());
    json_add_u64(cpu, "l1_bytes", crumb_cache_bytes(1));
    json_add_u64(cpu, "l2_bytes", crumb_cache_bytes(2));
    json_add_u64(cpu, "l3_bytes", crumb_cache_bytes(3));
    if (m) {
        json_add_u64(cpu, "threads", (uint64_t)m->n_threads);
        json_add_real(cpu, "read_gb_s", m->read_gb_s);
        json_add_real(cpu, "clock_ghz", m->clock_ghz);
        json_add_real(cpu, "reorder_window", m->reorder);
        json_add_real(cpu, "reorder_window_most", m->most_reorder);
        json_add_real(cpu, "step_ns", m->step_ns);
        if (m->n_threads > 1) json_add_real(cpu, "call_ns", m->call_ns);
        cJSON *dot = cJSON_AddObjectToObject(cpu, "dot_gops");
        for (int isa = 0; isa < CRUMB_ISA_COUNT; isa++)
            if (m->dot_gops[isa] > 0) json_add_real(dot, crumb_isa_name((crumb_isa)isa), m->dot_gops[isa]);
    }
    cJSON *devices = cJSON_AddArrayToObject(document, "devices");
    cJSON_AddItemToArray(devices, cpu);
    add_gpus(document, devices);
    return json_print(document, false, "\n", err);
}

/* For `crumb plan`. Without a cache the figures are printed all the same. */
static void store_profile(const cli_options *options) {
    crumb_error err = {0};
    char path[512];
    if (plan_measure((int)options->n_threads, (size_t)options->rounds, path, sizeof path, &err) == CRUMB_OK)
        cli_note("the machine's profile, for 'crumb plan --profile this': %s", path);
    else
        cli_note("the machine's profile is not stored: %s", err.message);
}

int cli_devices(const cli_options *options) {
    crumb_error err = {0};
    if (options->report) return cli_report(options);
    measurement m = {0};
    crumb_topology topology;
    crumb_topology_read(&topology);
    if (options->measure && measure((int)options->n_threads, (size_t)options->rounds, &m, &err) != CRUMB_OK)
        return cli_fail(&err);
    const measurement *measured = options->measure ? &m : NULL;
    if (measured) store_profile(options);
    if (!options->json) return print_text(&topology, measured), CLI_EXIT_OK;
    return print_json(&topology, measured, &err) == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
