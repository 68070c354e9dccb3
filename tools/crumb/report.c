/* crumb devices --report: one text file by which an owner of a card tells what it is, whether crumb's kernels are right
 * on it, and how fast they are. */
#include "host/base/thread.h"
#include "host/engine/devices.h"
#include "host/kernel/tuning.h"
#include "tools/crumb/kernels_turns.h"
#include "tools/crumb/tune.h"

#include "cpu/kernels.h"
#include "host/base/memory.h"
#include "scheduler/topology.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

enum { LINE_BYTES = 2048, SEED = 1, REPORT_ROUNDS = 15 };

typedef struct report {
    FILE *file;
    cli_options options; /* with --device of the GPU that is looked at */
    char progress[96];
    size_t n_done, n_steps; /* of that GPU */
    uint64_t budget_ns;     /* for tuning each GPU */
    size_t n_devices, n_failed;
} report;

/* ---- writing ----------------------------------------------------------------------------------------------- */

static bool begins_path(const char *text, const char *at) {
    const bool alone = at == text || strchr(" '\"(=:<", at[-1]);
    return *at == '/' && alone && at[1] && strcspn(at + 1, " ") > 0 && at[1] != ' ';
}

/* What a driver or a compiler says may name files of the user's: they are left out. */
static void put(report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(report *r, const char *format, ...) {
    char text[LINE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (const char *p = text; *p;) {
        if (begins_path(text, p)) {
            fputs("(path)", r->file);
            p += strcspn(p, " '\"):>\n");
        } else {
            fputc(*p++, r->file);
        }
    }
}

static void put_line(void *user, const char *text) {
    put(user, "  %s\n", text);
}

static bool step(report *r, const char *what) {
    snprintf(r->progress, sizeof r->progress, "%s, %.60s", r->options.device, what);
    cli_progress(r->progress, r->n_steps ? (float)r->n_done++ / (float)r->n_steps : 0);
    return !cli_interrupted(NULL);
}

/* ---- the machine ------------------------------------------------------------------------------------------- */

static const char contents[] =
    "This file says: versions of crumb, of the kernel and of the drivers; the processor's name; for each GPU what its\n"
    "driver tells of it, what it reaches at best, whether crumb's kernels compute what they should, how fast they "
    "are,\n"
    "and which of their settings 'crumb tune' has found to be fastest. It holds no user name, no host name, no path, "
    "nothing of the environment and\n"
    "nothing of any model. Please read it before you send it: it is plain text.\n";

static void put_machine(report *r) {
    struct utsname system;
    crumb_topology topology;
    char cores[64];
    crumb_topology_read(&topology);
    crumb_topology_describe(&topology, cores, sizeof cores);
    put(r, "crumb report 1\n\n%s\n== versions\n  crumb: %s\n", contents, crumb_version());
    if (uname(&system) == 0) put(r, "  kernel: %s %s, %s\n", system.sysname, system.release, system.machine);
    put(r, "\n== cpu\n  %s, %s, %s, memory %.1f GB\n", cli_cpu_name(), cores, crumb_isa_name(crumb_isa_best()),
        (double)crumb_memory_total_bytes() * 1e-9);
}

static void put_listing(report *r, const crumb_engine_device *d) {
    const crumb_device_listing *l = &d->listing;
    put(r, "\n== %s, %s\n  %s, driver %s, %u %s, memory %.1f GB\n  features: %s\n", d->name, d->backend_name, l->detail,
        l->driver, l->n_units, l->units, (double)l->memory_bytes * 1e-9, l->features);
    if (*l->unusable) put(r, "  unusable: %s\n", l->unusable);
    if (*l->target) put(r, "  kernels: %s: %s\n", l->target, l->reason);
    if (*d->lowered.target) put(r, "  lowered to %s by an earlier run: %s\n", d->lowered.target, d->lowered.why);
    if (*l->advice) put(r, "  advice: %s\n", l->advice);
}

/* ---- what it reaches, and kernels --------------------------------------------------------------------------- */

static bool is_first_of_rung(const kernels_choice *c, size_t kernel) {
    const crumb_kernel_info info = kernels_info(c, kernel);
    for (size_t i = 0; i < kernel; i++) {
        const crumb_kernel_info before = kernels_info(c, i);
        if (before.bits && strcmp(before.target, info.target) == 0) return false;
    }
    return info.available && info.bits;
}

/* The roofs of every rung, by its first kernel. */
static void put_roofs(report *r, const kernels_choice *c) {
    put(r, "\n-- %s: at best\n", r->options.device);
    for (size_t i = 0; i < c->suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        crumb_kernel_roofs roofs;
        if (!is_first_of_rung(c, i)) continue;
        if (!step(r, "limits")) return;
        c->suite->machine_roofs(c->machine, i, &roofs); /* the first one builds the probe, and wakes the device */
        c->suite->machine_roofs(c->machine, i, &roofs);
        put(r, "  %-9s read %.1f GB/s, int8 %.0f GOPS, a launch %.2f us%s\n", info.target, roofs.read_gb_s,
            roofs.peak_gops, roofs.launch_ns / 1000, roofs.read_gb_s > 0 ? "" : " (0: the driver tells no times)");
    }
}

static crumb_status put_tests(report *r, const kernels_choice *c, crumb_error *err) {
    size_t n_run = 0, n_failed = 0, n_skipped = 0;
    put(r, "\n-- %s: kernels against the scalar reference, seed %d\n", r->options.device, SEED);
    for (size_t i = 0; i < c->suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        char failure[KERNELS_FAILURE_BYTES];
        uint64_t n_values;
        if (!kernels_selected(c, &info) || !kernels_can_test(&info)) continue;
        if (!step(r, info.name)) return CRUMB_OK;
        n_skipped += !info.available;
        if (!info.available) continue;
        put(r, "  %-28s ", info.name);
        fflush(r->file); /* a driver may end this process */
        CRUMB_TRY(kernels_test_one(c, i, SEED, &n_values, failure, err));
        if (n_values == 0) {
            put(r, "takes none of the problems\n");
            continue;
        }
        n_run++;
        n_failed += *failure != 0;
        put(r, "%s %llu values\n", *failure ? "FAILED" : "ok", (unsigned long long)n_values);
        if (*failure) put(r, "    %s\n", failure);
    }
    put(r, "  %zu compared, %zu failed, %zu need what the device does not have\n", n_run, n_failed, n_skipped);
    r->n_failed += n_failed;
    return CRUMB_OK;
}

static void put_series(report *r, const kernels_turns *t) {
    for (size_t i = 0; i < t->n_series; i++) {
        const double ns = kernels_turns_median(t, i, TURNS_NS);
        put(r, "  %-28s %10.1f us %8.2f GB/s %5.1f %% of read %9.1f GOPS %5.1f %% of int8\n", t->series[i].info.name,
            ns / 1000, (double)kernels_turns_bytes(t, i) / ns, 100 * kernels_turns_median(t, i, TURNS_READ_SHARE),
            kernels_turns_gops(t, i), 100 * kernels_turns_median(t, i, TURNS_PEAK_SHARE));
    }
}

static crumb_status time_problem(report *r, const kernels_choice *c, const crumb_kernel_problem *p, crumb_error *err) {
    enum { FEW_ROWS = 16 };
    kernels_turns turns;
    crumb_status status = kernels_turns_create(c, p, REPORT_ROUNDS, p->n <= FEW_ROWS, &turns, err);
    for (size_t i = 0; i < c->suite->n_kernels() && status == CRUMB_OK; i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        if (kernels_timed(c, &info) && info.max_n >= p->n && kernels_takes(c, i, p))
            status = kernels_turns_add(&turns, i, "", err);
    }
    if (status == CRUMB_OK) status = kernels_turns_run(&turns, err);
    if (status == CRUMB_OK && turns.n_series && !cli_interrupted(NULL)) {
        put(r, "  %s bits, group %u, %u x %u, %u rows\n", p->format->name, p->group, p->m, p->k, p->n);
        put_series(r, &turns);
    }
    kernels_turns_destroy(&turns);
    return status;
}

typedef struct report_weights {
    const char *format;
    uint32_t group;
} report_weights;

enum { MAX_PROBLEMS = 4 * CLI_LIST_MAX };

/* Of those weights, with those shapes or the ones that options name: what options do not leave out. */
static size_t list_problems(const kernels_choice *c, const report_weights *weights, size_t n_weights,
                            const kernels_shape *shapes, size_t n_shapes, crumb_kernel_problem out[MAX_PROBLEMS]) {
    const crumb_kernel_info any = {.acts = 0};
    const bool named = c->options->kernel_shapes.n > 0;
    size_t n = 0;
    for (size_t w = 0; w < n_weights; w++) {
        const crumb_kernel_format *format = crumb_kernel_format_find(weights[w].format);
        bool wanted = c->options->kernel_bits.n == 0;
        for (size_t f = 0; f < c->n_formats; f++) wanted = wanted || c->formats[f] == format;
        for (size_t s = 0; wanted && s < (named ? c->n_shapes : n_shapes) && n < MAX_PROBLEMS; s++) {
            out[n] = kernels_problem(c, &any, format, weights[w].group, named ? c->shapes[s] : shapes[s]);
            n += !out[n].group || out[n].k % out[n].group == 0;
        }
    }
    return n;
}

/* A layer that the device cannot time is a finding, and the others may still be timed. */
static crumb_status put_speeds(report *r, const kernels_choice *c, crumb_error *err) {
    static const kernels_shape shapes[] = {{8192, 2048, 1}, {2048, 8192, 1}, {8192, 2048, 512}};
    static const report_weights weights[] = {{"1", 0}, {"1.58", 0}, {"4", 32}, {"4", 128}};
    crumb_kernel_problem problems[MAX_PROBLEMS];
    const size_t n =
        list_problems(c, weights, sizeof weights / sizeof *weights, shapes, sizeof shapes / sizeof *shapes, problems);
    put(r, "\n-- %s: speeds, few rows with weights from memory\n", r->options.device);
    for (size_t i = 0; i < n; i++) {
        const crumb_kernel_problem *p = &problems[i];
        if (!step(r, "speeds")) return CRUMB_OK;
        crumb_status status = time_problem(r, c, p, err);
        if (status == CRUMB_ERR_DEVICE)
            put(r, "  %s bits, %u x %u, %u rows: not timed: %s\n", p->format->name, p->m, p->k, p->n, err->message);
        else
            CRUMB_TRY(status);
    }
    return CRUMB_OK;
}

static void put_time(void *user, const kernels_plans_time *t) {
    put(user, "  %-28s %-32s %10.1f us %8.2f GB/s %9.1f GFLOPS\n", t->info.name, t->problem, t->ns / 1000, t->gb_s,
        t->gflops);
}

/* Each kernel by itself: one that fails says so, and does not keep the others from being timed. */
static crumb_status put_ops(report *r, const kernels_choice *c, crumb_error *err) {
    put(r, "\n-- %s: speeds of other ops\n", r->options.device);
    for (size_t i = 0; i < c->suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        if (!info.in_plans || !kernels_timed(c, &info)) continue;
        if (!step(r, info.name)) return CRUMB_OK;
        const crumb_status status = kernels_plans_perf(c, i, put_time, r, err);
        if (status == CRUMB_ERR_DEVICE)
            put(r, "  %s: not timed: %s\n", info.name, err->message);
        else
            CRUMB_TRY(status);
    }
    return CRUMB_OK;
}

/* ---- tuning -------------------------------------------------------------------------------------------------- */

/* Ternary weights and 4 bits, one row and many: what of `crumb tune` there is time for, each with its part of what is
 * left. It is kept as if that had been run. That a layer cannot be tuned is a finding. */
static crumb_status tune_some(report *r, const kernels_choice *c, crumb_tuning *db, crumb_error *err) {
    static const kernels_shape shapes[] = {{8192, 2048, 1}, {8192, 2048, 512}};
    static const report_weights weights[] = {{"1.58", 0}, {"4", 32}};
    crumb_kernel_problem problems[MAX_PROBLEMS];
    const size_t n =
        list_problems(c, weights, sizeof weights / sizeof *weights, shapes, sizeof shapes / sizeof *shapes, problems);
    const uint64_t deadline = crumb_now_ns() + r->budget_ns;
    for (size_t i = 0; i < n && !cli_interrupted(NULL); i++) {
        const crumb_kernel_problem *p = &problems[i];
        const uint64_t now = crumb_now_ns(), left = deadline > now ? deadline - now : 0;
        tune_outcome o;
        const crumb_status status = tune_search(c, p, db, now + left / (n - i), &o, err);
        if (status != CRUMB_OK && status != CRUMB_ERR_DEVICE) return status;
        put(r, "  %s bits, group %u, %u x %u, %u rows: ", p->format->name, p->group, p->m, p->k, p->n);
        if (status != CRUMB_OK)
            put(r, "not tuned: %s\n", err->message);
        else
            put(r, "%zu candidates, %zu measured, %zu wrong\n", o.n_candidates, o.n_measured, o.n_wrong);
    }
    return CRUMB_OK;
}

static crumb_status put_tuning(report *r, const kernels_choice *c, crumb_error *err) {
    crumb_tuning *db;
    if (r->budget_ns == 0) return CRUMB_OK;
    put(r, "\n-- %s: tuning for %.0f s\n", r->options.device, (double)r->budget_ns * 1e-9);
    if (tune_open_database(c->options, true, &db, err) != CRUMB_OK) {
        put(r, "  not tuned: %s\n", err->message);
        return CRUMB_OK;
    }
    const crumb_status status = tune_some(r, c, db, err);
    crumb_tuning_close(db);
    return status;
}

/* ---- what was tuned ------------------------------------------------------------------------------------------ */

typedef struct tuned {
    report *r;
    crumb_tuning_key last;
    size_t n;
} tuned;

static bool put_record(void *user, const crumb_tuning_record *record) {
    tuned *t = user;
    const bool first = memcmp(&t->last, &record->key, sizeof record->key) != 0; /* the best of its key */
    t->last = record->key;
    if (!first) return true;
    t->n++;
    put(t->r, "  %s %u x %u x %u, group %u: %s %s: %.3f of the default's time, %.1f us%s\n", record->key.weights,
        record->key.m, record->key.k, record->key.n, record->key.group, record->kernel,
        *record->knobs ? record->knobs : "(default)", record->ratio, record->ns / 1000,
        crumb_tuning_is_trusted(record) ? "" : ", not confirmed");
    return true;
}

static void put_tuned(report *r, const kernels_choice *c) {
    char standard[TUNE_PATH_BYTES], note[256];
    crumb_tuning *db;
    crumb_tuning_key like = {.act = UINT32_MAX};
    tuned t = {.r = r};
    const char *path = tune_database_path(&r->options, standard);
    put(r, "\n-- %s: tuned\n", r->options.device);
    if (!path) return;
    c->suite->identify(c->machine, like.device, like.target, like.source);
    if (crumb_tuning_open(path, false, &db, note, NULL) == CRUMB_OK) {
        crumb_tuning_each(db, &like, put_record, &t, NULL);
        crumb_tuning_close(db);
    }
    if (t.n == 0) put(r, "  nothing yet: crumb tune --device %s\n", r->options.device);
}

/* ---- a device, and all ---------------------------------------------------------------------------------------- */

/* Failures of the device are part of the report. */
static crumb_status look_at(report *r, const kernels_choice *c, crumb_error *err) {
    r->n_done = 0;
    r->n_steps = 16;
    for (size_t i = 0; i < c->suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        r->n_steps += (kernels_selected(c, &info) && kernels_can_test(&info)) + info.in_plans;
    }
    if (c->suite->describe) c->suite->describe(c->machine, put_line, r);
    put_roofs(r, c);
    crumb_status status = put_tests(r, c, err);
    if (status == CRUMB_OK) status = put_speeds(r, c, err);
    if (status == CRUMB_OK) status = put_ops(r, c, err);
    if (status == CRUMB_OK) status = put_tuning(r, c, err);
    put_tuned(r, c);
    return status;
}

static void report_device(report *r, const crumb_engine_device *d) {
    kernels_choice c;
    crumb_error err = {0};
    put_listing(r, d);
    r->options.device = d->name;
    r->options.backend = d->backend->name;
    crumb_status status = kernels_choose_tests(&r->options, &c, &err);
    if (status == CRUMB_OK) {
        r->n_devices++;
        status = look_at(r, &c, &err);
    }
    if (status != CRUMB_OK) put(r, "  %s\n", err.message);
    kernels_release(&c);
    cli_progress_clear();
}

static void report_all(report *r) {
    static crumb_engine_devices all;
    crumb_engine_devices_find(&all);
    put_machine(r);
    for (size_t i = 0; i < all.n && !cli_interrupted(NULL); i++)
        if (strncmp(all.device[i].name, "gpu", 3) == 0) report_device(r, &all.device[i]);
    if (*all.note) put(r, "\nno GPU: %s\n", all.note);
    put(r, "\n%s\n", cli_interrupted(NULL) ? "interrupted: not whole" : "end");
}

int cli_report(const cli_options *options) {
    static report r;
    crumb_error err = {0};
    uint64_t budget_ns = 0;
    if (strcmp(options->budget, "0") != 0 && tune_parse_budget(options->budget, &budget_ns, &err) != CRUMB_OK)
        return cli_fail(&err);
    r = (report){.options = *options, .budget_ns = budget_ns, .file = fopen(options->report, "w")};
    if (!r.file) return cli_error("%s cannot be written", options->report), CLI_EXIT_FAILURE;
    setvbuf(r.file, NULL, _IOLBF, 0); /* what a driver's crash leaves is the report of it */
    r.options.backend = r.options.activation = "auto";
    r.options.fraction = 1;
    cli_catch_interrupt();
    cli_note("writing %s: devices, drivers, tests, speeds and tuning of kernels; minutes on a GPU", options->report);
    report_all(&r);
    bool written = !ferror(r.file);
    written = fclose(r.file) == 0 && written;
    if (!written) return cli_error("%s could not be written", options->report), CLI_EXIT_FAILURE;
    cli_print("%s: %zu GPUs looked at, %zu kernels wrong. It is plain text without names or paths: read it, then send "
              "it.\n",
              options->report, r.n_devices, r.n_failed);
    return cli_interrupted(NULL) ? CLI_EXIT_INTERRUPTED : CLI_EXIT_OK;
}
