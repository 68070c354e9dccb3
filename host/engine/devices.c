#include "host/engine/devices.h"

#include "host/engine/modules.h"

#include <stdio.h>
#include <string.h>

static void add_devices(crumb_engine_devices *all, const crumb_backend *backend, char *note, size_t note_size) {
    crumb_device_listing found[CRUMB_ENGINE_MAX_DEVICES];
    size_t n = backend->device.list(found, CRUMB_ENGINE_MAX_DEVICES - all->n, note, note_size);
    for (size_t i = 0; i < n; i++)
        all->device[all->n++] = (crumb_engine_device){.backend = backend, .listing = found[i]};
}

/* Devices of the backend `only`, or of all that are modules where it is NULL. */
static void find_gpus(crumb_engine_devices *out, const char *only) {
    *out = (crumb_engine_devices){0};
    for (const char *const *name = crumb_engine_module_names; *name; name++) {
        const crumb_module *module;
        crumb_error err = {0};
        if (only && strcmp(only, *name) != 0) continue;
        if (crumb_engine_module_load(*name, &module, &err) == CRUMB_OK)
            add_devices(out, module->backend, out->note, sizeof out->note);
        else
            snprintf(out->note, sizeof out->note, "%.500s", err.message);
    }
}

void crumb_engine_devices_find(crumb_engine_devices *out) {
    char nothing[1];
    find_gpus(out, NULL);
    if (out->n == CRUMB_ENGINE_MAX_DEVICES) out->n--; /* the CPU is always there */
    add_devices(out, &crumb_backend_cpu, nothing, sizeof nothing);
}

void crumb_engine_choose_cpu(crumb_engine_choice *out, const char *reason) {
    char nothing[1];
    bool automatic = out->automatic;
    *out = (crumb_engine_choice){.device.backend = &crumb_backend_cpu, .automatic = automatic};
    crumb_backend_cpu.device.list(&out->device.listing, 1, nothing, sizeof nothing);
    snprintf(out->why_cpu, sizeof out->why_cpu, "%s", reason);
}

static crumb_status check_names(const char *device, const char *backend, crumb_error *err) {
    static const char *const words[] = {"auto", "cpu", "none"};
    bool known = strncmp(device, "gpu", 3) == 0 && device[3] >= '0' && device[3] <= '9' &&
                 strspn(device + 3, "0123456789") == strlen(device + 3);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) known = known || strcmp(device, words[i]) == 0;
    if (!known)
        return crumb_fail(err, CRUMB_ERR_DEVICE,
                          "device '%s': name one, auto, cpu or a GPU as 'crumb devices' lists it (gpu0)", device);
    known = strcmp(backend, "auto") == 0 || strcmp(backend, "cpu") == 0;
    for (const char *const *name = crumb_engine_module_names; *name; name++)
        known = known || strcmp(backend, *name) == 0;
    if (!known) return crumb_fail(err, CRUMB_ERR_DEVICE, "backend '%s': there are auto, cpu and cl", backend);
    return CRUMB_OK;
}

static bool is_cpu(const char *device) {
    return strcmp(device, "cpu") == 0 || strcmp(device, "none") == 0;
}

/* The GPU that is named. */
static crumb_status choose_named(const crumb_engine_devices *all, const char *name, crumb_engine_choice *out,
                                 crumb_error *err) {
    for (size_t i = 0; i < all->n; i++) {
        const crumb_device_listing *l = &all->device[i].listing;
        if (strcmp(l->name, name) != 0) continue;
        if (*l->unusable)
            return crumb_fail(err, CRUMB_ERR_DEVICE, "device %s (%s) cannot be used: %s", name, l->detail, l->unusable);
        out->device = all->device[i];
        return CRUMB_OK;
    }
    if (all->n == 0) return crumb_fail(err, CRUMB_ERR_DEVICE, "device %s: no GPU: %s", name, all->note);
    return crumb_fail(err, CRUMB_ERR_DEVICE, "device %s: there is gpu0 to gpu%zu; 'crumb devices' says what they are",
                      name, all->n - 1);
}

static void say_why(char *out, size_t size, const crumb_engine_devices *all, const crumb_device_listing *first) {
    if (!first)
        snprintf(out, size, "%s", all->note);
    else if (*first->unusable)
        snprintf(out, size, "%s (%s): %s", first->name, first->detail, first->unusable);
    else if (first->kind == CRUMB_DEVICE_PROCESSOR)
        snprintf(out, size, "%.400s%s%s is OpenCL on the processor; --device %s takes it", all->note,
                 *all->note ? "; " : "", first->name, first->name);
    else
        snprintf(out, size, "%s (%s) is not an Intel GPU; --device %s takes it", first->name, first->detail,
                 first->name);
}

/* The first usable GPU: with `any_maker` whoever made it. NULL: none, and `why` says what the first one lacks. */
static const crumb_engine_device *first_gpu(const crumb_engine_devices *all, bool any_maker, char *why, size_t size) {
    for (size_t i = 0; i < all->n; i++) {
        const crumb_device_listing *l = &all->device[i].listing;
        if (!*l->unusable && l->kind != CRUMB_DEVICE_PROCESSOR && (l->intel || any_maker)) return &all->device[i];
    }
    say_why(why, size, all, all->n ? &all->device[0].listing : NULL);
    return NULL;
}

static bool targets_cpu(const char *target) {
    return target && (strcmp(target, "cpu") == 0 || strncmp(target, "cpu:", 4) == 0);
}

crumb_status crumb_engine_device_choose(const char *device, const char *backend, const char *target,
                                        crumb_engine_choice *out, crumb_error *err) {
    crumb_engine_devices all;
    bool any_device = strcmp(device, "auto") == 0, any_backend = strcmp(backend, "auto") == 0;
    *out = (crumb_engine_choice){.automatic = any_device && any_backend};
    CRUMB_TRY(check_names(device, backend, err));
    if (is_cpu(device) && !any_backend && strcmp(backend, "cpu") != 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "the backend '%s' does not drive the device '%s'", backend, device);
    if (strcmp(backend, "cpu") == 0 && !any_device && !is_cpu(device))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "the backend 'cpu' does not drive the device '%s'", device);
    if (is_cpu(device) || strcmp(backend, "cpu") == 0)
        return crumb_engine_choose_cpu(out, "the CPU is asked for"), CRUMB_OK;
    if (any_device && any_backend && targets_cpu(target))
        return crumb_engine_choose_cpu(out, "kernels of the CPU are asked for"), CRUMB_OK;
    find_gpus(&all, any_backend ? NULL : backend);
    if (!any_device) return choose_named(&all, device, out, err);
    char why[640];
    const crumb_engine_device *gpu = first_gpu(&all, !any_backend, why, sizeof why);
    if (gpu)
        out->device = *gpu;
    else if (any_backend)
        crumb_engine_choose_cpu(out, why);
    else
        return crumb_fail(err, CRUMB_ERR_DEVICE, "backend '%s': no GPU: %s", backend, why);
    return CRUMB_OK;
}
