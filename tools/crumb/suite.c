/* crumb bench --suite: which cases run, in which order. */
#include "tools/crumb/suite.h"

#include "host/base/error.h"

#include <stdarg.h>
#include <string.h>

/* The quick ones first. */
static crumb_status (*const sections[])(suite_state *s, crumb_error *err) = {
    suite_threads, suite_near,   suite_gemv,  suite_few,   suite_gemm,    suite_tuned,
    suite_layer,   suite_models, suite_paper, suite_depth, suite_quality, suite_peers};
enum { N_SECTIONS = sizeof sections / sizeof sections[0] };

bool suite_case(suite_state *s, const char *format, ...) {
    char name[64];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (s->options->kernel_filter && !strstr(name, s->options->kernel_filter)) return false;
    if (s->counting) {
        s->n_cases++;
        return false;
    }
    snprintf(s->progress, sizeof s->progress, "%zu of %zu: %s", ++s->n_begun, s->n_cases, name);
    cli_progress_line(s->progress);
    return true;
}

crumb_status suite_row_add(suite_state *s, const suite_row *row, crumb_error *err) {
    if (cli_interrupted(NULL)) return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "interrupted");
    cli_progress_clear();
    CRUMB_TRY(suite_print_row(s, row, err));
    s->n_rows++;
    s->n_skipped += row->skipped;
    if (!row->skipped && row->wanted > 0) *(suite_met(row) ? &s->n_met : &s->n_missed) += 1;
    if (!cli_flush()) return crumb_fail(err, CRUMB_ERR_INTERRUPTED, "stdout is closed");
    cli_progress_line(s->progress);
    return CRUMB_OK;
}

bool suite_wants_format(const suite_state *s, const char *name) {
    for (size_t i = 0; i < s->choice.n_formats; i++)
        if (strcmp(s->choice.formats[i]->name, name) == 0) return true;
    return false;
}

static crumb_status set_up(suite_state *s, const cli_options *o, crumb_error *err) {
    *s = (suite_state){.options = o, .format = bench_choose_format(o), .rounds = (size_t)o->rounds};
    if (o->bench_threads.n != 1) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--suite takes one number of threads (-t)");
    if (kernels_gpu_backend(o)) return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--suite cpu measures the CPU");
    s->n_threads = bench_resolve_threads(o, o->bench_threads.value[0]);
    CRUMB_TRY(kernels_choose(o, s->n_threads, NULL, 0, NULL, 0, &s->choice, err));
    s->tier = s->choice.target;
    return kernels_check_tier(&s->choice, err);
}

static crumb_status run_sections(suite_state *s, bool counting, crumb_error *err) {
    s->counting = counting;
    for (size_t i = 0; i < N_SECTIONS; i++) CRUMB_TRY(sections[i](s, err));
    return CRUMB_OK;
}

int bench_suite(const cli_options *options) {
    crumb_error err = {0};
    suite_state s;
    cli_catch_interrupt();
    crumb_status status = set_up(&s, options, &err);
    if (status == CRUMB_OK) status = run_sections(&s, true, &err);
    if (status == CRUMB_OK && s.n_cases == 0)
        status = crumb_fail(&err, CRUMB_ERR_ARGUMENT, "--filter %s: no case of the suite has this in its name",
                            options->kernel_filter ? options->kernel_filter : "");
    if (status == CRUMB_OK) {
        suite_describe_tuning(&s);
        suite_print_begin(&s);
        status = run_sections(&s, false, &err);
        cli_progress_clear();
        suite_print_end(&s); /* what was measured until a failure stays readable */
    }
    kernels_release(&s.choice);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
