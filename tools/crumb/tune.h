/* crumb tune: searching the settings of kernels for one problem after the other. */
#ifndef CRUMB_TOOLS_TUNE_H
#define CRUMB_TOOLS_TUNE_H

#include "host/kernel/suite.h"
#include "host/kernel/tuning.h"
#include "tools/crumb/kernels.h"

/* Rows of activations that a check takes at most: more than the narrowest block of columns that a GEMM may be told. */
enum { TUNE_CHECK_N = 53 };

typedef struct tune_outcome {
    size_t n_candidates, n_measured, n_wrong; /* n_measured: in this run; the others were known */
    crumb_tuning_record best;                 /* which plans take */
    crumb_tuning_record unconfirmed; /* what seems to be better, which they do not; without a kernel: nothing */
} tune_outcome;

/* Measures until `deadline_ns` and writes everything to the database, every second and after each stage. Interrupted,
 * it returns OK with what it has. Nothing to measure (no kernel takes the problem) leaves outcome->n_candidates 0. */
crumb_status tune_search(const kernels_choice *choice, const crumb_kernel_problem *problem, crumb_tuning *db,
                         uint64_t deadline_ns, tune_outcome *outcome, crumb_error *err);

/* What candidates for a problem are checked on (tune_check.c): of each form of scales one sample, for values in bf16
 * another, made when it is first asked for. */
typedef struct tune_samples {
    crumb_kernel_problem problem; /* a part of the one that is tuned for */
    kernels_sample of[KERNELS_N_SCALES][2];
    bool made[KERNELS_N_SCALES][2];
} tune_samples;

/* has_threads: candidates differ in threads and chunks as well, so that they must be cut into several. */
void tune_samples_init(const crumb_kernel_problem *problem, bool has_threads, tune_samples *out);
void tune_samples_destroy(tune_samples *samples);
/* Whether a candidate computes the right thing, on as many threads and in as many chunks as where it is timed; `number`
 * chooses the form. As kernels_check_sample. */
crumb_status tune_check(const kernels_choice *choice, tune_samples *samples, size_t kernel, const char *knobs,
                        uint64_t number, kernels_check *out, crumb_error *err);

/* "90s", "10m", "1h", "45": nanoseconds; fails with ARGUMENT. */
crumb_status tune_parse_budget(const char *text, uint64_t *ns, crumb_error *err);
/* The database's file: what the options name, or the user's. NULL: none, by --tuning none or for want of a home folder.
 * Without a file there is nothing to look up, and nothing can be kept. */
enum { TUNE_PATH_BYTES = 512 };
const char *tune_database_path(const cli_options *options, char standard[TUNE_PATH_BYTES]);
/* Fails where nothing could be kept there, and says what to do. */
crumb_status tune_check_database(const cli_options *options, crumb_error *err);
/* Opens it, to be closed by the caller; to be written to with `create`, else an empty one where there is none. What is
 * odd about it becomes a note. */
crumb_status tune_open_database(const cli_options *options, bool create, crumb_tuning **out, crumb_error *err);

/* crumb tune import FILE (tune_import.c). */
crumb_status tune_import(const cli_options *options, crumb_error *err);

/* "u2 8192x2048x1, group 2048": for progress and results. */
void tune_problem_name(const crumb_tuning_key *key, char out[96]);

#endif
