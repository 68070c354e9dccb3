/* Opening a model: the device that is asked for, the weights on it, kernels that compute rightly there; and what serves
 * instead where one of these fails. */
#include "host/engine/verify.h"

#include "host/base/memory.h"
#include "host/engine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Without tuning everything works as well, only less fast: what is wrong with the database is worth a warning. */
static void open_tuning(crumb_model *m, const char *path) {
    char standard[512], note[256];
    crumb_error err = {0};
    if (path && strcmp(path, "none") == 0) return;
    if (!path && !crumb_tuning_path(standard, sizeof standard)) return;
    if (crumb_tuning_open(path ? path : standard, false, &m->tuning, note, &err) != CRUMB_OK)
        crumb_engine_log(m, CRUMB_LOG_WARN, "no tuning is used: %s", err.message);
    else if (*note)
        crumb_engine_log(m, CRUMB_LOG_WARN, "%s", note);
}

crumb_status crumb_engine_open_unit(const crumb_model *m, crumb_engine_unit *u, const char *name, const char *target,
                                    const crumb_model_params *params, crumb_error *err) {
    const crumb_device_params device = {.device = name,
                                        .called = name ? m->choice.device.name : NULL,
                                        .target = target,
                                        .n_threads = params->n_threads,
                                        .log = params->log,
                                        .log_user = params->log_user,
                                        .tuning = m->tuning,
                                        .find_tuning = crumb_tuning_find,
                                        .cpu_kind = params->cpu_kind,
                                        .balance = params->balance,
                                        .cores = m->cores};
    CRUMB_TRY(u->backend->device.open(&device, &u->device, err));
    u->backend->device.get_info(u->device, &u->info);
    return CRUMB_OK;
}

static crumb_status open_target(crumb_model *m, const crumb_model_params *params, const char *target,
                                crumb_error *err) {
    return crumb_engine_open_unit(m, &m->units[0], m->choice.device.listing.name, target, params, err);
}

/* `target` NULL: the best, unless an earlier run has found out that it computes wrongly here. */
static crumb_status open_device(crumb_model *m, const crumb_model_params *params, const char *target,
                                crumb_error *err) {
    crumb_engine_lowered known;
    open_tuning(m, params->tuning);
    CRUMB_TRY(open_target(m, params, target, err));
    const crumb_engine_unit *u = &m->units[0];
    if (target || !*u->info.lower_target ||
        !crumb_engine_recall_target(u->backend->name, u->info.detail, u->info.kernels, &known))
        return CRUMB_OK;
    m->units[0].backend->device.close(m->units[0].device);
    m->units[0].device = NULL;
    return open_target(m, params, known.target, err);
}

/* The kernels that someone has chosen: NULL where the backend chooses. */
static const char *named_target(const crumb_model_params *params) {
    const char *t = params->target;
    return t && strchr(t, ':') ? t : NULL;
}

/* Recording the smallest session's plans finds out whether the device has kernels for all of a model's ops. */
static crumb_status try_session(crumb_model *m, crumb_kv_type kv_type, crumb_error *err) {
    crumb_session_params params = crumb_session_params_default();
    crumb_session *session;
    params.n_ctx = params.n_batch = 16;
    params.kv_type = kv_type;
    CRUMB_TRY(crumb_session_create(m, &params, &session, err));
    crumb_session_destroy(session);
    return CRUMB_OK;
}

typedef struct opening {
    const crumb_model_params *params;
    const crumb_engine_source_kind *kind;
    const void *source;
    crumb_engine_choice choice;
    crumb_engine_advice *advice; /* the model's, once it is open */
    crumb_core_speeds cores;
} opening;

/* What an attempt has found out. */
typedef struct finding {
    char lower[32];  /* the target for the next one, where another may do better; else empty */
    bool is_kernels; /* the target's kernels are at fault: they compute wrongly, or the compiler refuses them. Else the
                      * device has failed, which says nothing of the next time. */
} finding;

static finding find_fault(crumb_engine_unit *u, crumb_status status) {
    finding f = {.is_kernels = status == CRUMB_ERR_VERIFY};
    if (status != CRUMB_ERR_VERIFY && status != CRUMB_ERR_DEVICE) return f;
    u->backend->device.get_info(u->device, &u->info);
    f.is_kernels = !u->info.stuck && (f.is_kernels || u->info.refused);
    if (!u->info.stuck) memcpy(f.lower, u->info.lower_target, sizeof f.lower);
    return f;
}

/* Later runs begin at the rung that this one has come to, if what lies above was at fault each time, the last one for
 * `why`, and it has been checked: it computes rightly, or there is none below. */
static void remember_rung(const crumb_model *m, const char *target, const char *why, crumb_status status,
                          const finding *found) {
    const crumb_engine_unit *u = &m->units[0];
    crumb_engine_lowered lowered;
    if (status != CRUMB_OK && !(found->is_kernels && !*found->lower)) return;
    snprintf(lowered.target, sizeof lowered.target, "%.31s", target);
    snprintf(lowered.why, sizeof lowered.why, "%.620s", why);
    crumb_engine_remember_target(u->backend->name, u->info.detail, u->info.kernels, &lowered);
}

/* One attempt. `why`: what the rung above the target has done, where all above it are at fault; else NULL. */
static crumb_status open_with(const opening *o, const char *target, const char *why, crumb_model **out, finding *found,
                              crumb_error *err) {
    const crumb_model_params *params = o->params;
    *found = (finding){.is_kernels = false};
    crumb_model *m;
    CRUMB_TRY(crumb_calloc(1, sizeof *m, "the model", (void **)&m, err));
    m->log = params->log;
    m->log_user = params->log_user;
    m->choice = o->choice;
    m->advice = o->advice;
    m->cores = o->cores;
    m->units[0].backend = o->choice.device.backend;
    m->n_units = 1;
    m->checks.asked = params->verify;
    crumb_status status = crumb_lock_create(&m->checks.lock, err);
    if (status == CRUMB_OK) status = open_device(m, params, target, err);
    if (status == CRUMB_OK) status = o->kind->load(m, o->source, params, err);
    if (status == CRUMB_OK && m->units[0].backend != &crumb_backend_cpu) {
        status = crumb_engine_check_kernels(m, params->kv_type, err);
        if (status == CRUMB_OK && o->choice.automatic) status = try_session(m, params->kv_type, err);
        *found = find_fault(&m->units[0], status);
    }
    if (why) remember_rung(m, target, why, status, found);
    if (status == CRUMB_OK) {
        *out = m;
        return CRUMB_OK;
    }
    m->advice = NULL; /* for the next attempt */
    crumb_model_close(m);
    return status;
}

/* Goes down the device's ladder of kernels as long as they may be at fault and nobody asked for them by name. */
static crumb_status open_on(const opening *o, crumb_model **out, crumb_error *err) {
    const crumb_model_params *params = o->params;
    char target[32] = "";
    const char *named = named_target(params);
    bool is_kernels = params->verify != CRUMB_VERIFY_NEVER;
    crumb_error why = {0}, reason = {0}; /* of the last attempt, and of this one */
    for (;; why = reason) {
        finding found;
        crumb_status status =
            open_with(o, *target ? target : named, *target && is_kernels ? why.message : NULL, out, &found, &reason);
        if (status == CRUMB_OK) return CRUMB_OK;
        if (named || !*found.lower) {
            if (err) *err = reason;
            return status;
        }
        if (params->log) {
            char line[1200];
            snprintf(line, sizeof line, "%s; going on with '%s'", reason.message, found.lower);
            params->log(params->log_user, CRUMB_LOG_WARN, line);
        }
        is_kernels = is_kernels && found.is_kernels;
        memcpy(target, found.lower, sizeof target);
    }
}

/* On the device that is chosen; where that fails, through the other backend that drives the same card. */
static crumb_status open_on_either(opening *o, crumb_model **out, crumb_error *err) {
    const crumb_model_params *params = o->params;
    crumb_engine_device *other = &o->choice.other;
    const crumb_status status = open_on(o, out, err);
    const bool may = status == CRUMB_ERR_DEVICE || status == CRUMB_ERR_UNSUPPORTED || status == CRUMB_ERR_VERIFY;
    if (!may || !other->backend || named_target(params)) return status;
    if (params->log) {
        char line[1200];
        snprintf(line, sizeof line, "%.900s; going on through %s", err->message, other->backend_name);
        params->log(params->log_user, CRUMB_LOG_WARN, line);
    }
    *err = (crumb_error){0};
    o->choice.device = *other;
    other->backend = NULL;
    return open_on(o, out, err);
}

/* What another device may do better: it is missing, full, or has no kernel for a model that the CPU may well run. */
static bool is_of_the_device(crumb_status status) {
    return status == CRUMB_ERR_DEVICE || status == CRUMB_ERR_MEMORY || status == CRUMB_ERR_UNSUPPORTED ||
           status == CRUMB_ERR_VERIFY;
}

/* The CPU instead of a GPU that cannot run the model. */
static crumb_status open_on_cpu(opening *o, const crumb_error *reason, crumb_model **out, crumb_error *err) {
    char why[512];
    snprintf(why, sizeof why, "%s (%s) cannot run this model: %.300s", o->choice.device.name,
             o->choice.device.listing.detail, reason->message);
    crumb_engine_advice_leave_gpu(o->advice, why);
    crumb_engine_choose_cpu(&o->choice, why);
    return open_on(o, out, err);
}

crumb_status crumb_engine_model_open(const crumb_model_params *params, const crumb_engine_source_kind *kind,
                                     const void *source, crumb_model **out, crumb_error *err) {
    opening o = {.params = params, .kind = kind, .source = source};
    crumb_error reason = {0};
    CRUMB_TRY(crumb_engine_profile_cores(params->profile, &o.cores, err));
    CRUMB_TRY(crumb_engine_device_choose(params->device, params->backend, params->target, &o.choice, err));
    CRUMB_TRY(crumb_engine_advise(params, kind->outline, source, &o.choice, &o.advice, err));
    crumb_status status = open_on_either(&o, out, &reason);
    if (status != CRUMB_OK && o.choice.automatic && o.choice.device.backend != &crumb_backend_cpu &&
        is_of_the_device(status)) {
        const crumb_error first = reason;
        reason = (crumb_error){0};
        status = open_on_cpu(&o, &first, out, &reason);
    }
    if (status == CRUMB_OK) return status;
    crumb_engine_advice_free(o.advice);
    if (err) *err = reason;
    return status;
}
