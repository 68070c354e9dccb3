/* A Level Zero loader for tests: the real one, which CRUMB_REAL_LOADER names, without some of its functions, as if it
 * were older. Preloaded, it is found by the name of the real one. Built with WITHOUT_LISTS    lists cannot be appended
 * to immediate ones: before 1.17 WITHOUT_SYSMAN   there is no zesInit and nothing else of Sysman of its own: before 1.9
 * Every function jumps to the real one's. */
#include "spirv/api.h"

#include <dlfcn.h>
#include <stdlib.h>

#define ALSO(X) X(zeCommandListHostSynchronize)
#ifndef WITHOUT_LISTS
#define LISTS(X) X(zeCommandListImmediateAppendCommandListsExp)
#else
#define LISTS(X)
#endif
#ifndef WITHOUT_SYSMAN
#define SYSMAN(X) CRUMB_ZE_SYSMAN_FUNCTIONS(X) X(zesInit) X(zesDriverGet) X(zesDeviceGet)
#else
#define SYSMAN(X)
#endif
#define ALL(X) CRUMB_ZE_FUNCTIONS(X) ALSO(X) LISTS(X) SYSMAN(X)

#define DECLARE(name) extern void *crumb_real_##name;
#define SLOT(name)                                                                                                     \
    __attribute__((visibility("hidden"))) void *crumb_real_##name;                                                     \
    __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n" #name ": jmp *crumb_real_" #name      \
            "(%rip)\n.popsection\n");
ALL(DECLARE)
ALL(SLOT)

/* Where it cannot be opened (a shell of another C library, in front of the program) nobody calls it. */
__attribute__((constructor)) static void find_functions(void) {
    const char *path = getenv("CRUMB_REAL_LOADER");
    void *real = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!real) return;
#define FIND(name) crumb_real_##name = dlsym(real, #name);
    ALL(FIND)
}
