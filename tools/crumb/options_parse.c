/* From defaults, CRUMB_* variables and argv to cli_options. */
#include "tools/crumb/cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 192, MAX_NAMES = 512, MAX_NAME = 64 };

typedef struct parser {
    const char *subcommand;
    unsigned command;
    cli_options *out;
    bool seen[MAX_OPTIONS]; /* given on the command line */
} parser;

/* ---- nearest name ------------------------------------------------------------------------------------------ */

/* Edit distance: insertions, deletions, replacements and swaps of neighbours cost 1 each. */
static unsigned edit_distance(const char *a, const char *b) {
    unsigned row[3][MAX_NAME + 1];
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a > MAX_NAME || n_b > MAX_NAME) return UINT32_MAX;
    unsigned *before = row[0], *last = row[1], *now = row[2];
    for (unsigned j = 0; j <= n_b; j++) last[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= n_b; j++) {
            unsigned best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            now[j] = best;
        }
        unsigned *free_row = before;
        before = last, last = now, now = free_row;
    }
    return last[n_b];
}

const char *cli_nearest(const char *word, const char *const *candidates, size_t n) {
    const char *best = NULL;
    unsigned best_distance = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t n_word = strlen(word);
        bool begins = n_word > 2 && strncmp(word, candidates[i], n_word) == 0; /* an abbreviation */
        unsigned distance = begins ? 1 : edit_distance(word, candidates[i]);
        if (distance < best_distance) best = candidates[i], best_distance = distance;
    }
    return best;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

static bool word_in(const char *words, const char *word) {
    size_t n = strlen(word);
    for (const char *p = words; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == '|' || p[n] == 0)) return true;
    return false;
}

/* A whole number that ends at *end, or at the end of the text where end is NULL. */
static bool parse_int(const char *text, const char **end, int64_t *out) {
    char *stop;
    errno = 0;
    *out = strtoll(text, &stop, 10);
    if (end) *end = stop;
    return stop != text && errno == 0 && (end || *stop == 0);
}

static const char *add_int(const cli_option *o, int64_t value, cli_ints *list) {
    if ((double)value < o->min || (double)value > o->max) return "is out of range";
    if (list->n == CLI_LIST_MAX) return "has too many values";
    list->value[list->n++] = value;
    return NULL;
}

/* One item of a list: N, A-B, A-B+STEP or A-B*FACTOR. Returns what is wrong, or NULL. */
static const char *add_range(const cli_option *o, const char **text, cli_ints *list) {
    int64_t first, last, step = 1;
    const char *p = *text, *problem = NULL;
    if (!parse_int(p, &p, &first)) return "is not a list of whole numbers";
    char how = 0;
    last = first;
    if (*p == '-' && !parse_int(p + 1, &p, &last)) return "is not a range";
    if (*p == '+' || *p == '*') {
        how = *p;
        if (!parse_int(p + 1, &p, &step) || step < (how == '*' ? 2 : 1)) return "has a step that leads nowhere";
    }
    if (how == '*' && first < 1) return "has a factor, but begins at zero";
    for (int64_t v = first; v <= last && !problem; v = how == '*' ? v * step : v + step) problem = add_int(o, v, list);
    *text = p;
    return problem;
}

static const char *add_ints(const cli_option *o, const char *text, cli_ints *list) {
    for (;;) {
        const char *problem = add_range(o, &text, list);
        if (problem) return problem;
        if (*text == 0) return NULL;
        if (*text++ != ',') return "is not a list of whole numbers";
    }
}

/* A part of an argument, which ends at a comma and not at a zero, and so must be copied to be a text. */
struct cli_copy {
    cli_copy *next;
    char text[];
};

static const char *add_texts(const char *text, cli_texts *list, cli_copy **copies) {
    for (size_t n; *text; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        if (list->n == CLI_LIST_MAX) return "has too many values";
        cli_copy *copy = malloc(sizeof *copy + n + 1);
        if (!copy) return "takes too much memory";
        memcpy(copy->text, text, n);
        copy->text[n] = 0;
        copy->next = *copies;
        *copies = copy;
        list->value[list->n++] = copy->text;
    }
    return NULL;
}

static void *field_of(const cli_option *o, cli_options *out) {
    return (char *)out + o->field;
}

/* Stores a value; returns what is wrong with it, or NULL. */
static const char *store(const cli_option *o, const char *text, cli_options *out) {
    if (o->field == SIZE_MAX) return o->kind == CLI_OPTIONAL && !word_in(o->value, text) ? "is not a choice" : NULL;
    void *field = field_of(o, out);
    switch (o->kind) {
    case CLI_ON:
    case CLI_OFF: {
        bool on = word_in("1|on|true|yes", text);
        if (!on && !word_in("0|off|false|no", text)) return "is neither on nor off";
        *(bool *)field = on == (o->kind == CLI_ON);
        return NULL;
    }
    case CLI_INT: {
        int64_t value;
        if (!parse_int(text, NULL, &value)) return "is not a whole number";
        *(int64_t *)field = value;
        return (double)value < o->min || (double)value > o->max ? "is out of range" : NULL;
    }
    case CLI_REAL: {
        char *end;
        double value = *(double *)field = strtod(text, &end);
        if (end == text || *end || !isfinite(value)) return "is not a number";
        return value < o->min || value > o->max ? "is out of range" : NULL;
    }
    case CLI_CHOICE:
    case CLI_OPTIONAL:
        if (!word_in(o->value, text)) return "is not a choice";
        *(const char **)field = text;
        return NULL;
    case CLI_TEXT: *(const char **)field = text; return NULL;
    case CLI_INTS: return add_ints(o, text, field);
    case CLI_TEXTS: return add_texts(text, field, &out->copies);
    default: return NULL;
    }
}

/* Lists are added to, so that options can be repeated; a source of higher precedence starts afresh. */
static void clear_list(const cli_option *o, cli_options *out) {
    if (o->kind == CLI_INTS) ((cli_ints *)field_of(o, out))->n = 0;
    if (o->kind == CLI_TEXTS) ((cli_texts *)field_of(o, out))->n = 0;
}

static int complain(const parser *p, const cli_option *o, const char *name, const char *text, const char *problem) {
    char range[64] = "";
    const bool choice = strcmp(problem, "is not a choice") == 0; /* the choices have any length */
    if (strcmp(problem, "is out of range") == 0) snprintf(range, sizeof range, " (%.15g to %.15g)", o->min, o->max);
    cli_error("%s: '%s' %s%s%s%s%s; see 'crumb %s --help'", name, text, problem, range, choice ? " (choose " : "",
              choice ? o->value : "", choice ? ")" : "", p->subcommand);
    return CLI_EXIT_USAGE;
}

/* ---- sources ----------------------------------------------------------------------------------------------- */

/* Off-switches hold the default of the field that they clear, which must not be inverted. */
static void set_default(const cli_option *o, cli_options *out) {
    if (!o->standard) return;
    if (o->kind == CLI_OFF)
        *(bool *)field_of(o, out) = true;
    else
        store(o, o->standard, out);
}

static int read_environment(parser *p) {
    for (size_t i = 0; i < cli_n_option_table; i++) {
        const cli_option *o = &cli_option_table[i];
        char variable[MAX_NAME + 8];
        cli_option_variable(o, variable, sizeof variable);
        const char *text = variable[0] ? getenv(variable) : NULL;
        if (!text || !text[0] || !(o->commands & p->command) || o->field == SIZE_MAX) continue;
        clear_list(o, p->out);
        const char *problem = store(o, text, p->out);
        if (problem) return complain(p, o, variable, text, problem);
    }
    return 0;
}

static const cli_option *find_option(const char *name, unsigned command) {
    for (size_t i = 0; i < cli_n_option_table; i++) {
        char known[MAX_NAME];
        if (!(cli_option_table[i].commands & command)) continue;
        for (const char *c = cli_option_table[i].names; cli_option_next_name(&c, known, sizeof known);)
            if (strcmp(known, name) == 0) return &cli_option_table[i];
    }
    return NULL;
}

static int unknown_option(const parser *p, const char *name) {
    static char names[MAX_NAMES][MAX_NAME];
    const char *candidates[MAX_NAMES];
    size_t n = 0;
    for (size_t i = 0; i < cli_n_option_table; i++)
        for (const char *c = cli_option_table[i].names;
             cli_option_table[i].commands & p->command && n < MAX_NAMES && cli_option_next_name(&c, names[n], MAX_NAME);
             n++)
            candidates[n] = names[n];
    const char *nearest = cli_nearest(name, candidates, n);
    const cli_option *elsewhere = find_option(name, CLI_ALL);
    for (size_t i = 0; elsewhere && i < cli_n_subcommands; i++)
        if (cli_subcommands[i].bit & elsewhere->commands) {
            cli_error("'%s' is an option of 'crumb %s', not of 'crumb %s' (nearest here: '%s')", name,
                      cli_subcommands[i].name, p->subcommand, nearest);
            return CLI_EXIT_USAGE;
        }
    cli_error("unknown option '%s'; did you mean '%s'? 'crumb %s --help' lists them all", name,
              nearest ? nearest : "-h", p->subcommand);
    return CLI_EXIT_USAGE;
}

/* Handles argv[*i], and its value where it has one. --name=value is accepted beside --name value. */
static int read_option(parser *p, int argc, char **argv, int *i) {
    char *name = argv[*i], *inline_value = strncmp(name, "--", 2) == 0 ? strchr(name, '=') : NULL;
    if (inline_value) *inline_value++ = 0;
    const cli_option *o = find_option(name, p->command);
    if (!o) return unknown_option(p, name);
    size_t row = (size_t)(o - cli_option_table);
    const char *value = inline_value;
    bool next_fits = *i + 1 < argc && (o->kind != CLI_OPTIONAL || word_in(o->value, argv[*i + 1]));
    if (!value && cli_option_takes_value(o) && next_fits) value = argv[++*i];
    if (!value && o->kind == CLI_OPTIONAL) value = "on";
    if (!value && cli_option_takes_value(o)) {
        cli_error("%s needs a value: %s %s", name, name, o->value);
        return CLI_EXIT_USAGE;
    }
    if (!value) value = "on";
    if (!p->seen[row] && o->field != SIZE_MAX) clear_list(o, p->out);
    p->seen[row] = true;
    const char *problem = store(o, value, p->out);
    if (problem) return complain(p, o, name, value, problem);
    bool says_why = o->field == SIZE_MAX && o->note && !(o->quiet && (!*o->quiet || word_in(o->quiet, value)));
    if (says_why && p->out->notes.n < CLI_LIST_MAX) {
        p->out->noted.value[p->out->noted.n++] = name;
        p->out->notes.value[p->out->notes.n++] = o->note;
    }
    return 0;
}

/* Plain arguments: the model, then the prompt, where the subcommand has them and no option gave them. */
static int place_plain(parser *p) {
    cli_options *out = p->out;
    cli_texts rest = {.n = 0};
    const cli_option *model = find_option("-m", p->command), *prompt = find_option("--prompt", p->command);
    bool needs_model = model && !p->seen[model - cli_option_table] && p->command != CLI_TUNE;
    bool needs_prompt = prompt && prompt->kind == CLI_TEXT && !p->seen[prompt - cli_option_table];
    if (needs_model && out->plain.n > 0) clear_list(model, out);
    for (size_t i = 0; i < out->plain.n; i++) {
        const char *argument = out->plain.value[i];
        if (needs_model && p->command == CLI_BENCH && out->bench_models.n < CLI_LIST_MAX) {
            out->bench_models.value[out->bench_models.n++] = argument;
        } else if (needs_model && p->command != CLI_BENCH) {
            out->model = argument;
            needs_model = false;
        } else if (needs_prompt) {
            out->prompt = argument;
            needs_prompt = false;
        } else if (p->command & (CLI_HELP | CLI_KERNELS | CLI_TUNE | CLI_CONVERT | CLI_QUANTIZE)) {
            rest.value[rest.n++] = argument;
        } else {
            cli_error("unexpected argument '%s'; see 'crumb %s --help'", argument, p->subcommand);
            return CLI_EXIT_USAGE;
        }
    }
    out->plain = rest;
    return 0;
}

int cli_options_parse(const char *name, unsigned command, int argc, char **argv, cli_options *options) {
    parser p = {.subcommand = name, .command = command, .out = options};
    *options = (cli_options){0};
    for (size_t i = 0; i < cli_n_option_table; i++)
        if (cli_option_table[i].commands & command) set_default(&cli_option_table[i], options);
    int code = read_environment(&p);
    bool only_plain = false;
    for (int i = 0; i < argc && code == 0; i++) {
        bool plain = only_plain || argv[i][0] != '-' || argv[i][1] == 0;
        if (!only_plain && strcmp(argv[i], "--") == 0) {
            only_plain = true;
        } else if (!plain) {
            code = read_option(&p, argc, argv, &i);
        } else if (options->plain.n == CLI_LIST_MAX) {
            cli_error("too many arguments");
            code = CLI_EXIT_USAGE;
        } else {
            options->plain.value[options->plain.n++] = argv[i];
        }
    }
    return code ? code : place_plain(&p);
}

void cli_options_release(cli_options *options) {
    for (cli_copy *next; options->copies; options->copies = next) {
        next = options->copies->next;
        free(options->copies);
    }
    *options = (cli_options){0};
}
