#include "host/engine/explain.h"

#include "host/engine/pipeline.h"

#include <stdio.h>

static void explain_choice(const crumb_pipeline *p, const crumb_model *m, crumb_explanation *out) {
    const crumb_engine_advice *a = m->advice;
    const bool known = a && a->known;
    snprintf(out->choice, sizeof out->choice, "%s", *m->placement ? m->placement : m->units[0].info.name);
    snprintf(out->why, sizeof out->why, "%s", known && !*a->note ? a->placement.why : a ? a->note : "");
    snprintf(out->profile, sizeof out->profile, "%s", known ? a->machine.name : "");
    if (!known) return;
    out->placed_for.n_prompt = a->problem.n_prompt;
    out->placed_for.n_generate = a->problem.n_generate;
    out->placed_for.n_ctx = a->problem.n_ctx;
    out->placed_for.n_batch = a->problem.n_batch;
    out->placed_for.kv_type = a->kv_type;
    out->placed_for.prefill_ns = crumb_pipeline_predict_prompt(p, a->problem.n_prompt);
    out->placed_for.decode_ns = crumb_pipeline_predict_token(p, a->problem.n_prompt + a->problem.n_generate / 2);
}

static void explain_unit(const crumb_model *m, const crumb_watch *w, size_t unit, crumb_explained_unit *out) {
    if (unit == CRUMB_WATCH_PAIR)
        snprintf(out->name, sizeof out->name, "cpu+%.20s", m->units[0].info.name);
    else
        snprintf(out->name, sizeof out->name, "%.30s", m->units[unit].info.name);
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        out->ratio[phase] = crumb_watch_ratio(w, unit, (crumb_phase)phase);
        out->factor[phase] = w->factor[unit][phase];
    }
}

void crumb_pipeline_explain(const crumb_pipeline *p, crumb_explanation *out) {
    const crumb_model *m = crumb_pipeline_model(p);
    const crumb_watch *w = crumb_pipeline_watch(p);
    const crumb_pipeline_stats stats = crumb_pipeline_get_stats(p);
    *out = (crumb_explanation){.n_single = w->n_single,
                               .n_layers = m->net.hparams.num_hidden_layers,
                               .n_changes = stats.n_changes,
                               .prompt_rows = {stats.prompt_rows[0], stats.prompt_rows[1]},
                               .moved_bytes = stats.moved_bytes,
                               .move_ms = stats.move_ms};
    explain_choice(p, m, out);
    out->overhead_us = crumb_watch_overhead(w);
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        out->phase[phase] = w->phase[phase];
        out->is_predicted |= w->phase[phase].n_rows > 0;
    }
    for (size_t u = 0; u < CRUMB_WATCH_UNITS && out->is_predicted; u++)
        if (u < m->n_units || (u == CRUMB_WATCH_PAIR && m->split > 0))
            explain_unit(m, w, u, &out->unit[out->n_units++]);
    crumb_pipeline_explain_split(p, out->split, sizeof out->split);
}
