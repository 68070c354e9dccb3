/* Times the low-bit kernels beside what the machine can do: bench_linear BITS GROUP M K N [row|group|mxfp4] [filter]
 *
 * 2 bits are ternary with "row". GROUP 0 is the whole row. Group scales, and mins for 4 bits, unless "row"; mxfp4:
 * codes of E2M1, scales and no mins. Probes and kernels take turns and each line gives the best of many short runs,
 * since the machine may be shared; compare ratios, not absolute numbers. */
#include "cpu/trial.h"
#include "tests/kernels/probes.h"

#include "host/base/checked.h"
#include "host/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 32, N_ROUNDS = 25 };

typedef struct entry {
    const crumb_cpu_kernel *kernel;
    double best_seconds;
} entry;

static volatile uint64_t sink;

static double seconds_since(uint64_t start) {
    return (double)(crumb_now_ns() - start) * 1e-9;
}

static void keep_best(double *best, double seconds) {
    if (*best == 0 || seconds < *best) *best = seconds;
}

static size_t choose_kernels(const crumb_trial_params *p, const char *filter, entry *entries) {
    size_t n_rows, n = 0;
    const crumb_cpu_kernel *rows = crumb_cpu_kernels(&n_rows);
    for (size_t i = 0; i < n_rows && n < MAX_ENTRIES; i++)
        if (rows[i].bits == p->bits && !rows[i].layout && !rows[i].codebook_range == !p->codebook &&
            rows[i].isa != CRUMB_ISA_SCALAR && rows[i].acts >> p->act & 1 && crumb_isa_available(rows[i].isa) &&
            (!filter || strstr(rows[i].name, filter)))
            entries[n++] = (entry){.kernel = &rows[i]};
    return n;
}

static double time_quantizer(const crumb_trial_params *p, const crumb_trial *c, const float *x) {
    uint64_t start = crumb_now_ns();
    crumb_cpu_quantize_select(crumb_isa_best())(x, p->k, p->k, p->bits, 0, p->n, &c->x);
    return seconds_since(start);
}

static void run(const crumb_trial_params *p, const char *filter) {
    entry entries[MAX_ENTRIES];
    size_t n_entries = choose_kernels(p, filter, entries);
    uint64_t state = 1;
    crumb_trial c;
    if (crumb_trial_create(p, &state, &c, NULL) != CRUMB_OK) abort();
    float *y = calloc((size_t)p->n * p->m, sizeof *y), *x = malloc((size_t)p->n * p->k * sizeof *x);
    if (!y || !x) abort();
    for (size_t i = 0; i < (size_t)p->n * p->k; i++) x[i] = crumb_random_f32(&state);
    crumb_linear_args args = crumb_trial_args(&c, y, p->m);

    double weights = (double)args.tile1 * CRUMB_TILE_ROWS * c.x.k_padded, code_bytes = weights * p->bits / 8;
    double scale_bytes = weights / c.w.group * (p->scales_f32 ? 4 : 2) * (p->has_min ? 2 : 1);
    double best_read = 0, best_dot = 0, best_quantize = 0;
    const uint64_t dot_rounds = 200000;
    for (int round = 0; round < N_ROUNDS; round++) {
        uint64_t start = crumb_now_ns();
        size_t n_read = (size_t)code_bytes / 1024 * 1024;
        sink ^= probe_read(c.w.codes, n_read);
        keep_best(&best_read, seconds_since(start) / (double)n_read);
        start = crumb_now_ns();
        sink ^= probe_dot(dot_rounds);
        keep_best(&best_dot, seconds_since(start) / (double)(dot_rounds * PROBE_DOT_MACS));
        keep_best(&best_quantize, time_quantizer(p, &c, x));
        for (size_t i = 0; i < n_entries; i++) {
            start = crumb_now_ns();
            entries[i].kernel->run(&args);
            keep_best(&entries[i].best_seconds, seconds_since(start));
        }
    }
    printf("u%u group %u m %u k %u n %u %s: read %.1f GB/s, vpmaddubsw %.0f GOPS, quantizer %.2f GB/s\n", p->bits,
           p->group, p->m, p->k, p->n, p->act == CRUMB_ACT_ROW ? "row" : "group", 1e-9 / best_read, 2e-9 / best_dot,
           4e-9 * p->n * p->k / best_quantize);
    for (size_t i = 0; i < n_entries; i++) {
        double gbs = (code_bytes + scale_bytes) / entries[i].best_seconds * 1e-9;
        double gops = 2 * weights * p->n / entries[i].best_seconds * 1e-9;
        printf("  %-24s %7.2f GB/s = %5.1f%% of read  %7.1f GOPS = %5.1f%% of peak  %9.1f us\n",
               entries[i].kernel->name, gbs, 100e9 * gbs * best_read, gops, 50e9 * gops * best_dot,
               entries[i].best_seconds * 1e6);
    }
    free(y);
    free(x);
    crumb_trial_destroy(&c);
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: %s BITS GROUP M K N [row|group|mxfp4] [filter]\n", argv[0]);
        return 2;
    }
    crumb_trial_params p = {.bits = (unsigned)atoi(argv[1]),
                            .mul = 1,
                            .group = (uint32_t)atoi(argv[2]),
                            .m = (uint32_t)atoi(argv[3]),
                            .k = (uint32_t)atoi(argv[4]),
                            .n = (uint32_t)atoi(argv[5])};
    bool row = argc > 6 && strcmp(argv[6], "row") == 0;
    p.act = row ? CRUMB_ACT_ROW : CRUMB_ACT_GROUP;
    p.act_group = p.group && p.group < 128 ? p.group : 128;
    p.max_code = row && p.bits == 2 ? 2 : 0;
    p.codebook = argc > 6 && strcmp(argv[6], "mxfp4") == 0 ? crumb_codebook_e2m1 : NULL;
    p.has_min = !row && p.bits == 4 && !p.codebook;
    p.sub = p.has_min || p.codebook ? 0 : p.bits > 2 ? 1 << (p.bits - 1) : 1;
    run(&p, argc > 7 ? argv[7] : NULL);
    return 0;
}
