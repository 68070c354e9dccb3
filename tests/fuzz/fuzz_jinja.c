/* Templates from any bytes, rendered with variables from any JSON, which stands behind the first NUL: refused with a
 * reason, or a text of which each byte has an origin, and the same one the second time. */
#include "host/jinja/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

static crumb_status render(const crumb_jinja_template *t, const char *json, size_t n_json, crumb_arena *arena,
                           crumb_jinja_text *out, crumb_error *err) {
    crumb_jinja_state s = crumb_jinja_state_default(arena, err);
    crumb_jinja_value variables;
    s.steps_left = 1 << 14;
    if (crumb_jinja_read_json(&s, json, n_json, &variables) != CRUMB_OK || variables.kind != CRUMB_JINJA_DICT)
        CRUMB_TRY(crumb_jinja_make_dict(&s, &variables));
    s.line = s.depth = 0;
    return crumb_jinja_render(t, &s, &variables, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *end = size ? memchr(text, 0, size) : NULL;
    const size_t n_source = end ? (size_t)(end - text) : size, n_json = end ? size - n_source - 1 : 0;
    crumb_jinja_template *t;
    crumb_error err = {0};
    crumb_status status = crumb_jinja_compile(text, n_source, &t, &err);
    require(status == CRUMB_OK || (!t && err.status == status && *err.message), "a refusal says why");
    if (status != CRUMB_OK) return 0;
    crumb_arena arenas[2] = {{.limit_bytes = 1 << 22}, {.limit_bytes = 1 << 22}};
    crumb_jinja_text out[2] = {{0}, {0}};
    status = render(t, end ? end + 1 : "", n_json, &arenas[0], &out[0], &err);
    require(status == CRUMB_OK || (err.status == status && *err.message), "a failure says why");
    require(render(t, end ? end + 1 : "", n_json, &arenas[1], &out[1], &err) == status, "the same outcome again");
    require(crumb_jinja_text_equal(out[0], out[1]), "the same text again");
    for (size_t i = 0; out[0].from_input && i < out[0].n_bytes; i++)
        require(out[0].from_input[i] == 0 || out[0].from_input[i] == 1, "an origin");
    for (int i = 0; i < 2; i++) crumb_arena_free(&arenas[i]);
    crumb_jinja_destroy(t);
    return 0;
}
