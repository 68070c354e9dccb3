/* The kernels' texts inside the module; module.cmake lists them with their files. A compiler is told where each file
 * begins, so that what it says of a kernel names the file and its line. */
#include "cl/program.h"

#include <string.h>

#define CRUMB_CL_FILE(path) ".ascii \"#line 1 \\\"" path "\\\"\\n\"\n.incbin \"" path "\"\n"
#define CRUMB_CL_TEXT(symbol, name, files)                                                                             \
    extern const char symbol[];                                                                                        \
    __asm__(".section .rodata\n"                                                                                       \
            ".hidden " #symbol "\n"                                                                                    \
            ".globl " #symbol "\n" #symbol ":\n" files ".byte 0\n"                                                     \
            ".previous\n");
#include "cl/texts.inc"
#undef CRUMB_CL_TEXT

static const struct {
    const char *name, *text;
} texts[] = {
#define CRUMB_CL_TEXT(symbol, name, files) {name, symbol},
#include "cl/texts.inc"
#undef CRUMB_CL_TEXT
    {NULL, NULL},
};

const char *crumb_cl_text_at(size_t index) {
    return index < sizeof texts / sizeof *texts - 1 ? texts[index].text : NULL;
}

const char *crumb_cl_text(const char *name) {
    for (size_t i = 0; texts[i].name; i++)
        if (strcmp(texts[i].name, name) == 0) return texts[i].text;
    return NULL;
}
