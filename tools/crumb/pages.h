/* What is printed from the option table: help, the manual page, completion. */
#ifndef CRUMB_TOOLS_PAGES_H
#define CRUMB_TOOLS_PAGES_H

#include "tools/crumb/cli.h"

extern const char cli_tagline[]; /* what crumb is, in one line */

/* "-t, --threads N" */
void page_option_heading(const cli_option *option, char *out, size_t size);
/* Prints text in lines of at most `width` columns, each behind `indent` spaces; the first without the indent when
 * `hanging`. Ends with a newline. */
void page_print_wrapped(const char *text, int indent, int width, bool hanging);

void page_overview(void);                            /* crumb --help */
void page_subcommand(const cli_subcommand *command); /* crumb run --help */
void page_manual(void);                              /* crumb help --man */
void page_bash_completion(void);
void page_zsh_completion(void);

/* Variables that no option stands for. */
typedef struct page_variable {
    const char *name, *help;
} page_variable;
extern const page_variable page_variables[];
extern const size_t page_n_variables;

/* Topics of crumb help. */
typedef struct page_topic {
    const char *name, *summary;
    void (*print)(void);
} page_topic;
extern const page_topic page_topics[];
extern const size_t page_n_topics;

#endif
