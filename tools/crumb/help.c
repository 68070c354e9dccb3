/* crumb help [topic]. */
#include "tools/crumb/pages.h"

#include "host/lowbit/types.h"
#include "host/model/arch.h"

#include <string.h>

enum { LINE_COLUMNS = 100 };

static void print_errors(void) {
    cli_print("Every message says what, where, and what to do. The command's exit code tells the kind:\n\n");
    cli_print("  %-5s %-13s %s\n", "code", "status", "meaning");
    for (int s = 0; s < CRUMB_STATUS_COUNT; s++)
        cli_print("  %-5d %-13s %s\n", crumb_status_exit_code((crumb_status)s), crumb_status_name((crumb_status)s),
                  crumb_status_description((crumb_status)s));
    cli_print("\nA closed pipe on standard output (crumb ... | head) ends quietly with 0.\n");
}

static void print_variable(const cli_option *option) {
    char variable[64], heading[128];
    cli_option_variable(option, variable, sizeof variable);
    page_option_heading(option, heading, sizeof heading);
    if (!variable[0] || !cli_option_listed(option)) return;
    cli_print("  %-26s %s", variable, heading);
    const char *separator = " (";
    for (size_t i = 0; i < cli_n_subcommands; i++)
        if (option->commands & cli_subcommands[i].bit) {
            cli_print("%s%s", separator, cli_subcommands[i].name);
            separator = ", ";
        }
    cli_print(")\n");
}

const page_variable page_variables[] = {
    {"NO_COLOR", "when set and not empty, nothing is coloured"},
    {"CRUMB_PATIENCE_MS", "how long a GPU may take to answer before it counts as failed (120000); 0: for ever"},
    {"CRUMB_MODULE_DIR", "the one folder to look for libcrumb-cl.so and libcrumb-ze.so in, which drive GPUs; else they "
                         "are found beside crumb and in its library folder"},
    {"CRUMB_CLBLAST_PARAMETERS",
     "of a target that ends with +clblast: parameters of CLBlast's kernels, as \"Xgemm KWG=32 "
     "...; XgemmDirect WGD=16 ...\", with all that a kernel has"},
};
const size_t page_n_variables = sizeof page_variables / sizeof page_variables[0];

static void print_environment(void) {
    cli_print("Each option can be set by a variable; the command line has precedence. A switch is on for 1, on, true "
              "or yes.\n\n");
    for (size_t i = 0; i < cli_n_option_table; i++) print_variable(&cli_option_table[i]);
    cli_print("\n");
    for (size_t i = 0; i < page_n_variables; i++) {
        cli_print("  %-26s ", page_variables[i].name);
        page_print_wrapped(page_variables[i].help, 29, LINE_COLUMNS, true);
    }
}

static const char *rule_name(crumb_act_rule rule) {
    return rule == CRUMB_ACT_RULE_ROW     ? "int8, a scale per token"
           : rule == CRUMB_ACT_RULE_GROUP ? "int8, a scale per weight group"
                                          : "float";
}

static void print_formats(void) {
    cli_print(
        "GGUF versions 2 and 3, also split files; folders as transformers writes them (config.json, "
        "safetensors,\ntokenizer.json): in bf16, f16 or f32, packed as BitNet, GPTQ (versions 1 and 2; 2, 3, 4 and "
        "8 bits) or\nAWQ (4 bits, gemm) have it (settings in config.json, quantize_config.json or quant_config.json),\n"
        "or trained on few levels as ParetoQ does. Architectures: %s. "
        "Tensor types:\n\n",
        crumb_arch_names());
    cli_print("  %-12s %12s %6s  %s\n", "type", "bits/weight", "codes", "activations by default");
    for (int t = 0; t < CRUMB_TYPE_GGUF_COUNT; t++) {
        const crumb_type_info *info = crumb_type_get_info((crumb_type)t);
        char codes[16];
        snprintf(codes, sizeof codes, info->bits ? "u%u" : "dense", info->bits);
        cli_print("  %-12s %12.3f %6s  %s\n", info->name, 8.0 * info->block_bytes / info->block, codes,
                  rule_name(info->act_rule));
    }
    cli_print("\n");
    page_print_wrapped("What crumb would run wrongly it refuses, with the tensor or key named: unknown types and "
                       "architectures, transforms that are not applied, vocabularies that do not fit.",
                       0, LINE_COLUMNS, false);
}

static void print_llama_row(const cli_option *option) {
    char heading[128];
    page_option_heading(option, heading, sizeof heading);
    cli_print("  %-38s", heading);
    if (strlen(heading) >= 38) cli_print("\n%40s", "");
    page_print_wrapped(option->note, 40, LINE_COLUMNS, true);
}

static void print_coming_from_llama(void) {
    cli_print("  llama.cpp            crumb\n"
              "  llama-completion     crumb run\n"
              "  llama-bench          crumb bench\n"
              "  llama-perplexity     crumb perplexity\n"
              "  llama-tokenize       crumb tokenize\n"
              "  gguf-dump            crumb inspect\n"
              "  convert_hf_to_gguf   crumb convert\n"
              "  llama-quantize       crumb quantize\n\n");
    page_print_wrapped("Options have llama.cpp's names, single-dash long ones such as -ngl included, and mean the same "
                       "unless they are listed here. LLAMA_ARG_* variables are named CRUMB_* ('crumb help "
                       "environment'). The timing lines at the end, the lines of perplexity and the fields of bench "
                       "keep their form. The model may also stand as a plain argument: crumb run FILE \"prompt\".",
                       0, LINE_COLUMNS, false);
    cli_print("\nDifferent:\n");
    for (size_t i = 0; i < cli_n_option_table; i++)
        if (cli_option_table[i].note && cli_option_listed(&cli_option_table[i])) print_llama_row(&cli_option_table[i]);
    cli_print("\nAccepted, so that scripts run:\n");
    for (size_t i = 0; i < cli_n_option_table; i++)
        if (cli_option_table[i].note && !cli_option_listed(&cli_option_table[i])) print_llama_row(&cli_option_table[i]);
}

const page_topic page_topics[] = {
    {"errors", "statuses and exit codes", print_errors},
    {"environment", "the CRUMB_* variables", print_environment},
    {"formats", "files, architectures and types that run", print_formats},
    {"coming-from-llama.cpp", "which command and option is which", print_coming_from_llama},
};
const size_t page_n_topics = sizeof page_topics / sizeof page_topics[0];

static int unknown_topic(const char *name) {
    const char *names[64];
    size_t n = 0;
    for (size_t i = 0; i < cli_n_subcommands; i++) names[n++] = cli_subcommands[i].name;
    for (size_t i = 0; i < page_n_topics; i++) names[n++] = page_topics[i].name;
    cli_error("no help on '%s'; did you mean 'crumb help %s'?", name, cli_nearest(name, names, n));
    return CLI_EXIT_USAGE;
}

static int print_topic(const char *name) {
    const cli_subcommand *command = cli_subcommand_find(name);
    if (command) return page_subcommand(command), CLI_EXIT_OK;
    for (size_t i = 0; i < page_n_topics; i++)
        if (strcmp(page_topics[i].name, name) == 0) return page_topics[i].print(), CLI_EXIT_OK;
    return unknown_topic(name);
}

int cli_help(const cli_options *options) {
    int code = CLI_EXIT_OK;
    if (options->man) page_manual();
    if (options->completion) strcmp(options->completion, "bash") == 0 ? page_bash_completion() : page_zsh_completion();
    for (size_t i = 0; i < options->plain.n && code == CLI_EXIT_OK; i++) code = print_topic(options->plain.value[i]);
    if (!options->man && !options->completion && options->plain.n == 0) page_overview();
    return code;
}
