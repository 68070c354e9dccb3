/* GGUF values and types as text, for listings and messages. */
#ifndef CRUMB_CONTAINER_GGUF_DESCRIBE_H
#define CRUMB_CONTAINER_GGUF_DESCRIBE_H

#include "host/container/gguf.h"

const char *crumb_gguf_value_type_name(crumb_gguf_value_type type); /* "u32" */

/* The tensor's type as llama.cpp prints it, "type 77" where nobody knows it. Writes into buffer only then. */
const char *crumb_gguf_tensor_type_name(const crumb_gguf_tensor *t, char buffer[24]);

/* Element i (below array.n) of an array of numbers or bools, as a value of its own. */
crumb_gguf_value crumb_gguf_array_number(const crumb_gguf_value *array, uint64_t i);

/* Writes a value on one line: numbers as they read back exactly, strings in quotes with control characters, quotes and
 * invalid UTF-8 escaped and cut after max_string bytes, arrays as "[3] = {1, 2, ...}" with at most max_items items.
 * Always ends with NUL; returns what it would have taken, as snprintf does. */
size_t crumb_gguf_value_text(const crumb_gguf_value *v, size_t max_string, uint64_t max_items, char *out, size_t size);

#endif
