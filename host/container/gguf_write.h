/* Writing GGUF files. A file is written as PATH.partial, with PATH.partial.done beside it, which says what of it is
 * whole; it gets its name when all of it is on the disk. A run that was killed is taken up where it stood.
 */
#ifndef CRUMB_CONTAINER_GGUF_WRITE_H
#define CRUMB_CONTAINER_GGUF_WRITE_H

#include "host/container/gguf_build.h"

typedef struct crumb_gguf_writer crumb_gguf_writer;

/* Begins the file that `header` (finished) describes; it must outlive the writer. `identity` says what the tensors are
 * made from and how: an earlier run's are kept where it is the same, the header is, and their bytes still have the
 * checksums that were noted. Fails with IO. */
crumb_status crumb_gguf_writer_open(const char *path, const crumb_gguf_builder *header, uint64_t identity,
                                    crumb_gguf_writer **out, crumb_error *err);
/* Tensors that are whole; the next one to be written has this index in the header's list. */
uint64_t crumb_gguf_writer_n_done(const crumb_gguf_writer *w);
/* The next n_bytes of the next tensor: all of it, or a part of it. */
crumb_status crumb_gguf_writer_append(crumb_gguf_writer *w, const void *bytes, uint64_t n_bytes, crumb_error *err);
/* All tensors are there: the file gets its name. */
crumb_status crumb_gguf_writer_finish(crumb_gguf_writer *w, crumb_error *err);
/* Ends writing; NULL is allowed. What is not finished stays for another run where `keep`, or else is removed. */
void crumb_gguf_writer_close(crumb_gguf_writer *w, bool keep);

#endif
