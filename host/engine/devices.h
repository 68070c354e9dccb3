/* Which devices there are, and which of them runs a model: the CPU backend, which is part of crumb, and backends that
 * are loaded from modules where they can be.
 *
 * A card that several backends drive is one device, by its place on the PCI bus or else by its name: it has one name,
 * and a listing for each of them, Level Zero's first. Cards with memory of their own come first, then those in the
 * processor, then the processor itself.
 *
 * A module is looked for in CRUMB_MODULE_DIR where that is set, and else beside the library (or the program that holds
 * it), in `crumb/` beside it, and in the library folder of the installation. Nothing is unloaded again.
 */
#ifndef CRUMB_ENGINE_DEVICES_H
#define CRUMB_ENGINE_DEVICES_H

#include "host/backend.h"

enum { CRUMB_ENGINE_MAX_DEVICES = 32, CRUMB_ENGINE_MAX_BACKENDS = 4 };

/* The target below those that have computed wrongly on a device in an earlier run, and what the last of them did. */
typedef struct crumb_engine_lowered {
    char target[32], why[640]; /* no target: all is well, or nothing is known */
} crumb_engine_lowered;

typedef struct crumb_engine_device {
    const crumb_backend *backend;
    const char *backend_name; /* "Level Zero", "OpenCL", "the CPU" */
    char name[16];            /* what users call it; the listing's name is the backend's own */
    crumb_device_listing listing;
    crumb_engine_lowered lowered;
} crumb_engine_device;

typedef struct crumb_engine_devices {
    crumb_engine_device device[CRUMB_ENGINE_MAX_DEVICES]; /* GPUs in the order of their names, then "cpu" */
    size_t n;
    char note[512]; /* why there is no GPU, or what could not be looked at, and what to do; empty: nothing to say */
    char notes[CRUMB_ENGINE_MAX_BACKENDS][512]; /* the same of each backend that is a module */
} crumb_engine_devices;

/* In a file of the user's cache, by backend, and the device's detail and kernels; false: nothing is known. */
bool crumb_engine_recall_target(const char *backend, const char *detail, const char *kernels,
                                crumb_engine_lowered *out);
void crumb_engine_remember_target(const char *backend, const char *detail, const char *kernels,
                                  const crumb_engine_lowered *found);

/* Everything, also what cannot be used. */
void crumb_engine_devices_find(crumb_engine_devices *out);
/* "Level Zero" for "ze". */
const char *crumb_engine_backend_name(const char *backend);

typedef struct crumb_engine_choice {
    crumb_engine_device device;
    crumb_engine_device other; /* the same card through another backend, where nobody named one; no backend: none */
    bool with_cpu;             /* the CPU is to compute beside it ("cpu+gpu0") */
    bool automatic;            /* nobody named a device or backend: another may take its place */
    char why_cpu[640];         /* why no GPU is used; empty: one is */
} crumb_engine_choice;

/* The device for `device` ("auto", "cpu", "none", "gpu0", "cpu+gpu0") and `backend` ("auto", "cpu", "cl", "ze"), with
 * kernels of `target` ("cpu:avx2", "cl:portable"; NULL). `auto` takes the first usable GPU made by Intel, through Level
 * Zero where that drives it, and else the CPU: a device is not picked merely because it exists. Fails with DEVICE when
 * what is named is not there or cannot be used, and says why.
 */
crumb_status crumb_engine_device_choose(const char *device, const char *backend, const char *target,
                                        crumb_engine_choice *out, crumb_error *err);
/* The CPU, for `reason`. */
void crumb_engine_choose_cpu(crumb_engine_choice *out, const char *reason);

#endif
