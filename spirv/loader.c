/* Level Zero's loader, where it is installed. */
#include "host/base/module.h"
#include "spirv/api.h"

#include <stdatomic.h>
#include <string.h>

static const char file[] = "libze_loader.so.1";

/* A pointer to a function and one to data are different things to C, and the same to every system with Level Zero. */
static bool find(const char *name, void *out) {
    const void *address = NULL;
    const bool found = crumb_module_open(file, name, &address, NULL) == CRUMB_OK;
    memcpy(out, &address, sizeof address);
    return found;
}

static crumb_status load(crumb_ze_functions *f, crumb_error *err) {
    const void *there;
    if (crumb_module_open(file, "zeInit", &there, NULL) != CRUMB_OK)
        return crumb_fail(err, CRUMB_ERR_DEVICE,
                          "there is no Level Zero loader; install it (Debian 13: libze1; Ubuntu: libze1; Fedora: "
                          "oneapi-level-zero)");
#define FIND(name)                                                                                                     \
    if (!find(#name, &f->name))                                                                                        \
        return crumb_fail(err, CRUMB_ERR_DEVICE, "the Level Zero loader is too old: it has no " #name);
    CRUMB_ZE_FUNCTIONS(FIND)
#undef FIND
    if (!find("zeCommandListHostSynchronize", &f->list_synchronize))
        return crumb_fail(err, CRUMB_ERR_DEVICE,
                          "the Level Zero loader is too old: version 1.11 or later is needed, or --backend cl");
    if (!find("zeCommandListImmediateAppendCommandListsExp", &f->append_lists)) f->append_lists = NULL;
    return CRUMB_OK;
}

bool crumb_ze_load_sysman(crumb_ze_sysman_functions *out) {
    bool all = true;
#define FIND(name) all = all && find(#name, &out->name);
    CRUMB_ZE_SYSMAN_FUNCTIONS(FIND)
#undef FIND
    return all && find("zesInit", &out->init) && find("zesDriverGet", &out->driver_get) &&
           find("zesDeviceGet", &out->device_get);
}

const crumb_ze_functions *crumb_ze_load(crumb_error *err) {
    static crumb_ze_functions functions;
    static atomic_int state; /* 0: not tried; 1: being loaded; 2: there; 3: not there */
    int untried = 0;
    if (atomic_compare_exchange_strong(&state, &untried, 1)) {
        const crumb_status status = load(&functions, err);
        atomic_store(&state, status == CRUMB_OK ? 2 : 3);
        return status == CRUMB_OK ? &functions : NULL;
    }
    while (atomic_load(&state) == 1) {
    }
    if (atomic_load(&state) == 2) return &functions;
    crumb_ze_functions again;
    load(&again, err); /* for its words */
    return NULL;
}
