/* What `crumb plan` prints. */
#include "tools/crumb/json_util.h"
#include "tools/crumb/plan.h"

#include <string.h>

static const char *const phase_names[] = {"prefill", "decode"};

/* "gpu0", "0.62 gpu0+cpu" */
static const char *device_label(const plan *p, const crumb_place_part *part, char out[48]) {
    const crumb_profile_device *d = p->machine.profile.device;
    if (part->share >= 1)
        snprintf(out, 48, "%s", d[part->device].name);
    else
        snprintf(out, 48, "%.2f %s+%s", part->share, d[part->device].name, d[part->other].name);
    return out;
}

/* ---- text ---------------------------------------------------------------------------------------------------- */

static bool alike(const plan *p, uint32_t a, uint32_t b) {
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        const crumb_place_part *x = &p->placement.part[phase][a], *y = &p->placement.part[phase][b];
        const crumb_cost *c = &p->placement.cost[phase][a], *d = &p->placement.cost[phase][b];
        if (x->device != y->device || x->other != y->other || x->share != y->share) return false;
        if (c->ns != d->ns || c->bytes != d->bytes || c->bound != d->bound) return false;
    }
    return p->layers[a].head == p->layers[b].head;
}

static void print_rows(const plan *p, uint32_t first, uint32_t last) {
    char range[32] = "head";
    if (!p->layers[first].head) snprintf(range, sizeof range, first == last ? "%u" : "%u-%u, each", first, last);
    cli_print("%-14s", range);
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
        char label[48];
        const crumb_cost *c = &p->placement.cost[phase][first];
        cli_print(" | %-15s %9.3f %9.2f %-*s", device_label(p, &p->placement.part[phase][first], label), c->ns * 1e-6,
                  c->bytes * 1e-6, phase == 0 ? 9 : 0, crumb_bound_name(c->bound));
    }
    cli_print("\n");
}

static void print_layers(const plan *p) {
    cli_print("%-14s", "layers");
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
        cli_print(" | %-15s %9s %9s %-*s", phase_names[phase], "ms", "MB read", phase == 0 ? 9 : 0, "bound by");
    cli_print("\n");
    for (uint32_t first = 0; first < p->problem.n_layers;) {
        uint32_t last = first;
        while (last + 1 < p->problem.n_layers && alike(p, first, last + 1)) last++;
        print_rows(p, first, last);
        first = last + 1;
    }
}

static void print_memory(const plan *p) {
    const crumb_profile *m = &p->machine.profile;
    for (size_t d = 0; d < m->n_devices; d++)
        if (p->placement.memory_bytes[d])
            cli_print("memory of %s: %.2f of %.1f GB%s\n", m->device[d].name,
                      (double)p->placement.memory_bytes[d] * 1e-9, (double)m->device[d].memory_bytes * 1e-9,
                      m->device[d].kind == CRUMB_PROFILE_INTEGRATED ? ", the processor's" : "");
}

static void print_considered(const plan *p) {
    cli_print("\n%-54s %12s %12s\n", "considered", "prefill ms", "decode tok/s");
    for (size_t i = 0; i < p->placement.n_considered; i++) {
        const crumb_place_candidate *c = &p->placement.considered[i];
        cli_print("%-54s %12.1f %12.2f%s\n", c->name, c->prefill_ns * 1e-6, 1e9 / c->decode_ns,
                  !c->fits ? "  does not fit"
                  : i == 0 ? "  chosen"
                           : "");
    }
}

static void print_split(const plan *p) {
    if (!p->simulated) return;
    const crumb_sim_result *r = &p->split;
    const double best = r->first_ns < r->second_ns ? r->first_ns : r->second_ns;
    cli_print("split, simulated: %u tokens, %.2f times the faster device alone; ", p->n_simulated, best / r->total_ns);
    if (p->fixed)
        cli_print("%.2f of the rows on the first, as asked for\n", r->share);
    else
        cli_print("%s with %.2f of the rows on the first; %u changes took %.1f ms\n", r->on ? "stays" : "leaves",
                  r->share, r->n_changes, r->changes_ns * 1e-6);
}

static void print_sources(const plan *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->machine.n_figures; i++) n += plan_is_estimated(&p->machine.figures[i]);
    cli_print("\n%zu of the profile's %zu figures are estimates (--json lists all with their sources)\n", n,
              p->machine.n_figures);
    if (*p->machine.profile.left_out)
        cli_print("left out: %s, for which nobody has figures with these kernels\n", p->machine.profile.left_out);
}

void plan_print_text(const plan *p) {
    const crumb_profile *m = &p->machine.profile;
    const crumb_placement *r = &p->placement;
    cli_print("%s on %s: %s\nkernels: %s; prompt %u tokens, then %u\n\n", p->model, m->name, m->detail,
              m->device[0].kernels, p->problem.n_prompt, p->problem.n_generate);
    print_layers(p);
    cli_print("\nTTFT %.1f ms", r->ttft_ns * 1e-6);
    if (r->moved_bytes)
        cli_print(", of which %.2f ms move %.1f MB of keys and values", r->move_ns * 1e-6,
                  (double)r->moved_bytes * 1e-6);
    cli_print("; decode_tok_s %.2f\n", plan_decode_tok_s(p));
    print_memory(p);
    print_split(p);
    cli_print("why: %s\n", r->why);
    print_considered(p);
    print_sources(p);
}

/* ---- JSON ---------------------------------------------------------------------------------------------------- */

static cJSON *cost_json(const plan *p, const crumb_place_part *part, const crumb_cost *c) {
    cJSON *o = cJSON_CreateObject();
    json_add_text(o, "device", p->machine.profile.device[part->device].name);
    json_add_real(o, "share", part->share);
    json_add_text(o, "other", part->share < 1 ? p->machine.profile.device[part->other].name : NULL);
    json_add_real(o, "ms", c->ns * 1e-6);
    json_add_real(o, "bytes", c->bytes);
    json_add_text(o, "bound", crumb_bound_name(c->bound));
    json_add_real(o, "read_ms", c->read_ns * 1e-6);
    json_add_real(o, "compute_ms", c->compute_ns * 1e-6);
    json_add_real(o, "launch_ms", c->launch_ns * 1e-6);
    json_add_real(o, "exchange_ms", c->exchange_ns * 1e-6);
    return o;
}

static void add_layers(cJSON *document, const plan *p) {
    cJSON *layers = cJSON_AddArrayToObject(document, "layers");
    for (uint32_t i = 0; i < p->problem.n_layers; i++) {
        cJSON *o = cJSON_CreateObject();
        if (p->layers[i].head)
            json_add_text(o, "layer", "head");
        else
            json_add_u64(o, "layer", i);
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            cJSON_AddItemToObject(o, phase_names[phase],
                                  cost_json(p, &p->placement.part[phase][i], &p->placement.cost[phase][i]));
        cJSON_AddItemToArray(layers, o);
    }
}

static void add_considered(cJSON *document, const plan *p) {
    cJSON *list = cJSON_AddArrayToObject(document, "considered");
    for (size_t i = 0; i < p->placement.n_considered; i++) {
        const crumb_place_candidate *c = &p->placement.considered[i];
        cJSON *o = cJSON_CreateObject();
        json_add_text(o, "name", c->name);
        json_add_real(o, "prefill_ms", c->prefill_ns * 1e-6);
        json_add_real(o, "decode_tok_s", 1e9 / c->decode_ns);
        json_add_real(o, "total_ms", c->total_ns * 1e-6);
        cJSON_AddBoolToObject(o, "fits", c->fits);
        cJSON_AddItemToArray(list, o);
    }
}

static void add_memory(cJSON *document, const plan *p) {
    cJSON *memory = cJSON_AddObjectToObject(document, "memory_bytes");
    for (size_t d = 0; d < p->machine.profile.n_devices; d++)
        json_add_u64(memory, p->machine.profile.device[d].name, p->placement.memory_bytes[d]);
}

static void add_figures(cJSON *document, const plan *p) {
    cJSON *figures = cJSON_AddArrayToObject(document, "figures");
    for (size_t i = 0; i < p->machine.n_figures; i++) {
        cJSON *o = cJSON_CreateObject();
        json_add_text(o, "key", p->machine.figures[i].key);
        json_add_real(o, "value", p->machine.figures[i].value);
        json_add_text(o, "source", p->machine.figures[i].source);
        cJSON_AddItemToArray(figures, o);
    }
}

crumb_status plan_print_json(const plan *p, crumb_error *err) {
    const crumb_placement *r = &p->placement;
    cJSON *document = json_document();
    json_add_text(document, "model", p->model);
    json_add_text(document, "machine", p->machine.profile.name);
    json_add_text(document, "machine_detail", p->machine.profile.detail);
    json_add_text(document, "kernels", p->machine.profile.device[0].kernels);
    json_add_u64(document, "n_prompt", p->problem.n_prompt);
    json_add_u64(document, "n_generate", p->problem.n_generate);
    json_add_text(document, "placement", r->name);
    json_add_text(document, "why", r->why);
    json_add_real(document, "ttft_ms", r->ttft_ns * 1e-6);
    json_add_real(document, "prefill_tok_s", 1e9 * p->problem.n_prompt / r->sum[CRUMB_PHASE_PREFILL].ns);
    json_add_real(document, "decode_tok_s", plan_decode_tok_s(p));
    json_add_real(document, "decode_bytes", r->sum[CRUMB_PHASE_DECODE].bytes);
    json_add_text(document, "prefill_bound", crumb_bound_name(r->sum[CRUMB_PHASE_PREFILL].bound));
    json_add_text(document, "decode_bound", crumb_bound_name(r->sum[CRUMB_PHASE_DECODE].bound));
    json_add_u64(document, "moved_bytes", r->moved_bytes);
    json_add_real(document, "move_ms", r->move_ns * 1e-6);
    add_memory(document, p);
    if (p->simulated) {
        cJSON *split = cJSON_AddObjectToObject(document, "split_simulated");
        json_add_u64(split, "n_tokens", p->n_simulated);
        cJSON_AddBoolToObject(split, "fixed", p->fixed);
        cJSON_AddBoolToObject(split, "stays", p->split.on);
        json_add_u64(split, "n_changes", p->split.n_changes);
        json_add_real(split, "changes_ms", p->split.changes_ns * 1e-6);
        json_add_real(split, "share", p->split.share);
        json_add_real(split, "first_alone_ms", p->split.first_ns * 1e-6);
        json_add_real(split, "second_alone_ms", p->split.second_ns * 1e-6);
        json_add_real(split, "total_ms", p->split.total_ns * 1e-6);
    }
    add_layers(document, p);
    add_considered(document, p);
    json_add_text(document, "left_out", p->machine.profile.left_out);
    add_figures(document, p);
    return json_print(document, false, "\n", err);
}
