/* Machine profiles: what the devices of a machine can do, as data.
 *
 * A profile is a JSON text. Every figure in it is a pair [value, "where it comes from"], so that none stands there
 * without a source: a paper's measurement, the maker's specification, "measured" here, or "estimated: how".
 *
 *     {"schema_version": 1, "name": "lnl", "detail": "...", "devices": [
 *         {"name": "cpu", "kind": "processor", "detail": "...",
 *          "memory_gb": [16, "..."], "read_gb_s": [97, "..."], "together_gb_s": [48.5, "..."],
 *          "cores": [{"kind": "P", "count": [4, "..."], "clock_ghz": [4.1, "..."]}, ...],
 *          "kernels": {
 *              "paper": {"launch_us": [1, "..."], "layer_launches": [10, "..."], "head_launches": [2, "..."],
 *                        "work": {"u2": {"gops": [1700, "..."], "share": [0.8, "..."]}, ...},
 *                        "gamma": {"P": {"u2": [1.25, "..."]}, "E": {...}}},
 *              "crumb": {...}}},
 *         {"name": "gpu0", "kind": "integrated", ...}]}
 *
 * The first device is the host's processor. One without the set of kernels that is asked for is left out: nobody has
 * measured these there. Texts are not trusted: what is missing, unknown or out of range is an error
 * that names file and key. Units stand in the names; GB are 10^9 bytes.
 */
#ifndef CRUMB_SCHEDULER_PROFILE_H
#define CRUMB_SCHEDULER_PROFILE_H

#include "host/base/error.h"

enum { CRUMB_PROFILE_MAX_DEVICES = 4, CRUMB_PROFILE_MAX_CORES = 4 };

/* Kinds of work that have speeds of their own: linear layers by the bits of their weights' codes, and attention. */
typedef enum crumb_work {
    CRUMB_WORK_U1,
    CRUMB_WORK_U2, /* ternary weights too */
    CRUMB_WORK_U3,
    CRUMB_WORK_U4,
    CRUMB_WORK_U8,  /* 5 to 8 bits */
    CRUMB_WORK_F16, /* dense weights */
    CRUMB_WORK_ATTENTION,
    CRUMB_WORK_COUNT
} crumb_work;

const char *crumb_work_name(crumb_work work); /* "u2", "f16", "attention": the keys of "work" */

typedef enum crumb_profile_kind {
    CRUMB_PROFILE_PROCESSOR,  /* the host's; reads the machine's memory */
    CRUMB_PROFILE_INTEGRATED, /* reads the machine's memory as well, and shares its bandwidth */
    CRUMB_PROFILE_DISCRETE,   /* has memory of its own */
} crumb_profile_kind;

/* Cores of one kind. */
typedef struct crumb_profile_cores {
    char kind[8]; /* "P", "E" */
    uint32_t count;
    double clock_ghz; /* while all cores compute */
    /* Cycles per 256-bit vector of 8 outputs x 4 inputs, with the data at hand: a kernel reads at most
     * 4 * bits / gamma bytes a cycle. 0: never the limit. */
    double gamma[CRUMB_WORK_COUNT];
} crumb_profile_cores;

typedef struct crumb_profile_device {
    char name[16];    /* "cpu", "gpu0" */
    char detail[96];  /* for people */
    char kernels[16]; /* the set of kernels that the figures below are for: "crumb", "paper" */
    crumb_profile_kind kind;
    bool by_name;          /* used only where someone asks for it; key "by_name", false where it is missing */
    uint64_t memory_bytes; /* that it can compute on */
    double read_gb_s;      /* from memory, alone */
    double together_gb_s;  /* while all other devices read, too */
    /* Of keys and values that move between its cache and the processor's, and for one with memory of its own of
     * activations, too. 0: nothing is copied, its cache is the processor's. */
    double transfer_gb_s;
    double transfer_us; /* what a transfer takes beyond its bytes */
    double exchange_us; /* until another device sees a vector that this one has written, and goes on */
    size_t n_cores;
    crumb_profile_cores cores[CRUMB_PROFILE_MAX_CORES]; /* none: a GPU */
    double launch_us;                                   /* of a kernel, or a barrier of the processor's threads */
    double layer_launches, head_launches;               /* of a layer and of the output matrix */
    double gops[CRUMB_WORK_COUNT];  /* 10^9 operations a second on many rows, 2 per multiplication; 0: unknown */
    double share[CRUMB_WORK_COUNT]; /* of the memory's bandwidth, that few rows reach */
} crumb_profile_device;

typedef struct crumb_profile {
    char name[32], detail[128];
    char left_out[64]; /* names of devices without figures for these kernels; empty: none */
    size_t n_devices;
    crumb_profile_device device[CRUMB_PROFILE_MAX_DEVICES]; /* the processor first */
} crumb_profile;

/* Called for each figure that is taken: "gpu0.read_gb_s", its value, where it comes from. Texts live during the call.
 */
typedef void crumb_profile_figure_fn(void *user, const char *key, double value, const char *source);

/* Reads a profile with the figures of one set of kernels ("crumb", "paper"). `from` names the text in messages; `fn`
 * may be NULL. Fails with FORMAT, naming the key. */
crumb_status crumb_profile_parse(const char *text, size_t n_bytes, const char *from, const char *kernels,
                                 crumb_profile_figure_fn *fn, void *user, crumb_profile *out, crumb_error *err);

/* Bytes of 32 weights' codes: what gamma counts the cycles of. */
double crumb_work_vector_bytes(crumb_work work);

/* The text of a profile that is part of crumb; NULL: there is none of that name. */
const char *crumb_profile_embedded(const char *name, size_t *n_bytes);
extern const char *const crumb_profile_names[]; /* of those; ends with NULL */

/* Index of the device of that name, or -1. */
int crumb_profile_find(const crumb_profile *p, const char *name);

/* GB/s at which few rows of a kind of work read weights where the memory gives available_gb_s: bounded by what the
 * cores make of it (each draws an equal part of the bandwidth, and the slowest kind's surplus is nobody's gain). */
double crumb_profile_work_gb_s(const crumb_profile_device *d, crumb_work work, double available_gb_s);

#endif
