/* The balance of cores on this machine, made unequal: bench_balance [REPLAYS [KIND]]
 *
 *     alike      nothing is done to the cores
 *     repeated   worker 1 does its work three times, as a core of a third of the speed would take
 *     neighbour  another program's thread spins on worker 1's core
 *
 * KIND is one of them, all without it. For each: how parts and finish times of the two first workers go from op to op,
 * and then equal parts, the split, chunks and the measured choice in turns. Run by hand on a machine that does nothing
 * else; nothing here is asserted, since a machine's other work is not ours (tests/scheduler/test_balance.c asserts the
 * same on a virtual clock). */
#include "cpu/plan.h"
#include "host/base/thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 2048, FF = 4096, LAYERS = 16, OPS = 2 * LAYERS, MAX_ROWS = 64 };
enum { EQUAL, SPLIT, CHUNKS, CHOSEN, WAYS };

static const crumb_backend *const backend = &crumb_backend_cpu;
static crumb_error err;

static void check(crumb_status status) {
    if (status == CRUMB_OK) return;
    fprintf(stderr, "%s\n", err.message);
    exit(1);
}

/* ---- a plan whose kernels tell what they took ---------------------------------------------------------------- */

typedef struct sample {
    uint32_t n_tiles, ns; /* of all that a worker did of an op */
} sample;

static const crumb_plan *running; /* the plan that is replayed */
static int repetitions = 1;       /* of worker 1's work */
static const crumb_cpu_kernel *inner[2];
static sample samples[2][OPS]; /* of the first workers, in the replay under way */
static crumb_matrix matrices[OPS];
static crumb_op ops[OPS + 1];

static void run_watched(const crumb_linear_args *args) {
    const ptrdiff_t offset = (char *)args->scratch - crumb_plan_thread(running, 0);
    const int worker = (int)((size_t)offset / running->thread_bytes);
    const uint64_t began = crumb_now_ns();
    for (int i = worker == 1 ? repetitions : 1; i > 0; i--) inner[args->n > CRUMB_SMALL_N]->run(args);
    if (worker > 1) return;
    sample *to = &samples[worker][args->w - matrices];
    to->n_tiles += args->tile1 - args->tile0;
    to->ns += (uint32_t)(crumb_now_ns() - began);
}

static void watch(crumb_plan *p) {
    static crumb_cpu_kernel watched[2];
    for (size_t i = 0; i < p->n_steps; i++) {
        if (p->steps[i].kind != &crumb_step_linear) continue;
        const crumb_cpu_kernel **kernel = p->steps[i].linear.parts[0].kernel;
        for (int n = 0; n <= CRUMB_SMALL_N; n++) {
            const int many = n == 0;
            if (n > 1) continue; /* plans of one row, and of many */
            inner[many] = kernel[n];
            watched[many] = *kernel[n];
            watched[many].run = run_watched;
        }
    }
    for (size_t i = 0; i < p->n_steps; i++)
        if (p->steps[i].kind == &crumb_step_linear) {
            p->steps[i].linear.parts[0].kernel[0] = &watched[1];
            p->steps[i].linear.parts[0].kernel[1] = &watched[0];
        }
}

static void make_ops(crumb_device *device) {
    ops[0].kind = CRUMB_OP_INPUT;
    for (int i = 0; i < OPS; i++) {
        const uint32_t m = i % 2 ? HIDDEN : FF, k = i % 2 ? FF : HIDDEN;
        crumb_matrix_layout layout;
        crumb_buffer *buffer;
        void *host;
        check(crumb_matrix_plan(CRUMB_TYPE_Q4_1, m, k, &matrices[i], &layout, &err));
        check(backend->device.buffer_create(device, layout.total_bytes, "weights", &buffer, &host, &err));
        memset(host, 0x11, layout.total_bytes);
        crumb_matrix_bind(&matrices[i], &layout, host);
        ops[i + 1].kind = CRUMB_OP_LINEAR;
        ops[i + 1].linear.x = (crumb_value)(i % 2);
        ops[i + 1].linear.add = CRUMB_NO_VALUE;
        ops[i + 1].linear.act = CRUMB_ACT_GROUP;
        ops[i + 1].linear.act_group = 32;
        ops[i + 1].linear.n_parts = 1;
        ops[i + 1].linear.part[0] =
            (crumb_linear_part){.w = &matrices[i], .m1 = m, .out = (crumb_value)((i + 1) % 2), .out_scale = 1};
    }
}

static crumb_plan *record(crumb_device *device, int way, uint32_t n_rows) {
    static const crumb_way_wanted wanted[WAYS] = {CRUMB_WAY_ONLY_SPLIT, CRUMB_WAY_ONLY_SPLIT, CRUMB_WAY_ONLY_CHUNKS,
                                                  CRUMB_WAY_MEASURED};
    const crumb_value_info values[] = {{.width = HIDDEN, .slot = 0}, {.width = FF, .slot = 1}};
    const crumb_plan_desc desc = {.ops = ops, .n_ops = OPS + 1, .values = values, .n_values = 2, .max_rows = n_rows};
    crumb_plan *plan;
    device->way = wanted[way];
    check(backend->plan.record(device, &desc, &plan, &err));
    watch(plan);
    return plan;
}

static double replay_us(crumb_plan *plan, uint32_t n_rows) {
    static float x[MAX_ROWS * HIDDEN];
    static crumb_row rows[MAX_ROWS];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)(i % 17) - 8;
    check(backend->plan.write(plan, 0, x, n_rows, &err));
    running = plan;
    const uint64_t began = crumb_now_ns();
    check(backend->plan.replay(plan, rows, n_rows, &err));
    return (double)(crumb_now_ns() - began) * 1e-3;
}

/* ---- what is shown ------------------------------------------------------------------------------------------- */

/* From equal parts on: the first replay op by op, and one op of later ones. */
static void print_convergence(crumb_plan *plan, uint32_t n_rows) {
    static const int shown[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 63, 95, 159, 319};
    int replays = 0;
    printf("    op   worker 1's part   worker 0   worker 1   us\n");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        for (; replays <= shown[i] / OPS; replays++) {
            memset(samples, 0, sizeof samples);
            replay_us(plan, n_rows);
        }
        const sample *a = &samples[0][shown[i] % OPS], *b = &samples[1][shown[i] % OPS];
        printf("   %3d   %13.1f%%   %8.1f   %8.1f\n", shown[i], 100.0 * b->n_tiles / (a->n_tiles + b->n_tiles),
               a->ns * 1e-3, b->ns * 1e-3);
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void compare(crumb_device *devices[WAYS], uint32_t n_rows, size_t n_replays) {
    static const char *const names[WAYS] = {"equal parts", "split", "chunks", "chosen"};
    crumb_plan *plans[WAYS];
    double *times[WAYS], mean[WAYS] = {0};
    for (int w = 0; w < WAYS; w++) plans[w] = record(devices[w], w, n_rows);
    printf("  %u row%s\n", n_rows, n_rows == 1 ? "" : "s");
    print_convergence(plans[SPLIT], n_rows);
    for (int w = 0; w < WAYS; w++) {
        times[w] = calloc(n_replays, sizeof *times[w]);
        if (!times[w]) exit(1);
        for (int i = 0; i < 5; i++) replay_us(plans[w], n_rows);
    }
    for (size_t i = 0; i < n_replays; i++)
        for (int w = 0; w < WAYS; w++) mean[w] += times[w][i] = replay_us(plans[w], n_rows);
    for (int w = 0; w < WAYS; w++) {
        qsort(times[w], n_replays, sizeof *times[w], by_size);
        printf("    %-12s median %9.1f us, mean %9.1f us a replay; %.3f of equal parts' mean\n", names[w],
               times[w][n_replays / 2], mean[w] / (double)n_replays, mean[w] / mean[EQUAL]);
        free(times[w]);
        backend->plan.destroy(plans[w]);
    }
}

/* What each core takes for its part, in noise of 1%; restless: for three ops running some take twice as long, and then
 * the others. */
static void invent_ticks(uint32_t *state, int n, int op, bool restless, const uint32_t *units, uint32_t *ticks) {
    for (int c = 0; c < n; c++) {
        *state = *state * 1664525u + 1013904223u;
        const uint32_t per_unit = 1000 + (*state >> 16) % 20 + (restless && (op / 3 + c) % 2 ? 1000 : 0);
        ticks[c] = units[c] * per_unit;
    }
}

/* What a decoded token of 32 layers with 4 linear ops each costs in decisions, as cpu/divide.c makes them: each op
 * learns, and is divided anew if the ratios have changed since the last token. */
static double decide_ticks(int n, bool restless) {
    enum { TOKENS = 2000, OPS_OF_TOKEN = 4 * 32 };
    static uint32_t bounds[OPS_OF_TOKEN][CRUMB_BALANCE_MAX_CORES + 1], versions[OPS_OF_TOKEN];
    uint32_t units[CRUMB_BALANCE_MAX_CORES], ticks[CRUMB_BALANCE_MAX_CORES], state = 1;
    uint64_t sum = 0;
    crumb_balance b;
    crumb_balance_init(&b, n);
    memset(versions, 0, sizeof versions);
    for (int t = 0; t < TOKENS; t++)
        for (int op = 0; op < OPS_OF_TOKEN; op++) {
            for (int c = 0; c < n; c++) units[c] = bounds[op][c + 1] - bounds[op][c];
            invent_ticks(&state, n, op, restless, units, ticks);
            const uint64_t began = crumb_ticks();
            if (versions[op] != b.version) crumb_balance_split(&b, n, 256, bounds[op]);
            versions[op] = b.version;
            crumb_balance_learn(&b, n, units, ticks);
            sum += crumb_ticks() - began;
        }
    return (double)sum / TOKENS;
}

static void print_overhead(void) {
    const int n_cores[] = {2, 12, 24};
    const uint64_t began_ns = crumb_now_ns(), began = crumb_ticks();
    double ticks[3][2];
    for (int i = 0; i < 3; i++)
        for (int restless = 0; restless < 2; restless++) ticks[i][restless] = decide_ticks(n_cores[i], restless);
    const double us = 1e-3 * (double)(crumb_now_ns() - began_ns) / (double)(crumb_ticks() - began);
    for (int i = 0; i < 3; i++)
        printf("%2d cores: deciding takes %.1f us of a token of 32 layers, %.1f us while cores change\n", n_cores[i],
               ticks[i][0] * us, ticks[i][1] * us);
}

static _Atomic bool neighbour_stays;
static int neighbour_cpu;

static void be_neighbour(void *arg) {
    (void)arg;
    crumb_thread_pin_self(neighbour_cpu);
    while (atomic_load(&neighbour_stays)) continue;
}

int main(int argc, char **argv) {
    const size_t n_replays = argc > 1 ? (size_t)atoi(argv[1]) : 100;
    crumb_device_params params = {.n_threads = 0};
    crumb_device *device, *devices[WAYS];
    check(backend->device.open(&params, &device, &err));
    const int n_threads = crumb_pool_threads(device->pool);
    if (n_threads < 2 || crumb_pool_cpu(device->pool, 1) < 0) {
        printf("one core, or cores that threads cannot be pinned to: nothing to balance\n");
        return 0;
    }
    print_overhead();
    make_ops(device);
    for (int w = 0; w < WAYS; w++) { /* one pool, and ratios of their own */
        static crumb_device copies[WAYS];
        devices[w] = &copies[w];
        *devices[w] = *device;
    }
    for (int c = 0; c < CRUMB_BALANCE_CLASSES; c++)
        for (int p = 0; p < CRUMB_BALANCE_PHASES; p++) {
            crumb_balance_init(&devices[EQUAL]->balances[c][p], n_threads);
            devices[EQUAL]->balances[c][p].fixed = true;
        }
    static const char *const kinds[] = {"alike", "repeated", "neighbour"};
    for (int kind = 0; kind < 3; kind++) {
        crumb_thread *neighbour = NULL;
        if (argc > 2 && strcmp(argv[2], kinds[kind]) != 0) continue;
        printf("%s\n", kinds[kind]);
        for (int w = 0; w < WAYS; w++)
            if (w != EQUAL) memset(devices[w]->balances, 0, sizeof devices[w]->balances);
        repetitions = kind == 1 ? 3 : 1;
        neighbour_cpu = crumb_pool_cpu(device->pool, 1);
        atomic_store(&neighbour_stays, true);
        if (kind == 2) check(crumb_thread_start(be_neighbour, NULL, &neighbour, &err));
        compare(devices, 1, n_replays);
        compare(devices, MAX_ROWS, n_replays / 4 + 1);
        atomic_store(&neighbour_stays, false);
        crumb_thread_join(neighbour);
    }
    return 0;
}
