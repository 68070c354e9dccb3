/* Modules that were compiled when crumb was: a file beside the module, made by tools/ze-archive where Intel's offline
 * compiler is there. A program in it has one fat archive of native binaries for the GPUs that can use it, and its
 * SPIR-V. */
#ifndef CRUMB_ZE_ARCHIVE_H
#define CRUMB_ZE_ARCHIVE_H

#include "host/base/error.h"

#define CRUMB_ZE_ARCHIVE_FILE "crumb-ze-modules.bin"
#define CRUMB_ZE_ARCHIVE_MARK "crumb-ze-modules 1\n"

/* In the file behind the mark, each followed by its bytes. */
typedef struct crumb_ze_archive_head {
    uint64_t text, options; /* crumb_hash of the whole text, and of the options */
    uint64_t n_native_bytes, n_spirv_bytes;
    uint64_t bytes; /* crumb_hash of both */
} crumb_ze_archive_head;

typedef struct crumb_ze_archived {
    uint8_t *bytes; /* native, then SPIR-V; NULL: this program is not there */
    size_t n_native_bytes, n_spirv_bytes;
} crumb_ze_archived;

/* The program of this text and these options. free(out->bytes). A file that is missing or damaged has none. */
void crumb_ze_archive_find(const char *path, const char *text, const char *options, crumb_ze_archived *out);
/* The file beside this module; false: there is no knowing where. */
bool crumb_ze_archive_path(char *out, size_t size);

#endif
