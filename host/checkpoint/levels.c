/* Weights that were trained on few levels (ParetoQ: Liu and others, 2025) and are stored as floats: either the weights
 * behind the levels with the learned scale of each row beside them, NAME.weight_clip_val, or the levels themselves.
 * They become codes of the levels, w = unit * code, in types of few bits. */
#include "host/base/file.h"
#include "host/base/half.h"
#include "host/base/memory.h"
#include "host/checkpoint/internal.h"
#include "host/lowbit/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 32, MAX_MAGNITUDES = 8, SIGN_BLOCK = 128, TERNARY_BLOCK = 256 };

typedef enum checkpoint_levels levels;

/* What of -8..8 is a code: in order of bits, which is the order in which what fits several is taken. */
static const struct {
    int low, high; /* the lowest and the highest code */
    bool odd;      /* only odd ones */
} rules[CHECKPOINT_LEVELS_COUNT] = {
    [CHECKPOINT_LEVELS_SIGN] = {-1, 1, true},    [CHECKPOINT_LEVELS_TERNARY] = {-1, 1, false},
    [CHECKPOINT_LEVELS_SEQ] = {-3, 3, true},     [CHECKPOINT_LEVELS_3_BITS] = {-4, 3, false},
    [CHECKPOINT_LEVELS_4_BITS] = {-8, 7, false},
};

static crumb_status fail(const crumb_safetensors *files, const crumb_safetensor *t, crumb_status status,
                         const char *problem, crumb_error *err) {
    return crumb_fail(err, status, "%s: tensor '%.80s': %s", crumb_safetensors_path(files, t), t->name, problem);
}

static bool is_f16(float x) {
    return crumb_f16_to_f32(crumb_f32_to_f16(x)) == x;
}

static void load_row(const crumb_safetensors *files, const crumb_safetensor *t, uint64_t row, float *out) {
    const uint64_t k = t->dims[1], size = t->n_bytes / t->n_values;
    const uint8_t *in = crumb_safetensors_data(files, t) + row * k * size;
    if (t->dtype == CRUMB_DTYPE_F32) {
        memcpy(out, in, k * sizeof *out);
    } else if (t->dtype == CRUMB_DTYPE_BF16) {
        for (uint64_t i = 0; i < k; i++) out[i] = crumb_bf16_to_f32((uint16_t)(in[2 * i] | in[2 * i + 1] << 8));
    } else {
        for (uint64_t i = 0; i < k; i++) out[i] = crumb_f16_to_f32((uint16_t)(in[2 * i] | in[2 * i + 1] << 8));
    }
}

/* ---- weights behind the levels: ParetoQ's rounding, each step in the dtype that PyTorch computes it in -------------
 */

static float rounded(crumb_dtype dtype, float x) {
    if (dtype == CRUMB_DTYPE_BF16) return crumb_bf16_to_f32(crumb_f32_to_bf16(x));
    return dtype == CRUMB_DTYPE_F16 ? crumb_f16_to_f32(crumb_f32_to_f16(x)) : x;
}

static int clamp(float value, int low, int high) {
    return value<(float)low ? low : value>(float) high ? high : (int)value;
}

static int code_behind(levels kind, crumb_dtype dtype, float w, float scale) {
    const float clip = rounded(dtype, 0.99f), part = rounded(dtype, w / scale);
    const float inside = part > clip ? clip : part < -clip ? -clip : part;
    switch (kind) {
    case CHECKPOINT_LEVELS_SIGN: return (w > 0) - (w < 0);
    case CHECKPOINT_LEVELS_TERNARY: return (int)rintf(rounded(dtype, inside * 1.5f));
    case CHECKPOINT_LEVELS_SEQ: return 2 * (int)rintf(rounded(dtype, inside * 2 - 0.5f)) + 1;
    default: return clamp(rintf(part), rules[kind].low, rules[kind].high);
    }
}

/* The scale that a row was trained with, no less than ParetoQ's least one, and the dtype that it computes in. */
static crumb_status scale_of(const crumb_safetensors *files, const checkpoint_tensor *t, uint64_t row, float *scale,
                             crumb_dtype *dtype, crumb_error *err) {
    const crumb_safetensor *s = t->scales;
    const uint64_t i = s->n_values == 1 ? 0 : row;
    *dtype = s->dtype == t->from->dtype ? s->dtype : CRUMB_DTYPE_F32;
    *scale = checkpoint_load_float(s->dtype, crumb_safetensors_data(files, s) + i * (s->n_bytes / s->n_values));
    if (!isfinite(*scale)) return fail(files, s, CRUMB_ERR_FORMAT, "NaN or infinite; the file is damaged", err);
    if (!(*scale > 1e-5f)) *scale = rounded(s->dtype, 1e-5f);
    return CRUMB_OK;
}

static float unit_of_scale(levels kind, crumb_dtype dtype, float scale) {
    if (kind == CHECKPOINT_LEVELS_SEQ) return scale / 4;
    return kind == CHECKPOINT_LEVELS_TERNARY ? rounded(dtype, rounded(dtype, 1 / 1.5f) * scale) : scale;
}

/* ---- levels as weights ----------------------------------------------------------------------------------------- */

typedef struct magnitudes {
    int n;
    float of[MAX_MAGNITUDES];
    bool positive[MAX_MAGNITUDES]; /* whether a weight above zero has it */
    bool zero;                     /* there is a weight of zero */
} magnitudes;

/* Marks in `seen` which of a block's weights have a magnitude; whether one of them is above zero. */
static bool mark(const float w[restrict BLOCK], uint32_t seen[restrict BLOCK], float magnitude) {
    uint32_t above = 0;
    for (int i = 0; i < BLOCK; i++) {
        const uint32_t up = w[i] == magnitude, down = w[i] == -magnitude;
        seen[i] |= up | down;
        above |= up;
    }
    return above;
}

/* False where a row has more magnitudes than 4 bits have, or one that is no number. seen: [k]. The row is gone through
 * once for each magnitude: that goes by several weights at once, and no branch depends on a single one. */
static bool collect(const float *w, uint64_t k, uint32_t *seen, magnitudes *out) {
    *out = (magnitudes){0};
    memset(seen, 0, k * sizeof *seen);
    for (uint64_t i = 0; i < k; i += BLOCK) out->zero |= mark(w + i, seen + i, 0);
    for (uint64_t at = 0;; out->n++) {
        while (at < k && seen[at]) at++;
        if (at == k) return true;
        const float magnitude = fabsf(w[at]);
        if (out->n == MAX_MAGNITUDES || !isfinite(magnitude)) return false;
        out->of[out->n] = magnitude;
        for (uint64_t i = 0; i < k; i += BLOCK) out->positive[out->n] |= mark(w + i, seen + i, magnitude);
    }
}

/* How far a stored value may be off what was rounded to it. */
static double half_step(crumb_dtype dtype, float value) {
    const int bits = dtype == CRUMB_DTYPE_BF16 ? 8 : dtype == CRUMB_DTYPE_F16 ? 11 : 24;
    int exponent;
    frexpf(value, &exponent);
    if (dtype == CRUMB_DTYPE_F16 && exponent < -13) exponent = -13; /* subnormal */
    return ldexp(0.5, exponent - bits);
}

/* The number of fewest bits from low to high: it is an f16 where one lies there. */
static float shortest_between(double low, double high) {
    for (int bits = 1; bits < 24; bits++) {
        int exponent;
        const double middle = frexp((low + high) / 2, &exponent);
        const double x = ldexp(rint(ldexp(middle, bits)), exponent - bits);
        if (x >= low && x <= high) return (float)x;
    }
    return (float)((low + high) / 2);
}

/* Whether all magnitudes are multiples that the rule allows of one unit, the smallest magnitude being `first` times it.
 */
static bool fits_from(levels kind, const magnitudes *m, crumb_dtype dtype, float least, int first, float *unit) {
    double low = 0, high = INFINITY;
    for (int i = 0; i < m->n; i++) {
        const double value = (double)m->of[i], off = half_step(dtype, m->of[i]);
        const double multiple = rint(value * first / (double)least);
        if (multiple > -rules[kind].low || (m->positive[i] && multiple > rules[kind].high)) return false;
        if (rules[kind].odd && (int)multiple % 2 == 0) return false;
        low = fmax(low, (value - off) / multiple);
        high = fmin(high, (value + off) / multiple);
    }
    if (low > high) return false;
    *unit = shortest_between(low, high);
    return true;
}

static bool fits(levels kind, const magnitudes *m, crumb_dtype dtype, float *unit) {
    float least = INFINITY;
    *unit = 0;
    if (m->n == 0) return true; /* zero times anything */
    if (m->zero && rules[kind].odd) return false;
    for (int i = 0; i < m->n; i++) least = m->of[i] < least ? m->of[i] : least;
    for (int first = 1; first <= -rules[kind].low; first++)
        if (fits_from(kind, m, dtype, least, first, unit)) return true;
    return false;
}

/* ---- what a tensor becomes -------------------------------------------------------------------------------------- */

/* What is found out about all rows. */
typedef struct survey {
    crumb_safetensors *files;
    checkpoint_tensor *t;
    float *row;                   /* [k] */
    uint32_t *seen;               /* [k] */
    bool on_levels, halves, zero; /* units are f16; there is a weight of zero */
} survey;

/* One unit of each row. Runs inside crumb_file_guard. */
static crumb_status survey_behind(void *ctx, crumb_error *err) {
    survey *s = ctx;
    for (uint64_t m = 0; m < s->t->m; m++) {
        crumb_dtype dtype;
        float scale;
        CRUMB_TRY(scale_of(s->files, s->t, m, &scale, &dtype, err));
        s->halves = s->halves && is_f16(unit_of_scale(s->t->levels, dtype, scale));
        if (s->t->levels != CHECKPOINT_LEVELS_SIGN || s->zero) continue;
        load_row(s->files, s->t->from, m, s->row);
        for (uint64_t i = 0; i < s->t->k; i++) s->zero = s->zero || s->row[i] == 0;
    }
    s->on_levels = true;
    return CRUMB_OK;
}

/* The first kind of levels that all rows are on. Runs inside crumb_file_guard. */
static crumb_status survey_levels(void *ctx, crumb_error *err) {
    survey *s = ctx;
    bool fit[CHECKPOINT_LEVELS_COUNT], any = false, halves[CHECKPOINT_LEVELS_COUNT];
    (void)err;
    for (int kind = 0; kind < CHECKPOINT_LEVELS_COUNT; kind++) fit[kind] = halves[kind] = true;
    for (uint64_t row = 0; row < s->t->m; row++) {
        magnitudes m;
        float unit;
        load_row(s->files, s->t->from, row, s->row);
        if (!collect(s->row, s->t->k, s->seen, &m)) return CRUMB_OK;
        if (m.n == 0) continue; /* it says nothing, and fits everything but a sign */
        any = true;
        for (int kind = 0; kind < CHECKPOINT_LEVELS_COUNT; kind++) {
            fit[kind] = fit[kind] && fits((levels)kind, &m, s->t->from->dtype, &unit);
            halves[kind] = halves[kind] && fit[kind] && is_f16(unit);
        }
    }
    for (int kind = 0; kind < CHECKPOINT_LEVELS_COUNT && any && !s->on_levels; kind++)
        if (fit[kind]) s->on_levels = true, s->halves = halves[kind], s->t->levels = (levels)kind;
    return CRUMB_OK;
}

static crumb_type type_for(const survey *s) {
    static const crumb_type of_bits[] = {[CHECKPOINT_LEVELS_SIGN] = CRUMB_TYPE_INT2,
                                         [CHECKPOINT_LEVELS_TERNARY] = CRUMB_TYPE_INT2,
                                         [CHECKPOINT_LEVELS_SEQ] = CRUMB_TYPE_INT2,
                                         [CHECKPOINT_LEVELS_3_BITS] = CRUMB_TYPE_INT3,
                                         [CHECKPOINT_LEVELS_4_BITS] = CRUMB_TYPE_INT4};
    const levels kind = s->t->levels;
    if (kind == CHECKPOINT_LEVELS_SIGN && s->halves && !s->zero && s->t->k % SIGN_BLOCK == 0) return CRUMB_TYPE_Q1_0;
    if (kind == CHECKPOINT_LEVELS_TERNARY && s->halves && s->t->k % TERNARY_BLOCK == 0) return CRUMB_TYPE_TQ2_0;
    return of_bits[kind];
}

static crumb_status check_scales(const crumb_safetensors *files, const checkpoint_tensor *t, crumb_error *err) {
    const crumb_dtype dtype = t->scales->dtype;
    if (dtype != CRUMB_DTYPE_F16 && dtype != CRUMB_DTYPE_BF16 && dtype != CRUMB_DTYPE_F32)
        return fail(files, t->scales, CRUMB_ERR_FORMAT, "scales should be F32, F16 or BF16", err);
    if (t->scales->n_values != t->m && t->scales->n_values != 1)
        return fail(files, t->scales, CRUMB_ERR_FORMAT, "neither one scale for each row of the weights nor one for all",
                    err);
    return CRUMB_OK;
}

crumb_status checkpoint_levels_plan(crumb_safetensors *files, checkpoint_tensor *t, crumb_gguf_tensor *d, bool *found,
                                    crumb_error *err) {
    survey s = {.files = files, .t = t, .halves = true};
    *found = false;
    t->m = t->from->dims[0];
    t->k = t->from->dims[1];
    if (t->scales && t->k % BLOCK != 0)
        return fail(files, t->from, CRUMB_ERR_UNSUPPORTED, "its rows are not whole blocks of 32 weights", err);
    if (t->k % BLOCK != 0) return CRUMB_OK;
    if (t->scales) CRUMB_TRY(check_scales(files, t, err));
    CRUMB_TRY(crumb_calloc(t->k, sizeof *s.row + sizeof *s.seen, "a row of weights", (void **)&s.row, err));
    s.seen = (uint32_t *)(s.row + t->k);
    const crumb_status status =
        crumb_file_guard(crumb_safetensors_path(files, t->from), t->scales ? survey_behind : survey_levels, &s, err);
    free(s.row);
    CRUMB_TRY(status);
    if (!s.on_levels) return CRUMB_OK;
    *found = true;
    t->kind = CHECKPOINT_LEVELS;
    d->type = t->becomes = type_for(&s);
    d->type_id = UINT32_MAX;
    crumb_type_gguf_id(d->type, &d->type_id, NULL); /* INT2 and so on have none */
    d->dims[0] = t->k;
    d->dims[1] = t->m;
    return CRUMB_OK;
}

/* ---- making ----------------------------------------------------------------------------------------------------- */

/* Room for one row. */
typedef struct room {
    float *w;
    uint32_t *seen;
    int8_t *codes;
} room;

/* A row's codes and unit, from its weights. */
static crumb_status code_row(const crumb_safetensors *files, const checkpoint_tensor *t, uint64_t row, const room *r,
                             float *unit, crumb_error *err) {
    magnitudes m;
    crumb_dtype dtype;
    float scale;
    if (t->scales) {
        for (uint64_t i = 0; i < t->k; i++)
            if (!isfinite(r->w[i]))
                return fail(files, t->from, CRUMB_ERR_FORMAT, "a weight is NaN or infinite; the file is damaged", err);
        CRUMB_TRY(scale_of(files, t, row, &scale, &dtype, err));
        *unit = unit_of_scale(t->levels, dtype, scale);
        for (uint64_t i = 0; i < t->k; i++) r->codes[i] = (int8_t)code_behind(t->levels, dtype, r->w[i], scale);
        return CRUMB_OK;
    }
    if (!collect(r->w, t->k, r->seen, &m) || !fits(t->levels, &m, t->from->dtype, unit))
        return fail(files, t->from, CRUMB_ERR_FORMAT, "it has changed since it was opened", err);
    if (m.n == 0) {
        memset(r->codes, rules[t->levels].odd, t->k);
        return CRUMB_OK;
    }
    for (uint64_t i = 0; i < t->k; i++) {
        const float code = r->w[i] / *unit;
        r->codes[i] = (int8_t)(int)(code + (code < 0 ? -0.5f : 0.5f));
    }
    return CRUMB_OK;
}

/* 32 codes of INT2, INT3 or INT4. Stretched ones are 2 * (u - 2) + 1, so that the step is two units and the min one. */
static void put_block(const checkpoint_tensor *t, const int8_t *codes, float unit, uint8_t *out) {
    const crumb_type_info *info = crumb_type_get_info(t->becomes);
    const bool stretched = t->levels == CHECKPOINT_LEVELS_SEQ;
    const float step = stretched ? 2 * unit : unit, min = stretched ? unit : 0;
    uint8_t u[BLOCK];
    for (int i = 0; i < BLOCK; i++) u[i] = (uint8_t)((stretched ? (codes[i] - 1) / 2 : codes[i]) + info->sub);
    memcpy(out, &step, 4);
    memcpy(out + 4, &min, 4);
    checkpoint_put_codes(u, info->bits, out + info->codes_offset);
}

static void put_row(const checkpoint_tensor *t, const room *r, float unit, uint8_t *out) {
    const crumb_type_info *info = crumb_type_get_info(t->becomes);
    if (info->scale_kind == CRUMB_SCALE_F32) {
        for (uint64_t i = 0; i < t->k; i += BLOCK, out += info->block_bytes) put_block(t, r->codes + i, unit, out);
        return;
    }
    for (uint64_t i = 0; i < t->k; i++) r->w[i] = unit * (float)r->codes[i];
    crumb_type_encode_row(t->becomes, t->becomes == CRUMB_TYPE_TQ2_0 ? CRUMB_ENCODE_ABSMEAN : CRUMB_ENCODE_RTN, r->w,
                          t->k, unit, out);
}

crumb_status checkpoint_levels_make(crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                                    crumb_error *err) {
    const uint64_t row_bytes = crumb_type_row_bytes(t->becomes, t->k);
    crumb_status status = CRUMB_OK;
    room r;
    CRUMB_TRY(
        crumb_calloc(t->k, sizeof *r.w + sizeof *r.seen + sizeof *r.codes, "a row of weights", (void **)&r.w, err));
    r.seen = (uint32_t *)(r.w + t->k);
    r.codes = (int8_t *)(r.seen + t->k);
    for (uint64_t m = 0; m < t->m && status == CRUMB_OK; m++) {
        const uint64_t row = checkpoint_row_from(t, t->m, m);
        float unit = 0;
        load_row(files, t->from, row, r.w);
        status = code_row(files, t, row, &r, &unit, err);
        if (status == CRUMB_OK) put_row(t, &r, unit, out + m * row_bytes);
    }
    free(r.w);
    return status;
}
