#include "cl/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "crumb-cl-survey 2\n", last_line[] = "end\n";

void crumb_cl_clean_text(const char *from, char to[CRUMB_CL_TEXT]) {
    snprintf(to, CRUMB_CL_TEXT, "%s", from + strspn(from, " "));
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
}

const char *crumb_cl_shown_name(const crumb_cl_facts *f) {
    return *f->name ? f->name : "name unknown";
}

/* ---- printing ---------------------------------------------------------------------------------------------- */

typedef struct printer {
    char *at;
    size_t left;
    bool full;
} printer;

static void put(printer *p, const char *name, const char *value) {
    int n = snprintf(p->at, p->left, "%s=%s\n", name, value);
    if (n < 0 || (size_t)n >= p->left) {
        p->full = true;
        return;
    }
    p->at += n;
    p->left -= (size_t)n;
}

static void put_number(printer *p, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    put(p, name, text);
}

static void put_line(printer *p, const char *line) {
    size_t n = strlen(line);
    if (n >= p->left) {
        p->full = true;
        return;
    }
    memcpy(p->at, line, n + 1);
    p->at += n;
    p->left -= n;
}

size_t crumb_cl_survey_print(const crumb_cl_survey *s, char *out, size_t size) {
    printer p = {.at = out, .left = size};
    put_line(&p, first_line);
    put_number(&p, "n_platforms", s->n_platforms);
    put_number(&p, "is_partial", s->is_partial);
    for (size_t i = 0; i < s->n_devices; i++) {
        const crumb_cl_facts *f = &s->device[i];
        put_line(&p, "device\n");
#define PUT_TEXT(member)   put(&p, #member, f->member);
#define PUT_NUMBER(member) put_number(&p, #member, f->member);
        CRUMB_CL_TEXTS(PUT_TEXT)
        CRUMB_CL_NUMBERS(PUT_NUMBER)
#undef PUT_TEXT
#undef PUT_NUMBER
    }
    put_line(&p, last_line);
    return p.full ? 0 : (size_t)(p.at - out);
}

/* ---- parsing ----------------------------------------------------------------------------------------------- */

typedef struct field {
    char *text;       /* CRUMB_CL_TEXT bytes, or NULL */
    uint64_t *number; /* or NULL */
} field;

static field find_field(crumb_cl_facts *f, const char *name) {
#define FIND_TEXT(member)                                                                                              \
    if (strcmp(name, #member) == 0) return (field){f->member, NULL};
#define FIND_NUMBER(member)                                                                                            \
    if (strcmp(name, #member) == 0) return (field){NULL, &f->member};
    CRUMB_CL_TEXTS(FIND_TEXT)
    CRUMB_CL_NUMBERS(FIND_NUMBER)
#undef FIND_TEXT
#undef FIND_NUMBER
    return (field){0};
}

static bool set_field(crumb_cl_survey *s, const char *name, const char *value) {
    uint64_t number = strtoull(value, NULL, 10);
    if (s->n_devices == 0) {
        if (strcmp(name, "is_partial") == 0) return s->is_partial = number, true;
        s->n_platforms = number;
        return strcmp(name, "n_platforms") == 0;
    }
    field f = find_field(&s->device[s->n_devices - 1], name);
    if (f.number) *f.number = number;
    if (f.text) snprintf(f.text, CRUMB_CL_TEXT, "%s", value);
    return f.number || f.text;
}

static bool parse_line(crumb_cl_survey *s, char *line) {
    if (strcmp(line, "device") == 0) return s->n_devices++ < CRUMB_CL_MAX_DEVICES;
    char *equals = strchr(line, '=');
    if (!equals) return false;
    *equals = 0;
    return set_field(s, line, equals + 1);
}

bool crumb_cl_survey_parse(const char *text, crumb_cl_survey *out) {
    *out = (crumb_cl_survey){0};
    if (strncmp(text, first_line, strlen(first_line)) != 0) return false;
    for (const char *at = text + strlen(first_line); *at;) {
        if (strcmp(at, last_line) == 0) return true;
        char line[CRUMB_CL_TEXT + 64];
        size_t n = strcspn(at, "\n");
        if (at[n] == 0 || n >= sizeof line) return false;
        memcpy(line, at, n);
        line[n] = 0;
        if (!parse_line(out, line)) return false;
        at += n + 1;
    }
    return false;
}
