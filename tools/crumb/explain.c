#include "tools/crumb/explain.h"

#include "host/engine/explain.h"

static const char *const phase_names[CRUMB_PHASE_COUNT] = {"prefill", "decode"};

static double percent(double measured, double predicted) {
    return predicted > 0 ? 100 * (measured / predicted - 1) : 0;
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

static void print_phases(const crumb_explanation *e) {
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        const crumb_watch_phase *p = &e->phase[phase];
        const double per = phase == CRUMB_PHASE_DECODE && p->n_rows ? (double)p->n_rows : 1;
        if (!p->n_rows) continue;
        cli_note("explain: %s of %llu tokens: predicted %.2f ms%s, measured %.2f (%+.0f %%)", phase_names[phase],
                 (unsigned long long)p->n_rows, p->predicted_ns * 1e-6 / per, per > 1 ? " each" : "",
                 p->measured_ns * 1e-6 / per, percent(p->measured_ns, p->predicted_ns));
    }
}

static void print_units(const crumb_explanation *e) {
    for (size_t u = 0; u < e->n_units; u++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            if (e->unit[u].ratio[phase] > 0)
                cli_note("explain: %s in %s: %.2f times what the profile says; %.2f was expected", e->unit[u].name,
                         phase_names[phase], e->unit[u].ratio[phase], e->unit[u].factor[phase]);
}

static void print_lengths(const crumb_explanation *e) {
    cli_note("explain: chosen for a prompt of %u tokens, %u at once, and %u after it, in a context of %u in %s",
             e->placed_for.n_prompt, e->placed_for.n_batch, e->placed_for.n_generate, e->placed_for.n_ctx,
             cli_kv_name(e->placed_for.kv_type));
    if (e->placed_for.prefill_ns > 0)
        cli_note("explain: as it runs, that prompt should take %.2f ms, and each token after it %.2f",
                 e->placed_for.prefill_ns * 1e-6, e->placed_for.decode_ns * 1e-6);
}

void cli_explain(const crumb_session *s) {
    crumb_explanation e;
    crumb_engine_session_explain(s, &e);
    cli_note("explain: layers: %s", e.choice);
    cli_note("explain: %s%s", *e.profile ? "" : "nothing is predicted: ", e.why);
    if (e.placed_for.n_prompt) print_lengths(&e);
    print_phases(&e);
    if (e.prompt_rows[CRUMB_PHASE_PREFILL] + e.prompt_rows[CRUMB_PHASE_DECODE])
        cli_note("explain: %llu of the prompts' tokens were read as placed for prefill, %llu as for decoding, by the "
                 "lengths of their batches",
                 (unsigned long long)e.prompt_rows[CRUMB_PHASE_PREFILL],
                 (unsigned long long)e.prompt_rows[CRUMB_PHASE_DECODE]);
    print_units(&e);
    if (*e.split) cli_note("explain: %s; changed %u times", e.split, e.n_changes);
    if (e.moved_bytes)
        cli_note("explain: %.1f MB of keys and values moved in %.1f ms", (double)e.moved_bytes * 1e-6, e.move_ms);
    if (e.n_single)
        cli_note("explain: %.1f us of each token went to deciding and handing over, for %u layers", e.overhead_us,
                 e.n_layers);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------- */

static void add_lengths(cJSON *o, const crumb_explanation *e) {
    if (!e->placed_for.n_prompt) return;
    cJSON *item = cJSON_AddObjectToObject(o, "placed_for");
    json_add_u64(item, "n_prompt", e->placed_for.n_prompt);
    json_add_u64(item, "n_generate", e->placed_for.n_generate);
    json_add_u64(item, "n_ctx", e->placed_for.n_ctx);
    json_add_u64(item, "n_batch", e->placed_for.n_batch);
    json_add_text(item, "kv_cache", cli_kv_name(e->placed_for.kv_type));
    json_add_real(item, "prefill_ms", e->placed_for.prefill_ns * 1e-6);
    json_add_real(item, "decode_ms", e->placed_for.decode_ns * 1e-6);
}

static void add_phases(cJSON *o, const crumb_explanation *e) {
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        const crumb_watch_phase *p = &e->phase[phase];
        if (!p->n_rows) continue;
        cJSON *item = cJSON_AddObjectToObject(o, phase_names[phase]);
        json_add_u64(item, "n_tokens", p->n_rows);
        json_add_real(item, "predicted_ms", p->predicted_ns * 1e-6);
        json_add_real(item, "measured_ms", p->measured_ns * 1e-6);
    }
}

static void add_units(cJSON *o, const crumb_explanation *e) {
    cJSON *list = cJSON_AddArrayToObject(o, "ratios");
    for (size_t u = 0; u < e->n_units; u++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
            if (!(e->unit[u].ratio[phase] > 0)) continue;
            cJSON *item = cJSON_CreateObject();
            json_add_text(item, "device", e->unit[u].name);
            json_add_text(item, "phase", phase_names[phase]);
            json_add_real(item, "measured_to_profile", e->unit[u].ratio[phase]);
            json_add_real(item, "expected", e->unit[u].factor[phase]);
            cJSON_AddItemToArray(list, item);
        }
}

cJSON *cli_explain_json(const crumb_session *s) {
    crumb_explanation e;
    crumb_engine_session_explain(s, &e);
    cJSON *o = cJSON_CreateObject();
    json_add_text(o, "layers", e.choice);
    json_add_text(o, "profile", *e.profile ? e.profile : NULL);
    json_add_text(o, "why", e.why);
    add_lengths(o, &e);
    add_phases(o, &e);
    add_units(o, &e);
    json_add_text(o, "split", *e.split ? e.split : NULL);
    json_add_u64(o, "split_changes", e.n_changes);
    cJSON *read = cJSON_AddObjectToObject(o, "prompt_tokens_placed_as");
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
        json_add_u64(read, phase_names[phase], e.prompt_rows[phase]);
    json_add_u64(o, "moved_bytes", e.moved_bytes);
    json_add_real(o, "move_ms", e.move_ms);
    json_add_real(o, "scheduling_us_per_token", e.overhead_us);
    json_add_u64(o, "n_layers", e.n_layers);
    return o;
}
