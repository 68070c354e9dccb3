/* Jinja templates, as far as chat templates use them, with the settings of Hugging Face's transformers: trim_blocks,
 * lstrip_blocks, loop controls, a sandbox without side effects, tojson without escapes of HTML, raise_exception and
 * strftime_now. What is not supported is refused by name, never guessed; time, memory and nesting are bounded, because
 * templates come out of model files.
 */
#ifndef CRUMB_JINJA_TEMPLATE_H
#define CRUMB_JINJA_TEMPLATE_H

#include "host/jinja/value.h"

typedef struct crumb_jinja_template crumb_jinja_template;

/* Copies the source. Fails with UNSUPPORTED for what crumb does not have, with FORMAT for what is no template, with
 * MEMORY for one that is too large; messages begin with the line. */
crumb_status crumb_jinja_compile(const char *source, size_t n_bytes, crumb_jinja_template **out, crumb_error *err);
void crumb_jinja_destroy(crumb_jinja_template *t); /* NULL is allowed */

enum { CRUMB_JINJA_MEMORY_BYTES = 1 << 28, CRUMB_JINJA_STEPS = 1 << 22, CRUMB_JINJA_DEPTH = 160 };
/* For making the variables of a rendering: its memory (an arena limited to CRUMB_JINJA_MEMORY_BYTES, for example), and
 * the bounds that values are read under. */
crumb_jinja_state crumb_jinja_state_default(crumb_arena *arena, crumb_error *err);

/* Renders with variables (a DICT, whose keys are strings) in the memory and bounds of `s`, whose `now` strftime_now
 * tells. The text lives as long as the arena. Fails with FORMAT where the template goes wrong, with ARGUMENT where it
 * calls raise_exception: the messages are not such as it takes. */
crumb_status crumb_jinja_render(const crumb_jinja_template *t, crumb_jinja_state *s, const crumb_jinja_value *variables,
                                crumb_jinja_text *out);

#endif
