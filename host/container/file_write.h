/* Writing files of many tensors. A file is written as PATH.partial, with PATH.partial.done beside it, which says what
 * of it is whole; it gets its name when all of it is on the disk. A run that was killed is taken up where it stood.
 */
#ifndef CRUMB_CONTAINER_FILE_WRITE_H
#define CRUMB_CONTAINER_FILE_WRITE_H

#include "host/base/error.h"

typedef struct crumb_file_writer crumb_file_writer;

/* What a file will be: its head, then tensors. */
typedef struct crumb_file_plan {
    const uint8_t *head;
    uint64_t head_bytes;
    const uint64_t *tensor_bytes; /* [n_tensors] */
    uint64_t n_tensors;
    uint64_t alignment; /* of where tensors begin; zeros fill the gaps */
} crumb_file_plan;

/* Begins a file; what the plan points to must outlive the writer. `identity` says what the tensors are
 * made from and how: an earlier run's are kept where it is the same, the head is, and their bytes still have the
 * checksums that were noted. Fails with IO. */
crumb_status crumb_file_writer_open(const char *path, const crumb_file_plan *plan, uint64_t identity,
                                    crumb_file_writer **out, crumb_error *err);
/* Tensors that are whole; the next one to be written has this index in the plan. */
uint64_t crumb_file_writer_n_done(const crumb_file_writer *w);
/* All bytes of a tensor that is whole. Fails with IO. */
crumb_status crumb_file_writer_read(const crumb_file_writer *w, uint64_t tensor, void *out, crumb_error *err);
/* The next n_bytes of the next tensor: all of it, or a part of it. */
crumb_status crumb_file_writer_append(crumb_file_writer *w, const void *bytes, uint64_t n_bytes, crumb_error *err);
/* All tensors are there: the file gets its name. */
crumb_status crumb_file_writer_finish(crumb_file_writer *w, crumb_error *err);
/* Ends writing; NULL is allowed. What is not finished stays for another run where `keep`, or else is removed. */
void crumb_file_writer_close(crumb_file_writer *w, bool keep);

#endif
