#include "host/engine/modules.h"

#include "host/base/file.h"
#include "host/base/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const crumb_engine_module_names[] = {"ze", "cl", NULL};

typedef struct known_module {
    const char *name, *file;
    const char *what;    /* "GPU": what is missing where it is not built */
    const char *library; /* what it stands on, which a machine may lack; NULL: nothing that it is linked with */
    const char *remedy;
} known_module;

static const known_module known[] = {
    {"cl", "libcrumb-cl.so", "GPU", "libOpenCL.so",
     "there is no OpenCL loader; install it (Debian, Ubuntu: ocl-icd-libopencl1; Fedora: ocl-icd)"},
    {"ze", "libcrumb-ze.so", "Level Zero", NULL, NULL},
};

enum { PATH_SIZE = 1024 };

static bool exists_in(const char *folder, const char *between, const char *file, char path[PATH_SIZE]) {
    int n = snprintf(path, PATH_SIZE, "%s%s/%s", folder, between, file);
    return n > 0 && n < PATH_SIZE && crumb_file_exists(path);
}

/* Paths from here to the installation's libraries, so that an installed tree can be moved. */
static bool find_file(const char *file, char path[PATH_SIZE]) {
    static const char *const places[] = {"", "/crumb", ("/../" CRUMB_MODULE_FOLDER)};
    const char *named = getenv("CRUMB_MODULE_DIR");
    char here[PATH_SIZE];
    if (named) return exists_in(named, "", file, path);
    if (!crumb_module_folder((const void *)crumb_engine_module_names, here, sizeof here)) return false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (exists_in(here, places[i], file, path)) return true;
    return false;
}

static crumb_status check_version(const crumb_module *module, const char *path, crumb_error *err) {
    bool same = module->interface == CRUMB_MODULE_INTERFACE && strcmp(module->version, crumb_version()) == 0;
    if (same) return CRUMB_OK;
    return crumb_fail(
        err, CRUMB_ERR_DEVICE,
        "%s is of another version (%s, interface %u) than this crumb (%s, interface %d): install both from "
        "one build",
        path, module->interface == CRUMB_MODULE_INTERFACE ? module->version : "unknown", module->interface,
        crumb_version(), CRUMB_MODULE_INTERFACE);
}

crumb_status crumb_engine_module_load(const char *name, const crumb_module **out, crumb_error *err) {
    *out = NULL;
    const known_module *k = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) k = &known[i];
    if (!k) return crumb_fail(err, CRUMB_ERR_DEVICE, "there is no backend '%s'", name);
    char path[PATH_SIZE];
    if (!find_file(k->file, path))
        return crumb_fail(err, CRUMB_ERR_DEVICE, "this build of crumb has no %s backend (%s is not there)", k->what,
                          k->file);
    const void *symbol;
    crumb_error reason = {0};
    if (crumb_module_open(path, CRUMB_MODULE_SYMBOL, &symbol, &reason) != CRUMB_OK) {
        bool lacks = k->library && strstr(reason.message, k->library) && !strstr(reason.message, k->file);
        return crumb_fail(err, CRUMB_ERR_DEVICE, "%s", lacks ? k->remedy : reason.message);
    }
    const crumb_module *module = symbol;
    CRUMB_TRY(check_version(module, path, err));
    *out = module;
    return CRUMB_OK;
}
