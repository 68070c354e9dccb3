/* A tensor's rows as floats. */
#ifndef CRUMB_CONTAINER_GGUF_ROWS_H
#define CRUMB_CONTAINER_GGUF_ROWS_H

#include "host/container/gguf.h"

/* Rows [first, first + n) of a tensor that is held, counted over all dimensions but the first: [n][dims[0]], columns
 * where they belong. Any number of threads, not inside a guard. Fails with FORMAT where one is not finite, and with IO
 * where the file has shrunk. */
crumb_status crumb_gguf_read_rows(const crumb_gguf *g, const crumb_gguf_tensor *t, uint64_t first, uint64_t n,
                                  float *out, crumb_error *err);
/* All rows; holds the tensor while it reads them, and releases it. */
crumb_status crumb_gguf_read_tensor(const crumb_gguf *g, const crumb_gguf_tensor *t, float *out, crumb_error *err);
uint64_t crumb_gguf_n_rows(const crumb_gguf_tensor *t);

#endif
