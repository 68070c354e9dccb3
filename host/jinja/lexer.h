/* A template's source as tokens, with white space controlled as Hugging Face sets it: trim_blocks (the newline behind a
 * block is dropped) and lstrip_blocks (so are the spaces before one that begins its line). */
#ifndef CRUMB_JINJA_LEXER_H
#define CRUMB_JINJA_LEXER_H

#include "host/jinja/value.h"

typedef enum crumb_jinja_token_kind {
    CRUMB_JINJA_DATA, /* value: text that is printed */
    CRUMB_JINJA_OUTPUT_BEGIN,
    CRUMB_JINJA_OUTPUT_END,
    CRUMB_JINJA_BLOCK_BEGIN,
    CRUMB_JINJA_BLOCK_END,
    CRUMB_JINJA_WORD,     /* value: a name */
    CRUMB_JINJA_CONSTANT, /* value: a string or a number */
    CRUMB_JINJA_OPERATOR, /* op */
    CRUMB_JINJA_END,
} crumb_jinja_token_kind;

/* An operator is its one or two characters. */
#define CRUMB_JINJA_OP2(a, b) ((uint16_t)((a) | (b) << 8))

typedef struct crumb_jinja_token {
    crumb_jinja_token_kind kind;
    uint32_t line;
    uint16_t op;
    crumb_jinja_value value;
} crumb_jinja_token;

/* All tokens, the last being END, in the state's arena. `source` must live as long as that. */
crumb_status crumb_jinja_lex(crumb_jinja_state *s, const char *source, size_t n_bytes, crumb_jinja_token **out,
                             size_t *n_tokens);

#endif
