/* The kernels' text inside the module; module.cmake lists the files. */
#include "cl/program.h"

#include <string.h>

#define CRUMB_CL_FILE(symbol, name)                                                                                    \
    extern const char symbol[];                                                                                        \
    __asm__(".section .rodata\n"                                                                                       \
            ".hidden " #symbol "\n"                                                                                    \
            ".globl " #symbol "\n" #symbol ":\n"                                                                       \
            ".incbin \"" name "\"\n"                                                                                   \
            ".byte 0\n"                                                                                                \
            ".previous\n");
#include "cl/files.inc"
#undef CRUMB_CL_FILE

static const struct {
    const char *name, *text;
} files[] = {
#define CRUMB_CL_FILE(symbol, name) {name, symbol},
#include "cl/files.inc"
#undef CRUMB_CL_FILE
    {NULL, NULL},
};

const char *crumb_cl_text_at(size_t index) {
    return index < sizeof files / sizeof *files - 1 ? files[index].text : NULL;
}

const char *crumb_cl_text(const char *name) {
    for (size_t i = 0; files[i].name; i++)
        if (strcmp(files[i].name, name) == 0) return files[i].text;
    return NULL;
}
