/* crumb help --man: the manual page, as troff with the man macros. */
#include "tools/crumb/pages.h"

#include <string.h>

/* Text as troff wants it: backslashes and hyphens escaped, no line that begins like a request. */
static void put(const char *text) {
    bool line_start = true;
    for (const char *p = text; *p; p++) {
        if (line_start && (*p == '.' || *p == '\'')) cli_print("\\&");
        line_start = *p == '\n';
        if (*p == '\\')
            cli_print("\\e");
        else if (*p == '-')
            cli_print("\\-");
        else
            cli_write(p, 1);
    }
}

static void put_with(const char *macro, const char *text) {
    cli_print("%s ", macro);
    put(text);
    cli_print("\n");
}

static void put_option_names(const cli_option *option) {
    char name[64];
    bool first = true;
    for (const char *c = option->names; cli_option_next_name(&c, name, sizeof name); first = false) {
        cli_print("%s\\fB", first ? "" : ", ");
        put(name);
        cli_print("\\fR");
    }
    if (cli_option_takes_value(option)) {
        cli_print(" \\fI");
        put(option->value);
        cli_print("\\fR");
    }
    cli_print("\n");
}

static void put_option(const cli_option *option) {
    char variable[64];
    cli_option_variable(option, variable, sizeof variable);
    cli_print(".TP\n");
    put_option_names(option);
    put(option->help);
    cli_print("\n");
    if (option->standard && option->kind != CLI_OFF) {
        cli_print("(default: ");
        put(option->standard);
        cli_print(")\n");
    }
    if (variable[0]) cli_print("[%s]\n", variable);
}

static void put_subcommand(const cli_subcommand *command) {
    cli_print(".SS crumb %s ", command->name);
    put(command->arguments);
    cli_print("\n");
    put(command->details);
    cli_print("\n");
    for (size_t i = 0; i < cli_n_option_table; i++)
        if (cli_option_table[i].commands & command->bit && cli_option_listed(&cli_option_table[i]))
            put_option(&cli_option_table[i]);
}

static void put_exit_codes(void) {
    cli_print(".SH EXIT STATUS\n");
    for (int s = 0; s < CRUMB_STATUS_COUNT; s++) {
        cli_print(".TP\n.B %d\n", crumb_status_exit_code((crumb_status)s));
        put(crumb_status_name((crumb_status)s));
        cli_print(": ");
        put(crumb_status_description((crumb_status)s));
        cli_print("\n");
    }
}

static void put_variable(const page_variable *variable) {
    cli_print(".TP\n");
    put_with(".B", variable->name);
    put(variable->help);
    cli_print("\n");
}

void page_manual(void) {
    cli_print(".TH CRUMB 1 \"\" \"crumb %s\" \"User Commands\"\n.SH NAME\ncrumb \\- ", crumb_version());
    put(cli_tagline);
    cli_print("\n.SH SYNOPSIS\n");
    for (size_t i = 0; i < cli_n_subcommands; i++) {
        cli_print("%s.B crumb %s\n", i ? ".br\n" : "", cli_subcommands[i].name);
        put(cli_subcommands[i].arguments);
        cli_print("\n");
    }
    cli_print(".SH DESCRIPTION\nText and results go to standard output, everything else to standard error.\n"
              "Each option has an environment variable, named with it; the command line has precedence.\n"
              ".SH COMMANDS\n");
    for (size_t i = 0; i < cli_n_subcommands; i++) put_subcommand(&cli_subcommands[i]);
    put_exit_codes();
    cli_print(".SH ENVIRONMENT\n");
    for (size_t i = 0; i < page_n_variables; i++) put_variable(&page_variables[i]);
    cli_print(".SH EXAMPLES\n.nf\n");
    put("crumb run\ncrumb run -m model.gguf -p \"Once upon a time\" -n 128 --temp 0\n"
        "crumb bench -m model.gguf -p 512 -n 128\ncrumb perplexity -m model.gguf -f text.txt\n"
        "crumb inspect model.gguf\n");
    cli_print(".fi\n.SH SEE ALSO\n");
    put_with(".B", "crumb help coming-from-llama.cpp");
}
