/* crumb help --completion bash|zsh, from the option table. */
#include "tools/crumb/pages.h"

#include <string.h>

/* "auto|cpu" holds words to offer; "FILE" and "N" do not. */
static bool has_choices(const cli_option *option) {
    return cli_option_takes_value(option) && strchr(option->value, '|') && !strchr(option->value, '.');
}

static bool takes_file(const cli_option *option) {
    return cli_option_takes_value(option) && strncmp(option->value, "FILE", 4) == 0;
}

static bool offered(const cli_option *option, const cli_subcommand *command) {
    return option->commands & command->bit && cli_option_listed(option);
}

static void print_words(const char *words, char separator) {
    for (const char *p = words; *p; p++) cli_print("%c", *p == separator ? ' ' : *p);
}

/* What may stand as a plain argument besides files. */
static void print_plain_words(const cli_subcommand *command) {
    if (command->bit == CLI_KERNELS) cli_print("list support test perf");
    if (command->bit == CLI_QUANTIZE)
        cli_print("Q8_0 Q4_0 Q4_1 MXFP4 Q2_0 TQ2_0 TQ1_0 I2_S Q1_0 F16 BF16 F32 GPTQ4 GPTQ3 GPTQ2");
    if (command->bit == CLI_TUNE) cli_print("run show export import prune");
    if (command->bit != CLI_HELP) return;
    for (size_t i = 0; i < cli_n_subcommands; i++) cli_print("%s ", cli_subcommands[i].name);
    for (size_t i = 0; i < page_n_topics; i++) cli_print("%s ", page_topics[i].name);
}

/* ---- bash -------------------------------------------------------------------------------------------------- */

static void print_bash_pattern(const cli_option *option) {
    char name[64];
    const char *separator = "";
    for (const char *c = option->names; cli_option_next_name(&c, name, sizeof name); separator = " | ")
        cli_print("%s%s", separator, name);
}

static void print_bash_subcommand(const cli_subcommand *command) {
    cli_print("    %s)\n        case $previous in\n", command->name);
    for (size_t i = 0; i < cli_n_option_table; i++) {
        const cli_option *option = &cli_option_table[i];
        if (!offered(option, command) || !cli_option_takes_value(option)) continue;
        cli_print("            ");
        print_bash_pattern(option);
        if (has_choices(option)) {
            cli_print(") words=\"");
            print_words(option->value, '|');
            cli_print("\" files=0 ;;\n");
        } else {
            cli_print(") files=%d ;;\n", takes_file(option));
        }
    }
    cli_print("            *) words=\"");
    for (size_t i = 0; i < cli_n_option_table; i++)
        if (offered(&cli_option_table[i], command)) cli_print("%s ", cli_option_table[i].names);
    print_plain_words(command);
    cli_print("\" ;;\n        esac\n        ;;\n");
}

void page_bash_completion(void) {
    cli_print("# bash completion for crumb\n\n_crumb() {\n"
              "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=\"\" files=1\n"
              "    COMPREPLY=()\n    if ((COMP_CWORD == 1)); then\n        words=\"");
    for (size_t i = 0; i < cli_n_subcommands; i++) cli_print("%s ", cli_subcommands[i].name);
    cli_print("--help --version\"\n        files=0\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < cli_n_subcommands; i++) print_bash_subcommand(&cli_subcommands[i]);
    cli_print(
        "    esac\n"
        "    [[ $current != -* || -n $words ]] && mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
        "    if ((files)) && [[ $current != -* ]]; then\n"
        "        compopt -o filenames 2>/dev/null\n"
        "        local found\n"
        "        mapfile -t found < <(compgen -f -- \"$current\")\n"
        "        COMPREPLY=(\"${found[@]}\")\n"
        "    fi\n}\ncomplete -F _crumb crumb\n");
}

/* ---- zsh --------------------------------------------------------------------------------------------------- */

/* Inside '...' and [...]: a quote ends the word, brackets and colons have meaning. */
static void print_zsh_text(const char *text) {
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            cli_print("'\\''");
        else if (strchr("[]:\\", *p))
            cli_print("\\%c", *p);
        else
            cli_print("%c", *p);
    }
}

static void print_zsh_option(const cli_option *option) {
    char name[64];
    for (const char *c = option->names; cli_option_next_name(&c, name, sizeof name);) {
        cli_print("            '(%s)%s[", option->names, name);
        print_zsh_text(option->help);
        cli_print("]");
        if (cli_option_takes_value(option)) {
            cli_print("%s", option->kind == CLI_OPTIONAL ? "::" : ":");
            print_zsh_text(has_choices(option) ? "choice" : option->value);
            cli_print(":");
        }
        if (has_choices(option)) {
            cli_print("(");
            print_words(option->value, '|');
            cli_print(")");
        }
        if (takes_file(option)) cli_print("_files");
        cli_print("' \\\n");
    }
}

void page_zsh_completion(void) {
    cli_print("#compdef crumb\n\n_crumb() {\n    local -a commands=(\n");
    for (size_t i = 0; i < cli_n_subcommands; i++) {
        cli_print("        '%s:", cli_subcommands[i].name);
        print_zsh_text(cli_subcommands[i].summary);
        cli_print("'\n");
    }
    cli_print("    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n        return\n    fi\n"
              "    local command=$words[2]\n    shift words\n    ((CURRENT--))\n    case $command in\n");
    for (size_t i = 0; i < cli_n_subcommands; i++) {
        const cli_subcommand *command = &cli_subcommands[i];
        cli_print("        %s)\n            _arguments \\\n", command->name);
        for (size_t j = 0; j < cli_n_option_table; j++)
            if (offered(&cli_option_table[j], command)) print_zsh_option(&cli_option_table[j]);
        if (command->bit & (CLI_KERNELS | CLI_TUNE | CLI_HELP)) {
            cli_print("            '*:topic:(");
            print_plain_words(command);
            cli_print(")'\n            ;;\n");
        } else {
            cli_print("            '*:file:_files'\n            ;;\n");
        }
    }
    cli_print("    esac\n}\n\n_crumb \"$@\"\n");
}
