/* Lines that a person types, with editing and history where both ends are a terminal; else those of standard input. */
#ifndef CRUMB_TOOLS_LINES_H
#define CRUMB_TOOLS_LINES_H

#include "host/crumb.h"

typedef struct cli_lines cli_lines;

typedef enum cli_line_end {
    CLI_LINE_READ,
    CLI_LINE_CLOSED,      /* Ctrl-D, or the end of the input */
    CLI_LINE_INTERRUPTED, /* Ctrl-C; cli_rearm_interrupt(true) must have been called */
} cli_line_end;

crumb_status cli_lines_open(cli_lines **out, crumb_error *err);
void cli_lines_close(cli_lines *l); /* NULL is allowed */
/* Whether a person types the lines, who is shown a prompt. */
bool cli_lines_edited(const cli_lines *l);
/* The next line without its end, freed by the caller. */
crumb_status cli_lines_next(cli_lines *l, const char *prompt, char **text, cli_line_end *end, crumb_error *err);

#endif
