/* A Level Zero loader for tests: every function succeeds and does nothing, so that there are drivers without devices.
 * With CRUMB_FAKE_LOADER=crash the first call ends the process; built with OLD it has zeInit alone. */
#include "spirv/api.h"

#include <stdlib.h>
#include <string.h>

int crumb_fake_call(void);
__attribute__((visibility("default"), used)) int crumb_fake_call(void) {
    const char *how = getenv("CRUMB_FAKE_LOADER");
    if (how && strcmp(how, "crash") == 0) abort();
    return 0;
}

#define ALIAS(name) __asm__(".globl " #name "\n.set " #name ", crumb_fake_call\n");
#ifdef OLD
ALIAS(zeInit)
#else
CRUMB_ZE_FUNCTIONS(ALIAS)
ALIAS(zeCommandListHostSynchronize)
#endif
