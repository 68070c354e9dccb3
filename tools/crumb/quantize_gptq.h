/* crumb quantize IN OUT GPTQ4: a folder with weights packed as GPTQ does. */
#ifndef CRUMB_TOOLS_QUANTIZE_GPTQ_H
#define CRUMB_TOOLS_QUANTIZE_GPTQ_H

#include "host/base/error.h"
#include "tools/crumb/cli.h"

/* 2, 3 or 4 for GPTQ2, GPTQ3, GPTQ4; 0: another type. */
unsigned quantize_gptq_bits(const char *type);
/* Writes the folder and says what it did. */
crumb_status quantize_gptq(const cli_options *o, unsigned bits, crumb_error *err);

#endif
