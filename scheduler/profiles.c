/* The profiles that are part of crumb: the texts of scheduler/profiles/. */
#include "scheduler/profile.h"

#include <string.h>

#define EMBED(name)                                                                                                    \
    extern const char crumb_profile_##name[], crumb_profile_##name##_end[];                                            \
    __asm__(".section .rodata\n"                                                                                       \
            ".hidden crumb_profile_" #name "\n"                                                                        \
            ".globl crumb_profile_" #name "\n"                                                                         \
            "crumb_profile_" #name ":\n"                                                                               \
            ".incbin \"" #name ".json\"\n"                                                                             \
            ".hidden crumb_profile_" #name "_end\n"                                                                    \
            ".globl crumb_profile_" #name "_end\n"                                                                     \
            "crumb_profile_" #name "_end:\n"                                                                           \
            ".byte 0\n"                                                                                                \
            ".previous\n");

#define PROFILES(X) X(arl) X(arlh) X(lnl) X(bmg) X(a770) X(ptl)

PROFILES(EMBED)

#define NAME(name) #name,
const char *const crumb_profile_names[] = {PROFILES(NAME) NULL};

const char *crumb_profile_embedded(const char *name, size_t *n_bytes) {
#define FIND(profile)                                                                                                  \
    if (strcmp(name, #profile) == 0)                                                                                   \
        return *n_bytes = (size_t)(crumb_profile_##profile##_end - crumb_profile_##profile), crumb_profile_##profile;
    PROFILES(FIND)
    return *n_bytes = 0, NULL;
}
