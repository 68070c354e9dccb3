/* Number formats by the names that people use. */
#include "host/kernel/suite.h"

#include "host/lowbit/tile.h"

#include <stdio.h>
#include <string.h>

const crumb_kernel_format crumb_kernel_formats[] = {
    {.name = "1", .bits = 1, .max_code = 1, .mul = 2, .sub = 1},
    {.name = "1.58", .bits = 2, .max_code = 2, .mul = 1, .sub = 1},
    {.name = "2", .bits = 2, .max_code = 3, .mul = 2, .sub = 3},
    {.name = "3", .bits = 3, .max_code = 7, .mul = 1, .sub = 4, .group = 16},
    {.name = "4", .bits = 4, .max_code = 15, .mul = 1, .sub = 8, .group = 32},
    {.name = "5", .bits = 5, .max_code = 31, .mul = 1, .sub = 16, .group = 32},
    {.name = "6", .bits = 6, .max_code = 63, .mul = 1, .sub = 32, .group = 16},
    {.name = "8", .bits = 8, .max_code = 255, .mul = 1, .sub = 128, .group = 32},
    {.name = "mxfp4", .bits = 4, .max_code = 15, .mul = 1, .codebook = crumb_codebook_e2m1, .group = 32},
    {.name = "iq4_nl", .bits = 4, .max_code = 15, .mul = 1, .codebook = crumb_codebook_iq4_nl, .group = 32},
};
const size_t crumb_n_kernel_formats = sizeof crumb_kernel_formats / sizeof crumb_kernel_formats[0];

const crumb_kernel_format *crumb_kernel_format_find(const char *name) {
    for (size_t i = 0; i < crumb_n_kernel_formats; i++)
        if (strcmp(crumb_kernel_formats[i].name, name) == 0) return &crumb_kernel_formats[i];
    return NULL;
}

void crumb_kernel_weights_name(unsigned bits, const int8_t *codebook, bool indexed, char out[16]) {
    char codes[8];
    snprintf(codes, sizeof codes, "%c%u", codebook ? 'c' : 'u', bits & 0xf);
    const char *name = codes;
    for (size_t i = 0; codebook && i < crumb_n_kernel_formats; i++)
        if (crumb_kernel_formats[i].codebook == codebook) name = crumb_kernel_formats[i].name;
    snprintf(out, 16, "%.8s%s", name, indexed ? " index" : "");
}
