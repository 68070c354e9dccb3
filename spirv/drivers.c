/* What decides which drivers Level Zero's loader finds: the libraries that the system knows, or those that are named.
 */
#include "cl/discover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Its time and size, where it has a folder. */
static void stamp(const char *path, crumb_folder_entry *out) {
    char folder[600];
    const char *slash = strrchr(path, '/');
    *out = (crumb_folder_entry){0};
    if (slash && slash != path) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        crumb_folder_list(folder, slash + 1, out, 1);
    }
    snprintf(out->name, sizeof out->name, "%.127s", path);
}

static void add(crumb_cl_driver_files *out, const char *path, size_t n, bool is_driver) {
    if (n == 0 || out->n == CRUMB_CL_MAX_DRIVERS) return;
    snprintf(out->file[out->n].path, sizeof out->file[0].path, "%.*s", (int)n, path);
    out->file[out->n].is_driver = is_driver;
    stamp(out->file[out->n].path, &out->file[out->n].entry);
    out->n++;
}

void crumb_cl_driver_files_find(crumb_cl_driver_files *out) {
    const char *named = getenv("ZE_ENABLE_ALT_DRIVERS");
    *out = (crumb_cl_driver_files){.more = true};
    add(out, "/etc/ld.so.cache", strlen("/etc/ld.so.cache"), false); /* written anew with every library's change */
    if (!named || !*named) named = "libze_intel_gpu.so.1";
    for (const char *p = named; *p; p += strcspn(p, ","), p += *p == ',') add(out, p, strcspn(p, ","), true);
}
