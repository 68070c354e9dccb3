#include "cl/device.h"

#include "cl/blas.h"
#include "cl/discover.h"
#include "cl/program.h"
#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/kernel/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The width of its matrix instructions: the narrowest sub-group, 8 on dg2 and arl-h, 16 later; 0: it has none. */
static uint32_t matrix_sub_group(const crumb_cl_facts *f) {
    unsigned narrowest = 0;
    if (f->has_matrix && sscanf(f->sub_groups, "%u", &narrowest) == 1 && (narrowest == 8 || narrowest == 16))
        return narrowest;
    return 0;
}

/* Kernels for sub-groups of 16 load by 2D blocks; without them those of bytes serve, which load otherwise. */
static bool lacks_blocks(const crumb_cl_facts *f) {
    return matrix_sub_group(f) == 16 && !f->has_2d_blocks;
}

/* The rung that a device's kernels stand on when none is named, by what the device says of itself. Whether they compute
 * rightly the engine finds out (crumb_device_info.kernels), and goes down from there. */
static crumb_cl_rung rung_of(const crumb_cl_facts *f, char *why, size_t size) {
    const uint32_t sub_group = matrix_sub_group(f);
    if (lacks_blocks(f)) {
        snprintf(why, size, "it has matrix instructions for sub-groups of 16, but no 2D block loads");
        return CRUMB_CL_DPAS_I8;
    }
    if (sub_group)
        snprintf(why, size, "it has matrix instructions for sub-groups of %u", sub_group);
    else
        snprintf(why, size, "it has %s dot products of bytes",
                 f->has_dot_product ? "no matrix instructions, but" : "no");
    return sub_group ? CRUMB_CL_DPAS : f->has_dot_product ? CRUMB_CL_DP4A : CRUMB_CL_PORTABLE;
}

/* What is to be tried where *rung's kernels compute wrongly: of those with matrix instructions the same without 16-bit
 * floats on them, which may be what is wrong, then the next whose kernels the device may have; false below the lowest.
 */
static bool step_down(const crumb_cl_facts *f, crumb_cl_rung *rung, bool *exact) {
    if (*rung == CRUMB_CL_PORTABLE) return false;
    *exact = *rung >= CRUMB_CL_DPAS_I8 && !*exact;
    if (*exact) return true;
    *rung = (crumb_cl_rung)(*rung - 1);
    if (*rung == CRUMB_CL_DP4A && !f->has_dot_product) *rung = CRUMB_CL_PORTABLE;
    return true;
}

/* ---- listing ------------------------------------------------------------------------------------------------- */

size_t crumb_cl_device_list(crumb_device_listing *out, size_t capacity, char *note, size_t note_size) {
    crumb_cl_found *found = calloc(1, sizeof *found);
    if (note_size) note[0] = 0;
    if (!found) return 0;
    crumb_cl_discover(found);
    snprintf(note, note_size, "%s", found->note);
    size_t n = found->n < capacity ? found->n : capacity;
    for (size_t i = 0; i < n; i++) {
        crumb_cl_describe(&found->device[i], i, &out[i]);
        crumb_cl_rung rung = rung_of(&found->device[i], out[i].reason, sizeof out[i].reason);
        snprintf(out[i].target, sizeof out[i].target, "%s", crumb_cl_rung_name(rung));
        crumb_cl_kernels_id(&(crumb_device){.facts = found->device[i]}, out[i].kernels, sizeof out[i].kernels);
    }
    free(found);
    return n;
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

/* What `name` was when it was listed. */
static crumb_status find_facts(const char *name, bool to_test, crumb_cl_facts *out, char listed[16], crumb_error *err) {
    crumb_cl_found *found = calloc(1, sizeof *found);
    if (!found)
        return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory to look for %s devices", crumb_cl_api_used.name);
    crumb_cl_discover(found);
    crumb_status status = crumb_fail(err, CRUMB_ERR_DEVICE, "%s: there is no such %s device%s%s", name ? name : "gpu0",
                                     crumb_cl_api_used.name, *found->note ? ": " : "", found->note);
    for (size_t i = 0; i < found->n && status != CRUMB_OK; i++) {
        crumb_cl_device_name(i, listed);
        if (name && strcmp(name, listed) != 0) continue;
        *out = found->device[i];
        status = CRUMB_OK;
    }
    free(found);
    if (status == CRUMB_OK && *out->unusable && !(to_test && out->is_wrong))
        status = crumb_fail(err, CRUMB_ERR_DEVICE, "%s (%.80s) cannot be used: %s", listed, crumb_cl_shown_name(out),
                            out->unusable);
    return status;
}

static crumb_status find_device(crumb_device *d, const char *name, bool to_test, crumb_error *err) {
    for (int attempt = 0; attempt < 2; attempt++) {
        CRUMB_TRY(find_facts(name, to_test, &d->facts, d->name, err));
        if (crumb_cl_driver_find(d)) return CRUMB_OK;
        crumb_cl_discover_again();
    }
    return crumb_fail(err, CRUMB_ERR_DEVICE, "%s (%s): the device is not there any more", d->name,
                      crumb_cl_shown_name(&d->facts));
}

crumb_cl_target crumb_cl_device_most(const crumb_device *d) {
    char why[160];
    return (crumb_cl_target){.rung = rung_of(&d->facts, why, sizeof why),
                             .sub_group = matrix_sub_group(&d->facts),
                             .local_bytes = d->facts.local_bytes,
                             .max_work_group = (uint32_t)d->facts.max_work_group,
                             .xe_cores = (uint32_t)d->facts.xe_cores,
                             .no_blocks = lacks_blocks(&d->facts)};
}

/* What a target may add to its rung. */
typedef struct extras {
    bool blas, exact, bf16;
} extras;

/* "cl:RUNG", then perhaps "+clblast", "+exact" and "+bf16", for the backend "cl". */
static bool parse_target(const char *target, crumb_cl_rung *rung, extras *more) {
    char name[32];
    const size_t n_backend = strlen(crumb_cl_api_used.backend);
    if (strncmp(target, crumb_cl_api_used.backend, n_backend) != 0 || target[n_backend] != ':') return false;
    const struct {
        const char *name;
        bool *wanted;
    } all[] = {{"clblast", &more->blas}, {"exact", &more->exact}, {"bf16", &more->bf16}};
    const char *begin = target + n_backend + 1, *p = begin + strcspn(begin, "+");
    const size_t n = (size_t)(p - begin);
    for (size_t length; *p; p += length) {
        bool known = false;
        length = strcspn(++p, "+");
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (strlen(all[i].name) == length && strncmp(all[i].name, p, length) == 0) known = *all[i].wanted = true;
        if (!known) return false;
    }
    if (n >= sizeof name || (more->blas && more->bf16)) return false; /* CLBlast has no bf16 */
    memcpy(name, begin, n);
    name[n] = 0;
    return crumb_cl_rung_parse(name, rung);
}

/* The highest rung, or what `target` ("cl:portable") says; and CLBlast, the CPU's order of 16-bit floats or values in
 * bf16 where it says that. */
static crumb_status choose_rung(crumb_device *d, const char *target, crumb_error *err) {
    char why[160];
    crumb_cl_rung best = rung_of(&d->facts, why, sizeof why), wanted = best;
    extras more = {false, false, false};
    if (target && strcmp(target, crumb_cl_api_used.backend) != 0 && strcmp(target, "auto") != 0 &&
        !parse_target(target, &wanted, &more))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "target '%s' is not one of %s's: \"%s\" or \"%s:RUNG\" with portable, dp4a, dpas-i8 or dpas, "
                          "and then perhaps \"+exact\", and \"+clblast\" or \"+bf16\"",
                          target, d->label, crumb_cl_api_used.backend, crumb_cl_api_used.backend);
    if (wanted > best || (wanted == CRUMB_CL_DP4A && !d->facts.has_dot_product))
        return crumb_fail(err, CRUMB_ERR_DEVICE, "target '%s': %s has only %s: %s", target, d->label,
                          crumb_cl_rung_name(best), why);
    d->ladder = crumb_cl_device_most(d);
    d->ladder.rung = wanted;
    d->ladder.bf16 = more.bf16;
    d->ladder.exact = more.exact;
    return more.blas ? crumb_cl_blas_open(d, &d->blas, err) : CRUMB_OK;
}

static crumb_status open_device(crumb_device *d, const crumb_device_params *params, bool to_test, crumb_error *err) {
    int cpus[1024];
    d->log = params->log;
    d->log_user = params->log_user;
    d->tuning = params->tuning;
    d->find_tuning = params->find_tuning;
    d->n_threads = params->n_threads > 0 ? params->n_threads : crumb_cpu_physical(cpus, 1024);
    CRUMB_TRY(find_device(d, params->device, to_test, err));
    if (params->called) snprintf(d->name, sizeof d->name, "%s", params->called);
    snprintf(d->label, sizeof d->label, "%s (%.100s)", d->name, crumb_cl_shown_name(&d->facts));
    CRUMB_TRY(choose_rung(d, params->target, err));
    d->limit.ns = crumb_patience_ns(CRUMB_PATIENCE_DEFAULT_MS * (d->facts.is_cpu ? 10 : 1)); /* it has less to lose */
    return crumb_cl_driver_open(d, err);
}

static crumb_status create_device(const crumb_device_params *params, bool to_test, crumb_device **out,
                                  crumb_error *err) {
    void *memory;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "the device", &memory, err));
    crumb_device *d = memory;
    crumb_status status = open_device(d, params, to_test, err);
    if (status == CRUMB_OK)
        *out = d;
    else
        crumb_cl_device_close(d);
    return status;
}

crumb_status crumb_cl_device_open(const crumb_device_params *params, crumb_device **out, crumb_error *err) {
    return create_device(params, false, out, err);
}

crumb_status crumb_cl_device_open_to_test(const crumb_device_params *params, crumb_device **out, crumb_error *err) {
    return create_device(params, true, out, err);
}

void crumb_cl_device_close(crumb_device *d) {
    if (!d) return;
    if (!crumb_cl_limit_is_over(&d->limit)) {
        crumb_cl_programs_free(d);
        crumb_cl_blas_close(d->blas);
        crumb_cl_driver_close(d);
    }
    free(d);
}

void crumb_cl_device_get_info(const crumb_device *d, crumb_device_info *out) {
    *out = (crumb_device_info){.n_threads = d->n_threads, .memory_bytes = d->facts.memory_bytes};
    snprintf(out->name, sizeof out->name, "%s", d->name);
    snprintf(out->detail, sizeof out->detail, "%.90s", crumb_cl_shown_name(&d->facts));
    snprintf(out->target, sizeof out->target, "%s%s%s", crumb_cl_rung_name(d->ladder.rung),
             d->ladder.exact ? "+exact" : "", d->ladder.bf16 ? "+bf16" : "");
    out->bf16 = d->ladder.bf16;
    out->refused = d->refused;
    out->stuck = crumb_cl_limit_is_over(&d->limit);
    crumb_cl_kernels_id(d, out->kernels, sizeof out->kernels);
    if (d->has_usm && d->facts.unified)
        out->shared_weight_bytes = d->facts.max_alloc_bytes; /* crumb_cl_buffer_create */
    crumb_cl_rung lower = d->ladder.rung;
    bool exact = d->ladder.exact;
    if (step_down(&d->facts, &lower, &exact))
        snprintf(out->lower_target, sizeof out->lower_target, "%s:%s%s%s", crumb_cl_api_used.backend,
                 crumb_cl_rung_name(lower), exact ? "+exact" : "", d->ladder.bf16 ? "+bf16" : "");
    out->memory_free_bytes =
        d->facts.memory_bytes > d->allocated_bytes ? d->facts.memory_bytes - d->allocated_bytes : 0;
}
