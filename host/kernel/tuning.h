/* Measured choices of kernels: what `crumb tune` finds, and what a plan looks up when it is recorded.
 *
 * They live in a SQLite database of the user's, so that several programs may write at once and a crash loses nothing. A
 * choice holds for one device, one text of the kernels, one shape and one number of threads. Its figure of merit is the
 * time as a share of the default's, both measured in turns: times of different days do not compare.
 */
#ifndef CRUMB_KERNEL_TUNING_H
#define CRUMB_KERNEL_TUNING_H

#include "host/backend.h"

typedef struct crumb_tuning_key {
    char device[96], target[32]; /* "AMD EPYC", "avx2" */
    char source[20];             /* hash of the kernels' text */
    char weights[16];            /* "u2", "mxfp4": crumb_kernel_weights_name */
    uint32_t m, k, n, group;     /* of the layer; group as of its matrix */
    uint32_t act;                /* crumb_act_quant */
    uint32_t n_threads;
} crumb_tuning_key;

typedef struct crumb_tuning_record {
    crumb_tuning_key key;
    char kernel[64], knobs[128]; /* "gemv_u2_i8__avx2", "streams=2 near=2048" */
    double ratio;                /* time as a share of the default's; 1 for the default itself */
    double ns;                   /* median, when it was measured */
    uint32_t rounds;             /* medians of so many; 0: a figure from elsewhere, which nobody has measured here */
} crumb_tuning_record;

/* Rounds from which a median is one, and those that confirm what seems to beat the default: the best of hundreds of
 * medians is one by luck. */
enum { CRUMB_TUNING_ROUNDS = 3, CRUMB_TUNING_CONFIRMED = 25 };

/* Whether plans go by it. */
static inline bool crumb_tuning_is_trusted(const crumb_tuning_record *r) {
    return r->rounds >= (r->ratio < 1 ? CRUMB_TUNING_CONFIRMED : CRUMB_TUNING_ROUNDS);
}

/* What the rounds say that confirm a kernel, each its time as a share of the default's: their median; or where its lead
 * is within their noise, the upper end of where the median may lie, so that the default stays. Sorts them. */
double crumb_tuning_confirmed(double ratios[CRUMB_TUNING_CONFIRMED]);

/* The user's database: $XDG_DATA_HOME/crumb/tuning.sqlite, ~/.local/share/crumb/tuning.sqlite. False when the
 * environment names no home. */
bool crumb_tuning_path(char *out, size_t size);

/* Opens the database, and makes it and its folder with `create`. Without, a missing file is an open, empty database.
 * One that is damaged is put aside under a name that *note tells (empty: all was well), with how its rows can be got
 * back, and a new one begun; one without a version is taken where it has the table. One of a newer crumb is FORMAT, and
 * stays as it is. */
crumb_status crumb_tuning_open(const char *path, bool create, crumb_tuning **out, char note[256], crumb_error *err);
void crumb_tuning_close(crumb_tuning *t); /* NULL is allowed */

/* Adds a measurement; one of the same key, kernel and knobs is replaced, but not by one of no rounds. Waits for other
 * writers up to 10 seconds. */
crumb_status crumb_tuning_put(crumb_tuning *t, const crumb_tuning_record *record, crumb_error *err);
/* What is put between these two is kept at once, or not at all: many records cost one wait for the disk. begin waits as
 * above, and other writers wait until end, so that nothing is measured in between. end keeps it where `status`, of what
 * was put, is OK, and otherwise takes it back; it returns that status, or its own failure, of which nothing is left. */
crumb_status crumb_tuning_begin(crumb_tuning *t, crumb_error *err);
crumb_status crumb_tuning_end(crumb_tuning *t, crumb_status status, crumb_error *err);

/* The measurements that match: fields of `like` that are empty or 0 match anything (act: UINT32_MAX). Within a key
 * those that are trusted come first, the best at the head. fn returns false to stop. */
typedef bool crumb_tuning_fn(void *user, const crumb_tuning_record *record);
crumb_status crumb_tuning_each(crumb_tuning *t, const crumb_tuning_key *like, crumb_tuning_fn *fn, void *user,
                               crumb_error *err);
/* The best trusted one for a key: of exactly that shape, or else of the nearest one that has been tuned (in the
 * logarithms of M, K and N, those of the same group first; a few rows of activations and many never stand for each
 * other). Remembers. */
crumb_status crumb_tuning_find(crumb_tuning *t, const crumb_tuning_key *key, crumb_tuning_record *out, bool *found,
                               crumb_error *err);
/* A hash of the best trusted one for each key of all devices but one, with which changes what is found for them; 0:
 * nothing has been measured, or it cannot be read. */
uint64_t crumb_tuning_digest(crumb_tuning *t, const char *but_device);
/* Removes all but the first of each key, as crumb_tuning_each orders them, and what was measured for another text of
 * the kernels of the same device and target. */
crumb_status crumb_tuning_prune(crumb_tuning *t, const char *device, const char *source, uint64_t *n_removed,
                                crumb_error *err);

/* A measurement from the JSON object that `crumb tune export` prints for it. Fails with FORMAT, naming the field. */
crumb_status crumb_tuning_parse(const char *text, crumb_tuning_record *out, crumb_error *err);

/* A knob's value in "streams=2 near=2048", or `standard`. */
uint32_t crumb_tuning_knob(const char *knobs, const char *name, uint32_t standard);

#endif
