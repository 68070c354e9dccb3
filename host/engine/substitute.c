#include "host/engine/substitute.h"

#include "host/base/memory.h"
#include "host/base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static crumb_status copy_text(const char *text, char **out, crumb_error *err) {
    if (!text) return CRUMB_OK;
    CRUMB_TRY(crumb_calloc(strlen(text) + 1, 1, "the model's options", (void **)out, err));
    memcpy(*out, text, strlen(text));
    return CRUMB_OK;
}

crumb_status crumb_engine_note_origin(crumb_model *m, const char *path, const char *spec,
                                      const crumb_model_params *params, crumb_error *err) {
    CRUMB_TRY(copy_text(path, &m->origin.path, err));
    CRUMB_TRY(copy_text(spec, &m->origin.spec, err));
    CRUMB_TRY(copy_text(params->cpu_kind, &m->origin.cpu_kind, err));
    CRUMB_TRY(copy_text(params->balance, &m->origin.balance, err));
    CRUMB_TRY(copy_text(params->tuning, &m->origin.tuning, err));
    m->origin.n_threads = params->n_threads;
    return crumb_lock_create(&m->substitute_lock, err);
}

/* The file may have been replaced since it was read. */
static crumb_status check_same(const crumb_model *m, const crumb_model *other, crumb_error *err) {
    const crumb_hparams *a = &m->net.hparams, *b = &other->net.hparams;
    if (m->n_params == other->n_params && m->file_bytes == other->file_bytes &&
        a->num_hidden_layers == b->num_hidden_layers && a->hidden_size == b->hidden_size &&
        a->vocab_size == b->vocab_size && a->head_dim == b->head_dim)
        return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: the file is another than the one that was loaded", m->origin.path);
}

/* By the profile that the other model was placed by. Nothing depends on it but what is told. */
static void predict(const crumb_model *m, crumb_model *cpu) {
    char why[128];
    crumb_engine_advice *advice;
    snprintf(why, sizeof why, "%s has failed", m->units[0].info.name);
    if (crumb_engine_advice_copy_to_cpu(m->advice, why, &advice, NULL) != CRUMB_OK) return;
    crumb_engine_advice_free(cpu->advice);
    cpu->advice = advice;
}

static crumb_status open_substitute(crumb_model *m, crumb_error *err) {
    crumb_model_params params = crumb_model_params_default();
    crumb_model *cpu = NULL;
    params.device = params.backend = "cpu";
    params.target = "cpu"; /* what is asked for by name was the other device's */
    params.n_threads = m->origin.n_threads;
    params.cpu_kind = m->origin.cpu_kind;
    params.balance = m->origin.balance;
    params.tuning = m->origin.tuning;
    params.log = m->log;
    params.log_user = m->log_user;
    if (m->origin.spec)
        CRUMB_TRY(crumb_model_open_synthetic(m->origin.spec, &params, &cpu, err));
    else if (m->origin.path)
        CRUMB_TRY(crumb_model_open(m->origin.path, &params, &cpu, err));
    else
        CRUMB_TRY(crumb_model_open_embedded(&params, &cpu, err));
    const crumb_status status = check_same(m, cpu, err);
    if (status == CRUMB_OK) {
        predict(m, cpu);
        m->substitute = cpu;
    } else
        crumb_model_close(cpu);
    return status;
}

crumb_status crumb_engine_substitute(crumb_model *m, crumb_model **out, crumb_error *err) {
    crumb_lock_take(m->substitute_lock);
    const crumb_status status = m->substitute ? CRUMB_OK : open_substitute(m, err);
    *out = m->substitute;
    crumb_lock_release(m->substitute_lock);
    return status;
}

void crumb_engine_substitute_close(crumb_model *m) {
    crumb_model_close(m->substitute);
    crumb_lock_destroy(m->substitute_lock);
    free(m->origin.path);
    free(m->origin.spec);
    free(m->origin.cpu_kind);
    free(m->origin.balance);
    free(m->origin.tuning);
}
