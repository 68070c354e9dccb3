#include "spirv/archive.h"

#include "host/base/cache.h"
#include "host/base/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20 };

bool crumb_ze_archive_path(char *out, size_t size) {
    static const char here[] = "";
    char folder[600];
    if (!crumb_module_folder(here, folder, sizeof folder)) return false;
    snprintf(out, size, "%s/" CRUMB_ZE_ARCHIVE_FILE, folder);
    return true;
}

static bool read_bytes(FILE *f, const crumb_ze_archive_head *head, crumb_ze_archived *out) {
    const size_t n = (size_t)(head->n_native_bytes + head->n_spirv_bytes);
    if (n == 0 || n > 2 * (size_t)MAX_BYTES) return false;
    uint8_t *bytes = malloc(n);
    if (!bytes) return false;
    if (fread(bytes, 1, n, f) != n || crumb_hash(CRUMB_HASH_SEED, bytes, n) != head->bytes) {
        free(bytes);
        return false;
    }
    *out = (crumb_ze_archived){bytes, (size_t)head->n_native_bytes, (size_t)head->n_spirv_bytes};
    return true;
}

void crumb_ze_archive_find(const char *path, const char *text, const char *options, crumb_ze_archived *out) {
    const uint64_t of_text = crumb_hash(CRUMB_HASH_SEED, text, strlen(text));
    const uint64_t of_options = crumb_hash(CRUMB_HASH_SEED, options, strlen(options));
    char mark[sizeof CRUMB_ZE_ARCHIVE_MARK] = "";
    crumb_ze_archive_head head;
    *out = (crumb_ze_archived){0};
    FILE *f = fopen(path, "rb");
    if (!f) return;
    bool whole = fread(mark, 1, sizeof mark - 1, f) == sizeof mark - 1 && strcmp(mark, CRUMB_ZE_ARCHIVE_MARK) == 0;
    while (whole && fread(&head, sizeof head, 1, f) == 1) {
        if (head.n_native_bytes > MAX_BYTES || head.n_spirv_bytes > MAX_BYTES) break;
        if (head.text == of_text && head.options == of_options) {
            read_bytes(f, &head, out);
            break;
        }
        whole = fseek(f, (long)(head.n_native_bytes + head.n_spirv_bytes), SEEK_CUR) == 0;
    }
    fclose(f);
}
