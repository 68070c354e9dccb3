/* JSON documents from files that nobody has checked. */
#ifndef CRUMB_BASE_JSON_H
#define CRUMB_BASE_JSON_H

#include "host/base/error.h"

#include <cjson/cJSON.h>

/* Parses n_bytes that are one object and nothing behind it, in which no object has a member twice (readers of the same
 * document would take different ones) and no string U+0000 (cJSON's strings end there). *out is freed with
 * cJSON_Delete(), and NULL where this fails; the message does not name the file. */
crumb_status crumb_json_parse_object(const char *text, size_t n_bytes, cJSON **out, crumb_error *err);

#endif
