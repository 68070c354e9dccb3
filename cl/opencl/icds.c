/* Where OpenCL's loader finds drivers: files with their libraries' paths. */
#include "cl/discover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void crumb_cl_driver_files_find(crumb_cl_driver_files *out) {
    crumb_folder_entry entries[CRUMB_CL_MAX_DRIVERS];
    const char *named = getenv("OCL_ICD_VENDORS"), *more = getenv("OCL_ICD_FILENAMES");
    const char *folder = named && *named ? named : "/etc/OpenCL/vendors";
    const size_t n = strlen(folder);
    *out = (crumb_cl_driver_files){.more = more && *more};
    if (n >= 4 && strcmp(folder + n - 4, ".icd") == 0 && crumb_file_exists(folder)) {
        snprintf(out->file[0].entry.name, sizeof out->file[0].entry.name, "%s", folder);
        snprintf(out->file[0].path, sizeof out->file[0].path, "%s", folder);
        out->file[0].is_text = out->file[0].is_driver = true;
        out->n = 1;
        return;
    }
    out->n = crumb_folder_list(folder, ".icd", entries, CRUMB_CL_MAX_DRIVERS);
    for (size_t i = 0; i < out->n; i++) {
        out->file[i].entry = entries[i];
        out->file[i].is_text = out->file[i].is_driver = true;
        snprintf(out->file[i].path, sizeof out->file[i].path, "%.590s%s%.127s", folder,
                 n && folder[n - 1] == '/' ? "" : "/", entries[i].name);
    }
}
