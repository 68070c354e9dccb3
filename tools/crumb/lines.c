#include "tools/crumb/lines.h"

#include "host/base/error.h"
#include "host/base/memory.h"
#include "tools/crumb/cli.h"

#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
#ifdef CRUMB_HAVE_LIBEDIT
#include <histedit.h>
#endif

struct cli_lines {
    bool edited;
    const char *prompt;
#ifdef CRUMB_HAVE_LIBEDIT
    EditLine *editor;
    History *history;
#endif
};

bool cli_lines_edited(const cli_lines *l) {
    return l->edited;
}

static crumb_status copy_line(const char *line, size_t n, char **out, crumb_error *err) {
    while (n && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    if (memchr(line, 0, n))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "standard input: a byte 0 in a line, which a message cannot have");
    *out = strndup(line, n);
    return *out ? CRUMB_OK : crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a line of %zu bytes", n);
}

static crumb_status read_plain(char **text, cli_line_end *end, crumb_error *err) {
    char *line = NULL;
    size_t capacity = 0;
    errno = 0;
    const ssize_t n = getline(&line, &capacity, stdin);
    crumb_status status = CRUMB_OK;
    *end = n >= 0 ? CLI_LINE_READ : cli_interrupted(NULL) ? CLI_LINE_INTERRUPTED : CLI_LINE_CLOSED;
    if (n >= 0) status = copy_line(line, (size_t)n, text, err);
    if (n < 0 && *end == CLI_LINE_CLOSED && ferror(stdin))
        status = crumb_fail(err, CRUMB_ERR_IO, "standard input: %s", strerror(errno));
    free(line);
    return status;
}

#ifdef CRUMB_HAVE_LIBEDIT

static char *show_prompt(EditLine *editor) {
    cli_lines *l;
    el_get(editor, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)l->prompt;
}

/* libedit's own reading goes on after Ctrl-C. */
static int read_character(EditLine *editor, wchar_t *out) {
    mbstate_t state = {0};
    (void)editor;
    for (;;) {
        char byte;
        if (cli_interrupted(NULL)) return -1;
        const ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return (int)n;
        const size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2) continue;
        if (used == (size_t)-1) *out = 0xfffd;
        return 1;
    }
}

static crumb_status open_editor(cli_lines *l, crumb_error *err) {
    HistEvent event;
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8");
    l->editor = el_init("crumb", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->editor || !l->history) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for editing lines");
    history(l->history, &event, H_SETSIZE, 1000);
    el_set(l->editor, EL_CLIENTDATA, l);
    el_set(l->editor, EL_PROMPT, show_prompt);
    el_set(l->editor, EL_EDITOR, "emacs");
    el_set(l->editor, EL_HIST, history, l->history);
    el_set(l->editor, EL_GETCFN, read_character);
    el_source(l->editor, NULL); /* ~/.editrc */
    return CRUMB_OK;
}

static crumb_status read_edited(cli_lines *l, char **text, cli_line_end *end, crumb_error *err) {
    HistEvent event;
    int n = 0;
    const char *line = el_gets(l->editor, &n);
    *end = line && n > 0 ? CLI_LINE_READ : cli_interrupted(NULL) ? CLI_LINE_INTERRUPTED : CLI_LINE_CLOSED;
    if (*end != CLI_LINE_READ) {
        cli_write("\n", 1); /* the cursor stands behind the prompt */
        cli_flush();
        return CRUMB_OK;
    }
    CRUMB_TRY(copy_line(line, (size_t)n, text, err));
    if (**text) history(l->history, &event, H_ENTER, *text);
    return CRUMB_OK;
}

#endif

crumb_status cli_lines_open(cli_lines **out, crumb_error *err) {
    crumb_status status = CRUMB_OK;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "reading lines", (void **)out, err));
    (*out)->edited = cli_is_terminal(stdin) && cli_is_terminal(stdout);
#ifdef CRUMB_HAVE_LIBEDIT
    if ((*out)->edited) status = open_editor(*out, err);
#endif
    return status;
}

void cli_lines_close(cli_lines *l) {
    if (!l) return;
#ifdef CRUMB_HAVE_LIBEDIT
    if (l->history) history_end(l->history);
    if (l->editor) el_end(l->editor);
#endif
    free(l);
}

crumb_status cli_lines_next(cli_lines *l, const char *prompt, char **text, cli_line_end *end, crumb_error *err) {
    *text = NULL;
    l->prompt = prompt;
#ifdef CRUMB_HAVE_LIBEDIT
    if (l->editor) return read_edited(l, text, end, err);
#endif
    if (l->edited) {
        cli_write(prompt, strlen(prompt));
        cli_flush();
    }
    return read_plain(text, end, err);
}
