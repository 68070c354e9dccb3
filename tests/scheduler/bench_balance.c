/* The balance of cores on this machine, made unequal: bench_balance [KIND [REPLAYS]]
 *
 * Without KIND what decisions cost, and the table of scheduler/README.md: the figures that
 * tests/scheduler/test_balance.c asserts on a virtual clock. With it, for cores that are
 *
 *     alike      nothing is done to them
 *     repeated   worker 1 does its work three times, as a core of a third of the speed would take
 *     neighbour  another program's thread spins on worker 1's core
 *
 * how parts and times of the two first workers go from op to op, and then equal parts, the split, chunks and the
 * measured choice in turns. Run by hand on a machine that does nothing else; nothing here is asserted, since a
 * machine's other work is not ours. */
#include "host/base/thread.h"
#include "tests/scheduler/bench_figures.h"
#include "tests/scheduler/bench_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From equal parts on: the first replay op by op, and one op of later ones. */
static void print_convergence(crumb_plan *plan, uint32_t n_rows) {
    static const int shown[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 31, 63, 95, 159, 319};
    int replays = 0;
    printf("    op   worker 1's part   worker 0   worker 1   us\n");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        for (; replays <= shown[i] / RIG_OPS; replays++) rig_replay_us(plan, n_rows);
        const rig_sample *a = &rig_samples[0][shown[i] % RIG_OPS], *b = &rig_samples[1][shown[i] % RIG_OPS];
        printf("   %3d   %13.1f%%   %8.1f   %8.1f\n", shown[i], 100.0 * b->n_tiles / (a->n_tiles + b->n_tiles),
               a->ns * 1e-3, b->ns * 1e-3);
    }
}

static void compare(uint32_t n_rows, int n_replays) {
    static const char *const names[RIG_WAYS] = {"equal parts", "split", "chunks", "chosen"};
    crumb_plan *plans[RIG_WAYS];
    double median[RIG_WAYS];
    for (int w = 0; w < RIG_WAYS; w++) plans[w] = rig_record(w, n_rows);
    printf("  %u row%s\n", n_rows, n_rows == 1 ? "" : "s");
    print_convergence(plans[RIG_SPLIT], n_rows);
    figures_times(plans, RIG_WAYS, n_rows, n_replays, median);
    for (int w = 0; w < RIG_WAYS; w++) {
        printf("    %-12s median %9.1f us a replay; %.3f of equal parts\n", names[w], median[w],
               median[w] / median[RIG_EQUAL]);
        rig_destroy(plans[w]);
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

static int print_kind(const char *kind, int n_replays) {
    const bool repeated = strcmp(kind, "repeated") == 0, neighbour = strcmp(kind, "neighbour") == 0;
    if (!repeated && !neighbour && strcmp(kind, "alike") != 0) {
        fprintf(stderr, "'%s' is none of alike, repeated, neighbour\n", kind);
        return 2;
    }
    rig_set_repetitions(repeated ? 3 : 1);
    rig_set_neighbour(neighbour);
    printf("%s\n", kind);
    compare(1, n_replays);
    rig_forget();
    compare(RIG_MANY, n_replays / 4 + 1);
    return 0;
}

int main(int argc, char **argv) {
    int code = 0;
    if (!rig_open()) {
        printf("one core, or cores that threads cannot be pinned to: nothing to balance\n");
    } else if (argc > 1) {
        code = print_kind(argv[1], argc > 2 ? atoi(argv[2]) : 100);
    } else {
        print_overhead();
        fflush(stdout);
        figures_print();
    }
    rig_close();
    return code;
}
