/* What the files of `crumb plan` share. */
#ifndef CRUMB_TOOLS_PLAN_H
#define CRUMB_TOOLS_PLAN_H

#include "host/kernel/suite.h"
#include "scheduler/device_sim.h"
#include "scheduler/place.h"
#include "tools/crumb/cli.h"

/* A figure that the prediction stands on. */
typedef struct plan_figure {
    char key[96], source[192]; /* "gpu0.read_gb_s", "estimated: ..." */
    double value;
} plan_figure;

/* A machine with the sources of its figures. */
typedef struct plan_machine {
    crumb_profile profile;
    crumb_correction correction; /* what sessions have measured; of the stored profile only */
    plan_figure *figures;
    size_t n_figures, capacity;
    bool out_of_memory;
} plan_machine;

/* `name`: "this", one of crumb_profile_names, or a file. `kernels`: "crumb", "paper". */
crumb_status plan_machine_open(const char *name, const char *kernels, plan_machine *out, crumb_error *err);
void plan_machine_close(plan_machine *m); /* zeroed ones too */
bool plan_is_estimated(const plan_figure *f);

/* What is planned, and what came out. */
typedef struct plan {
    char model[256];
    plan_machine machine;
    crumb_cost_layer *layers;
    crumb_place_problem problem;
    crumb_placement placement;
    bool simulated; /* decoding is split, and was tried on virtual devices */
    bool fixed;     /* with the share that --split asks for */
    crumb_sim_result split;
    uint32_t n_simulated;
} plan;

double plan_decode_tok_s(const plan *p);
void plan_print_text(const plan *p);
crumb_status plan_print_json(const plan *p, crumb_error *err);

/* The published results beside what the paper's components predict (plan_paper.c). */
int plan_paper(const cli_options *options);

/* ---- this machine (plan_measure.c) --------------------------------------------------------------------------- */

/* Measures the processor and the GPUs that can be used, and stores the profile in the user's cache. `path` gets where
 * it lies. */
crumb_status plan_measure(int n_threads, size_t rounds, char *path, size_t size, crumb_error *err);
/* A device's kernels that are measured. */
typedef struct plan_bench {
    const crumb_backend *backend;
    const crumb_kernel_suite *suite;
    crumb_kernel_machine *machine;
    size_t rounds;
    uint32_t many; /* rows of activations that stand for a prompt */
} plan_bench;
/* Ops that run in plans only (plan_ops.c): 10^9 operations a second with many rows, and the part of the memory's
 * bandwidth that one row reaches. Fails with DEVICE where the device tells no times. */
typedef struct plan_ops_speeds {
    double dense_gops, dense_share, attention_gops, attention_share;
} plan_ops_speeds;
crumb_status plan_measure_ops(const plan_bench *bench, plan_ops_speeds *out, crumb_error *err);
/* Microseconds of an exchange between a GPU and the processor's n_threads threads, which is above 0 (plan_exchange.c).
 * Fails with UNSUPPORTED where these have no memory that both see. */
crumb_status plan_measure_exchange(const plan_bench *gpu, int n_threads, double *us, crumb_error *err);
/* Moving keys and values from a device's cache to the processor's (plan_move.c). */
typedef struct plan_move {
    double gb_s, us; /* by their bytes, and beyond these for each layer; 0: both devices have one cache */
} plan_move;
crumb_status plan_measure_move(const crumb_backend *backend, const char *name, plan_move *out, crumb_error *err);

#endif
