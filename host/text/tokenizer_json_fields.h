#ifndef CRUMB_TEXT_TOKENIZER_JSON_FIELDS_H
#define CRUMB_TEXT_TOKENIZER_JSON_FIELDS_H

#include "host/base/json.h"

/* Whether each field of a tokenizer.json that crumb reads is there, where it must be, and of the right kind: FORMAT,
 * and a message that names it ("field 'added_tokens[].id': ..."), where not. */
crumb_status crumb_tokenizer_json_check_fields(const cJSON *root, crumb_error *err);

#endif
