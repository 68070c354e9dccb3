#include "cpu/knobs.h"

#include "host/kernel/tuning.h"

#include <stdio.h>
#include <string.h>

enum { MAX_VALUES = 8 };

typedef struct knob {
    const char *name;
    size_t field; /* offset in crumb_cpu_knobs */
    uint32_t values[MAX_VALUES], n;
} knob;

#define KNOB(name, field, ...)                                                                                         \
    {name, offsetof(crumb_cpu_knobs, field), {__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)}

/* The first value of each is 0, the default. The columns of a GEMM's register block are no knob: activations are
 * interleaved for them, once for all matrices that share an input. */
static const knob gemv_knobs[] = {KNOB("streams", streams, 0, 1, 2, 4),
                                  KNOB("unroll", unroll, 0, 2),
                                  KNOB("near", near_bytes, 0, 256, 512, 1024, 1536, 2048, 4096),
                                  KNOB("far", far_kb, 0, 1, 2, 4, 8, 16, 64), /* 1: not at all */
                                  KNOB("share", share, 0, 1, 2, 3),
                                  KNOB("threads", threads, 0, 1, 2, 4, 8, 16)};
static const knob gemm_knobs[] = {KNOB("columns", columns, 0, 48, 72, 96, 132, 192, 264, 384),
                                  KNOB("steps", steps, 0, 64, 96, 128, 192, 256), KNOB("far", far_kb, 0, 1, 4, 32),
                                  KNOB("share", share, 0, 1, 2, 3, 4), KNOB("threads", threads, 0, 1, 2, 4, 8, 16)};

static const knob *knobs_of(crumb_cpu_op op, size_t *n) {
    *n = op == CRUMB_CPU_GEMV ? sizeof gemv_knobs / sizeof *gemv_knobs : sizeof gemm_knobs / sizeof *gemm_knobs;
    return op == CRUMB_CPU_GEMV ? gemv_knobs : gemm_knobs;
}

static uint32_t *field_of(crumb_cpu_knobs *knobs, const knob *k) {
    return (uint32_t *)(void *)((char *)knobs + k->field);
}

size_t crumb_cpu_knobs_count(crumb_cpu_op op) {
    size_t n, count = 1;
    const knob *k = knobs_of(op, &n);
    for (size_t i = 0; i < n; i++) count *= k[i].n;
    return count;
}

crumb_cpu_knobs crumb_cpu_knobs_candidate(crumb_cpu_op op, size_t number) {
    size_t n;
    const knob *k = knobs_of(op, &n);
    crumb_cpu_knobs knobs = {0};
    for (size_t i = 0; i < n; number /= k[i].n, i++) *field_of(&knobs, &k[i]) = k[i].values[number % k[i].n];
    return knobs;
}

void crumb_cpu_knobs_print(crumb_cpu_op op, const crumb_cpu_knobs *knobs, char *out, size_t size) {
    size_t n, used = 0;
    const knob *k = knobs_of(op, &n);
    crumb_cpu_knobs copy = *knobs;
    *out = 0;
    for (size_t i = 0; i < n && used < size; i++) {
        uint32_t value = *field_of(&copy, &k[i]);
        if (value) used += (size_t)snprintf(out + used, size - used, "%s%s=%u", used ? " " : "", k[i].name, value);
    }
}

crumb_cpu_knobs crumb_cpu_knobs_parse(crumb_cpu_op op, const char *text) {
    size_t n;
    const knob *k = knobs_of(op, &n);
    crumb_cpu_knobs knobs = {0};
    for (size_t i = 0; i < n; i++) {
        uint32_t value = crumb_tuning_knob(text, k[i].name, 0);
        for (uint32_t j = 0; j < k[i].n; j++)
            if (k[i].values[j] == value) *field_of(&knobs, &k[i]) = value;
    }
    return knobs;
}

int crumb_cpu_knobs_threads(const crumb_cpu_knobs *knobs, int n_threads) {
    return knobs->threads && knobs->threads < (uint32_t)n_threads ? (int)knobs->threads : n_threads;
}

size_t crumb_cpu_knobs_scratch(const crumb_matrix *w) {
    size_t most = 0;
    for (size_t i = 0; i < crumb_cpu_knobs_count(CRUMB_CPU_GEMM); i++) {
        const crumb_cpu_knobs knobs = crumb_cpu_knobs_candidate(CRUMB_CPU_GEMM, i);
        size_t n_bytes = crumb_cpu_kernel_scratch(w, UINT32_MAX, &knobs);
        if (n_bytes > most) most = n_bytes;
    }
    return most;
}
