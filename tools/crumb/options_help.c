/* --help, from the option table. */
#include "tools/crumb/pages.h"

#include <string.h>

enum { HEADING_COLUMNS = 28, LINE_COLUMNS = 100 };

const char cli_tagline[] = "runs large language models with 1 to 8-bit weights";

void page_option_heading(const cli_option *option, char *out, size_t size) {
    char name[64];
    size_t used = 0;
    out[0] = 0;
    for (const char *c = option->names; cli_option_next_name(&c, name, sizeof name) && used < size;)
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", name);
    const char *format = option->kind == CLI_OPTIONAL ? " [%s]" : " %s";
    if (cli_option_takes_value(option) && used < size) snprintf(out + used, size - used, format, option->value);
}

/* Bytes of `text` that make at most `width` columns, cut at a space; a word longer than that is not cut. All texts are
 * ASCII. */
static size_t line_length(const char *text, size_t width) {
    size_t n = strlen(text);
    if (n <= width) return n;
    size_t cut = width;
    while (cut > 0 && text[cut] != ' ') cut--;
    return cut > 0 ? cut : strcspn(text, " ");
}

void page_print_wrapped(const char *text, int indent, int width, bool hanging) {
    for (bool first = true; *text; first = false) {
        size_t n = line_length(text, (size_t)(width - indent));
        cli_print("%*s%.*s\n", first && hanging ? 0 : indent, "", (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

static void print_option(const cli_option *option) {
    char heading[128], variable[64], text[600];
    page_option_heading(option, heading, sizeof heading);
    cli_option_variable(option, variable, sizeof variable);
    const char *standard = option->kind == CLI_OFF ? NULL : option->standard;
    size_t used = (size_t)snprintf(text, sizeof text, "%s", option->help);
    if (standard) used += (size_t)snprintf(text + used, sizeof text - used, " (default: %s)", standard);
    if (variable[0]) snprintf(text + used, sizeof text - used, " [%s]", variable);
    bool fits = strlen(heading) + 2 < HEADING_COLUMNS;
    cli_print("  %-*s%s", HEADING_COLUMNS - 2, heading, fits ? "" : "\n");
    page_print_wrapped(text, HEADING_COLUMNS, LINE_COLUMNS, fits);
}

void page_subcommand(const cli_subcommand *command) {
    cli_print("usage: crumb %s %s\n\n", command->name, command->arguments);
    page_print_wrapped(command->details, 0, LINE_COLUMNS, false);
    cli_print("\noptions:\n");
    for (size_t i = 0; i < cli_n_option_table; i++)
        if (cli_option_table[i].commands & command->bit && cli_option_listed(&cli_option_table[i]))
            print_option(&cli_option_table[i]);
}

void page_overview(void) {
    cli_print("crumb %s: %s\n\nusage: crumb COMMAND [arguments]\n\n", crumb_version(), cli_tagline);
    for (size_t i = 0; i < cli_n_subcommands; i++)
        cli_print("  %-12s %s\n", cli_subcommands[i].name, cli_subcommands[i].summary);
    cli_print("\n  crumb run                                      a story by the model that is part of crumb\n"
              "  crumb run -m FILE.gguf -p \"Once upon a time\"    any GGUF file that crumb can run\n"
              "\n'crumb COMMAND --help' lists a command's options. Topics of 'crumb help':\n\n");
    for (size_t i = 0; i < page_n_topics; i++) cli_print("  %-24s %s\n", page_topics[i].name, page_topics[i].summary);
}
