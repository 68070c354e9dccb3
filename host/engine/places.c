#include "host/engine/places.h"

#include "host/base/memory.h"
#include "host/engine/costs.h"
#include "host/engine/shares.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPU = 0, CPU = 1 }; /* units of a model with two */

static uint32_t n_places(const crumb_model *m) {
    return m->net.hparams.num_hidden_layers + 1;
}

static crumb_status open_cpu(crumb_model *m, const crumb_model_params *params, crumb_error *err) {
    m->units[CPU].backend = &crumb_backend_cpu;
    m->n_units = 2;
    return crumb_engine_open_unit(m, &m->units[CPU], NULL, NULL, params, err);
}

/* ---- wishes -------------------------------------------------------------------------------------------------- */

/* Letters for one phase; *end: behind them. */
static crumb_status take_pattern(crumb_model *m, const char *text, crumb_phase phase, const char **end,
                                 crumb_error *err) {
    const size_t n = strspn(text, "gc");
    if (n == 0 || (text[n] != 0 && text[n] != ':'))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                          "CRUMB_PLACE '%s': letters g and c are wanted, and a colon between prefill and decoding",
                          getenv("CRUMB_PLACE"));
    for (uint32_t i = 0; i < n_places(m); i++) m->places[i].unit[phase] = text[i % n] == 'c' ? CPU : GPU;
    *end = text + n;
    return CRUMB_OK;
}

static crumb_status place_by_pattern(crumb_model *m, const char *text, crumb_error *err) {
    const char *end;
    CRUMB_TRY(take_pattern(m, text, CRUMB_PHASE_PREFILL, &end, err));
    return take_pattern(m, *end ? end + 1 : text, CRUMB_PHASE_DECODE, &end, err);
}

static void place_last(crumb_model *m, uint32_t n_gpu) {
    for (uint32_t i = 0; i < n_places(m); i++) {
        const uint8_t unit = i + n_gpu < n_places(m) ? CPU : GPU;
        m->places[i].unit[CRUMB_PHASE_PREFILL] = m->places[i].unit[CRUMB_PHASE_DECODE] = unit;
    }
}

/* ---- memory -------------------------------------------------------------------------------------------------- */

/* How many of the last layers fit into the device's memory, with their context and room for what runs there. */
static crumb_status count_fitting(const crumb_model *m, const crumb_model_params *params, uint32_t *n,
                                  crumb_error *err) {
    const crumb_hparams *h = &m->net.hparams;
    const crumb_engine_lengths lengths = crumb_engine_lengths_of(h, params);
    const uint64_t scratch = crumb_engine_scratch_bytes(h, lengths.n_batch);
    uint64_t room = m->units[GPU].info.memory_free_bytes - m->units[GPU].info.memory_bytes / 16;
    crumb_cost_layer *layers;
    *n = 0;
    if (room > m->units[GPU].info.memory_free_bytes || room <= scratch) return CRUMB_OK;
    room -= scratch;
    CRUMB_TRY(crumb_calloc(n_places(m), sizeof *layers, "the layers", (void **)&layers, err));
    crumb_engine_cost_layers(&m->net, params->kv_type, layers);
    for (uint32_t i = n_places(m); i-- > 0;) {
        const uint64_t n_bytes = layers[i].resident_bytes + layers[i].kv_bytes * lengths.n_ctx;
        if (n_bytes > room) break;
        room -= n_bytes;
        (*n)++;
    }
    free(layers);
    return CRUMB_OK;
}

/* The device's own memory, where it is large enough for all; else the last layers go there. */
static crumb_status place_as_it_fits(crumb_model *m, const crumb_model_params *params, uint64_t weight_bytes,
                                     crumb_error *err) {
    const crumb_device_info *gpu = &m->units[GPU].info;
    uint32_t n;
    place_last(m, n_places(m));
    if (weight_bytes <= gpu->shared_weight_bytes) return CRUMB_OK;
    CRUMB_TRY(count_fitting(m, params, &n, err));
    if (n == n_places(m)) return CRUMB_OK;
    if (n == 0)
        return crumb_fail(err, CRUMB_ERR_MEMORY,
                          "%s: not enough memory: %.1f MiB hold no layer of this model and its context", gpu->name,
                          (double)gpu->memory_bytes / 0x1p20);
    place_last(m, n);
    crumb_engine_log(
        m, CRUMB_LOG_WARN,
        "%s: %.1f GiB of memory do not hold the model's %.1f GiB and its context: the last %u of %u layers "
        "run there, the others on the CPU",
        gpu->name, (double)gpu->memory_bytes / 0x1p30, (double)weight_bytes / 0x1p30, n, n_places(m));
    return CRUMB_OK;
}

/* ---- advice -------------------------------------------------------------------------------------------------- */

/* Decoding, split: where single rows run that are not, and which part the GPU begins with. */
static double advised_split(const crumb_model *m) {
    const crumb_place_part *part = m->advice->placement.part[CRUMB_PHASE_DECODE];
    return part[0].share < 1 ? part[0].share : 0;
}

static bool shares_weights(const crumb_model *m, uint64_t weight_bytes) {
    return weight_bytes <= m->units[GPU].info.shared_weight_bytes;
}

/* Whether layers can be divided where each device has the weights of its part only, and no way back to whole ones. */
static crumb_status check_divisible(const crumb_model *m, crumb_error *err) {
    const crumb_engine_unit *gpu = &m->units[GPU];
    const crumb_hparams *h = &m->net.hparams;
    const uint32_t n = h->num_key_value_heads > 1 ? h->num_key_value_heads : h->num_attention_heads;
    void *memory;
    if (n < 2 || h->head_dim % CRUMB_TILE_ROWS != 0)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "layers with %u heads of %u columns cannot be divided between two devices",
                          h->num_attention_heads, h->head_dim);
    CRUMB_TRY(gpu->backend->device.shared_create(gpu->device, CRUMB_TILE_ROWS, &memory, err));
    gpu->backend->device.shared_destroy(gpu->device, memory, CRUMB_TILE_ROWS);
    return CRUMB_OK;
}

/* Where weights are not shared, each device has its own: for both phases. */
static bool can_carry_out(const crumb_model *m, crumb_error *reason) {
    const crumb_placement *p = &m->advice->placement;
    for (uint32_t i = 0; i < n_places(m); i++) {
        const crumb_place_part *a = &p->part[CRUMB_PHASE_PREFILL][i], *b = &p->part[CRUMB_PHASE_DECODE][i];
        if (a->device == b->device && a->share >= b->share && a->share <= b->share) continue;
        crumb_fail(reason, CRUMB_ERR_UNSUPPORTED, "%s does not share the CPU's memory", m->units[GPU].info.name);
        return false;
    }
    return advised_split(m) <= 0 || check_divisible(m, reason) == CRUMB_OK;
}

/* As the scheduler says; false: it says nothing, or it cannot be carried out. */
static bool place_as_advised(crumb_model *m, uint64_t weight_bytes) {
    crumb_engine_advice *a = m->advice;
    if (!a->known || !a->gpu) return false;
    const bool shared = shares_weights(m, weight_bytes);
    const uint8_t alone = !shared || crumb_engine_advice_gpu_decodes_faster(a) ? GPU : CPU;
    crumb_error reason = {0};
    for (uint32_t i = 0; i < n_places(m); i++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
            const crumb_place_part *part = &a->placement.part[phase][i];
            m->places[i].unit[phase] = part->share < 1 ? alone : part->device ? GPU : CPU;
        }
    if (!shared && !can_carry_out(m, &reason)) {
        snprintf(a->note, sizeof a->note, "not '%s': %.500s", a->placement.name, reason.message);
        crumb_engine_log(m, CRUMB_LOG_WARN, "%s", a->note);
        return false;
    }
    m->split = advised_split(m);
    crumb_engine_log(m, CRUMB_LOG_INFO, "%s: %s", a->placement.name, a->placement.why);
    return true;
}

static crumb_status find_memories(crumb_model *m, uint64_t weight_bytes, crumb_error *err) {
    const bool shared = shares_weights(m, weight_bytes);
    for (uint32_t i = 0; i < n_places(m); i++) {
        crumb_engine_place *p = &m->places[i];
        p->memory = shared ? GPU : p->unit[CRUMB_PHASE_DECODE];
        if (!shared && p->unit[CRUMB_PHASE_PREFILL] != p->unit[CRUMB_PHASE_DECODE])
            return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                              "%s has memory of its own: layer %u cannot run there in prefill and on the CPU in "
                              "decoding, or the other way round",
                              m->units[GPU].info.name, i);
    }
    return CRUMB_OK;
}

static bool uses_cpu(const crumb_model *m) {
    for (uint32_t i = 0; i < n_places(m); i++)
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            if (m->places[i].unit[phase] == CPU) return true;
    return false;
}

/* Appends to m->placement what fits. */
__attribute__((format(printf, 2, 3))) static void append(crumb_model *m, const char *format, ...) {
    const size_t used = strlen(m->placement);
    va_list args;
    va_start(args, format);
    vsnprintf(m->placement + used, sizeof m->placement - used, format, args);
    va_end(args);
}

/* "cpu 0-9, gpu0 10-31 and head" */
static void describe_phase(crumb_model *m, crumb_phase phase) {
    const uint32_t head = n_places(m) - 1;
    for (uint32_t first = 0, end; first <= head; first = end) {
        const uint8_t unit = m->places[first].unit[phase];
        for (end = first + 1; end <= head && m->places[end].unit[phase] == unit; end++) {
        }
        append(m, "%s%s", first ? ", " : "", m->units[unit].info.name);
        if (first == head)
            append(m, " head");
        else if (first > 0 || end <= head)
            append(m, " %u-%u%s", first, end > head ? head - 1 : end - 1, end > head ? " and head" : "");
    }
}

static void describe(crumb_model *m) {
    bool alike = true;
    for (uint32_t i = 0; i < n_places(m); i++)
        alike &= m->places[i].unit[CRUMB_PHASE_PREFILL] == m->places[i].unit[CRUMB_PHASE_DECODE];
    if (!alike) append(m, "prefill ");
    describe_phase(m, CRUMB_PHASE_PREFILL);
    if (alike) return;
    append(m, "; decode ");
    describe_phase(m, CRUMB_PHASE_DECODE);
}

/* Layers are divided between both where that is advised, or where both are asked for and not each given to one. Across
 * two memories it rarely pays, and is never taken back: there a part must be asked for. */
static bool divides(const crumb_model *m, const crumb_model_params *params, bool shared, bool advised) {
    if (advised) return m->split > 0;
    return m->choice.with_cpu && !uses_cpu(m) && params->split < 1 && (shared ? params->split != 0 : params->split > 0);
}

static crumb_status prepare_split(crumb_model *m, const crumb_model_params *params, bool shared, crumb_error *err) {
    const double half = 0.5;
    m->divided = !shared;
    m->split_always = params->split > 0 || m->divided;
    if (params->split > 0)
        m->split = params->split;
    else if (m->split <= 0)
        m->split = half;
    if (m->divided) {
        append(m, "%s and cpu, %.0f %% and %.0f %% of each layer", m->units[GPU].info.name, 100 * m->split,
               100 - 100 * m->split);
        return check_divisible(m, err);
    }
    describe(m);
    append(m, "; decode %s and cpu, %.0f %% and %.0f %% of each layer%s", m->units[GPU].info.name, 100 * m->split,
           100 - 100 * m->split, m->split_always ? "" : " to begin with, where that is faster");
    return CRUMB_OK;
}

/* True in *advised: as the scheduler says. */
static crumb_status place(crumb_model *m, const crumb_model_params *params, uint64_t weight_bytes, bool *advised,
                          crumb_error *err) {
    const char *pattern = getenv("CRUMB_PLACE");
    *advised = false;
    if (pattern && *pattern) return place_by_pattern(m, pattern, err);
    if (params->n_gpu_layers >= 0) return place_last(m, (uint32_t)params->n_gpu_layers), CRUMB_OK;
    *advised = place_as_advised(m, weight_bytes);
    if (*advised) return CRUMB_OK;
    const bool divided = m->choice.with_cpu && params->split > 0 && !shares_weights(m, weight_bytes);
    return divided ? place_last(m, n_places(m)), CRUMB_OK : place_as_it_fits(m, params, weight_bytes, err);
}

crumb_status crumb_engine_place_layers(crumb_model *m, const crumb_model_params *params, uint64_t weight_bytes,
                                       crumb_error *err) {
    bool advised;
    CRUMB_TRY(crumb_calloc(n_places(m), sizeof *m->places, "the layers", (void **)&m->places, err));
    if (m->units[0].backend == &crumb_backend_cpu) return CRUMB_OK;
    CRUMB_TRY(place(m, params, weight_bytes, &advised, err));
    const bool split = divides(m, params, shares_weights(m, weight_bytes), advised);
    if (!split && !uses_cpu(m)) return CRUMB_OK;
    CRUMB_TRY(find_memories(m, weight_bytes, err));
    CRUMB_TRY(open_cpu(m, params, err));
    if (split) return prepare_split(m, params, shares_weights(m, weight_bytes), err);
    describe(m);
    return CRUMB_OK;
}

/* ---- divided weights ----------------------------------------------------------------------------------------- */

uint32_t crumb_engine_rows_on_first(const void *model, const crumb_matrix *w, bool *kept) {
    const crumb_model *m = model;
    const crumb_network *net = &m->net;
    const crumb_hparams *h = &net->hparams;
    const size_t layer = (size_t)((const char *)w - (const char *)net->layers) / sizeof *net->layers;
    *kept = w == &net->embedding;
    if (w == &net->embedding && !net->tied) return 0;
    if (w == &net->embedding || w == &net->head.matrix) return crumb_share_rows(w->m, m->split);
    const crumb_layer *l = &net->layers[layer];
    const uint32_t heads = crumb_share_heads(h, m->split);
    const bool one_key_head = h->num_key_value_heads == 1;
    if (w == &l->attn_q.matrix)
        return heads * h->head_dim * (one_key_head ? 1 : h->num_attention_heads / h->num_key_value_heads);
    if (w != &l->attn_k.matrix && w != &l->attn_v.matrix) return crumb_share_rows(w->m, m->split);
    *kept = one_key_head; /* both compute its keys and values */
    return one_key_head ? w->m : heads * h->head_dim;
}
