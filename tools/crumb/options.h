/* The one option table. The parser, --help, the man page, shell completion, the CRUMB_* variables and the page
 * "coming from llama.cpp" are all made from it, so they cannot disagree.
 */
#ifndef CRUMB_TOOLS_OPTIONS_H
#define CRUMB_TOOLS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Subcommands as bits. */
enum {
    CLI_RUN = 1,
    CLI_BENCH = 2,
    CLI_PERPLEXITY = 4,
    CLI_INSPECT = 8,
    CLI_TOKENIZE = 16,
    CLI_KERNELS = 32,
    CLI_HELP = 64,
    CLI_DEVICES = 128,
    CLI_TUNE = 256,
    CLI_PLAN = 512,
    CLI_ENGINE = CLI_RUN | CLI_BENCH | CLI_PERPLEXITY, /* those that evaluate a model */
    CLI_CONVERT = 1024,
    CLI_QUANTIZE = 2048,
    CLI_ALL = 4095,
};

enum { CLI_LIST_MAX = 64 };
typedef struct cli_ints {
    int64_t value[CLI_LIST_MAX];
    size_t n;
} cli_ints;
typedef struct cli_texts {
    const char *value[CLI_LIST_MAX]; /* parts of argv, or of `copies` */
    size_t n;
} cli_texts;

typedef struct cli_copy cli_copy;

/* What the options are set to. Texts are NULL when not given. */
typedef struct cli_options {
    /* model and machine */
    const char *model, *device, *backend, *target, *verify, *hf_repo;
    const char *cpu_kind, *balance;
    const char *activation, *kv_cache, *cache_type_k, *cache_type_v;
    int64_t n_threads, n_threads_batch, n_ctx, n_batch, n_ubatch;
    bool mlock, verbose, quiet, json, list_devices, roofline, help;
    /* text in and out */
    const char *prompt, *prompt_file, *color;
    const char *system_prompt, *chat_template, *chat_template_file, *tools;
    bool conversation, no_conversation, single_turn;
    bool display_prompt, escape;
    int64_t n_predict;
    /* sampling */
    int64_t seed, top_k, repeat_last_n;
    double temperature, top_p, min_p, repeat_penalty;
    bool ignore_eos;
    bool explain;
    /* bench */
    cli_texts bench_models, synthetic;
    cli_ints bench_prompt, bench_gen, bench_pair, bench_depth, bench_threads, bench_batch, bench_ubatch;
    int64_t repetitions;
    const char *output, *suite;
    bool warmup, energy;
    /* perplexity */
    int64_t n_chunks;
    bool kl_divergence;
    const char *kl_base;
    /* inspect */
    bool keys, tensors, full;
    /* tokenize */
    bool ids, bos, parse_special, from_stdin, show_count;
    /* kernels, devices */
    const char *kernel_op, *kernel_filter;
    cli_texts kernel_bits, kernel_shapes;
    cli_ints kernel_groups;
    int64_t rounds, kernel_seed, kernel_form;
    bool cold, measure;
    const char *report;
    /* tune */
    const char *tuning, *budget;
    double fraction;
    bool again;
    /* plan */
    const char *profile, *plan_kernels, *plan_synthetic, *split;
    int64_t plan_prompt, gpu_layers;
    /* quantize */
    bool pure;
    int64_t group_size;
    const char *quantize_method, *embedding_type, *output_type;
    const char *calibration, *act_order;
    int64_t calibration_tokens;
    double damping;
    /* help */
    bool man;
    const char *completion;
    cli_texts noted, notes; /* options given that do nothing here, and why: see cli_say_notes */
    cli_texts plain;        /* arguments that are no options and were not taken as model or prompt */
    cli_copy *copies;
} cli_options;

typedef enum cli_kind {
    CLI_ON,   /* no value: sets a bool */
    CLI_OFF,  /* no value: clears a bool */
    CLI_INT,  /* in [min, max] */
    CLI_REAL, /* in [min, max] */
    CLI_TEXT,
    CLI_CHOICE,       /* one word of `value`, which reads "a|b|c" */
    CLI_OPTIONAL,     /* as CLI_CHOICE, but the word may be missing, which means the first one */
    CLI_INTS,         /* 1,2,4  first-last  first-last+step  first-last*factor; may be repeated; all in [min, max] */
    CLI_TEXTS,        /* separated by commas; may be repeated */
    CLI_UNUSED,       /* llama.cpp's, without a value here: see `note` */
    CLI_UNUSED_VALUE, /* the same with a value */
} cli_kind;

typedef struct cli_option {
    const char *names; /* separated by spaces, the long one last: it names the CRUMB_* variable */
    cli_kind kind;
    const char *value;    /* what stands for the value in help, or the choices */
    size_t field;         /* offset in cli_options */
    const char *standard; /* default, parsed like any value; NULL: false, or not given */
    double min, max;
    unsigned commands;
    const char *help;
    /* Where it differs from llama.cpp's option of that name: shown on the page "coming from llama.cpp". For CLI_UNUSED*
     * and CLI_OPTIONAL it is also the line printed when the option is used with a value that is not in `quiet`. */
    const char *note;
    const char *quiet; /* "a|b|c"; NULL with a CLI_UNUSED note: always say it */
} cli_option;

extern const cli_option cli_option_table[];
extern const size_t cli_n_option_table;

/* Whether --help, the man page and completion list it: those that do nothing here are only on the llama.cpp page. */
bool cli_option_listed(const cli_option *option);
bool cli_option_takes_value(const cli_option *option);
/* Walks "-t --threads": copies the next name into out (size bytes); false at the end. Start with *cursor = names. */
bool cli_option_next_name(const char **cursor, char *out, size_t size);
/* "CRUMB_THREADS"; empty for options that have no variable. */
void cli_option_variable(const cli_option *option, char *out, size_t size);

/* Fills *options for the subcommand `name` (bit `command`) from defaults, CRUMB_* variables and argv, in rising
 * precedence. Returns 0, or the exit code after having printed what is wrong. What it holds points into argv, the
 * environment, or copies of its own: release it in either case. */
int cli_options_parse(const char *name, unsigned command, int argc, char **argv, cli_options *options);
void cli_options_release(cli_options *options);
/* The candidate nearest to `word` by edit distance. */
const char *cli_nearest(const char *word, const char *const *candidates, size_t n);

#endif
