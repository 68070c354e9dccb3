#include "host/base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

crumb_status crumb_module_open(const char *path, const char *symbol, const void **out, crumb_error *err) {
    *out = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        const char *reason = dlerror();
        return crumb_fail(err, CRUMB_ERR_DEVICE, "%s", reason ? reason : path);
    }
    *out = dlsym(library, symbol);
    if (*out) return CRUMB_OK;
    dlclose(library);
    return crumb_fail(err, CRUMB_ERR_DEVICE, "%s: is not a module of crumb (no symbol '%s')", path, symbol);
}

bool crumb_module_folder(const void *address, char *out, size_t size) {
    Dl_info info;
    struct link_map *map = NULL;
    char path[PATH_MAX];
    if (!dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) || !map) return false;
    /* the program itself has no name here, and argv[0] may be anything */
    if (!realpath(map->l_name && *map->l_name ? map->l_name : "/proc/self/exe", path)) return false;
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = 0;
    int n = snprintf(out, size, "%s", path);
    return n >= 0 && (size_t)n < size;
}
