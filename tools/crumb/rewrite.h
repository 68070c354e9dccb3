/* What crumb convert and crumb quantize share: from a model's path to a new GGUF file. */
#ifndef CRUMB_TOOLS_REWRITE_H
#define CRUMB_TOOLS_REWRITE_H

#include "host/base/error.h"
#include "host/container/gguf.h"
#include "host/lowbit/encode.h"
#include "tools/crumb/cli.h"

typedef struct rewriting {
    const cli_options *options;
    const char *verb; /* "converting" */
    const char *out;
    crumb_gguf *from;
    crumb_type *types;            /* [crumb_gguf_n_tensors(from)] what each tensor becomes; at first what it is */
    crumb_encode_method *methods; /* and how; at first as keeps the weights exact */
} rewriting;

/* Opens options->model, which must be given, to be written as `out`. */
crumb_status rewriting_open(rewriting *r, const char *out, crumb_error *err);
/* Writes the file and says what it did. */
crumb_status rewriting_run(rewriting *r, crumb_error *err);
/* Of the files that a model is read from, and how many threads the options ask for. */
uint64_t rewriting_identity(const char *model);
int rewriting_threads(const cli_options *options);
void rewriting_close(rewriting *r);

#endif
