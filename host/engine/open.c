/* Opening a model: the device that is asked for, the weights on it, kernels that compute rightly there; and what serves
 * instead where one of these fails. */
#include "host/engine/verify.h"

#include "host/base/memory.h"

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

static crumb_status open_target(crumb_model *m, const crumb_model_params *params, const char *target,
                                crumb_error *err) {
    crumb_device_params device = {.device = m->choice.device.listing.name,
                                  .target = target,
                                  .n_threads = params->n_threads,
                                  .log = params->log,
                                  .log_user = params->log_user,
                                  .tuning = m->tuning,
                                  .find_tuning = crumb_tuning_find};
    CRUMB_TRY(m->backend->device.open(&device, &m->device, err));
    m->backend->device.get_info(m->device, &m->device_info);
    return CRUMB_OK;
}

/* `target` NULL: the best, unless an earlier run has found out that it computes wrongly here. */
static crumb_status open_device(crumb_model *m, const crumb_model_params *params, const char *target,
                                crumb_error *err) {
    char known[32];
    open_tuning(m, params->tuning);
    CRUMB_TRY(open_target(m, params, target, err));
    if (target || !*m->device_info.lower_target || !crumb_engine_recall_target(m, known)) return CRUMB_OK;
    m->backend->device.close(m->device);
    m->device = NULL;
    return open_target(m, params, known, err);
}

/* The kernels that someone has chosen: NULL where the backend chooses. */
static const char *named_target(const crumb_model_params *params) {
    const char *t = params->target;
    return t && strchr(t, ':') ? t : NULL;
}

/* Recording the smallest session's plans finds out whether the device has kernels for all of a model's ops. */
static crumb_status try_session(crumb_model *m, crumb_error *err) {
    crumb_session_params params = crumb_session_params_default();
    crumb_session *session;
    params.n_ctx = params.n_batch = 16;
    CRUMB_TRY(crumb_session_create(m, &params, &session, err));
    crumb_session_destroy(session);
    return CRUMB_OK;
}

static crumb_status check_kernels(crumb_model *m, const crumb_model_params *params, crumb_error *err) {
    if (!*m->device_info.kernels || params->verify == CRUMB_VERIFY_NEVER) return CRUMB_OK;
    if (params->verify == CRUMB_VERIFY_AUTO && crumb_engine_is_verified(m)) return CRUMB_OK;
    crumb_engine_log(m, CRUMB_LOG_INFO, "checking the kernels of %s (%s) against the CPU's: %s", m->device_info.name,
                     m->device_info.detail,
                     params->verify == CRUMB_VERIFY_AUTO ? "once for this driver and kind of model" : "as asked");
    CRUMB_TRY(crumb_engine_verify(m, err));
    crumb_engine_remember_verified(m);
    return CRUMB_OK;
}

/* One attempt; `lower` gets the target for the next where this one's kernels are at fault, else an empty text. */
static crumb_status open_with(const crumb_engine_choice *choice, const crumb_model_params *params, const char *target,
                              crumb_engine_load_fn *load, const void *source, crumb_model **out, char lower[32],
                              crumb_error *err) {
    *lower = 0;
    crumb_model *m;
    CRUMB_TRY(crumb_calloc(1, sizeof *m, "the model", (void **)&m, err));
    m->log = params->log;
    m->log_user = params->log_user;
    m->choice = *choice;
    m->backend = choice->device.backend;
    crumb_status status = open_device(m, params, target, err);
    if (status == CRUMB_OK) status = load(m, source, params, err);
    if (status == CRUMB_OK && m->backend != &crumb_backend_cpu) {
        status = check_kernels(m, params, err);
        if (status == CRUMB_OK && choice->automatic) status = try_session(m, err);
        if (status == CRUMB_ERR_VERIFY || status == CRUMB_ERR_DEVICE)
            snprintf(lower, 32, "%s", m->device_info.lower_target);
    }
    if (status == CRUMB_OK) {
        *out = m;
        return CRUMB_OK;
    }
    if (*lower && !named_target(params)) crumb_engine_remember_target(m, lower);
    crumb_model_close(m);
    return status;
}

/* Goes down the device's ladder of kernels as long as they are at fault and nobody asked for them by name. */
static crumb_status open_on(const crumb_engine_choice *choice, const crumb_model_params *params,
                            crumb_engine_load_fn *load, const void *source, crumb_model **out, crumb_error *err) {
    char target[32] = "", lower[32];
    const char *named = named_target(params);
    for (;;) {
        crumb_error reason = {0};
        crumb_status status = open_with(choice, params, *target ? target : named, load, source, out, lower, &reason);
        if (status != CRUMB_OK && (named || !*lower)) {
            if (err) *err = reason;
            return status;
        }
        if (status == CRUMB_OK) return CRUMB_OK;
        if (params->log) {
            char line[1200];
            snprintf(line, sizeof line, "%s; going on with '%s'", reason.message, lower);
            params->log(params->log_user, CRUMB_LOG_WARN, line);
        }
        memcpy(target, lower, sizeof target);
    }
}

/* What another device may do better: it is missing, full, or has no kernel for a model that the CPU may well run. */
static bool is_of_the_device(crumb_status status) {
    return status == CRUMB_ERR_DEVICE || status == CRUMB_ERR_MEMORY || status == CRUMB_ERR_UNSUPPORTED ||
           status == CRUMB_ERR_VERIFY;
}

crumb_status crumb_engine_model_open(const crumb_model_params *params, crumb_engine_load_fn *load, const void *source,
                                     crumb_model **out, crumb_error *err) {
    crumb_engine_choice choice;
    crumb_error reason = {0};
    char why[512];
    CRUMB_TRY(crumb_engine_device_choose(params->device, params->backend, params->target, &choice, err));
    crumb_status status = open_on(&choice, params, load, source, out, &reason);
    if (status != CRUMB_OK && choice.automatic && choice.device.backend != &crumb_backend_cpu &&
        is_of_the_device(status)) {
        snprintf(why, sizeof why, "%s (%s) cannot run this model: %.300s", choice.device.listing.name,
                 choice.device.listing.detail, reason.message);
        crumb_engine_choose_cpu(&choice, why);
        return open_on(&choice, params, load, source, out, err);
    }
    if (status != CRUMB_OK && err) *err = reason;
    return status;
}
