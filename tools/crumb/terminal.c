/* Messages on stderr, results on stdout, the progress bar, and Ctrl-C. */
#include "tools/crumb/cli.h"

#include "host/base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool quiet;

void cli_set_quiet(bool on) {
    quiet = on;
}

bool cli_is_terminal(FILE *stream) {
    return isatty(fileno(stream)) == 1;
}

bool cli_uses_color(FILE *stream) {
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no_color && *no_color) return false; /* https://no-color.org: any value that is not empty */
    return cli_is_terminal(stream) && term && strcmp(term, "dumb") != 0;
}

static void message(const char *color, const char *kind, const char *format, va_list args) {
    bool colored = cli_uses_color(stderr);
    cli_progress_clear();
    fprintf(stderr, "%scrumb: %s%s", colored ? color : "", kind, colored ? "\x1b[0m" : "");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void cli_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    message("\x1b[31m", "error: ", format, args);
    va_end(args);
}

void cli_note(const char *format, ...) {
    if (quiet) return;
    va_list args;
    va_start(args, format);
    message("", "", format, args);
    va_end(args);
}

void cli_say_notes(const cli_options *options) {
    for (size_t i = 0; i < options->notes.n; i++) cli_note("%s: %s", options->noted.value[i], options->notes.value[i]);
}

int cli_fail(const crumb_error *err) {
    if (err->status != CRUMB_ERR_INTERRUPTED) cli_error("%s", err->message);
    return crumb_status_exit_code(err->status);
}

/* ---- stdout ------------------------------------------------------------------------------------------------ */

static int write_errno; /* of the first write that failed */

static void remember_failure(void) {
    if (write_errno == 0) write_errno = errno ? errno : EIO;
}

void cli_print(const char *format, ...) {
    if (write_errno) return;
    va_list args;
    va_start(args, format);
    if (vprintf(format, args) < 0) remember_failure();
    va_end(args);
}

void cli_write(const char *bytes, size_t n_bytes) {
    if (write_errno == 0 && fwrite(bytes, 1, n_bytes, stdout) != n_bytes) remember_failure();
}

bool cli_flush(void) {
    if (write_errno == 0 && fflush(stdout) != 0) remember_failure();
    return write_errno == 0;
}

int cli_finish_output(int code) {
    /* Closing tells of errors that a network file system reports late. */
    if (cli_flush() && fclose(stdout) != 0) remember_failure();
    if (write_errno == 0) return code;
    if (write_errno == EPIPE) return CLI_EXIT_OK;
    cli_error("cannot write to standard output: %s", strerror(write_errno));
    return CLI_EXIT_FAILURE;
}

/* ---- progress ---------------------------------------------------------------------------------------------- */

static uint64_t progress_began_ns;
static float progress_began; /* what was done in its first moment: of work that is taken up, what an earlier run did */
static int progress_shown_percent = -1;

bool cli_progress(void *label, float fraction) {
    enum { WIDTH = 30, QUICK_NS = 300000000 };
    static int is_terminal = -1;
    if (is_terminal < 0) is_terminal = cli_is_terminal(stderr);
    uint64_t now = crumb_now_ns();
    if (progress_began_ns == 0) progress_began_ns = now;
    if (now - progress_began_ns < QUICK_NS) progress_began = fraction;
    int percent = fraction >= 1 ? 100 : fraction > 0 ? (int)(100 * fraction) : 0;
    /* What is done at once needs no bar. */
    bool due = is_terminal && !quiet && percent != progress_shown_percent && now - progress_began_ns > QUICK_NS;
    if (due) {
        char bar[WIDTH + 1];
        int filled = percent * WIDTH / 100;
        memset(bar, '#', (size_t)filled);
        memset(bar + filled, '.', (size_t)(WIDTH - filled));
        bar[WIDTH] = 0;
        char left[32] = "";
        const double elapsed = (double)(now - progress_began_ns) / 1e9;
        const double done = (double)(fraction - progress_began), to_do = (double)(1 - fraction);
        if (elapsed > 5 && done > 0.01) {
            const unsigned seconds = (unsigned)(elapsed / done * to_do);
            snprintf(left, sizeof left, " ETA %u:%02u ", seconds / 60, seconds % 60);
        }
        fprintf(stderr, "\r%s [%s] %3d%%%s", (const char *)label, bar, percent, left);
        progress_shown_percent = percent;
    }
    return !cli_interrupted(NULL);
}

void cli_progress_line(const char *line) {
    if (quiet || !cli_is_terminal(stderr)) return;
    fprintf(stderr, "\r\x1b[K%s", line);
    progress_shown_percent = 0;
}

void cli_progress_clear(void) {
    if (progress_shown_percent >= 0) fputs("\r\x1b[K", stderr);
    progress_shown_percent = -1;
    progress_began_ns = 0;
}

/* ---- Ctrl-C ------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static void catch_interrupt(int flags) {
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND | flags};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void cli_catch_interrupt(void) {
    catch_interrupt(SA_RESTART);
}

void cli_rearm_interrupt(bool breaks_reading) {
    interrupted = 0;
    catch_interrupt(breaks_reading ? 0 : SA_RESTART);
}

bool cli_interrupted(void *unused) {
    (void)unused;
    return interrupted != 0;
}
