/* Templates against what jinja2 made of them: tests/oracle/make_templates.py. Bounds, and where each byte came from. */
#include "host/jinja/template.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char folder[] = "tests/oracle/templates";
enum { NOW = 1753531200 }; /* 26 July 2025, 12:00 UTC; make_templates.py has the same */

static char *read_file(const char *name, const char *suffix) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be read", path);
    fseek(f, 0, SEEK_END);
    const long n = ftell(f);
    rewind(f);
    char *text = calloc(1, (size_t)n + 1);
    assert_int_equal(fread(text, 1, (size_t)n, f), n);
    fclose(f);
    return text;
}

/* Renders with JSON variables; *out must be freed. */
static crumb_status render(const char *source, const char *variables, char **out, crumb_error *err) {
    crumb_jinja_template *t;
    crumb_arena arena = {.limit_bytes = CRUMB_JINJA_MEMORY_BYTES};
    crumb_jinja_state s = crumb_jinja_state_default(&arena, err);
    crumb_jinja_value v;
    crumb_jinja_text text;
    *out = NULL;
    crumb_status status = crumb_jinja_compile(source, strlen(source), &t, err);
    if (status != CRUMB_OK) return status;
    s.now = NOW;
    status = crumb_jinja_read_json(&s, variables, strlen(variables), &v);
    assert_int_equal(status, CRUMB_OK);
    status = crumb_jinja_render(t, &s, &v, &text);
    if (status == CRUMB_OK) {
        *out = calloc(1, text.n_bytes + 1);
        memcpy(*out, text.bytes, text.n_bytes);
    }
    crumb_jinja_destroy(t);
    crumb_arena_free(&arena);
    return status;
}

/* Whether it renders as jinja2 did: `wanted` is a string, or null where jinja2 refused. */
static bool agrees(const char *name, const char *source, const char *variables, const cJSON *wanted) {
    crumb_error err = {0};
    char *text;
    const crumb_status status = render(source, variables, &text, &err);
    const char *expected = cJSON_IsString(wanted) ? wanted->valuestring : NULL;
    const bool same = expected ? status == CRUMB_OK && strcmp(text, expected) == 0 : status != CRUMB_OK;
    if (!same)
        print_message("---- %s\n%s\n---- ours:\n%s%s\n---- jinja2's:\n%s\n", name, strlen(source) < 400 ? source : "",
                      text ? text : "refused: ", text ? "" : err.message, expected ? expected : "refused");
    if (status != CRUMB_OK) assert_true(*err.message);
    free(text);
    return same;
}

static void families_render_as_jinja2_does(void **state) {
    (void)state;
    char *text = read_file("expected", ".json");
    cJSON *document = cJSON_Parse(text);
    const cJSON *family, *wanted;
    int n = 0, n_wrong = 0;
    cJSON_ArrayForEach(family, document) {
        char *source = read_file(family->string, ".jinja");
        cJSON_ArrayForEach(wanted, family) {
            char name[256];
            snprintf(name, sizeof name, "conversations/%s", wanted->string);
            char *variables = read_file(name, ".json");
            snprintf(name, sizeof name, "%s, %s", family->string, wanted->string);
            n_wrong += !agrees(name, source, variables, wanted);
            n++;
            free(variables);
        }
        free(source);
    }
    print_message("%d renderings of %d templates\n", n, cJSON_GetArraySize(document));
    assert_true(cJSON_GetArraySize(document) >= 20 && n > 200);
    assert_int_equal(n_wrong, 0);
    cJSON_Delete(document);
    free(text);
}

static void features_render_as_jinja2_does(void **state) {
    (void)state;
    char *text = read_file("snippets", ".json");
    cJSON *document = cJSON_Parse(text);
    const char *variables = cJSON_GetObjectItem(document, "variables")->valuestring;
    const cJSON *snippet;
    int n_wrong = 0, n = 0;
    cJSON_ArrayForEach(snippet, cJSON_GetObjectItem(document, "supported")) {
        n_wrong +=
            !agrees("snippet", cJSON_GetArrayItem(snippet, 0)->valuestring, variables, cJSON_GetArrayItem(snippet, 1));
        n++;
    }
    assert_true(n > 200);
    assert_int_equal(n_wrong, 0);
    cJSON_ArrayForEach(snippet, cJSON_GetObjectItem(document, "unsupported")) {
        crumb_error err = {0};
        char *out;
        const char *source = snippet->child->valuestring, *says = snippet->child->next->valuestring;
        const crumb_status status = render(source, variables, &out, &err);
        if (status != CRUMB_ERR_UNSUPPORTED || strncmp(err.message, "line 1: ", 8) != 0 || !strstr(err.message, says)) {
            print_message("%s: %s, not about %s: %s\n", source, crumb_status_name(status), says,
                          out ? out : err.message);
            n_wrong++;
        }
        free(out);
    }
    assert_int_equal(n_wrong, 0);
    cJSON_Delete(document);
    free(text);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

static void refused(const char *source, crumb_status status, const char *says) {
    crumb_error err = {0};
    char *out;
    assert_int_equal(render(source, "{\"a\": [1, 2, 3], \"s\": \"text\"}", &out, &err), status);
    if (!strstr(err.message, says)) fail_msg("'%s' does not say '%s'", err.message, says);
}

static void refusals_name_line_and_cause(void **state) {
    (void)state;
    refused("\n\n{{ a|shuffle }}", CRUMB_ERR_UNSUPPORTED, "line 3: filter 'shuffle' is not supported");
    refused("{{ a }}\n{% if a is cubic %}{% endif %}", CRUMB_ERR_UNSUPPORTED, "line 2: test 'cubic'");
    refused("{% include 'x' %}", CRUMB_ERR_UNSUPPORTED, "line 1: the statement 'include'");
    refused("{# c\n\n #}{{ s.zfill(3) }}", CRUMB_ERR_UNSUPPORTED, "line 3: 'zfill' of a value of type str");
    refused("{{ lipsum() }}", CRUMB_ERR_UNSUPPORTED, "'lipsum'");
    refused("\n{{ nothing.there }}", CRUMB_ERR_FORMAT, "line 2: 'nothing' is undefined");
    refused("\n{{ raise_exception('only\ntwo') }}", CRUMB_ERR_ARGUMENT,
            "line 2: the template refuses this: only\\x0atwo");
    refused("{% for x in a %}", CRUMB_ERR_FORMAT, "else");
    refused("{{ a[ }}", CRUMB_ERR_FORMAT, "line 1");
    refused("\n{% endfor %}", CRUMB_ERR_FORMAT, "line 2: expected a statement, not 'endfor'");
}

/* ---- bounds ------------------------------------------------------------------------------------------------ */

static void bounded(const char *source, const char *says) {
    crumb_error err = {0};
    char *out;
    const crumb_status status = render(source, "{\"a\": [1, 2, 3]}", &out, &err);
    free(out);
    assert_true(status == CRUMB_ERR_FORMAT || status == CRUMB_ERR_MEMORY);
    if (!strstr(err.message, says)) fail_msg("'%s' does not say '%s'", err.message, says);
}

static char *repeat(const char *text, int n, const char *end) {
    char *out = calloc(1, strlen(text) * (size_t)n + strlen(end) + 1), *at = out;
    for (int i = 0; i < n; i++) at = stpcpy(at, text);
    strcpy(at, end);
    return out;
}

static void time_memory_and_depth_are_bounded(void **state) {
    (void)state;
    static const char *const nested[] = {
        "(",  "[",  "{{ [",         "-",   "not ",       "{% if a %}", "{% for x in a %}",
        "a(", "a[", "1 if 1 else ", "{1:", "{% set x %}"};
    static const char *const chains[] = {"|list", ".a",    "+1", " ~ 1",        "[0]",  " and 1",
                                         " or 1", " if 1", "()", " is defined", " == 1"};
    bounded("{% set r = range(4000) %}{% for x in r %}{% for y in r %}{% endfor %}{% endfor %}", "too many steps");
    bounded("{% set ns = namespace(t='0123456789') %}{% for x in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
            "memory");
    bounded("{{ 'a' * 4000000000 }}", "steps");
    bounded("{% for i in range(4000) %}{{ ('x' * 40000) }}{% endfor %}", "");
    bounded("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels deep");
    bounded("{% set ns = namespace(t=[]) %}{% for x in range(1000) %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.t }}",
            "levels deep");
    bounded(
        "{% set ns = namespace(t=[]) %}{% for x in range(1000) %}{% set ns.t = [ns.t] %}{% endfor %}{{ ns.t|tojson }}",
        "levels deep");
    bounded(
        "{% set ns = namespace(t=[], u=[]) %}{% for x in range(1000) %}{% set ns.t = [ns.t] %}{% set ns.u = [ns.u] %}"
        "{% endfor %}{{ ns.t == ns.u }}",
        "levels deep");
    for (size_t i = 0; i < sizeof nested / sizeof *nested; i++) {
        char *deep = repeat(nested[i], 20000, ""), *source = calloc(1, strlen(deep) + 8);
        sprintf(source, "%s%s", strncmp(deep, "{%", 2) == 0 ? "" : "{{ ", deep);
        bounded(source, "");
        free(source);
        free(deep);
    }
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        char *deep = repeat(chains[i], 20000, " }}"), *source = calloc(1, strlen(deep) + 8);
        sprintf(source, "{{ a%s", deep);
        crumb_error err = {0};
        char *out;
        assert_int_not_equal(render(source, "{\"a\": 1}", &out, &err), CRUMB_ERR_INTERNAL); /* and comes back */
        free(out);
        free(source);
        free(deep);
    }
}

static void json_is_read_with_bounds(void **state) {
    (void)state;
    static const char *const damaged[] = {
        "",        "{",         "[1,]",   "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "\"a",
        "\"\\x\"", "\"\\u12\"", "tru",    "1 2",     "1e",       "--1",        "99999999999999999999",
        "[1 2]",   "{1:2}",     "\"\n\"", "nul",     "+"};
    crumb_arena arena = {.limit_bytes = 1 << 20};
    crumb_jinja_value v;
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        crumb_error err = {0};
        crumb_jinja_state s = crumb_jinja_state_default(&arena, &err);
        assert_int_equal(crumb_jinja_read_json(&s, damaged[i], strlen(damaged[i]), &v), CRUMB_ERR_FORMAT);
        assert_non_null(strstr(err.message, "JSON, byte"));
    }
    char *deep = repeat("[", 100000, "");
    crumb_jinja_state s = crumb_jinja_state_default(&arena, NULL);
    assert_int_equal(crumb_jinja_read_json(&s, deep, strlen(deep), &v), CRUMB_ERR_FORMAT);
    free(deep);
    crumb_arena_free(&arena);
}

/* ---- origins ----------------------------------------------------------------------------------------------- */

/* Marks the bytes that came from the input. */
static void shows_input(const char *source, const char *text, const char *marks) {
    crumb_jinja_template *t;
    crumb_arena arena = {.limit_bytes = CRUMB_JINJA_MEMORY_BYTES};
    crumb_error err = {0};
    crumb_jinja_state s = crumb_jinja_state_default(&arena, &err);
    crumb_jinja_value v;
    crumb_jinja_text out;
    static const char variables[] = "{\"u\": \" <b> \", \"d\": {\"k\": \"v\\n\"}}";
    assert_int_equal(crumb_jinja_compile(source, strlen(source), &t, &err), CRUMB_OK);
    assert_int_equal(crumb_jinja_read_json(&s, variables, strlen(variables), &v), CRUMB_OK);
    assert_int_equal(crumb_jinja_render(t, &s, &v, &out), CRUMB_OK);
    assert_int_equal(out.n_bytes, strlen(text));
    assert_memory_equal(out.bytes, text, out.n_bytes);
    for (size_t i = 0; i < out.n_bytes; i++)
        if ((out.from_input && out.from_input[i]) != (marks[i] == '^'))
            fail_msg("%s: byte %zu of '%s'", source, i, text);
    crumb_jinja_destroy(t);
    crumb_arena_free(&arena);
}

static void every_byte_knows_where_it_came_from(void **state) {
    (void)state;
    shows_input("<b>", "<b>", "   ");
    shows_input("<b>{{ u }}<b>", "<b> <b> <b>", "   ^^^^^   ");
    shows_input("{{ '<b>' + u|trim ~ '<b>' }}", "<b><b><b>", "   ^^^   ");
    shows_input("{{ u.strip().replace('b', 'x') }}", "<x>", "^ ^");
    shows_input("{{ u|upper }}|{{ u[1:3] }}|{{ u[::-1] }}", " <B> |<b| >b< ", "^^^^^ ^^ ^^^^^");
    shows_input("{{ d|tojson }}", "{\"k\": \"v\\n\"}", "  ^    ^^^  ");
    shows_input("{{ d }}", "{'k': 'v\\n'}", "  ^    ^^^  ");
    shows_input("{% set x %}[{{ u.split()[0] }}]{% endset %}{{ x ~ x|length }}", "[<b>]5", " ^^^  ");
    shows_input("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(d.k) }}{{ [u, '-']|join('+') }}", "<v\n> <b> +-",
                " ^^ ^^^^^  ");
}

int main(void) {
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_render_as_jinja2_does), cmocka_unit_test(features_render_as_jinja2_does),
        cmocka_unit_test(refusals_name_line_and_cause),   cmocka_unit_test(time_memory_and_depth_are_bounded),
        cmocka_unit_test(json_is_read_with_bounds),       cmocka_unit_test(every_byte_knows_where_it_came_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
