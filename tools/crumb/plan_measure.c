/* The profile of the machine at hand: measured by `crumb devices --measure`, and kept in the user's cache
 * (host/engine/machine.h). */
#include "cpu/probe.h"
#include "cpu/suite.h"
#include "tools/crumb/json_util.h"
#include "tools/crumb/plan.h"

#include "host/base/cache.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/engine/machine.h"
#include "host/engine/modules.h"
#include "host/kernel/trial.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUNDS = 15, MANY_ROWS_ROUNDS = 5, ROWS = 2048, COLUMNS = 4096, MANY = 256, MANY_IN_SOFTWARE = 32 };

/* What a device does by itself, and what meeting another takes. 0: unknown. */
typedef struct speeds {
    double read_gb_s, launch_us, exchange_us;
    double gops[CRUMB_WORK_COUNT], share[CRUMB_WORK_COUNT];
} speeds;

/* ---- a suite's kernels --------------------------------------------------------------------------------------- */

/* Median time of the kernel that a plan would take, for one row, and of the memory's reading in the same rounds; for
 * many rows the least time, since nothing but other programs makes such a kernel slow. */
static crumb_status time_kernel(const plan_bench *c, const crumb_kernel_problem *p, size_t rounds, double *ns,
                                double *gb_s, double *bytes, crumb_error *err) {
    const size_t kernel = c->suite->chosen(c->machine, p);
    char knobs[CRUMB_KNOBS_BYTES] = "";
    double times[MAX_ROUNDS], reads[MAX_ROUNDS];
    crumb_kernel_bench *bench;
    if (kernel == SIZE_MAX) return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "no kernel");
    if (c->suite->chosen_knobs) c->suite->chosen_knobs(c->machine, p, knobs);
    CRUMB_TRY(c->suite->bench_create(c->machine, p, &bench, err));
    crumb_status status = c->suite->bench_run(bench, kernel, knobs, CRUMB_BENCH_COLD, &times[0], err);
    for (size_t i = 0; i < rounds && status == CRUMB_OK; i++) {
        crumb_kernel_roofs roofs;
        status = c->suite->bench_run(bench, kernel, knobs, CRUMB_BENCH_COLD | CRUMB_BENCH_WHOLE, &times[i], err);
        if (p->n == 1) c->suite->machine_roofs(c->machine, kernel, &roofs);
        reads[i] = p->n == 1 ? roofs.read_gb_s : 0;
    }
    if (status == CRUMB_OK) {
        *bytes = (double)c->suite->bench_bytes(bench, kernel);
        *ns = cli_median(times, rounds); /* sorts them */
        if (p->n > 1) *ns = times[0];
        *gb_s = cli_median(reads, rounds);
    }
    c->suite->bench_destroy(bench);
    return status;
}

static crumb_status measure_work(const plan_bench *c, crumb_work work, const char *format, speeds *out,
                                 crumb_error *err) {
    crumb_kernel_problem p = {
        .format = crumb_kernel_format_find(format), .m = ROWS, .k = COLUMNS, .n = 1, .act = CRUMB_ACT_ROW};
    const size_t few = c->rounds < MAX_ROUNDS ? c->rounds : MAX_ROUNDS;
    double ns, gb_s, bytes, unused;
    CRUMB_TRY(time_kernel(c, &p, few, &ns, &gb_s, &bytes, err));
    if (gb_s > 0 && ns > 0) out->share[work] = bytes / ns / gb_s;
    if (out->share[work] > 1) out->share[work] = 1;
    if (gb_s > out->read_gb_s) out->read_gb_s = gb_s;
    p.n = c->many;
    CRUMB_TRY(time_kernel(c, &p, few < MANY_ROWS_ROUNDS ? few : MANY_ROWS_ROUNDS, &ns, &gb_s, &unused, err));
    if (ns > 0) out->gops[work] = 2.0 * ROWS * COLUMNS * c->many / ns;
    return CRUMB_OK;
}

static crumb_status measure_kernels(const plan_bench *c, speeds *out, crumb_error *err) {
    static const struct {
        crumb_work work;
        const char *format;
    } cases[] = {
        {CRUMB_WORK_U1, "1"}, {CRUMB_WORK_U2, "2"}, {CRUMB_WORK_U3, "3"}, {CRUMB_WORK_U4, "4"}, {CRUMB_WORK_U8, "8"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cli_interrupted(NULL)) return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted");
        CRUMB_TRY(measure_work(c, cases[i].work, cases[i].format, out, err));
    }
    plan_ops_speeds ops;
    CRUMB_TRY(plan_measure_ops(c, &ops, err));
    out->gops[CRUMB_WORK_F16] = ops.dense_gops;
    out->share[CRUMB_WORK_F16] = ops.dense_share;
    out->gops[CRUMB_WORK_ATTENTION] = ops.attention_gops;
    out->share[CRUMB_WORK_ATTENTION] = ops.attention_share;
    return CRUMB_OK;
}

static crumb_status sample_launch(void *user, double *ns, crumb_error *err) {
    (void)err;
    const plan_bench *c = user;
    crumb_kernel_roofs roofs;
    c->suite->machine_roofs(c->machine, 0, &roofs);
    *ns = roofs.launch_ns;
    return CRUMB_OK;
}

/* ---- both reading -------------------------------------------------------------------------------------------- */

typedef struct reader {
    const crumb_kernel_suite *suite;
    crumb_kernel_machine *machine;
    double gb_s[MAX_ROUNDS];
    atomic_bool begun, done;
} reader;

static void read_on_gpu(void *arg) {
    reader *r = arg;
    for (int i = 0; i < MAX_ROUNDS; i++) {
        crumb_kernel_roofs roofs;
        r->suite->machine_roofs(r->machine, 0, &roofs);
        r->gb_s[i] = roofs.read_gb_s;
        atomic_store(&r->begun, true);
    }
    atomic_store(&r->done, true);
}

/* The processor's rate while a GPU reads, and the other way round. */
static crumb_status measure_together(crumb_probe *probe, const plan_bench *gpu, double *cpu_gb_s, double *gpu_gb_s,
                                     crumb_error *err) {
    reader r = {.suite = gpu->suite, .machine = gpu->machine};
    double values[256];
    size_t n = 0;
    crumb_thread *thread;
    CRUMB_TRY(crumb_thread_start(read_on_gpu, &r, &thread, err));
    while (!atomic_load(&r.begun)) crumb_thread_yield();
    while (!atomic_load(&r.done) && n < 256) values[n++] = crumb_probe_read(probe);
    crumb_thread_join(thread);
    *cpu_gb_s = cli_median(values, n);
    *gpu_gb_s = cli_median(r.gb_s, MAX_ROUNDS);
    return CRUMB_OK;
}

/* ---- the text ------------------------------------------------------------------------------------------------ */

static void add_figure(cJSON *object, const char *key, double value, const char *source) {
    cJSON *pair = cJSON_AddArrayToObject(object, key);
    cJSON_AddItemToArray(pair, json_real(value, 6));
    cJSON_AddItemToArray(pair, cJSON_CreateString(source));
}

static void add_kernels(cJSON *device, const speeds *s, double layer_launches) {
    cJSON *sets = cJSON_AddObjectToObject(device, "kernels"), *set = cJSON_AddObjectToObject(sets, "crumb");
    add_figure(set, "launch_us", s->launch_us, "measured");
    add_figure(set, "layer_launches", layer_launches, "crumb's plans of a Llama layer");
    add_figure(set, "head_launches", 3, "crumb's plans");
    cJSON *work = cJSON_AddObjectToObject(set, "work");
    for (int w = 0; w < CRUMB_WORK_COUNT; w++) {
        if (!(s->gops[w] > 0) || !(s->share[w] > 0)) continue;
        cJSON *o = cJSON_AddObjectToObject(work, crumb_work_name((crumb_work)w));
        add_figure(o, "gops", s->gops[w], "measured");
        add_figure(o, "share", s->share[w], "measured");
    }
}

/* ---- the processor --------------------------------------------------------------------------------------------- */

typedef struct machine_parts {
    crumb_probe *probe;
    double cpu_together_gb_s;
    int n_threads;
    cJSON *devices;
} machine_parts;

static crumb_status measure_cpu(machine_parts *m, size_t rounds, speeds *out, crumb_error *err) {
    plan_bench c = {.backend = &crumb_backend_cpu, .suite = &crumb_kernel_suite_cpu, .rounds = rounds, .many = MANY};
    double reads[MAX_ROUNDS], step_ns;
    const size_t n = rounds < MAX_ROUNDS ? rounds : MAX_ROUNDS;
    for (size_t i = 0; i < n; i++) reads[i] = crumb_probe_read(m->probe);
    CRUMB_TRY(cli_median_price(cli_sample_step, m->probe, n, &step_ns, err));
    CRUMB_TRY(c.suite->machine_create(&(crumb_kernel_machine_params){.n_threads = m->n_threads}, &c.machine, err));
    const crumb_status status = measure_kernels(&c, out, err);
    c.suite->machine_destroy(c.machine);
    out->read_gb_s = cli_median(reads, n);
    out->launch_us = out->exchange_us = step_ns * 1e-3;
    m->cpu_together_gb_s = out->read_gb_s;
    return status;
}

static cJSON *cpu_json(const machine_parts *m, const speeds *s) {
    cJSON *o = cJSON_CreateObject();
    json_add_text(o, "name", "cpu");
    json_add_text(o, "kind", "processor");
    char detail[96];
    snprintf(detail, sizeof detail, "%.90s", cli_cpu_name());
    json_add_text(o, "detail", detail);
    add_figure(o, "memory_gb", (double)crumb_memory_total_bytes() * 1e-9, "measured");
    add_figure(o, "read_gb_s", s->read_gb_s, "measured");
    add_figure(o, "together_gb_s", m->cpu_together_gb_s, "measured");
    add_figure(o, "exchange_us", s->exchange_us, "measured: a barrier of its threads");
    add_kernels(o, s, 8);
    return o;
}

/* ---- GPUs ------------------------------------------------------------------------------------------------------ */

static cJSON *gpu_json(const crumb_device_listing *l, const speeds *s, double together_gb_s, const plan_move *move) {
    const bool discrete = l->kind == CRUMB_DEVICE_DISCRETE;
    cJSON *o = cJSON_CreateObject();
    char detail[96];
    snprintf(detail, sizeof detail, "%.90s", l->detail);
    json_add_text(o, "name", l->name);
    json_add_text(o, "kind", discrete ? "discrete" : "integrated");
    json_add_text(o, "detail", detail);
    cJSON_AddBoolToObject(o, "by_name", !l->intel || l->kind == CRUMB_DEVICE_PROCESSOR);
    add_figure(o, "memory_gb", (double)l->memory_bytes * 1e-9, "the driver");
    add_figure(o, "read_gb_s", s->read_gb_s, "measured");
    add_figure(o, "together_gb_s", together_gb_s < s->read_gb_s ? together_gb_s : s->read_gb_s, "measured");
    if (move->gb_s > 0) {
        add_figure(o, "transfer_gb_s", move->gb_s, "measured: keys and values, out of one cache and into the other");
        add_figure(o, "transfer_us", move->us, "measured: likewise");
    }
    if (s->exchange_us > 0)
        add_figure(o, "exchange_us", s->exchange_us, "measured: plans of both that meet, beside plans that do not");
    else
        add_figure(o, "exchange_us", 2 * s->launch_us + (discrete ? 6 : 1),
                   "estimated: two launches and the way between; no memory that both see");
    add_kernels(o, s, 6);
    return o;
}

/* With the device's kernels at hand. */
static crumb_status measure_machine(machine_parts *m, const plan_bench *c, speeds *out, double *cpu_gb_s,
                                    double *gpu_gb_s, crumb_error *err) {
    double launch_ns;
    CRUMB_TRY(measure_kernels(c, out, err));
    if (!(out->read_gb_s > 0 && out->gops[CRUMB_WORK_U8] > 0))
        return crumb_fail(err, CRUMB_ERR_DEVICE, "its driver tells no times");
    CRUMB_TRY(cli_median_price(sample_launch, &(plan_bench){.suite = c->suite, .machine = c->machine}, c->rounds,
                               &launch_ns, err));
    out->launch_us = launch_ns * 1e-3;
    const crumb_status status = plan_measure_exchange(c, m->n_threads, &out->exchange_us, err);
    if (status != CRUMB_OK && status != CRUMB_ERR_UNSUPPORTED) return status;
    return measure_together(m->probe, c, cpu_gb_s, gpu_gb_s, err);
}

static crumb_status measure_gpu(machine_parts *m, const crumb_engine_device *device, size_t rounds, crumb_error *err) {
    const crumb_module *module;
    speeds s = {.read_gb_s = 0};
    double cpu_gb_s = 0, gpu_gb_s = 0;
    plan_move move;
    CRUMB_TRY(plan_measure_move(device->backend, device->listing.name, &move, err));
    CRUMB_TRY(crumb_engine_module_load(device->backend->name, &module, err));
    if (!module->suite) return crumb_fail(err, CRUMB_ERR_DEVICE, "the backend tells of no kernels");
    const bool software = device->listing.kind == CRUMB_DEVICE_PROCESSOR;
    plan_bench c = {.backend = device->backend,
                    .suite = module->suite,
                    .rounds = rounds,
                    .many = software ? MANY_IN_SOFTWARE : MANY};
    CRUMB_TRY(c.suite->machine_create(&(crumb_kernel_machine_params){.device = device->listing.name}, &c.machine, err));
    const crumb_status status = measure_machine(m, &c, &s, &cpu_gb_s, &gpu_gb_s, err);
    c.suite->machine_destroy(c.machine);
    if (status != CRUMB_OK) return status;
    if (cpu_gb_s > 0 && cpu_gb_s < m->cpu_together_gb_s) m->cpu_together_gb_s = cpu_gb_s;
    crumb_device_listing listing = device->listing;
    memcpy(listing.name, device->name, sizeof listing.name);
    cJSON_AddItemToArray(m->devices, gpu_json(&listing, &s, gpu_gb_s > 0 ? gpu_gb_s : s.read_gb_s, &move));
    return CRUMB_OK;
}

/* Whether an earlier listing of the same card, through another backend, stands for it. */
static bool is_measured(const crumb_engine_devices *all, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (!*all->device[i].listing.unusable && strcmp(all->device[i].name, all->device[index].name) == 0) return true;
    return false;
}

static void measure_gpus(machine_parts *m, const crumb_engine_devices *all, size_t rounds) {
    for (size_t i = 0; i < all->n && cJSON_GetArraySize(m->devices) < CRUMB_PROFILE_MAX_DEVICES - 1; i++) {
        const crumb_engine_device *d = &all->device[i];
        crumb_error err = {0};
        if (d->backend == &crumb_backend_cpu || *d->listing.unusable || is_measured(all, i)) continue;
        cli_progress_line(d->name);
        if (measure_gpu(m, d, rounds, &err) != CRUMB_OK)
            cli_note("%s is left out of the profile: %s", d->name, err.message);
        cli_progress_clear();
    }
}

/* ---- storing it ------------------------------------------------------------------------------------------------- */

static crumb_status write_profile(const machine_parts *m, const speeds *cpu, const char *key, const char *path,
                                  crumb_error *err) {
    cJSON *document = cJSON_CreateObject();
    char detail[120];
    snprintf(detail, sizeof detail, "%.80s, %d threads", cli_cpu_name(), m->n_threads);
    cJSON_AddNumberToObject(document, "schema_version", 1);
    json_add_text(document, "key", key);
    json_add_text(document, "name", "this");
    json_add_text(document, "detail", detail);
    cJSON *devices = cJSON_Duplicate(m->devices, true);
    cJSON_InsertItemInArray(devices, 0, cpu_json(m, cpu));
    cJSON_AddItemToObject(document, "devices", devices);
    char *text = cJSON_Print(document);
    cJSON_Delete(document);
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for the profile");
    const crumb_status status = crumb_cache_write(path, text, strlen(text), err);
    cJSON_free(text);
    return status;
}

static crumb_status measure_all(machine_parts *m, size_t rounds, const char *path, crumb_error *err) {
    static crumb_engine_devices all;
    speeds cpu = {.read_gb_s = 0};
    char key[CRUMB_ENGINE_KEY_BYTES];
    CRUMB_TRY(crumb_probe_add_memory(m->probe, err));
    crumb_engine_devices_find(&all);
    crumb_engine_profile_key(&all, key);
    CRUMB_TRY(measure_cpu(m, rounds, &cpu, err));
    measure_gpus(m, &all, rounds);
    return write_profile(m, &cpu, key, path, err);
}

crumb_status plan_measure(int n_threads, size_t rounds, char *path, size_t size, crumb_error *err) {
    machine_parts m = {.devices = cJSON_CreateArray()};
    crumb_status status = CRUMB_OK;
    if (!crumb_engine_profile_path(path, size))
        status = crumb_fail(err, CRUMB_ERR_IO, "neither XDG_CACHE_HOME nor HOME is set");
    if (status == CRUMB_OK) status = crumb_probe_create(n_threads, NULL, &m.probe, err);
    if (status == CRUMB_OK) {
        m.n_threads = crumb_pool_threads(crumb_probe_pool(m.probe));
        status = measure_all(&m, rounds, path, err);
    }
    crumb_probe_destroy(m.probe);
    cJSON_Delete(m.devices);
    return status;
}
