/* Writing a checkpoint with weights packed as GPTQ does, matrix by matrix. */
#ifndef CRUMB_CHECKPOINT_GPTQ_WRITE_H
#define CRUMB_CHECKPOINT_GPTQ_WRITE_H

#include "host/container/gguf.h"
#include "host/lowbit/grid.h"

typedef struct crumb_gptq_form {
    const crumb_gguf *from; /* any model that crumb reads */
    const char *from_path;  /* where it comes from: a folder's other files are copied, a GGUF file's keys become them */
    const char *to;         /* a folder, made where it is not there */
    unsigned bits;          /* 2, 3, 4 */
    uint32_t group;         /* weights of a row that share scale and zero point, a multiple of 16; 0: all */
    bool free_groups;       /* which those are is each matrix's own (group_of): "desc_act" */
    uint64_t identity;      /* says which model `from` is, and how codes are chosen (file_write.h) */
} crumb_gptq_form;

typedef struct crumb_gptq_writer crumb_gptq_writer;

/* Begins model.safetensors with all tensors that are not packed, or takes up an earlier run's work. Packed are matrices
 * of layers both of whose sides are multiples of 32 (a row's last group may be shorter), in the order q, k, v, o, gate,
 * up, down of each layer. Of the others F32, F16 and BF16 stay as they are, and what else there is becomes F16. Fails
 * with IO, FORMAT, ARGUMENT (there is a checkpoint in the folder), UNSUPPORTED (a model whose keys or tensors
 * transformers has no names for). */
crumb_status crumb_gptq_writer_open(const crumb_gptq_form *form, crumb_gptq_writer **out, crumb_error *err);
/* NULL is allowed. What is not finished stays for another run where `keep`, or else is removed. */
void crumb_gptq_writer_close(crumb_gptq_writer *w, bool keep);

/* The matrices that are packed. They are written in this order; the first n_done are there. */
size_t crumb_gptq_writer_n(const crumb_gptq_writer *w);
size_t crumb_gptq_writer_n_done(const crumb_gptq_writer *w);
const crumb_gguf_tensor *crumb_gptq_writer_tensor(const crumb_gptq_writer *w, size_t index);
/* Room for a matrix's codes; freed by crumb_coded_free, also where it fails. */
crumb_status crumb_gptq_writer_alloc(const crumb_gptq_writer *w, size_t index, crumb_coded *out, crumb_error *err);
/* Writes the matrix n_done: rows as GGUF has them, which become the checkpoint's. */
crumb_status crumb_gptq_writer_append(crumb_gptq_writer *w, const crumb_coded *codes, int n_threads, crumb_error *err);
/* Reads one of those that are there. */
crumb_status crumb_gptq_writer_read(const crumb_gptq_writer *w, size_t index, crumb_coded *out, crumb_error *err);

/* All matrices are there: the file gets its name, the vocabulary's files are written, and at last config.json, without
 * which the folder is no checkpoint. */
crumb_status crumb_gptq_writer_finish(crumb_gptq_writer *w, crumb_error *err);

#endif
