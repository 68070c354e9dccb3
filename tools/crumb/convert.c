/* crumb convert: a model's file written anew as GGUF, from a folder as transformers writes it. */
#include "tools/crumb/rewrite.h"

#include <string.h>

int cli_convert(const cli_options *options) {
    crumb_error err = {0};
    rewriting r = {.options = options, .verb = "converting"};
    crumb_status status = CRUMB_OK;
    if (!options->model)
        status = crumb_fail(&err, CRUMB_ERR_ARGUMENT, "no model given: crumb convert IN OUT");
    else if (options->plain.n != 1)
        status =
            crumb_fail(&err, CRUMB_ERR_ARGUMENT, "convert wants a model and a file to write: crumb convert IN OUT");
    if (status == CRUMB_OK) status = rewriting_open(&r, options->plain.value[0], &err);
    if (status == CRUMB_OK) status = rewriting_run(&r, &err);
    rewriting_close(&r);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
