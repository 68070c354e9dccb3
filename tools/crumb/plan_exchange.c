/* What an exchange takes between a GPU and the processor where both work on one layer: by plans of both that meet as
 * those of split layers do (host/engine/shares.c), beside the same plans that do not meet. */
#include "tools/crumb/plan.h"

#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/engine/shares.h"

#include <stdlib.h>

enum { EXCHANGES = 64, WIDTH = 2048, LEAST_ROUNDS = 5, FLAG = CRUMB_SHARE_FLAG_BYTES / sizeof(uint32_t) };
enum { ALONE, MEETING };

typedef struct side {
    const crumb_backend *backend;
    crumb_device *device;
    crumb_plan *plans[2];
    int now; /* of plans: what is replayed */
    crumb_status status;
    crumb_error err;
} side;

typedef struct pair {
    side sides[2];   /* the GPU, the processor */
    float *vector;   /* [2 * WIDTH]: the columns of each */
    uint32_t *flags; /* [EXCHANGES][2][FLAG] */
} pair;

/* Each writes its columns, tells the other, and waits for the other's: nothing else happens between exchanges. */
static crumb_status record(pair *p, int which, int how, crumb_error *err) {
    side *s = &p->sides[which];
    const crumb_value_info values[] = {{.width = WIDTH, .slot = 0},
                                       {.width = 2 * WIDTH, .slot = 1, .shared = p->vector}};
    crumb_op ops[1 + 3 * EXCHANGES] = {{.kind = CRUMB_OP_INPUT, .input = {.out = 0}}};
    size_t n = 1;
    for (size_t i = 0; i < EXCHANGES; i++) {
        ops[n++] = (crumb_op){.kind = CRUMB_OP_PLACE, .place = {.x = 0, .out = 1, .column = (uint32_t)which * WIDTH}};
        if (how == ALONE) continue;
        uint32_t *own = p->flags + (2 * i + (size_t)which) * FLAG, *its = p->flags + (2 * i + !which) * FLAG;
        ops[n++] = (crumb_op){.kind = CRUMB_OP_SIGNAL, .rendezvous = {.flag = own}};
        ops[n++] = (crumb_op){.kind = CRUMB_OP_WAIT, .rendezvous = {.flag = its}};
    }
    const crumb_plan_desc desc = {.ops = ops, .n_ops = n, .values = values, .n_values = 2, .max_rows = 1};
    return s->backend->plan.record(s->device, &desc, &s->plans[how], err);
}

static crumb_status create(pair *p, int n_threads, crumb_error *err) {
    side *gpu = &p->sides[0], *cpu = &p->sides[1];
    void *memory;
    CRUMB_TRY(gpu->backend->device.shared_create(gpu->device, 2 * WIDTH * sizeof(float), &memory, err));
    p->vector = memory;
    CRUMB_TRY(crumb_calloc(2 * EXCHANGES, CRUMB_SHARE_FLAG_BYTES, "flags", &memory, err));
    p->flags = memory;
    CRUMB_TRY(cpu->backend->device.open(&(crumb_device_params){.n_threads = n_threads}, &cpu->device, err));
    for (int which = 0; which < 2; which++)
        for (int how = 0; how < 2; how++) CRUMB_TRY(record(p, which, how, err));
    return CRUMB_OK;
}

static void destroy(pair *p) {
    side *gpu = &p->sides[0], *cpu = &p->sides[1];
    for (int which = 0; which < 2; which++)
        for (int how = 0; how < 2; how++)
            if (p->sides[which].plans[how]) p->sides[which].backend->plan.destroy(p->sides[which].plans[how]);
    if (cpu->device) cpu->backend->device.close(cpu->device);
    free(p->flags);
    if (p->vector) gpu->backend->device.shared_destroy(gpu->device, p->vector, 2 * WIDTH * sizeof(float));
}

static void replay(void *arg) {
    side *s = arg;
    s->status = s->backend->plan.replay(s->plans[s->now], &(crumb_row){.position = 0}, 1, &s->err);
}

/* Both at once; another thread drives the GPU, as in a session. */
static crumb_status time_both(pair *p, int how, double *ns, crumb_error *err) {
    static const float x[WIDTH];
    crumb_thread *thread;
    for (int i = 0; i < 2; i++) {
        side *s = &p->sides[i];
        s->now = how;
        CRUMB_TRY(s->backend->plan.write(s->plans[how], 0, x, 1, err));
    }
    const uint64_t began = crumb_now_ns();
    CRUMB_TRY(crumb_thread_start(replay, &p->sides[0], &thread, err));
    replay(&p->sides[1]);
    crumb_thread_join(thread);
    *ns = (double)(crumb_now_ns() - began);
    for (int i = 0; i < 2; i++) {
        if (p->sides[i].status == CRUMB_OK) continue;
        if (err) *err = p->sides[i].err;
        return p->sides[i].status;
    }
    return CRUMB_OK;
}

/* Nanoseconds of one exchange. */
static crumb_status sample(void *user, double *ns, crumb_error *err) {
    double times[2] = {0};
    for (int how = 0; how < 2; how++) CRUMB_TRY(time_both(user, how, &times[how], err));
    *ns = (times[MEETING] - times[ALONE]) / EXCHANGES;
    return CRUMB_OK;
}

crumb_status plan_measure_exchange(const plan_bench *gpu, int n_threads, double *us, crumb_error *err) {
    const size_t rounds = gpu->rounds < LEAST_ROUNDS ? LEAST_ROUNDS : gpu->rounds;
    pair p = {.sides = {{.backend = gpu->backend, .device = gpu->suite->device(gpu->machine)},
                        {.backend = &crumb_backend_cpu}}};
    double ns = 0;
    crumb_status status = create(&p, n_threads, err);
    if (status == CRUMB_OK) status = sample(&p, &ns, err); /* what is done once */
    if (status == CRUMB_OK) status = cli_median_price(sample, &p, rounds, &ns, err);
    destroy(&p);
    *us = ns * 1e-3;
    return status;
}
