#include "cl/tuned.h"

#include "cl/program.h"
#include "host/base/cache.h"
#include "host/kernel/suite.h"
#include "host/kernel/tuning.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t hash_row(uint64_t hash, const crumb_cl_kernel *k) {
    const uint32_t numbers[] = {k->local_size, k->registers, k->tiles, k->tokens, k->x_bits, k->sub_group};
    const char *const texts[] = {k->name, k->file, k->entry, k->options};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) hash = crumb_hash(hash, texts[i], strlen(texts[i]) + 1);
    return crumb_hash(hash, numbers, sizeof numbers);
}

void crumb_cl_tuned_identify(const crumb_device *d, char device[96], char target[32], char source[20]) {
    size_t n;
    uint64_t hash = CRUMB_HASH_SEED;
    const char *text;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; (text = crumb_cl_text_at(i)); i++) hash = crumb_hash(hash, text, strlen(text) + 1);
    for (size_t i = 0; i < n; i++) hash = hash_row(hash, &rows[i]);
    snprintf(device, 96, "%.60s, %.30s", d->facts.name, d->facts.driver);
    snprintf(target, 32, "%s%s", crumb_cl_rung_name(d->ladder.rung), d->ladder.bf16 ? "+bf16" : "");
    snprintf(source, 20, "%016" PRIx64, hash);
}

/* The row of that name; NULL: none. */
static const crumb_cl_kernel *find_row(const char *name) {
    size_t n;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* One row on a GPU: a launch less counts more than quantizing the row once for each work-group (README, Launches of a
 * layer). */
static bool fuses(const crumb_device *d, uint32_t n) {
    return n == 1 && d->facts.is_gpu && !d->facts.is_cpu;
}

bool crumb_cl_tuned_allows(const crumb_device *d, const crumb_cl_variant *v, const crumb_cl_linear *use, uint32_t n,
                           bool may_fuse) {
    if (!may_fuse) return v->x == 8;
    if (v->x == 32 && !crumb_cl_linear_scaled(&v->kernel)) return true;
    crumb_cl_linear fused = *use;
    fused.x = 32;
    return !fuses(d, n) || !crumb_cl_linear_select(&fused, n, &d->ladder);
}

/* A database may come from anywhere: what it says is taken only where it works. What was found for fewer rows serves
 * more of them where its work-groups take as many. */
static bool take(const crumb_device *d, const crumb_tuning_record *record, const crumb_cl_linear *use, uint32_t n,
                 bool may_fuse, crumb_cl_variant *out) {
    const crumb_cl_kernel *row = find_row(record->kernel);
    if (!row || n > row->max_n || !crumb_cl_variant_make(row, record->knobs, out)) return false;
    crumb_cl_linear mine = *use;
    mine.x = out->x;
    const bool enough = out->kernel.tokens >= n || out->kernel.tokens >= row->tokens;
    return enough && crumb_cl_variant_fits(out, &mine, &d->ladder) && crumb_cl_tuned_allows(d, out, use, n, may_fuse);
}

crumb_status crumb_cl_tuned_find(const crumb_device *d, crumb_cl_linear *use, uint32_t n, bool may_fuse,
                                 crumb_cl_variant *out, bool *found, crumb_error *err) {
    const crumb_matrix *w = use->w;
    crumb_tuning_key key = {.m = w->m, .k = w->k, .n = n, .group = w->group, .act = (uint32_t)use->act};
    crumb_tuning_record record;
    *found = false;
    if (!d->tuning || !d->find_tuning) return CRUMB_OK;
    crumb_cl_tuned_identify(d, key.device, key.target, key.source);
    crumb_kernel_weights_name(w->bits, w->codebook, false, key.weights);
    CRUMB_TRY(d->find_tuning(d->tuning, &key, &record, found, err));
    *found = *found && take(d, &record, use, n, may_fuse, out);
    if (*found) use->x = out->x;
    return CRUMB_OK;
}

const crumb_cl_kernel *crumb_cl_untuned(const crumb_device *d, crumb_cl_linear *use, uint32_t n, bool may_fuse,
                                        crumb_cl_variant *out) {
    const crumb_cl_kernel *row = NULL;
    use->x = 32;
    if (may_fuse && fuses(d, n)) row = crumb_cl_linear_select(use, n, &d->ladder);
    if (!row) {
        use->x = 8;
        row = crumb_cl_linear_select(use, n, &d->ladder);
    }
    if (!row) return NULL;
    crumb_cl_variant_of(row, out);
    out->x = use->x;
    return row;
}
