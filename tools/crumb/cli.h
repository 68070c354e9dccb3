/* What the files of the command share: options, messages, output, and opening a model.
 *
 * Exit codes: 0 ok, 1 failure, 2 usage, 3 bad or unsupported model, 4 device, 5 memory, 6 verification failed,
 * 130 interrupted (crumb_status_exit_code). Text and results go to stdout, everything else to stderr.
 */
#ifndef CRUMB_TOOLS_CLI_H
#define CRUMB_TOOLS_CLI_H

#include "host/crumb.h"
#include "tools/crumb/options.h"

#include <stdio.h>

enum { CLI_EXIT_OK = 0, CLI_EXIT_FAILURE = 1, CLI_EXIT_USAGE = 2, CLI_EXIT_INTERRUPTED = 130 };
enum { CLI_SCHEMA_VERSION = 1 }; /* of every JSON object that the command prints */

/* ---- subcommands ------------------------------------------------------------------------------------------- */

typedef struct cli_subcommand {
    const char *name;
    unsigned bit;          /* CLI_RUN ... in options.h */
    const char *arguments; /* usage, after the name */
    const char *summary;   /* one line */
    const char *details;   /* for --help and the man page */
    int (*run)(const cli_options *options);
} cli_subcommand;

extern const cli_subcommand cli_subcommands[];
extern const size_t cli_n_subcommands;
const cli_subcommand *cli_subcommand_find(const char *name); /* NULL: none */

int cli_run(const cli_options *options);
int cli_bench(const cli_options *options);
int cli_perplexity(const cli_options *options);
int cli_inspect(const cli_options *options);
int cli_tokenize(const cli_options *options);
int cli_kernels(const cli_options *options);
int cli_devices(const cli_options *options);
int cli_report(const cli_options *options); /* devices --report: report.c */
void cli_list_devices(void);                /* --list-devices: names only, for people */
int cli_tune(const cli_options *options);
int cli_plan(const cli_options *options);
int cli_quantize(const cli_options *options);
int cli_convert(const cli_options *options);
int cli_help(const cli_options *options);

/* ---- messages and output (terminal.c) ---------------------------------------------------------------------- */

void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2))); /* "crumb: error: ..." on stderr */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));  /* silenced by --log-disable */
/* Says why options that were given do nothing: behind the first line of `run`, before anything else elsewhere. */
void cli_say_notes(const cli_options *options);
int cli_fail(const crumb_error *err); /* prints it, returns its exit code */
void cli_set_quiet(bool on);

/* stdout. The first failed write is remembered; further ones do nothing. */
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_write(const char *bytes, size_t n_bytes);
bool cli_flush(void); /* false once writing has failed */
/* The exit code after everything is written: `code`, or 1 with a message when stdout could not take it all, or 0
 * quietly when its reader went away (crumb ... | head). */
int cli_finish_output(int code);

bool cli_is_terminal(FILE *stream);
bool cli_uses_color(FILE *stream); /* a terminal, and neither NO_COLOR nor TERM=dumb */

/* A bar on stderr while something long goes on; nothing unless stderr is a terminal. A crumb_progress_fn whose user is
 * the label (const char *). It gives up when Ctrl-C was pressed. */
bool cli_progress(void *label, float fraction);
/* A line there instead of the bar, at once, for steps of which each says for itself what it is. */
void cli_progress_line(const char *line);
void cli_progress_clear(void); /* of either */

/* Ctrl-C: the first asks the work in progress to end, a second one kills. */
void cli_catch_interrupt(void);
/* Forgets the Ctrl-C that came, and waits for the next; it breaks off the reading of a line where that is said. */
void cli_rearm_interrupt(bool breaks_reading);
bool cli_interrupted(void *unused); /* fits crumb_session_params.should_stop */

/* ---- text (text.c) ----------------------------------------------------------------------------------------- */

/* The whole of a file ("-": stdin), NUL-terminated; freed by the caller. */
crumb_status cli_read_file(const char *path, char **text, size_t *n_bytes, crumb_error *err);
/* \n \t \r \\ \' \" \xNN in place; returns the new length. */
size_t cli_unescape(char *text, size_t n_bytes);
/* Fit for a terminal: control characters as \n or \xNN, malformed UTF-8 as \xNN. Freed by the caller; NULL without
 * memory. */
char *cli_printable(const char *bytes, size_t n_bytes);
/* -p, else -f, else the plain argument; escapes processed as options say. *text is NULL when none was given. */
crumb_status cli_prompt(const cli_options *options, char **text, size_t *n_bytes, crumb_error *err);

/* ---- models (load.c) --------------------------------------------------------------------------------------- */

/* --split: "auto" or nothing becomes -1. */
crumb_status cli_read_split(const char *text, double *out, crumb_error *err);
/* --kv-cache, and llama.cpp's two options, which must agree with it and with each other. */
crumb_status cli_kv_type(const cli_options *options, crumb_kv_type *out, crumb_error *err);
const char *cli_kv_name(crumb_kv_type type); /* "f16", "q8_0" */
/* Opens options->model, a synthetic model where `synthetic` is given, or the embedded one where `path` is NULL too.
 * n_prompt: about as many tokens will a prompt have; 0: unknown. */
crumb_status cli_model_open(const cli_options *options, const char *path, const char *synthetic, int n_threads,
                            int64_t n_prompt, crumb_model **out, crumb_error *err);
/* A file as it is, without weights being packed: for inspect and tokenize. path NULL: the embedded model's. */
struct crumb_gguf;
crumb_status cli_gguf_open(const char *path, struct crumb_gguf **out, crumb_error *err);
/* Whether a model is safetensors: such a file, its index, or a folder with one, whose path is written to `path`. */
bool cli_find_safetensors(const char *model, char *path, size_t size);
crumb_status cli_inspect_safetensors(const char *path, bool json, crumb_error *err);
/* What the options say about evaluating; sampling has its defaults. */
crumb_session_params cli_session_params(const cli_options *options);
/* All tokens of a text; freed by the caller. */
crumb_status cli_model_tokenize(const crumb_model *model, const char *text, size_t n_bytes, unsigned flags,
                                int32_t **tokens, size_t *n_tokens, crumb_error *err);
const char *cli_cpu_name(void);                                              /* "AMD EPYC ..." */
const char *cli_file_name(const char *path);                                 /* after the last '/' */
const char *cli_count_label(uint64_t n, char buffer[32]);                    /* "134.52 M", "1.24 B" */
const char *cli_model_label(const crumb_model_info *info, char buffer[128]); /* "llama 135M Q4_1" */

/* ---- the machine (probe.c) --------------------------------------------------------------------------------- */

double cli_median(double *values, size_t n); /* sorts them; 0 for none */
/* What something takes that is small beside its own noise: the median of `rounds` samples. Where that is not above 0,
 * other programs have drowned it: it is measured again, some times, and is what the clock can tell apart at least, so
 * that nothing is taken to cost nothing. Fails as the samples do. */
typedef crumb_status cli_sample_fn(void *user, double *ns, crumb_error *err);
crumb_status cli_median_price(cli_sample_fn *sample, void *user, size_t rounds, double *ns, crumb_error *err);
cli_sample_fn cli_sample_step; /* `user` is a crumb_probe: a step of a plan */
/* GB/s that n_threads threads (0: one per core) together read from memory on cores of a kind: the roof of decoding.
 * Takes a few tenths of a second; 0 when there is too little memory to tell. */
double cli_probe_read_bandwidth(int n_threads, const char *cpu_kind);
/* Between what it was before something was timed and after it, since machines drift; 0 stands for unknown. */
double cli_probe_halfway(double before, double after);

#endif
