/* JSON by cJSON, plus what it does not do: strings with malformed UTF-8, 64-bit integers, lines to stdout. */
#ifndef CRUMB_TOOLS_JSON_UTIL_H
#define CRUMB_TOOLS_JSON_UTIL_H

#include "tools/crumb/cli.h"

#include <cjson/cJSON.h>

/* An object that begins with schema_version. */
cJSON *json_document(void);
/* A string; malformed UTF-8 and NUL become U+FFFD. */
cJSON *json_text(const char *bytes, size_t n_bytes);
cJSON *json_u64(uint64_t value); /* exact beyond 2^53, too */
cJSON *json_i64(int64_t value);
cJSON *json_real(double value, int digits); /* as many significant digits; null unless finite */

void json_add_text(cJSON *object, const char *key, const char *text); /* NULL: null */
void json_add_u64(cJSON *object, const char *key, uint64_t value);
void json_add_real(cJSON *object, const char *key, double value);

/* Prints the object on stdout, as one line or indented, and `end` behind it, and frees it. */
crumb_status json_print(cJSON *object, bool one_line, const char *end, crumb_error *err);

#endif
