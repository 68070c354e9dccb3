#include "tests/scheduler/bench_figures.h"

#include <stdio.h>
#include <stdlib.h>

enum { TRIALS = 9, SETTLING = 4, AFTER = 4, FOLLOWED = AFTER * RIG_OPS, GOOD = 10, REPLAYS = 100, MOST_REPLAYS = 1000 };
static const double recovered = 1.05; /* of what an op takes in the end */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_size);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* From the first worker's begin to the last one's end. */
static double op_us(int op) {
    uint64_t began = UINT64_MAX, ended = 0;
    for (int w = 0; w < rig_n_workers(); w++) {
        const rig_sample *s = &rig_samples[w][op];
        if (s->n_tiles && s->began < began) began = s->began;
        if (s->ended > ended) ended = s->ended;
    }
    return (double)(ended - began) * 1e-3;
}

void figures_times(crumb_plan *const *plans, int n_plans, uint32_t n_rows, int n_replays, double *median) {
    static double times[RIG_WAYS][MOST_REPLAYS];
    const int n = n_replays < 1 ? 1 : n_replays < MOST_REPLAYS ? n_replays : MOST_REPLAYS;
    for (int p = 0; p < n_plans; p++)
        for (int i = 0; i < SETTLING; i++) rig_replay_us(plans[p], n_rows);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < n_plans; p++) times[p][i] = rig_replay_us(plans[p], n_rows);
    for (int p = 0; p < n_plans; p++) median[p] = median_of(times[p], n);
}

/* ---- a change in the middle of a replay ---------------------------------------------------------------------- */

static void repeat_twice(int is) {
    rig_set_repetitions(is ? 2 : 1);
}

static void bring_neighbour(int is) {
    rig_set_neighbour(is);
}

/* Ops that follow a change: [op][trial], in microseconds. */
typedef struct followed {
    double us[RIG_OPS / 2 + FOLLOWED][TRIALS];
} followed;

static void follow(crumb_plan *plan, uint32_t n_rows, int trial, followed *to) {
    int n = 0;
    rig_replay_us(plan, n_rows);
    for (int op = RIG_OPS / 2; op < RIG_OPS; op++) to->us[n++][trial] = op_us(op);
    for (int i = 0; i < AFTER; i++) {
        rig_replay_us(plan, n_rows);
        for (int op = 0; op < RIG_OPS; op++) to->us[n++][trial] = op_us(op);
    }
}

/* What an op of a kind (they alternate) takes in the end: the median of the last two replays of all trials. */
static double settled_us(const followed *f, int kind) {
    enum { LAST = 2 * RIG_OPS, N = RIG_OPS / 2 + FOLLOWED };
    double values[LAST / 2 * TRIALS];
    int n = 0;
    for (int i = N - LAST + kind; i < N; i += 2)
        for (int t = 0; t < TRIALS; t++) values[n++] = f->us[i][t];
    return median_of(values, n);
}

/* Ops until ten in a row take what they take in the end, within 5%, in the median of the trials; -1: never. */
static int ops_until_recovered(followed *f) {
    const double end[2] = {settled_us(f, 0), settled_us(f, 1)};
    int good = 0, n = 0;
    for (; good < GOOD && n < RIG_OPS / 2 + FOLLOWED; n++)
        good = median_of(f->us[n], TRIALS) < recovered * end[n % 2] ? good + 1 : 0;
    return good == GOOD ? n - good : -1;
}

typedef struct change {
    int came, went;
} change;

static change measure_change(void (*make)(int is), uint32_t n_rows) {
    static followed f[2];
    for (int t = 0; t < TRIALS; t++) {
        rig_forget();
        crumb_plan *plan = rig_record(RIG_SPLIT, n_rows);
        for (int is = 1; is >= 0; is--) {
            for (int i = 0; i < SETTLING; i++) rig_replay_us(plan, n_rows);
            rig_at(RIG_OPS / 2, make, is);
            follow(plan, n_rows, t, &f[is]);
        }
        rig_destroy(plan);
    }
    return (change){ops_until_recovered(&f[1]), ops_until_recovered(&f[0])};
}

/* ---- cores that stay as they are ----------------------------------------------------------------------------- */

/* Over what the ops would take if all workers ended together, each at the rate that it has: the true ratios. */
static double over_ideal(uint32_t n_rows) {
    static double us[RIG_OPS][REPLAYS], rate[CRUMB_BALANCE_MAX_CORES][RIG_OPS][REPLAYS];
    const int n = n_rows == 1 ? REPLAYS : REPLAYS / 4;
    double sum = 0;
    rig_forget();
    crumb_plan *plan = rig_record(RIG_SPLIT, n_rows);
    for (int i = 0; i < SETTLING; i++) rig_replay_us(plan, n_rows);
    uint32_t tiles[RIG_OPS] = {0};
    for (int i = 0; i < n; i++) {
        rig_replay_us(plan, n_rows);
        for (int op = 0; op < RIG_OPS; op++) {
            us[op][i] = op_us(op);
            tiles[op] = 0;
            for (int w = 0; w < rig_n_workers(); w++) {
                const rig_sample *s = &rig_samples[w][op];
                rate[w][op][i] = s->ns ? 1e3 * s->n_tiles / s->ns : 0;
                tiles[op] += s->n_tiles;
            }
        }
    }
    rig_destroy(plan);
    for (int op = 0; op < RIG_OPS; op++) {
        double rates = 0;
        for (int w = 0; w < rig_n_workers(); w++) rates += median_of(rate[w][op], n);
        sum += median_of(us[op], n) / (tiles[op] / rates);
    }
    return sum / RIG_OPS - 1;
}

/* How much longer equal parts take than the split. */
static double gain(uint32_t n_rows) {
    crumb_plan *plans[2];
    double median[2];
    rig_forget();
    for (int way = RIG_EQUAL; way <= RIG_SPLIT; way++) plans[way] = rig_record(way, n_rows);
    figures_times(plans, 2, n_rows, n_rows == 1 ? REPLAYS : REPLAYS / 4, median);
    for (int way = RIG_EQUAL; way <= RIG_SPLIT; way++) rig_destroy(plans[way]);
    return median[RIG_EQUAL] / median[RIG_SPLIT] - 1;
}

/* ---- the table ----------------------------------------------------------------------------------------------- */

typedef struct figures {
    change repeats, neighbour;
    double alike, over_alike, over, gained;
} figures;

static figures measure(uint32_t n_rows) {
    figures f = {.repeats = measure_change(repeat_twice, n_rows),
                 .neighbour = measure_change(bring_neighbour, n_rows),
                 .alike = 1 / (1 + gain(n_rows)) - 1,
                 .over_alike = over_ideal(n_rows)};
    rig_set_repetitions(3);
    f.over = over_ideal(n_rows);
    f.gained = gain(n_rows);
    rig_set_repetitions(1);
    return f;
}

static void print_ops(const char *what, int one, int many) {
    printf("| %s | 20 |", what);
    for (int i = 0; i < 2; i++) {
        const int n = i ? many : one;
        printf(n < 0 ? " more than %d |" : " %d |", n < 0 ? RIG_OPS / 2 + FOLLOWED : n);
    }
    printf("\n");
}

static void print_percent(const char *what, const char *wanted, double one, double many) {
    printf("| %s | %s | %+.1f%% | %+.1f%% |\n", what, wanted, 100 * one, 100 * many);
}

void figures_print(void) {
    const figures one = measure(1), many = measure(RIG_MANY);
    printf("\n| | asserted in the simulator | one row | %d rows |\n|---|---|---|---|\n", RIG_MANY);
    print_ops("ops to recover: a worker's work doubles", one.repeats.came, many.repeats.came);
    print_ops("it is as before", one.repeats.went, many.repeats.went);
    print_ops("ops to recover: a thread comes to a worker's core", one.neighbour.came, many.neighbour.came);
    print_ops("it goes", one.neighbour.went, many.neighbour.went);
    print_percent("over the ideal for the true ratios, 3:1", "5%", one.over, many.over);
    print_percent("the same, cores alike", "5%", one.over_alike, many.over_alike);
    print_percent("over equal parts, cores alike", "2%", one.alike, many.alike);
    print_percent("gain over equal parts, 3:1", "30%", one.gained, many.gained);
}
