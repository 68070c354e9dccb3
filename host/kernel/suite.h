/* What `crumb kernels` and `crumb tune` ask of a backend about its kernels, so that neither knows any device.
 *
 * A backend has one table of kernels; here each is a number below n_kernels(). A problem is a linear layer by its
 * number format and shape; a trial is a problem with random data (host/kernel/trial.h). A machine is an open device and
 * the probes of its limits; a bench holds one problem's data and runs kernels on it in turns.
 */
#ifndef CRUMB_KERNEL_SUITE_H
#define CRUMB_KERNEL_SUITE_H

#include "host/backend.h"

typedef struct crumb_kernel_info {
    const char *name;   /* "gemv_u2_i8__avx2" */
    const char *op;     /* "gemv", "gemm"; "dense", "attention", "rope", "norm" ... */
    const char *target; /* what it needs of the device: "avx2" */
    const char *layout; /* of the weights; "tile" for crumb's own, "dense" for unquantized ones */
    const char *bound;  /* why nothing overflows */
    unsigned bits;      /* of a code; 0: dense */
    bool codebook;
    bool bf16; /* it reads and writes bf16, also the floats that it quantizes; what it reads is rounded so */
    crumb_type dense_type; /* where the layout is "dense"; F32: of any */
    unsigned acts;         /* 1 << CRUMB_ACT_...: the activations it takes */
    uint32_t max_n;        /* rows of activations up to which it is chosen; 0: of no importance */
    int rank;              /* the highest that fits is chosen; below 0: only there to be compared with */
    bool available;        /* on this device */
    bool eligible;         /* and a plan of this device may choose it */
    bool other_order;      /* but not beside its own: it reads activations in an order that they do not have then */
    bool quantizes;        /* it reads floats, and makes int8 of them itself */
    bool in_plans;         /* it runs as part of a plan of ops (plan_record), not by itself on a problem */
    crumb_op_kind kind;    /* of the op that becomes it, where in_plans */
    bool int8_products;    /* of such a kernel: its operations are to be held against the int8 peak */
    bool helps;            /* another kernel does that op's products and moves its bytes: this one prepares or merges */
    char why_not[96];      /* what the device lacks for it; empty where it is available */
    double max_nmse;       /* 0: equals the reference bit for bit; else the error it states */
} crumb_kernel_info;

/* A number format as people name it: "1", "1.58" (ternary), "2", "3", "4", "5", "6", "8", "mxfp4",
 * "iq4_nl". */
typedef struct crumb_kernel_format {
    const char *name;
    unsigned bits, max_code;
    int mul, sub;
    const int8_t *codebook;
    uint32_t group; /* weights that share a scale in most files of it; 0: a whole row, as models trained with so few
                     * bits have it */
} crumb_kernel_format;

extern const crumb_kernel_format crumb_kernel_formats[];
extern const size_t crumb_n_kernel_formats;
const crumb_kernel_format *crumb_kernel_format_find(const char *name); /* NULL: none */
/* What a tuning key calls weights: "u2" whatever codes stand for, a codebook's name, since kernels take some and not
 * others, and " index" behind it in that layout. */
void crumb_kernel_weights_name(unsigned bits, const int8_t *codebook, bool indexed, char out[16]);

typedef struct crumb_kernel_problem {
    const crumb_kernel_format *format;
    uint32_t m, k, n, group; /* group 0: one scale per row */
    crumb_act_quant act;
} crumb_kernel_problem;

typedef struct crumb_kernel_machine crumb_kernel_machine;
typedef struct crumb_kernel_bench crumb_kernel_bench;
typedef struct crumb_trial crumb_trial;

/* What is opened. NULL: the backend's first device, its best kernels. */
typedef struct crumb_kernel_machine_params {
    const char *device;      /* "gpu0" */
    const char *target;      /* "cl:portable", "cpu:avx2": what plans of the device are to use */
    int n_threads;           /* 0: one per core; devices that have none ignore it */
    const char *cpu_kind;    /* of these cores, as in crumb_model_params; NULL: auto */
    crumb_core_speeds cores; /* as in crumb_device_params */
} crumb_kernel_machine_params;

typedef struct crumb_kernel_roofs {
    double read_gb_s; /* what all threads together read from memory; 0: unknown */
    double peak_gops; /* of the kernel's own dot product; 0: unknown */
    double clock_ghz; /* 0: unknown */
    double
        launch_ns; /* that a kernel takes by itself, without work, where kernels are launched one by one; 0: unknown */
} crumb_kernel_roofs;

/* How a bench runs a kernel. */
enum {
    CRUMB_BENCH_COLD = 1,  /* nothing of the weights (of a plan: of all that it reads) is in any cache */
    CRUMB_BENCH_WHOLE = 2, /* with quantizing its input, where plans do that for this kernel alone */
};

enum { CRUMB_KNOBS_BYTES = 128 };

/* Entries that are NULL are said so. All that take a machine may be called with NULL where nothing is opened: then what
 * depends on a device is as if it had none. */
struct crumb_kernel_suite {
    const char *backend; /* "cpu", "cl" */
    bool compiles;       /* each kernel is compiled for each form of problem when that is first met: seconds */
    size_t (*n_kernels)(void);
    crumb_kernel_info (*info)(const crumb_kernel_machine *machine, size_t kernel);
    bool (*takes)(const crumb_kernel_machine *machine, size_t kernel, const crumb_kernel_problem *problem);
    /* The kernel that a plan takes for a problem when nothing is tuned; SIZE_MAX: none. */
    size_t (*chosen)(const crumb_kernel_machine *machine, const crumb_kernel_problem *problem);
    /* The knobs that it takes it with. NULL: "". */
    void (*chosen_knobs)(const crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                         char knobs[CRUMB_KNOBS_BYTES]);

    /* Settings of a kernel change its speed and not its results. Number 0 is the default, and prints as "". */
    size_t (*n_settings)(const crumb_kernel_machine *machine, size_t kernel);
    void (*setting)(const crumb_kernel_machine *machine, size_t kernel, size_t number, char knobs[CRUMB_KNOBS_BYTES]);
    /* Whether a text that comes from elsewhere is one of them. NULL: any may be. */
    bool (*setting_known)(size_t kernel, const char *knobs);
    /* Whether it works for a problem: kernels that take the problem may not with every setting. NULL: they do. */
    bool (*setting_takes)(const crumb_kernel_machine *machine, size_t kernel, const char *knobs,
                          const crumb_kernel_problem *problem);
    /* What a setting comes to for a problem: settings that run the same program, cut in the same way, are told by the
     * same text. NULL: each setting is a program of its own. */
    void (*setting_effect)(const crumb_kernel_machine *machine, size_t kernel, const char *knobs,
                           const crumb_kernel_problem *problem, char effect[CRUMB_KNOBS_BYTES]);
    /* What a measurement holds for: the device with its driver, its tier, and a hash of the kernels' text. */
    void (*identify)(const crumb_kernel_machine *machine, char device[96], char target[32], char source[20]);
    /* Everything that the backend knows of the device, line by line; NULL: nothing more than its listing. */
    void (*describe)(const crumb_kernel_machine *machine, void (*line)(void *user, const char *text), void *user);

    /* A machine outlives its benches. */
    crumb_status (*machine_create)(const crumb_kernel_machine_params *params, crumb_kernel_machine **out,
                                   crumb_error *err);
    void (*machine_destroy)(crumb_kernel_machine *machine);      /* NULL is allowed */
    int (*machine_threads)(const crumb_kernel_machine *machine); /* 0: it has none of the host's */
    /* Measures the roofs once more, for this kernel. */
    void (*machine_roofs)(crumb_kernel_machine *machine, size_t kernel, crumb_kernel_roofs *out);
    /* Instructions that a core has on their way at once, now, and the most that this machine ever had: less where other
     * threads run on the same cores. NULL, or 0: unknown. */
    uint32_t (*machine_reorder)(crumb_kernel_machine *machine, uint32_t *most);
    /* Bytes that CRUMB_BENCH_COLD has taken out of caches since the machine was created, or, where a device cannot do
     * that, has read in the place of what they held: what is added between two calls is one run's. */
    uint64_t (*machine_flushed)(const crumb_kernel_machine *machine);

    /* y [n][m] = the trial's weights times its activations, by a kernel that takes the problem, in as many pieces and
     * on as many threads as where it is timed. Fails with MEMORY or DEVICE; y may be wrong, which is for the caller to
     * see. */
    crumb_status (*run)(crumb_kernel_machine *machine, size_t kernel, const char *knobs, crumb_trial *trial, float *y,
                        crumb_error *err);

    crumb_status (*bench_create)(crumb_kernel_machine *machine, const crumb_kernel_problem *problem,
                                 crumb_kernel_bench **out, crumb_error *err);
    void (*bench_destroy)(crumb_kernel_bench *bench);
    /* Nanoseconds of one run; `how`: CRUMB_BENCH_... . Fails with DEVICE also where the device tells no times. */
    crumb_status (*bench_run)(crumb_kernel_bench *bench, size_t kernel, const char *knobs, unsigned how, double *ns,
                              crumb_error *err);
    /* The same on so few rows that their weights stay in the core's own cache: what the instructions alone take.
     * *share is the part of the problem's rows. NULL: the device cannot be asked that. */
    crumb_status (*bench_run_near)(crumb_kernel_bench *bench, size_t kernel, double *ns, double *share,
                                   crumb_error *err);
    /* Nanoseconds that the calling thread takes, alone, for what the kernel's input must go through first: becoming
     * int8, another order, tables. 0: it reads the floats as they are. NULL: the device prepares in launches of its own
     * (or in the kernel's, CRUMB_BENCH_WHOLE). */
    crumb_status (*bench_prepare)(crumb_kernel_bench *bench, size_t kernel, double *ns, crumb_error *err);
    /* Bytes of weights (codes, scales, mins) that one run reads. */
    uint64_t (*bench_bytes)(const crumb_kernel_bench *bench, size_t kernel);

    /* Kernels that are in_plans; all three are NULL where there are none. The device is open as long as the machine,
     * and what the backend makes for it (memory, caches, plans) is destroyed before. */
    crumb_device *(*device)(crumb_kernel_machine *machine);
    /* As the backend's plan.record, with this kernel where it can take an op, whatever the device's plans choose.
     * *n_launches: how often it is in the plan. */
    crumb_status (*plan_record)(crumb_kernel_machine *machine, size_t kernel, const crumb_plan_desc *desc,
                                crumb_plan **out, size_t *n_launches, crumb_error *err);
    /* Replays, and adds up the nanoseconds of the kernel's launches. CRUMB_BENCH_COLD: before it nothing that the plan
     * reads is in any cache. Fails with DEVICE also where the device tells no times. */
    crumb_status (*plan_time)(crumb_kernel_machine *machine, size_t kernel, crumb_plan *plan, const crumb_row *rows,
                              uint32_t n_rows, unsigned how, double *ns, crumb_error *err);
};

#endif
