/* crumb bench --suite: the project's targets, a row each. What a row measures is divided by what the machine, or the
 * other kernel, did in the same rounds. Sections fill rows (suite_near.c, suite_gemv.c, suite_gemm.c,
 * suite_tuned.c, suite_models.c, suite_quality.c, suite_peers.c), suite_output.c prints them. */
#ifndef CRUMB_TOOLS_SUITE_H
#define CRUMB_TOOLS_SUITE_H

#include "tools/crumb/bench.h"
#include "tools/crumb/kernels.h"

typedef struct suite_row {
    const char *section;
    char what[128];
    const char *unit; /* of measured and baseline */
    double measured;
    char baseline_name[96];
    double baseline;             /* 0: none */
    double ratio;                /* the median over the rounds, not that of the medians */
    double wanted;               /* of the ratio; 0: nothing, it is for information */
    double alone_ratio;          /* in the rounds in which its cores ran nothing else, n_alone of n_rounds */
    size_t n_alone, n_rounds;    /* n_rounds 0: not asked */
    bool factor;                 /* print the ratio as a factor, not in percent */
    uint64_t n_bytes;            /* that the ratio counts; 0: none */
    const char *head;            /* type of the output matrix; NULL: no model */
    double read_gb_s, peak_gops; /* what the probes said; 0: not asked */
    const char *tuning;          /* of a model: what its plans took from which database; NULL: none was asked */
    char note[256];
    bool skipped; /* nothing was measured; the note says why */
} suite_row;

typedef struct suite_state {
    const cli_options *options;
    kernels_choice choice; /* formats and shapes by the options */
    const char *tier;      /* that --target forces, "avx2"; NULL: the best */
    bench_format format;
    int n_threads;
    size_t rounds;
    char tuning[560]; /* "tuned: FILE, 3 records", "untuned": of whole models; single kernels run as by default */
    bool counting;    /* the first pass, which only counts the cases */
    char progress[96];
    size_t n_cases, n_begun;
    size_t n_rows, n_met, n_missed, n_skipped;
} suite_state;

/* Begins a case: whether --filter lets it run in this pass. The name is what --filter looks at, "gemv/llama3-8b/2". */
bool suite_case(suite_state *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails with INTERRUPTED after Ctrl-C, so that no half-measured row is printed. */
crumb_status suite_row_add(suite_state *s, const suite_row *row, crumb_error *err);
/* Whether --bits leaves this format in. */
bool suite_wants_format(const suite_state *s, const char *name);

/* Sections, in suite_near.c ... */
crumb_status suite_threads(suite_state *s, crumb_error *err);
crumb_status suite_near(suite_state *s, crumb_error *err);
/* ... in suite_gemv.c ... */
crumb_status suite_gemv(suite_state *s, crumb_error *err);
/* ... in suite_gemm.c ... */
crumb_status suite_gemm(suite_state *s, crumb_error *err);
crumb_status suite_few(suite_state *s, crumb_error *err);
/* ... in suite_tuned.c ... */
crumb_status suite_tuned(suite_state *s, crumb_error *err);
void suite_describe_tuning(suite_state *s); /* fills s->tuning */
/* ... in suite_quality.c ... */
crumb_status suite_quality(suite_state *s, crumb_error *err);
/* ... in suite_peers.c ... */
crumb_status suite_peers(suite_state *s, crumb_error *err);
/* ... and in suite_models.c. */
crumb_status suite_layer(suite_state *s, crumb_error *err);
crumb_status suite_models(suite_state *s, crumb_error *err);
crumb_status suite_depth(suite_state *s, crumb_error *err);
crumb_status suite_paper(suite_state *s, crumb_error *err);

/* suite_output.c */
void suite_print_begin(const suite_state *s);
crumb_status suite_print_row(const suite_state *s, const suite_row *row, crumb_error *err);
void suite_print_end(const suite_state *s);
static inline bool suite_met(const suite_row *row) {
    return row->ratio >= row->wanted;
}

#endif
