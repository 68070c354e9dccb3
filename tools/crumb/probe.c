/* What this machine does at best, in medians of several passes (cpu/probe.h). */
#include "cpu/probe.h"
#include "tools/crumb/cli.h"

#include <stdlib.h>

enum { READ_PASSES = 9, MAX_SAMPLES = 15, TRIES = 5, CLOCK_NS = 1 };

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double cli_median(double *values, size_t n) {
    if (n == 0) return 0;
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

crumb_status cli_median_price(cli_sample_fn *sample, void *user, size_t rounds, double *ns, crumb_error *err) {
    double samples[MAX_SAMPLES];
    const size_t n = rounds < MAX_SAMPLES ? rounds : MAX_SAMPLES;
    for (int i = 0; i < TRIES; i++) {
        for (size_t j = 0; j < n; j++) CRUMB_TRY(sample(user, &samples[j], err));
        *ns = cli_median(samples, n);
        if (*ns >= CLOCK_NS) return CRUMB_OK;
    }
    *ns = CLOCK_NS;
    return CRUMB_OK;
}

crumb_status cli_sample_step(void *user, double *ns, crumb_error *err) {
    (void)err;
    *ns = crumb_probe_step(user);
    return CRUMB_OK;
}

double cli_probe_read_bandwidth(int n_threads, const char *cpu_kind) {
    crumb_probe *probe;
    double passes[READ_PASSES];
    if (crumb_probe_create(n_threads, cpu_kind, &probe, NULL) != CRUMB_OK) return 0;
    crumb_probe_add_memory(probe, NULL);
    for (int i = 0; i < READ_PASSES; i++) passes[i] = crumb_probe_read(probe);
    crumb_probe_destroy(probe);
    return cli_median(passes, READ_PASSES);
}

double cli_probe_halfway(double before, double after) {
    return before > 0 && after > 0 ? (before + after) / 2 : before + after;
}
