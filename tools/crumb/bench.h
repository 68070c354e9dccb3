/* What crumb bench measures, and how it is printed. */
#ifndef CRUMB_TOOLS_BENCH_H
#define CRUMB_TOOLS_BENCH_H

#include "host/engine/energy.h"
#include "tools/crumb/json_util.h"

#include <time.h>

typedef struct bench_result {
    /* the case */
    crumb_model_info info;
    char model_label[128];
    const char *model_filename;
    int64_t n_prompt, n_gen, n_depth, n_batch, n_ubatch;
    int n_threads;
    crumb_kv_type kv_type;
    /* what was measured */
    time_t test_time;
    size_t n_samples;
    const uint64_t *samples_ns;
    double avg_ns, stddev_ns, avg_ts, stddev_ts; /* of the samples; ts = tokens per second */
    double prompt_ns, gen_ns;                    /* averages of the two phases; 0 where there is none */
    double roof_gb_s;                            /* read bandwidth of this many threads; 0: unknown */
    bool with_energy;                            /* it was asked for */
    crumb_engine_energy energy;                  /* of all samples */
} bench_result;

/* Bytes of weights read per second while decoding, in GB/s; 0 for a test that does not decode. */
double bench_bandwidth(const bench_result *r);

/* Mean over the samples; 0: unknown. */
double bench_watts(const bench_result *r);

typedef enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL, BENCH_DOCUMENT } bench_format;
bench_format bench_choose_format(const cli_options *options);

/* Prints results as they come: begin, then each result, then end. BENCH_DOCUMENT is --json: one object. */
void bench_print_begin(bench_format format, bool with_energy);
crumb_status bench_print_result(bench_format format, const bench_result *r, bool first, crumb_error *err);
void bench_print_end(bench_format format, bool any);

/* The parts of these that depend on the format alone: what stands around and between the results, and one result as an
 * object, which is freed (CSV: its values, after their names where it is the first). Not for BENCH_MD. */
void bench_open_list(bench_format format);
crumb_status bench_print_object(bench_format format, cJSON *object, bool first, crumb_error *err);
void bench_close_list(bench_format format, bool any);

/* 0: one per core of the kinds that --cpu-kind names. */
int bench_resolve_threads(const cli_options *options, int64_t n);
int bench_suite(const cli_options *options); /* suite.c */

#endif
