#include "host/engine/devices.h"

#include "host/engine/modules.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- what there is --------------------------------------------------------------------------------------------- */

static const struct {
    const char *backend, *name;
} backend_names[] = {{"ze", "Level Zero"}, {"cl", "OpenCL"}, {"cpu", "the CPU"}};

const char *crumb_engine_backend_name(const char *backend) {
    for (size_t i = 0; i < sizeof backend_names / sizeof *backend_names; i++)
        if (strcmp(backend_names[i].backend, backend) == 0) return backend_names[i].name;
    return backend;
}

static void add_devices(crumb_engine_devices *all, const crumb_backend *backend, char *note, size_t note_size) {
    crumb_device_listing found[CRUMB_ENGINE_MAX_DEVICES];
    size_t n = backend->device.list(found, CRUMB_ENGINE_MAX_DEVICES - all->n, note, note_size);
    for (size_t i = 0; i < n; i++) {
        crumb_engine_device *d = &all->device[all->n++];
        *d = (crumb_engine_device){
            .backend = backend, .backend_name = crumb_engine_backend_name(backend->name), .listing = found[i]};
        memcpy(d->name, found[i].name, sizeof d->name);
        if (*found[i].kernels)
            crumb_engine_recall_target(backend->name, found[i].detail, found[i].kernels, &d->lowered);
    }
}

/* Which of the cards of this name and backend it is, from 0 on. */
static size_t number_among_namesakes(const crumb_engine_devices *all, const crumb_engine_device *d) {
    size_t n = 0;
    for (const crumb_engine_device *other = all->device; other < d; other++)
        n += other->backend == d->backend && strcmp(other->listing.detail, d->listing.detail) == 0;
    return n;
}

static bool is_same_card(const crumb_engine_devices *all, const crumb_engine_device *a, const crumb_engine_device *b) {
    if (a->backend == b->backend || a->listing.kind != b->listing.kind) return a == b;
    if (*a->listing.pci && *b->listing.pci) return strcmp(a->listing.pci, b->listing.pci) == 0;
    return strcmp(a->listing.detail, b->listing.detail) == 0 &&
           number_among_namesakes(all, a) == number_among_namesakes(all, b);
}

/* The first listing of the same card. */
static size_t first_of_card(const crumb_engine_devices *all, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (is_same_card(all, &all->device[i], &all->device[index])) return i;
    return index;
}

/* Discrete cards come first; then by place, those whose place is known before others; then as they were found. */
static bool comes_before(const crumb_engine_devices *all, size_t a, size_t b) {
    const crumb_device_listing *x = &all->device[a].listing, *y = &all->device[b].listing;
    if (x->kind != y->kind) return x->kind > y->kind;
    if (!*x->pci != !*y->pci) return *x->pci;
    const int order = strcmp(x->pci, y->pci);
    return order ? order < 0 : a < b;
}

/* Puts each card's listings together, in the order that comes_before has, and names them. */
static void sort_cards(crumb_engine_devices *all) {
    static_assert(CRUMB_DEVICE_DISCRETE > CRUMB_DEVICE_INTEGRATED && CRUMB_DEVICE_INTEGRATED > CRUMB_DEVICE_PROCESSOR,
                  "kinds rise with the order of names");
    const crumb_engine_devices found = *all;
    bool taken[CRUMB_ENGINE_MAX_DEVICES] = {false};
    size_t n = 0;
    for (unsigned number = 0; n < found.n; number++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < found.n; i++)
            if (!taken[i] && (best == SIZE_MAX || comes_before(&found, i, best))) best = i;
        const size_t card = first_of_card(&found, best);
        for (size_t i = 0; i < found.n; i++) {
            if (taken[i] || first_of_card(&found, i) != card) continue;
            taken[i] = true;
            all->device[n] = found.device[i];
            snprintf(all->device[n++].name, sizeof all->device[n].name, "gpu%u", number % 1000);
        }
    }
}

static bool has_gpu(const crumb_engine_devices *all) {
    for (size_t i = 0; i < all->n; i++)
        if (all->device[i].listing.kind != CRUMB_DEVICE_PROCESSOR) return true;
    return false;
}

/* The devices of all backends that are modules. Why there is none is what the last of them says. */
static void find_gpus(crumb_engine_devices *out) {
    *out = (crumb_engine_devices){0};
    for (size_t i = 0; i < CRUMB_ENGINE_MAX_BACKENDS && crumb_engine_module_names[i]; i++) {
        const crumb_module *module;
        crumb_error err = {0};
        if (crumb_engine_module_load(crumb_engine_module_names[i], &module, &err) == CRUMB_OK)
            add_devices(out, module->backend, out->notes[i], sizeof out->notes[i]);
        else
            snprintf(out->notes[i], sizeof out->notes[i], "%.500s", err.message);
        memcpy(out->note, out->notes[i], sizeof out->note);
    }
    sort_cards(out);
    if (has_gpu(out)) *out->note = 0;
}

/* Leaves what is of one backend. */
static void keep_backend(crumb_engine_devices *all, const char *backend) {
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->device[i].backend->name, backend) == 0) all->device[n++] = all->device[i];
    all->n = n;
    for (size_t i = 0; i < CRUMB_ENGINE_MAX_BACKENDS && crumb_engine_module_names[i]; i++)
        if (strcmp(crumb_engine_module_names[i], backend) == 0) memcpy(all->note, all->notes[i], sizeof all->note);
}

void crumb_engine_devices_find(crumb_engine_devices *out) {
    char nothing[1];
    find_gpus(out);
    if (out->n == CRUMB_ENGINE_MAX_DEVICES) out->n--; /* the CPU is always there */
    add_devices(out, &crumb_backend_cpu, nothing, sizeof nothing);
}

/* ---- which is taken ---------------------------------------------------------------------------------------------- */

void crumb_engine_choose_cpu(crumb_engine_choice *out, const char *reason) {
    char nothing[1];
    bool automatic = out->automatic;
    *out = (crumb_engine_choice){.device.backend = &crumb_backend_cpu, .automatic = automatic};
    crumb_backend_cpu.device.list(&out->device.listing, 1, nothing, sizeof nothing);
    out->device.backend_name = crumb_engine_backend_name(crumb_backend_cpu.name);
    memcpy(out->device.name, out->device.listing.name, sizeof out->device.name);
    snprintf(out->why_cpu, sizeof out->why_cpu, "%s", reason);
}

static crumb_status check_names(const char *device, const char *backend, crumb_error *err) {
    static const char *const words[] = {"auto", "cpu", "none"};
    bool known = strncmp(device, "gpu", 3) == 0 && device[3] >= '0' && device[3] <= '9' &&
                 strspn(device + 3, "0123456789") == strlen(device + 3);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) known = known || strcmp(device, words[i]) == 0;
    if (!known)
        return crumb_fail(
            err, CRUMB_ERR_DEVICE,
            "device '%s': name one, auto, cpu or a GPU as 'crumb devices' lists it (gpu0), or both (cpu+gpu0)", device);
    known = strcmp(backend, "auto") == 0 || strcmp(backend, "cpu") == 0;
    for (const char *const *name = crumb_engine_module_names; *name; name++)
        known = known || strcmp(backend, *name) == 0;
    if (!known) return crumb_fail(err, CRUMB_ERR_DEVICE, "backend '%s': there are auto, cpu, cl and ze", backend);
    return CRUMB_OK;
}

static bool is_cpu(const char *device) {
    return strcmp(device, "cpu") == 0 || strcmp(device, "none") == 0;
}

/* The GPU that is named, through the first backend that can use it. */
static crumb_status choose_named(const crumb_engine_devices *all, const char *name, crumb_engine_choice *out,
                                 crumb_error *err) {
    const crumb_engine_device *unusable = NULL;
    for (size_t i = 0; i < all->n; i++) {
        const crumb_engine_device *d = &all->device[i];
        if (strcmp(d->name, name) != 0) continue;
        if (!*d->listing.unusable) return out->device = *d, CRUMB_OK;
        if (!unusable) unusable = d;
    }
    if (unusable)
        return crumb_fail(err, CRUMB_ERR_DEVICE, "device %s (%s) cannot be used: %s", name, unusable->listing.detail,
                          unusable->listing.unusable);
    if (all->n == 0) return crumb_fail(err, CRUMB_ERR_DEVICE, "device %s: no GPU: %s", name, all->note);
    return crumb_fail(err, CRUMB_ERR_DEVICE, "device %s: there is %s%s%s; 'crumb devices' says what they are", name,
                      all->device[0].name, all->n > 1 ? " to " : "", all->n > 1 ? all->device[all->n - 1].name : "");
}

static void say_why(char *out, size_t size, const crumb_engine_devices *all) {
    const char *name = all->device[0].name;
    const crumb_device_listing *first = &all->device[0].listing;
    if (all->n == 0)
        snprintf(out, size, "%s", all->note);
    else if (*first->unusable)
        snprintf(out, size, "%s (%s): %s", name, first->detail, first->unusable);
    else if (first->kind == CRUMB_DEVICE_PROCESSOR)
        snprintf(out, size, "%.400s%s%s is OpenCL on the processor; --device %s takes it", all->note,
                 *all->note ? "; " : "", name, name);
    else
        snprintf(out, size, "%s (%s) is not an Intel GPU; --device %s takes it", name, first->detail, name);
}

/* The first usable GPU: with `any_maker` whoever made it. NULL: none, and `why` says what the first one lacks. */
static const crumb_engine_device *first_gpu(const crumb_engine_devices *all, bool any_maker, char *why, size_t size) {
    for (size_t i = 0; i < all->n; i++) {
        const crumb_device_listing *l = &all->device[i].listing;
        if (!*l->unusable && l->kind != CRUMB_DEVICE_PROCESSOR && (l->intel || any_maker)) return &all->device[i];
    }
    say_why(why, size, all);
    return NULL;
}

static bool targets_cpu(const char *target) {
    return target && (strcmp(target, "cpu") == 0 || strncmp(target, "cpu:", 4) == 0);
}

/* The backend whose kernels a target names ("cl:dpas"); NULL: none that is a module. */
static const char *backend_of(const char *target) {
    for (const char *const *name = crumb_engine_module_names; target && *name; name++) {
        const size_t n = strlen(*name);
        if (strncmp(target, *name, n) == 0 && (target[n] == 0 || target[n] == ':')) return *name;
    }
    return NULL;
}

/* The next usable listing of the card that is chosen. */
static void find_other(const crumb_engine_devices *all, crumb_engine_choice *choice) {
    bool past = false;
    for (size_t i = 0; i < all->n && !choice->other.backend; i++) {
        const crumb_engine_device *d = &all->device[i];
        if (strcmp(d->name, choice->device.name) != 0) continue;
        if (past && !*d->listing.unusable) choice->other = *d;
        past = past || d->backend == choice->device.backend;
    }
}

crumb_status crumb_engine_device_choose(const char *device, const char *backend, const char *target,
                                        crumb_engine_choice *out, crumb_error *err) {
    crumb_engine_devices all;
    const bool with_cpu = strncmp(device, "cpu+", 4) == 0;
    if (with_cpu) device += 4;
    bool any_device = strcmp(device, "auto") == 0, any_backend = strcmp(backend, "auto") == 0;
    *out = (crumb_engine_choice){.with_cpu = with_cpu, .automatic = any_device && any_backend};
    CRUMB_TRY(check_names(device, backend, err));
    if (is_cpu(device) && !any_backend && strcmp(backend, "cpu") != 0)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "the backend '%s' does not drive the device '%s'", backend, device);
    if (strcmp(backend, "cpu") == 0 && !any_device && !is_cpu(device))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "the backend 'cpu' does not drive the device '%s'", device);
    if (is_cpu(device) || strcmp(backend, "cpu") == 0)
        return crumb_engine_choose_cpu(out, "the CPU is asked for"), CRUMB_OK;
    if (any_device && any_backend && targets_cpu(target))
        return crumb_engine_choose_cpu(out, "kernels of the CPU are asked for"), CRUMB_OK;
    find_gpus(&all);
    if (any_backend && backend_of(target)) keep_backend(&all, backend_of(target));
    if (!any_backend) keep_backend(&all, backend);
    if (!any_device) {
        CRUMB_TRY(choose_named(&all, device, out, err));
        find_other(&all, out);
        return CRUMB_OK;
    }
    char why[640];
    const crumb_engine_device *gpu = first_gpu(&all, !any_backend, why, sizeof why);
    if (gpu) {
        out->device = *gpu;
        find_other(&all, out);
    } else if (any_backend) {
        crumb_engine_choose_cpu(out, why);
    } else {
        return crumb_fail(err, CRUMB_ERR_DEVICE, "backend '%s': no GPU: %s", backend, why);
    }
    return CRUMB_OK;
}
