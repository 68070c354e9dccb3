/* Models of random weights at the shapes of real ones, so that speed can be measured without a download. The text they
 * would produce is noise; bytes, shapes and kernels are those of the real thing. */
#include "host/base/checked.h"
#include "host/base/thread.h"
#include "host/engine/places.h"
#include "host/lowbit/index.h"
#include "host/model/rope.h"
#include "host/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct synthetic_shape {
    const char *name, *architecture;
    uint32_t hidden, ff, layers, heads, kv_heads, head_dim, vocab;
    bool tied;
} synthetic_shape;

/* From the models' published configurations. */
static const synthetic_shape shapes[] = {
    {"falcon3-1b", "llama", 2048, 8192, 18, 8, 4, 256, 131072, false},
    {"mobilellm-1.5b", "llama", 1600, 4352, 54, 25, 5, 64, 32000, true},
    {"llama3-8b", "llama", 4096, 14336, 32, 32, 8, 128, 128256, false},
    {"bitnet-2b4t", "bitnet-b1.58", 2560, 6912, 30, 20, 5, 128, 128256, true},
};

typedef struct synthetic_type {
    const char *name;
    crumb_type type; /* names it, and decides how activations are quantized */
    uint8_t bits;    /* row_scaled: of a code */
    uint8_t max_code;
    int16_t mul, sub;
    bool row_scaled;        /* one f32 scale per row, any K; else exactly as the file type */
    const int8_t *codebook; /* what the file type's codes stand for instead; NULL: themselves */
} synthetic_type;

static const synthetic_type types[] = {
    {.name = "bf16", .type = CRUMB_TYPE_BF16},
    {.name = "f16", .type = CRUMB_TYPE_F16},
    {.name = "i8", .type = CRUMB_TYPE_Q8_0},
    {.name = "u4", .type = CRUMB_TYPE_Q4_0},
    {.name = "mxfp4", .type = CRUMB_TYPE_Q4_0, .codebook = crumb_codebook_e2m1}, /* groups of 32, as Q4_0 */
    {.name = "u3", .type = CRUMB_TYPE_I2_S, .bits = 3, .max_code = 7, .mul = 1, .sub = 4, .row_scaled = true},
    {.name = "u2",
     .type = CRUMB_TYPE_I2_S,
     .bits = 2,
     .max_code = 3,
     .mul = 2,
     .sub = 3,
     .row_scaled = true}, /* SEQ levels */
    {.name = "ternary", .type = CRUMB_TYPE_I2_S, .bits = 2, .max_code = 2, .mul = 1, .sub = 1, .row_scaled = true},
    {.name = "u1", .type = CRUMB_TYPE_Q1_0, .bits = 1, .max_code = 1, .mul = 2, .sub = 1, .row_scaled = true},
};

/* The row of a spec's part ("llama3-8b", "u2"), or NULL. */
static const synthetic_shape *find_shape(const char *text, size_t n) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strlen(shapes[i].name) == n && memcmp(shapes[i].name, text, n) == 0) return &shapes[i];
    return NULL;
}
static const synthetic_type *find_type(const char *text, size_t n) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == n && memcmp(types[i].name, text, n) == 0) return &types[i];
    return NULL;
}

static crumb_status parse_spec(const char *spec, const synthetic_shape **shape, const synthetic_type **body,
                               const synthetic_type **head, crumb_error *err) {
    const char *colon = strchr(spec, ':'), *second = colon ? strchr(colon + 1, ':') : NULL;
    *shape = find_shape(spec, colon ? (size_t)(colon - spec) : strlen(spec));
    *body = !colon ? NULL : find_type(colon + 1, second ? (size_t)(second - colon - 1) : strlen(colon + 1));
    *head = second ? find_type(second + 1, strlen(second + 1)) : &types[1];
    if (*shape && *body && *head && !(*head)->row_scaled) return CRUMB_OK;
    return crumb_fail(
        err, CRUMB_ERR_ARGUMENT,
        "synthetic model '%s': expected SHAPE:TYPE[:HEAD] with SHAPE falcon3-1b, mobilellm-1.5b, llama3-8b or "
        "bitnet-2b4t, TYPE bf16, i8, mxfp4, u4, u3, u2, ternary or u1, HEAD f16 or i8",
        spec);
}

/* Hands out parts of one memory's allocation; with base NULL it only counts. */
typedef struct carver {
    uint8_t *base;
    uint64_t used;
} carver;

static uint8_t *carve(carver *c, uint64_t n_bytes) {
    uint8_t *p = c->base ? c->base + c->used : NULL;
    c->used += crumb_round_up(n_bytes, 64);
    return p;
}

static crumb_status make_matrix(carver *c, const synthetic_type *t, uint32_t m, uint32_t k, crumb_matrix *matrix,
                                crumb_error *err) {
    crumb_matrix_layout layout;
    if (t->row_scaled) {
        uint64_t tile_rows = crumb_div_up(m, CRUMB_TILE_ROWS), k_padded = crumb_round_up(k, CRUMB_TILE_K);
        *matrix = (crumb_matrix){.type = t->type,
                                 .bits = t->bits,
                                 .max_code = t->max_code,
                                 .scales_f32 = true,
                                 .mul = t->mul,
                                 .sub = t->sub,
                                 .m = m,
                                 .k = k,
                                 .group = (uint32_t)k_padded};
        matrix->codes = carve(c, tile_rows * CRUMB_TILE_ROWS * k_padded * t->bits / 8);
        matrix->scales = carve(c, tile_rows * CRUMB_TILE_ROWS * sizeof(float));
        return CRUMB_OK;
    }
    CRUMB_TRY(crumb_matrix_plan(t->type, m, k, matrix, &layout, err));
    if (t->codebook) {
        matrix->codebook = t->codebook;
        matrix->sub = 0;
    }
    const uint8_t *packed = carve(c, layout.total_bytes);
    if (packed) crumb_matrix_bind(matrix, &layout, packed);
    return CRUMB_OK;
}

static crumb_status make_weight(carver *c, const synthetic_type *t, uint32_t m, uint32_t k, crumb_weight *w,
                                crumb_error *err) {
    w->scale = 1;
    return make_matrix(c, t, m, k, &w->matrix, err);
}

static crumb_status make_layer(carver *c, const synthetic_type *t, const crumb_hparams *h, crumb_layer *l,
                               crumb_error *err) {
    uint32_t q = h->num_attention_heads * h->head_dim, kv = h->num_key_value_heads * h->head_dim;
    uint32_t hidden = h->hidden_size, ff = h->intermediate_size;
    l->attn_norm = (const float *)(const void *)carve(c, hidden * sizeof(float));
    l->ffn_norm = (const float *)(const void *)carve(c, hidden * sizeof(float));
    l->attn_sub_norm = (const float *)(const void *)carve(c, q * sizeof(float));
    l->ffn_sub_norm = (const float *)(const void *)carve(c, ff * sizeof(float));
    CRUMB_TRY(make_weight(c, t, q, hidden, &l->attn_q, err));
    CRUMB_TRY(make_weight(c, t, kv, hidden, &l->attn_k, err));
    CRUMB_TRY(make_weight(c, t, kv, hidden, &l->attn_v, err));
    CRUMB_TRY(make_weight(c, t, hidden, q, &l->attn_output, err));
    CRUMB_TRY(make_weight(c, t, ff, hidden, &l->ffn_gate, err));
    CRUMB_TRY(make_weight(c, t, ff, hidden, &l->ffn_up, err));
    return make_weight(c, t, hidden, ff, &l->ffn_down, err);
}

/* Where a layer's weights lie, the head being the layer behind the last; places NULL: all in the first memory. */
static uint8_t memory_of(const crumb_engine_place *places, uint32_t layer) {
    return places ? places[layer].memory : 0;
}

/* As a file's weights are: the embedding goes with the first layer, and is there twice where it is the output matrix
 * and that lies in the other memory. */
static crumb_status make_network(carver c[CRUMB_WEIGHTS_MEMORIES], const crumb_engine_place *places, crumb_network *net,
                                 const synthetic_type *body, const synthetic_type *head, crumb_error *err) {
    const crumb_hparams *h = &net->hparams;
    const uint32_t n = h->num_hidden_layers;
    carver *of_head = &c[memory_of(places, n)], *of_embedding = &c[memory_of(places, 0)];
    const float *inv_freq[CRUMB_WEIGHTS_MEMORIES] = {NULL, NULL};
    CRUMB_TRY(make_weight(of_head, head, h->vocab_size, h->hidden_size, &net->head, err));
    net->embedding = net->head.matrix;
    if (!net->tied || of_head != of_embedding)
        CRUMB_TRY(make_matrix(of_embedding, head, h->vocab_size, h->hidden_size, &net->embedding, err));
    for (uint32_t i = 0; i < n; i++) CRUMB_TRY(make_layer(&c[memory_of(places, i)], body, h, &net->layers[i], err));
    net->output_norm = (const float *)(const void *)carve(of_head, h->hidden_size * sizeof(float));
    for (int i = 0; i < CRUMB_WEIGHTS_MEMORIES; i++)
        if (c[i].used > 0) inv_freq[i] = (const float *)(const void *)carve(&c[i], h->rope_dims / 2 * sizeof(float));
    for (uint32_t i = 0; i < n; i++) net->layers[i].inv_freq = inv_freq[memory_of(places, i)];
    return CRUMB_OK;
}

/* ---- filling ----------------------------------------------------------------------------------------------- */

typedef struct fill_job {
    uint8_t *base;
    uint64_t n_bytes;
    uint64_t and_mask, or_mask; /* applied to each random word, so that halves are finite and small */
    bool ternary;               /* 2-bit codes of 3 become 2 */
} fill_job;

static const uint64_t fill_chunk = 1u << 20;

static crumb_status fill_one(void *ctx, uint64_t i, crumb_error *err) {
    (void)err;
    const fill_job *job = ctx;
    uint64_t begin = i * fill_chunk, end = begin + fill_chunk < job->n_bytes ? begin + fill_chunk : job->n_bytes;
    uint64_t state = 0x9e3779b97f4a7c15u * (i + 1);
    for (uint64_t at = begin; at + 8 <= end; at += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        uint64_t word = (state & job->and_mask) | job->or_mask;
        if (job->ternary) word &= ~(word >> 1 & 0x5555555555555555u);
        memcpy(job->base + at, &word, 8);
    }
    return CRUMB_OK;
}

static void fill(int n_threads, const fill_job *job) {
    crumb_parallel_for(n_threads, crumb_div_up(job->n_bytes, fill_chunk), fill_one, (void *)(uintptr_t)job, NULL);
}

static void fill_bytes(int n_threads, const void *p, uint64_t n_bytes, uint64_t and_mask, uint64_t or_mask) {
    fill_job job = {(uint8_t *)(uintptr_t)p, n_bytes, and_mask, or_mask, false};
    fill(n_threads, &job);
}

static void fill_codes(int n_threads, const crumb_matrix *w) {
    const bool ternary = w->bits == 2 && w->max_code == 2;
    fill_job job = {(uint8_t *)(uintptr_t)w->codes, crumb_matrix_codes_bytes(w), UINT64_MAX, 0, ternary};
    fill(n_threads, &job);
}

static void fill_floats(const void *p, uint64_t n, float value) {
    float *out = (float *)(uintptr_t)p;
    for (uint64_t i = 0; i < n; i++) out[i] = value;
}

static void fill_matrix(int n_threads, const crumb_matrix *w) {
    uint64_t padded_m = crumb_round_up(w->m, CRUMB_TILE_ROWS), padded_k = crumb_round_up(w->k, CRUMB_TILE_K);
    if (w->bits == 0) { /* +-2^-7 .. 2^-6 */
        bool bf16 = w->type == CRUMB_TYPE_BF16;
        fill_bytes(n_threads, w->codes, (uint64_t)w->m * w->k * 2, bf16 ? 0x807f807f807f807fu : 0x83ff83ff83ff83ffu,
                   bf16 ? 0x3c003c003c003c00u : 0x2000200020002000u);
        return;
    }
    fill_codes(n_threads, w);
    uint64_t n_scales = padded_m * (padded_k / w->group);
    if (w->scales_f32)
        fill_floats(w->scales, n_scales, 0.01f);
    else
        fill_bytes(n_threads, w->scales, n_scales * 2, 0x00ff00ff00ff00ffu, 0x1400140014001400u); /* about 2^-10 */
}

static void fill_network(int n_threads, const crumb_network *net) {
    const crumb_hparams *h = &net->hparams;
    for (uint32_t i = 0; i < h->num_hidden_layers; i++) {
        const crumb_layer *l = &net->layers[i];
        const crumb_weight *weights[] = {&l->attn_q,   &l->attn_k, &l->attn_v,  &l->attn_output,
                                         &l->ffn_gate, &l->ffn_up, &l->ffn_down};
        for (size_t j = 0; j < sizeof weights / sizeof *weights; j++) fill_matrix(n_threads, &weights[j]->matrix);
        fill_floats(l->attn_norm, h->hidden_size, 1);
        fill_floats(l->ffn_norm, h->hidden_size, 1);
        fill_floats(l->attn_sub_norm, h->num_attention_heads * h->head_dim, 1);
        fill_floats(l->ffn_sub_norm, h->intermediate_size, 1);
        if (i == 0 || l->inv_freq != net->layers[i - 1].inv_freq)
            crumb_rope_inv_freq(h, NULL, (float *)(uintptr_t)l->inv_freq);
    }
    fill_matrix(n_threads, &net->head.matrix);
    if (net->embedding.codes != net->head.matrix.codes) fill_matrix(n_threads, &net->embedding);
    fill_floats(net->output_norm, h->hidden_size, 1);
}

/* As a file's weights are, after packing, in the memory of a device that wants it so. */
static void index_matrix(crumb_matrix *w, uint32_t index_bits) {
    if (!w->bits || !crumb_index_wanted(w, index_bits)) return;
    crumb_index_from_tiles(w, (uint8_t *)(uintptr_t)w->codes);
    w->indexed = true;
}

static uint32_t index_bits_of(const crumb_model *m, uint32_t layer) {
    return m->units[m->places[layer].memory].info.index_bits;
}

static void index_network(crumb_model *m) {
    crumb_network *net = &m->net;
    const uint32_t n = net->hparams.num_hidden_layers;
    for (uint32_t i = 0; i < n; i++) {
        crumb_layer *l = &net->layers[i];
        crumb_weight *weights[] = {&l->attn_q,   &l->attn_k, &l->attn_v,  &l->attn_output,
                                   &l->ffn_gate, &l->ffn_up, &l->ffn_down};
        for (size_t j = 0; j < sizeof weights / sizeof *weights; j++)
            index_matrix(&weights[j]->matrix, index_bits_of(m, i));
    }
    if (net->embedding.codes != net->head.matrix.codes) index_matrix(&net->head.matrix, index_bits_of(m, n));
}

/* Commits all of one memory, cut where layers begin: their parts lie one after the other, and no range is too large for
 * one allocation of a device. */
static crumb_status commit_memory(const crumb_model *m, uint8_t memory, const uint8_t *base, uint64_t n_bytes,
                                  crumb_error *err) {
    const crumb_engine_unit *u = &m->units[memory];
    const uint32_t n = m->net.hparams.num_hidden_layers;
    uint64_t begin = 0;
    for (uint32_t i = 0; i <= n; i++) {
        const void *next = i < n ? m->net.layers[i].attn_norm : m->net.output_norm;
        if (m->places[i].memory != memory) continue;
        const uint64_t end = (uint64_t)((const uint8_t *)next - base);
        if (end > begin)
            CRUMB_TRY(u->backend->device.buffer_commit(u->device, u->buffer, begin, end - begin, false, err));
        begin = end;
    }
    return u->backend->device.buffer_commit(u->device, u->buffer, begin, n_bytes - begin, false, err);
}

static crumb_status commit_vector(crumb_model *m, const uint8_t *base, const float *v, uint32_t n, crumb_error *err) {
    const crumb_engine_unit *u = &m->units[0];
    const uint64_t n_bytes = n * sizeof *v;
    m->weight_bytes += n_bytes;
    return u->backend->device.buffer_commit(u->device, u->buffer, (uint64_t)((const uint8_t *)v - base), n_bytes, true,
                                            err);
}

/* Of a model that is divided: the first unit's rows, and what both read. */
static crumb_status commit_divided(crumb_model *m, uint8_t *base, crumb_error *err) {
    const crumb_weights_place place = {.backend = m->units[0].backend,
                                       .device = m->units[0].device,
                                       .buffer = m->units[0].buffer,
                                       .base = base,
                                       .rows = crumb_engine_rows_on_first,
                                       .user = m};
    const crumb_network *net = &m->net;
    const crumb_hparams *h = &net->hparams;
    const crumb_matrix *table = net->tied ? &net->embedding : &net->head.matrix;
    for (uint32_t i = 0; i < h->num_hidden_layers; i++) {
        const crumb_layer *l = &net->layers[i];
        const crumb_weight *weights[] = {&l->attn_q,   &l->attn_k, &l->attn_v,  &l->attn_output,
                                         &l->ffn_gate, &l->ffn_up, &l->ffn_down};
        for (size_t j = 0; j < sizeof weights / sizeof *weights; j++)
            CRUMB_TRY(crumb_weights_commit_rows(&place, &weights[j]->matrix, &m->weight_bytes, err));
        CRUMB_TRY(commit_vector(m, base, l->attn_norm, h->hidden_size, err));
        CRUMB_TRY(commit_vector(m, base, l->ffn_norm, h->hidden_size, err));
        CRUMB_TRY(commit_vector(m, base, l->attn_sub_norm, h->num_attention_heads * h->head_dim, err));
        CRUMB_TRY(commit_vector(m, base, l->ffn_sub_norm, h->intermediate_size, err));
    }
    CRUMB_TRY(commit_vector(m, base, net->layers[0].inv_freq, h->rope_dims / 2, err));
    CRUMB_TRY(commit_vector(m, base, net->output_norm, h->hidden_size, err));
    return crumb_weights_commit_rows(&place, table, &m->weight_bytes, err);
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static void set_hparams(crumb_network *net, const synthetic_shape *s) {
    net->arch = crumb_arch_find(s->architecture);
    net->tied = s->tied;
    net->hparams = (crumb_hparams){.vocab_size = s->vocab,
                                   .hidden_size = s->hidden,
                                   .intermediate_size = s->ff,
                                   .num_hidden_layers = s->layers,
                                   .num_attention_heads = s->heads,
                                   .num_key_value_heads = s->kv_heads,
                                   .head_dim = s->head_dim,
                                   .rope_dims = s->head_dim,
                                   .max_position_embeddings = 131072,
                                   .rms_norm_eps = 1e-5f,
                                   .rope_theta = 500000,
                                   .rope_scaling = {.factor = 1, .attn_factor = 1}};
    snprintf(net->hparams.architecture, sizeof net->hparams.architecture, "%s", s->architecture);
}

static uint64_t count_params(const crumb_network *net) {
    const crumb_hparams *h = &net->hparams;
    uint64_t q = (uint64_t)h->num_attention_heads * h->head_dim, kv = (uint64_t)h->num_key_value_heads * h->head_dim;
    uint64_t layer = h->hidden_size * (2 * q + 2 * kv + 3 * (uint64_t)h->intermediate_size);
    return h->num_hidden_layers * layer + (net->tied ? 1 : 2) * (uint64_t)h->vocab_size * h->hidden_size;
}

/* Makes the network's layers and counts the bytes of all its weights in one memory; net->layers is freed by the caller.
 */
static crumb_status size_network(crumb_network *net, const synthetic_type *body, const synthetic_type *head,
                                 uint64_t *n_bytes, crumb_error *err) {
    carver c[CRUMB_WEIGHTS_MEMORIES] = {0};
    net->layers = calloc(net->hparams.num_hidden_layers, sizeof *net->layers);
    if (!net->layers) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for the layers");
    CRUMB_TRY(make_network(c, NULL, net, body, head, err));
    *n_bytes = c[0].used;
    return CRUMB_OK;
}

typedef struct synthetic_source {
    const char *spec;
    const synthetic_shape *shape;
    const synthetic_type *body, *head;
} synthetic_source;

/* A buffer in each memory that weights go to. */
static crumb_status make_buffers(crumb_model *m, carver c[CRUMB_WEIGHTS_MEMORIES], crumb_error *err) {
    for (size_t i = 0; i < m->n_units; i++) {
        crumb_engine_unit *u = &m->units[i];
        void *base;
        if (!c[i].used) continue;
        CRUMB_TRY(
            u->backend->device.buffer_create(u->device, c[i].used, "the synthetic weights", &u->buffer, &base, err));
        m->weight_bytes += c[i].used;
        c[i] = (carver){.base = base};
    }
    return CRUMB_OK;
}

static crumb_status build(crumb_model *m, const void *source, const crumb_model_params *params, crumb_error *err) {
    const synthetic_source *from = source;
    carver c[CRUMB_WEIGHTS_MEMORIES] = {0};
    uint64_t n_bytes;
    set_hparams(&m->net, from->shape);
    CRUMB_TRY(size_network(&m->net, from->body, from->head, &n_bytes, err));
    CRUMB_TRY(crumb_engine_place_layers(m, params, n_bytes, err));
    CRUMB_TRY(make_network(c, m->places, &m->net, from->body, from->head, err));
    CRUMB_TRY(make_buffers(m, c, err));
    CRUMB_TRY(make_network(c, m->places, &m->net, from->body, from->head, err));
    m->file_bytes = n_bytes;
    fill_network(m->units[0].info.n_threads, &m->net);
    index_network(m);
    if (m->divided) CRUMB_TRY(commit_divided(m, c[0].base, err));
    for (size_t i = 0; i < m->n_units && !m->divided; i++)
        if (c[i].used) CRUMB_TRY(commit_memory(m, (uint8_t)i, c[i].base, c[i].used, err));
    m->n_params = count_params(&m->net);
    crumb_engine_model_describe(m, from->spec);
    snprintf(m->type, sizeof m->type, "%s", from->body->name);
    return CRUMB_OK;
}

static crumb_status make_outline(const char *spec, crumb_network *out, uint64_t *n_bytes, crumb_error *err) {
    const synthetic_shape *shape;
    const synthetic_type *body, *head;
    *out = (crumb_network){.arch = NULL};
    CRUMB_TRY(parse_spec(spec, &shape, &body, &head, err));
    set_hparams(out, shape);
    const crumb_status status = size_network(out, body, head, n_bytes, err);
    if (status == CRUMB_OK) return status;
    free(out->layers);
    out->layers = NULL;
    return status;
}

crumb_status crumb_engine_synthetic_size(const char *spec, crumb_hparams *hparams, uint64_t *n_bytes,
                                         crumb_error *err) {
    crumb_network net;
    const crumb_status status = make_outline(spec, &net, n_bytes, err);
    *hparams = net.hparams;
    free(net.layers);
    return status;
}

crumb_status crumb_engine_synthetic_outline(const char *spec, crumb_network *out, crumb_error *err) {
    uint64_t n_bytes;
    return make_outline(spec, out, &n_bytes, err);
}

static crumb_status outline(const void *source, crumb_network *out, crumb_error *err) {
    return crumb_engine_synthetic_outline(((const synthetic_source *)source)->spec, out, err);
}

crumb_status crumb_model_open_synthetic(const char *spec, const crumb_model_params *params, crumb_model **out,
                                        crumb_error *err) {
    uint64_t start = crumb_now_ns();
    static const crumb_engine_source_kind kind = {.load = build, .outline = outline};
    synthetic_source source = {.spec = spec};
    *out = NULL;
    crumb_model_params p = crumb_engine_model_params(params);
    CRUMB_TRY(parse_spec(spec, &source.shape, &source.body, &source.head, err));
    CRUMB_TRY(crumb_engine_model_open(&p, &kind, &source, out, err));
    return crumb_engine_finish_open(out, NULL, spec, &p, start, err);
}
