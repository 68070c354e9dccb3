/* What `crumb kernels` and `crumb tune` ask of a backend about its kernels, so that neither knows any device.
 *
 * A backend has one table of kernels; here each is a number below n_kernels(). A problem is a linear layer by its
 * number format and shape; its weights are random. A machine is a device's threads and the probes of its limits; a
 * bench holds one problem's data and runs kernels on it in turns.
 */
#ifndef CRUMB_KERNEL_SUITE_H
#define CRUMB_KERNEL_SUITE_H

#include "host/backend.h"

typedef struct crumb_kernel_info {
    const char *name;   /* "gemv_u2_i8__avx2" */
    const char *op;     /* "gemv", "gemm" */
    const char *target; /* what it needs of the device: "avx2" */
    const char *layout; /* of the weights; "tile" for crumb's own, "dense" for unquantized ones */
    const char *bound;  /* why nothing overflows */
    unsigned bits;      /* of a code; 0: dense */
    bool codebook;
    crumb_type dense_type; /* when bits is 0 */
    unsigned acts;         /* 1 << CRUMB_ACT_...: the activations it takes */
    uint32_t max_n;        /* rows of activations up to which it is chosen */
    int rank;              /* the highest that fits is chosen; below 0: only there to be compared with */
    bool available;        /* on this device */
    double max_nmse;       /* 0: equals the reference bit for bit; else the error it states */
} crumb_kernel_info;

/* A number format as people name it: "1", "1.58" (ternary), "2", "3", "4", "5", "6", "8", "mxfp4". */
typedef struct crumb_kernel_format {
    const char *name;
    unsigned bits, max_code;
    int mul, sub;
    const int8_t *codebook;
} crumb_kernel_format;

extern const crumb_kernel_format crumb_kernel_formats[];
extern const size_t crumb_n_kernel_formats;
const crumb_kernel_format *crumb_kernel_format_find(const char *name); /* NULL: none */

typedef struct crumb_kernel_problem {
    const crumb_kernel_format *format;
    uint32_t m, k, n, group; /* group 0: one scale per row */
    crumb_act_quant act;
} crumb_kernel_problem;

/* What differed. `where` reads "y[3][17] is 1.5, not 1.25"; empty when all is well. */
typedef struct crumb_kernel_check {
    bool ok;
    double nmse;
    uint64_t n_values;
    char where[160];
} crumb_kernel_check;

typedef struct crumb_kernel_machine crumb_kernel_machine;
typedef struct crumb_kernel_bench crumb_kernel_bench;

typedef struct crumb_kernel_roofs {
    double read_gb_s; /* what all threads together read from memory; 0: unknown */
    double peak_gops; /* of the kernel's own dot product */
    double clock_ghz; /* 0: unknown */
} crumb_kernel_roofs;

enum { CRUMB_KNOBS_BYTES = 128 };

typedef struct crumb_kernel_suite {
    const char *backend; /* "cpu" */
    size_t (*n_kernels)(void);
    crumb_kernel_info (*info)(size_t kernel);
    bool (*takes)(size_t kernel, const crumb_kernel_problem *problem);
    /* The kernel that a plan takes for a problem when nothing is tuned; SIZE_MAX: none. */
    size_t (*chosen)(const crumb_kernel_problem *problem);

    /* Settings of a kernel change its speed and not its results. Number 0 is the default, and prints as "". */
    size_t (*n_settings)(size_t kernel);
    void (*setting)(size_t kernel, size_t number, char knobs[CRUMB_KNOBS_BYTES]);
    /* What a measurement holds for: the device, its tier, and a hash of the kernels' text. */
    void (*identify)(char device[96], char target[32], char source[20]);

    /* Runs a kernel on random data of the problem and compares it with the scalar reference. `extreme` reaches the
     * bounds that its row states. Fails with MEMORY or DEVICE; a wrong result is no failure but check->ok false. */
    crumb_status (*check)(size_t kernel, const char *knobs, const crumb_kernel_problem *problem, uint64_t seed,
                          bool extreme, crumb_kernel_check *check, crumb_error *err);

    /* The squared error of a kernel's results, as a part of their power, against the same weights times activations in
     * full precision: what quantizing activations costs, and for the papers' kernels their tables. Random data. */
    crumb_status (*error)(size_t kernel, const crumb_kernel_problem *problem, uint64_t seed, double *nmse,
                          crumb_error *err);

    /* n_threads 0: one per core. A machine outlives its benches. */
    crumb_status (*machine_create)(int n_threads, crumb_kernel_machine **out, crumb_error *err);
    void (*machine_destroy)(crumb_kernel_machine *machine); /* NULL is allowed */
    int (*machine_threads)(const crumb_kernel_machine *machine);
    /* Measures the roofs once more, for this kernel. */
    void (*machine_roofs)(crumb_kernel_machine *machine, size_t kernel, crumb_kernel_roofs *out);

    crumb_status (*bench_create)(crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                                 crumb_kernel_bench **out, crumb_error *err);
    void (*bench_destroy)(crumb_kernel_bench *bench);
    /* Nanoseconds of one run. cold: nothing of the weights is in any cache. */
    crumb_status (*bench_run)(crumb_kernel_bench *bench, size_t kernel, const char *knobs, bool cold, double *ns,
                              crumb_error *err);
    /* The same on so few rows that their weights stay in the core's own cache: what the instructions alone take.
     * *share is the part of the problem's rows. */
    crumb_status (*bench_run_near)(crumb_kernel_bench *bench, size_t kernel, double *ns, double *share,
                                   crumb_error *err);
    /* Bytes of weights (codes, scales, mins) that one run reads. */
    uint64_t (*bench_bytes)(const crumb_kernel_bench *bench, size_t kernel);
} crumb_kernel_suite;

#endif
