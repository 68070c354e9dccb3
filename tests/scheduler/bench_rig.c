#include "tests/scheduler/bench_rig.h"

#include "host/base/thread.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 2048, FF = 4096 };

static const crumb_backend *const backend = &crumb_backend_cpu;
static crumb_error err;

static void check(crumb_status status) {
    if (status == CRUMB_OK) return;
    fprintf(stderr, "%s\n", err.message);
    exit(1);
}

/* ---- a plan whose kernels tell what they took ---------------------------------------------------------------- */

rig_sample rig_samples[CRUMB_BALANCE_MAX_CORES][RIG_OPS];
static const crumb_plan *running; /* the plan that is replayed */
static _Atomic int repetitions = 1;
static const crumb_cpu_kernel *inner[2];
static crumb_matrix matrices[RIG_OPS];
static crumb_buffer *buffers[RIG_OPS];
static crumb_op ops[RIG_OPS + 1];
static crumb_device *device, devices[RIG_WAYS]; /* one pool, and ratios of each way */

static _Atomic int event_op = -1;
static void (*event)(int argument);
static int event_argument;

void rig_at(int op, void (*fn)(int argument), int argument) {
    event = fn;
    event_argument = argument;
    atomic_store(&event_op, op);
}

static void run_watched(const crumb_linear_args *args) {
    const ptrdiff_t offset = (char *)args->scratch - crumb_plan_thread(running, 0);
    const int worker = (int)((size_t)offset / running->thread_bytes);
    int op = (int)(args->w - matrices);
    rig_sample *to = &rig_samples[worker][op];
    if (atomic_load(&event_op) == op && atomic_compare_exchange_strong(&event_op, &op, -1)) event(event_argument);
    const uint64_t began = crumb_now_ns();
    for (int i = worker == RIG_VICTIM ? atomic_load(&repetitions) : 1; i > 0; i--)
        inner[args->n > CRUMB_SMALL_N]->run(args);
    const uint64_t ended = crumb_now_ns();
    if (to->n_tiles == 0) to->began = began;
    to->ended = ended;
    to->n_tiles += args->tile1 - args->tile0;
    to->ns += (uint32_t)(ended - began);
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

static void make_ops(void) {
    ops[0].kind = CRUMB_OP_INPUT;
    for (int i = 0; i < RIG_OPS; i++) {
        const uint32_t m = i % 2 ? HIDDEN : FF, k = i % 2 ? FF : HIDDEN;
        crumb_matrix_layout layout;
        void *host;
        check(crumb_matrix_plan(CRUMB_TYPE_Q4_1, m, k, &matrices[i], &layout, &err));
        check(backend->device.buffer_create(device, layout.total_bytes, "weights", &buffers[i], &host, &err));
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

crumb_plan *rig_record(int way, uint32_t n_rows) {
    static const crumb_way_wanted wanted[RIG_WAYS] = {CRUMB_WAY_ONLY_SPLIT, CRUMB_WAY_ONLY_SPLIT, CRUMB_WAY_ONLY_CHUNKS,
                                                      CRUMB_WAY_MEASURED};
    const crumb_value_info values[] = {{.width = HIDDEN, .slot = 0}, {.width = FF, .slot = 1}};
    const crumb_plan_desc desc = {
        .ops = ops, .n_ops = RIG_OPS + 1, .values = values, .n_values = 2, .max_rows = n_rows};
    crumb_plan *plan;
    devices[way].way = wanted[way];
    check(backend->plan.record(&devices[way], &desc, &plan, &err));
    watch(plan);
    return plan;
}

void rig_destroy(crumb_plan *plan) {
    backend->plan.destroy(plan);
}

double rig_replay_us(crumb_plan *plan, uint32_t n_rows) {
    static float x[RIG_MANY * HIDDEN];
    static crumb_row rows[RIG_MANY];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)(i % 17) - 8;
    check(backend->plan.write(plan, 0, x, n_rows, &err));
    memset(rig_samples, 0, sizeof rig_samples);
    running = plan;
    const uint64_t began = crumb_now_ns();
    check(backend->plan.replay(plan, rows, n_rows, &err));
    return (double)(crumb_now_ns() - began) * 1e-3;
}

/* ---- cores that are not alike -------------------------------------------------------------------------------- */

enum { AWAY, THERE, GONE };
static uint32_t neighbour_is; /* what its thread sleeps on */
static crumb_thread *neighbour;

static void be_neighbour(void *arg) {
    (void)arg;
    crumb_thread_pin_self(crumb_pool_cpu(device->pool, RIG_VICTIM));
    for (uint32_t is; (is = __atomic_load_n(&neighbour_is, __ATOMIC_ACQUIRE)) != GONE;)
        if (is == AWAY) crumb_wait_u32(&neighbour_is, AWAY);
}

static void tell_neighbour(uint32_t what) {
    __atomic_store_n(&neighbour_is, what, __ATOMIC_RELEASE);
    crumb_wake_all_u32(&neighbour_is);
}

void rig_set_neighbour(bool there) {
    tell_neighbour(there ? THERE : AWAY);
}

void rig_set_repetitions(int n) {
    atomic_store(&repetitions, n);
}

/* ---- the machine --------------------------------------------------------------------------------------------- */

int rig_n_workers(void) {
    return crumb_pool_threads(device->pool);
}

void rig_forget(void) {
    for (int way = 0; way < RIG_WAYS; way++) memset(devices[way].balances, 0, sizeof devices[way].balances);
    for (int c = 0; c < CRUMB_BALANCE_CLASSES; c++)
        for (int p = 0; p < CRUMB_BALANCE_PHASES; p++) {
            crumb_balance_init(&devices[RIG_EQUAL].balances[c][p], rig_n_workers());
            devices[RIG_EQUAL].balances[c][p].fixed = true;
        }
}

bool rig_open(void) {
    check(backend->device.open(&(crumb_device_params){.n_threads = 0}, &device, &err));
    if (rig_n_workers() <= RIG_VICTIM || rig_n_workers() > CRUMB_BALANCE_MAX_CORES ||
        crumb_pool_cpu(device->pool, RIG_VICTIM) < 0)
        return false;
    make_ops();
    for (int way = 0; way < RIG_WAYS; way++) devices[way] = *device;
    rig_forget();
    check(crumb_thread_start(be_neighbour, NULL, &neighbour, &err));
    return true;
}

void rig_close(void) {
    if (neighbour) {
        tell_neighbour(GONE);
        crumb_thread_join(neighbour);
    }
    for (int i = 0; i < RIG_OPS; i++)
        if (buffers[i]) backend->device.buffer_destroy(device, buffers[i]);
    backend->device.close(device);
}
