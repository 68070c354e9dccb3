#include "tests/kernels/mini_model.h"

#include "host/base/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}
static float uniform(uint32_t *state, float low, float high) {
    return low + (high - low) * (float)next(state) / 16777216.0f;
}
static void fill(uint32_t *state, float *out, size_t n, float low, float high) {
    for (size_t i = 0; i < n; i++) out[i] = uniform(state, low, high);
}

/* ---- weights ----------------------------------------------------------------------------------------------- */

static void put_half(uint8_t *to, float value) {
    uint16_t half = crumb_f32_to_f16(value);
    memcpy(to, &half, 2);
}

/* Random tensor bytes: any code is valid in these types; scales must be finite and of a sensible size. */
static uint8_t *random_tensor(uint32_t *state, crumb_type type, uint64_t m, uint64_t k, uint64_t *n_bytes) {
    crumb_error err;
    assert_int_equal(crumb_type_tensor_bytes(type, m, k, n_bytes, &err), CRUMB_OK);
    uint8_t *bytes = malloc(*n_bytes);
    const crumb_type_info *info = crumb_type_get_info(type);
    for (uint64_t i = 0; i < *n_bytes; i++) bytes[i] = (uint8_t)next(state);
    float size = 1.0f / sqrtf((float)k);
    uint64_t n = m * k / info->block;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *block = bytes + i * info->block_bytes;
        float weight = uniform(state, -1.7f, 1.7f) * size;
        if (type == CRUMB_TYPE_F32) memcpy(block, &weight, 4);
        if (type == CRUMB_TYPE_F16) put_half(block, weight);
        if (type == CRUMB_TYPE_BF16) memcpy(block, &(uint16_t){crumb_f32_to_bf16(weight)}, 2);
        if (type == CRUMB_TYPE_Q4_0 || type == CRUMB_TYPE_Q4_1) put_half(block, weight / 8);
        if (type == CRUMB_TYPE_Q4_1) put_half(block + 2, -weight);
        if (type == CRUMB_TYPE_Q8_0 || type == CRUMB_TYPE_IQ4_NL) put_half(block, weight / 128);
        if (type == CRUMB_TYPE_TQ2_0) {
            for (int j = 0; j < 64; j++) block[j] &= (uint8_t)~(block[j] >> 1 & 0x55); /* no code 3 */
            put_half(block + 64, weight);
        }
    }
    return bytes;
}

void mini_weights_create(uint32_t *state, crumb_type type, uint32_t m, uint32_t k, mini_weights *out) {
    crumb_error err = {0};
    crumb_matrix_layout layout;
    uint64_t n_bytes;
    uint8_t *tensor = random_tensor(state, type, m, k, &n_bytes);
    if (crumb_matrix_plan(type, m, k, &out->matrix, &layout, &err) != CRUMB_OK) fail_msg("%s", err.message);
    out->memory = aligned_alloc(64, (layout.total_bytes + 63) / 64 * 64);
    if (crumb_matrix_pack(type, tensor, &out->matrix, &layout, out->memory, 0, (m + 15) / 16, &err) != CRUMB_OK)
        fail_msg("%s", err.message);
    crumb_matrix_bind(&out->matrix, &layout, out->memory);
    free(tensor);
}

/* ---- ops --------------------------------------------------------------------------------------------------- */

enum { H, NORMED, Q, K, V, ATTENDED, GATE, UP, SUB, LAST, LAST_NORMED, LOGITS, N_VALUES };

static crumb_op *add(mini_model *m, crumb_op_kind kind, unsigned layer) {
    crumb_op *op = &m->ops[m->n_ops++];
    op->kind = kind;
    op->layer = (uint16_t)layer;
    return op;
}

static void add_norm(mini_model *m, unsigned layer, crumb_value x, crumb_value out, const float *weight) {
    crumb_op *op = add(m, CRUMB_OP_RMS_NORM, layer);
    op->norm.x = x;
    op->norm.out = out;
    op->norm.weight = weight;
    op->norm.eps = 1e-5f;
}

static crumb_op *add_linear(mini_model *m, unsigned layer, crumb_value x, crumb_value residual, crumb_act_quant act) {
    crumb_op *op = add(m, CRUMB_OP_LINEAR, layer);
    op->linear.x = x;
    op->linear.add = residual;
    op->linear.act = act;
    op->linear.act_group = 32;
    return op;
}

static void add_part(crumb_op *op, const mini_weights *w, crumb_value out) {
    op->linear.part[op->linear.n_parts++] =
        (crumb_linear_part){.w = &w->matrix, .m1 = w->matrix.m, .out = out, .out_scale = 1};
}

static void add_attention(mini_model *m, unsigned layer, crumb_act_quant act) {
    mini_layer *l = &m->layers[layer];
    add_norm(m, layer, H, NORMED, l->attention_norm);
    crumb_op *op = add_linear(m, layer, NORMED, CRUMB_NO_VALUE, act);
    add_part(op, &l->q, Q);
    add_part(op, &l->k, K);
    add_part(op, &l->v, V);
    op->linear.part[0].bias = l->q_bias;
    op = add(m, CRUMB_OP_ROPE, layer);
    op->rope.q = Q;
    op->rope.k = K;
    op->rope.n_head = MINI_HEADS;
    op->rope.n_head_kv = MINI_KV_HEADS;
    op->rope.head_dim = MINI_DIM;
    op->rope.dims = layer == 0 ? MINI_DIM : MINI_DIM - 4;
    op->rope.pairing = l->pairing;
    op->rope.inv_freq = m->inv_freq;
    op->rope.magnitude = 1;
    op = add(m, CRUMB_OP_ATTENTION, layer);
    op->attention.q = Q;
    op->attention.k = K;
    op->attention.v = V;
    op->attention.out = ATTENDED;
    op->attention.kv_layer = layer;
    op->attention.n_head = MINI_HEADS;
    op->attention.n_head_kv = MINI_KV_HEADS;
    op->attention.head_dim = MINI_DIM;
    op->attention.scale = 1.0f / sqrtf(MINI_DIM);
    op = add_linear(m, layer, ATTENDED, H, act);
    add_part(op, &l->o, H);
    op->linear.part[0].out_scale = l->out_scale;
}

static void add_ff(mini_model *m, unsigned layer, crumb_act_quant act) {
    mini_layer *l = &m->layers[layer];
    add_norm(m, layer, H, NORMED, l->ff_norm);
    crumb_op *op = add_linear(m, layer, NORMED, CRUMB_NO_VALUE, act);
    add_part(op, &l->gate, GATE);
    add_part(op, &l->up, UP);
    op = add(m, CRUMB_OP_GATED, layer);
    op->gated.gate = GATE;
    op->gated.up = UP;
    op->gated.out = GATE;
    op->gated.fn = l->fn;
    if (l->has_sub_norm) add_norm(m, layer, GATE, SUB, l->sub_norm);
    op = add_linear(m, layer, l->has_sub_norm ? SUB : GATE, H, act);
    add_part(op, &l->down, H);
}

static void make_ops(mini_model *m, crumb_act_quant act) {
    static const uint32_t widths[N_VALUES] = {
        [H] = MINI_HIDDEN,
        [NORMED] = MINI_HIDDEN,
        [Q] = MINI_HEADS * MINI_DIM,
        [K] = MINI_KV_HEADS * MINI_DIM,
        [V] = MINI_KV_HEADS * MINI_DIM,
        [ATTENDED] = MINI_HEADS * MINI_DIM,
        [GATE] = MINI_FF,
        [UP] = MINI_FF,
        [SUB] = MINI_FF,
        [LAST] = MINI_HIDDEN,
        [LAST_NORMED] = MINI_HIDDEN,
        [LOGITS] = MINI_VOCAB,
    };
    /* Values that are never alive together share a slot. */
    static const uint32_t slots[N_VALUES] = {
        [H] = 0,    [NORMED] = 1, [Q] = 2,   [K] = 3,    [V] = 4,           [ATTENDED] = 1,
        [GATE] = 2, [UP] = 5,     [SUB] = 1, [LAST] = 3, [LAST_NORMED] = 1, [LOGITS] = 6};
    for (size_t i = 0; i < N_VALUES; i++) m->values[i] = (crumb_value_info){.width = widths[i], .slot = slots[i]};
    m->n_values = N_VALUES;
    m->logits = LOGITS;
    m->folded = NORMED;
    crumb_op *op = add(m, CRUMB_OP_EMBED, 0);
    op->embed.table = &m->embedding.matrix;
    op->embed.out = H;
    op->embed.scale = 1.5f;
    for (unsigned i = 0; i < MINI_LAYERS; i++) {
        add_attention(m, i, act);
        add_ff(m, i, act);
    }
    op = add(m, CRUMB_OP_SELECT, MINI_LAYERS);
    op->select.x = H;
    op->select.out = LAST;
    add_norm(m, MINI_LAYERS, LAST, LAST_NORMED, m->final_norm);
    add_part(add_linear(m, MINI_LAYERS, LAST_NORMED, CRUMB_NO_VALUE, act), &m->head, LOGITS);
}

void mini_create(mini_model *m, crumb_act_quant act, crumb_type v, uint32_t seed, uint32_t n_sequences,
                 uint32_t n_ctx) {
    memset(m, 0, sizeof *m);
    uint32_t s = seed;
    /* Per row: the types that have one scale per row of activations; a mixture otherwise. */
    bool row = act == CRUMB_ACT_ROW;
    crumb_type small = row ? CRUMB_TYPE_Q8_0 : CRUMB_TYPE_Q4_0, other = row ? CRUMB_TYPE_F32 : CRUMB_TYPE_Q4_1;
    mini_weights_create(&s, CRUMB_TYPE_F16, MINI_VOCAB, MINI_HIDDEN, &m->embedding);
    mini_weights_create(&s, row ? CRUMB_TYPE_Q8_0 : CRUMB_TYPE_F16, MINI_VOCAB, MINI_HIDDEN, &m->head);
    for (int i = 0; i < MINI_LAYERS; i++) {
        mini_layer *l = &m->layers[i];
        mini_weights_create(&s, small, MINI_HEADS * MINI_DIM, MINI_HIDDEN, &l->q);
        mini_weights_create(&s, other, MINI_KV_HEADS * MINI_DIM, MINI_HIDDEN, &l->k);
        mini_weights_create(&s, v, MINI_KV_HEADS * MINI_DIM, MINI_HIDDEN, &l->v);
        mini_weights_create(&s, CRUMB_TYPE_F32, MINI_HIDDEN, MINI_HEADS * MINI_DIM, &l->o);
        mini_weights_create(&s, small, MINI_FF, MINI_HIDDEN, &l->gate);
        mini_weights_create(&s, small, MINI_FF, MINI_HIDDEN, &l->up);
        mini_weights_create(&s, row ? CRUMB_TYPE_TQ2_0 : CRUMB_TYPE_Q8_0, MINI_HIDDEN, MINI_FF, &l->down);
        fill(&s, l->attention_norm, MINI_HIDDEN, 0.5f, 1.5f);
        fill(&s, l->ff_norm, MINI_HIDDEN, 0.5f, 1.5f);
        fill(&s, l->sub_norm, MINI_FF, 0.5f, 1.5f);
        fill(&s, l->q_bias, MINI_HEADS * MINI_DIM, -0.5f, 0.5f);
        l->pairing = i % 2 ? CRUMB_ROPE_HALVES : CRUMB_ROPE_NORMAL;
        l->fn = i % 2 ? CRUMB_ACT_FN_RELU2 : CRUMB_ACT_FN_SILU;
        l->has_sub_norm = i % 2;
        l->out_scale = i % 2 ? 0.75f : 1.0f;
    }
    fill(&s, m->final_norm, MINI_HIDDEN, 0.5f, 1.5f);
    for (int i = 0; i < MINI_DIM / 2; i++) m->inv_freq[i] = powf(10000.0f, -2.0f * (float)i / MINI_DIM);
    m->kv = (crumb_kv_params){.n_layers = MINI_LAYERS,
                              .n_sequences = n_sequences,
                              .n_ctx = n_ctx,
                              .n_head_kv = MINI_KV_HEADS,
                              .head_dim = MINI_DIM};
    make_ops(m, act);
}

void mini_destroy(mini_model *m) {
    free(m->embedding.memory);
    free(m->head.memory);
    for (int i = 0; i < MINI_LAYERS; i++) {
        mini_layer *l = &m->layers[i];
        mini_weights *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++) free(all[j]->memory);
    }
}

/* ---- in double --------------------------------------------------------------------------------------------- */

static void multiply(const mini_weights *w, const double *x, double *out) {
    float row[MINI_FF];
    for (uint32_t i = 0; i < w->matrix.m; i++) {
        crumb_matrix_row_to_f32(&w->matrix, i, row);
        out[i] = 0;
        for (uint32_t j = 0; j < w->matrix.k; j++) out[i] += (double)row[j] * x[j];
    }
}

static void normalize(const double *x, const float *weight, uint32_t n, double *out) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++) out[i] = x[i] / sqrt(sum / n + 1e-5) * (double)weight[i];
}

static void rotate(double *head, const mini_model *m, uint32_t position, uint32_t dims, crumb_rope_pairing pairing) {
    for (uint32_t i = 0; i < dims / 2; i++) {
        double angle = position * (double)m->inv_freq[i];
        double *a = pairing == CRUMB_ROPE_NORMAL ? head + 2 * i : head + i;
        double *b = pairing == CRUMB_ROPE_NORMAL ? a + 1 : a + dims / 2, x = *a, y = *b;
        *a = x * cos(angle) - y * sin(angle);
        *b = x * sin(angle) + y * cos(angle);
    }
}

static double as_half(double x) {
    return (double)crumb_f16_to_f32(crumb_f32_to_f16((float)x));
}

/* Eight values at a time by the Hadamard matrix of order 8: the largest power of 2 that divides MINI_DIM. */
static void turn(double *x, double factor) {
    for (uint32_t i = 0; i < MINI_DIM; i += 8) {
        double from[8];
        memcpy(from, x + i, sizeof from);
        for (uint32_t j = 0; j < 8; j++) {
            x[i + j] = 0;
            for (uint32_t k = 0; k < 8; k++) x[i + j] += __builtin_popcount(j & k) % 2 ? -from[k] : from[k];
            x[i + j] *= factor;
        }
    }
}

/* A head's key or value as the cache keeps it. */
static void round_as_stored(crumb_kv_type type, bool key, double *x) {
    for (uint32_t d = 0; d < MINI_DIM && type == CRUMB_KV_F16; d++) x[d] = as_half(x[d]);
    if (type == CRUMB_KV_F16) return;
    if (key) turn(x, 1);
    double most = 0;
    for (uint32_t d = 0; d < MINI_DIM; d++) most = fmax(most, fabs(x[d])); /* one group: MINI_DIM is below 32 */
    double step = as_half(most / 127);
    for (uint32_t d = 0; d < MINI_DIM; d++) x[d] = fmax(-127, fmin(127, rint(x[d] / step))) * step;
    if (key) turn(x, 1.0 / 8);
}

/* keys, values: [position][MINI_KV_HEADS][MINI_DIM] */
static void attend(const double *q, const double *keys, const double *values, uint32_t position, double *out) {
    const uint32_t width = MINI_KV_HEADS * MINI_DIM;
    double *p = malloc((position + 1) * sizeof *p);
    for (uint32_t h = 0; h < MINI_HEADS; h++) {
        uint32_t head = h / (MINI_HEADS / MINI_KV_HEADS) * MINI_DIM;
        double sum = 0, max = -1e300;
        for (uint32_t j = 0; j <= position; j++) {
            p[j] = 0;
            for (uint32_t d = 0; d < MINI_DIM; d++) p[j] += q[h * MINI_DIM + d] * keys[j * width + head + d];
            p[j] /= sqrt(MINI_DIM);
            max = fmax(max, p[j]);
        }
        for (uint32_t j = 0; j <= position; j++) sum += p[j] = exp(p[j] - max);
        for (uint32_t d = 0; d < MINI_DIM; d++) {
            double o = 0;
            for (uint32_t j = 0; j <= position; j++) o += p[j] / sum * values[j * width + head + d];
            out[h * MINI_DIM + d] = o;
        }
    }
    free(p);
}

static void evaluate_layer(const mini_model *m, unsigned layer, uint32_t position, double *keys, double *values,
                           double *h) {
    const mini_layer *l = &m->layers[layer];
    const uint32_t width = MINI_KV_HEADS * MINI_DIM, dims = layer == 0 ? MINI_DIM : MINI_DIM - 4;
    double x[MINI_FF], q[MINI_HEADS * MINI_DIM], o[MINI_HEADS * MINI_DIM], gate[MINI_FF], up[MINI_FF];
    double *k = keys + position * width, *v = values + position * width;
    normalize(h, l->attention_norm, MINI_HIDDEN, x);
    multiply(&l->q, x, q);
    multiply(&l->k, x, k);
    multiply(&l->v, x, v);
    for (uint32_t i = 0; i < MINI_HEADS * MINI_DIM; i++) q[i] += (double)l->q_bias[i];
    for (uint32_t i = 0; i < MINI_HEADS; i++) rotate(q + i * MINI_DIM, m, position, dims, l->pairing);
    for (uint32_t i = 0; i < MINI_KV_HEADS; i++) rotate(k + i * MINI_DIM, m, position, dims, l->pairing);
    for (uint32_t i = 0; i < width; i += MINI_DIM) {
        round_as_stored(m->kv.type, true, k + i);
        round_as_stored(m->kv.type, false, v + i);
    }
    attend(q, keys, values, position, o);
    multiply(&l->o, o, x);
    for (uint32_t i = 0; i < MINI_HIDDEN; i++) h[i] += x[i] * (double)l->out_scale;
    normalize(h, l->ff_norm, MINI_HIDDEN, x);
    multiply(&l->gate, x, gate);
    multiply(&l->up, x, up);
    for (uint32_t i = 0; i < MINI_FF; i++) {
        double g = gate[i];
        x[i] = (l->fn == CRUMB_ACT_FN_SILU ? g / (1 + exp(-g)) : g > 0 ? g * g : 0) * up[i];
    }
    if (l->has_sub_norm) normalize(x, l->sub_norm, MINI_FF, x);
    multiply(&l->down, x, gate);
    for (uint32_t i = 0; i < MINI_HIDDEN; i++) h[i] += gate[i];
}

void mini_evaluate(const mini_model *m, const int32_t *tokens, uint32_t n_tokens, double *logits) {
    size_t per_layer = (size_t)n_tokens * MINI_KV_HEADS * MINI_DIM;
    double *cache = calloc(2 * MINI_LAYERS * per_layer, sizeof *cache);
    for (uint32_t t = 0; t < n_tokens; t++) {
        float row[MINI_HIDDEN];
        double h[MINI_HIDDEN], x[MINI_HIDDEN];
        crumb_matrix_row_to_f32(&m->embedding.matrix, (uint64_t)tokens[t], row);
        for (uint32_t i = 0; i < MINI_HIDDEN; i++) h[i] = (double)row[i] * 1.5;
        for (unsigned l = 0; l < MINI_LAYERS; l++)
            evaluate_layer(m, l, t, cache + 2 * l * per_layer, cache + (2 * l + 1) * per_layer, h);
        normalize(h, m->final_norm, MINI_HIDDEN, x);
        multiply(&m->head, x, logits + (size_t)t * MINI_VOCAB);
    }
    free(cache);
}
