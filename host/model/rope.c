#include "host/model/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- keys ---------------------------------------------------------------------------------------------------- */

typedef struct key_name {
    char text[96];
} key_name;

static key_name scaling_key(const crumb_hparams *h, const char *suffix) {
    key_name k;
    snprintf(k.text, sizeof k.text, "%s.rope.scaling.%s", h->architecture, suffix);
    return k;
}

static bool equals(crumb_bytes text, const char *word) {
    return text.size == strlen(word) && memcmp(text.data, word, text.size) == 0;
}

static crumb_status check(const crumb_hparams *h, const char *suffix, float value, crumb_error *err) {
    if (value > 0 && isfinite(value)) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s': %g is not sensible", scaling_key(h, suffix).text,
                      (double)value);
}

static crumb_status read_yarn(const crumb_gguf *g, const crumb_hparams *h, crumb_rope_scaling *s, crumb_error *err) {
    const struct {
        const char *suffix;
        float *value;
    } numbers[] = {{"yarn_beta_fast", &s->beta_fast}, {"yarn_beta_slow", &s->beta_slow}};
    s->yarn = true;
    s->original_context = h->max_position_embeddings;
    s->beta_fast = 32;
    s->beta_slow = 1;
    const key_name context = scaling_key(h, "original_context_length");
    CRUMB_TRY(crumb_gguf_get_u32(g, context.text, false, &s->original_context, err));
    if (s->original_context == 0) return crumb_fail(err, CRUMB_ERR_FORMAT, "key '%s' is 0", context.text);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        CRUMB_TRY(crumb_gguf_get_f32(g, scaling_key(h, numbers[i].suffix).text, false, numbers[i].value, err));
        CRUMB_TRY(check(h, numbers[i].suffix, *numbers[i].value, err));
    }
    return CRUMB_OK;
}

crumb_status crumb_rope_scaling_read(const crumb_gguf *g, const crumb_hparams *h, crumb_rope_scaling *out,
                                     crumb_error *err) {
    const key_name type_key = scaling_key(h, "type");
    crumb_bytes type = {"none", 4};
    *out = (crumb_rope_scaling){.factor = 1, .attn_factor = 1};
    CRUMB_TRY(crumb_gguf_get_f32(g, scaling_key(h, "attn_factor").text, false, &out->attn_factor, err));
    CRUMB_TRY(check(h, "attn_factor", out->attn_factor, err));
    CRUMB_TRY(crumb_gguf_get_string(g, type_key.text, false, &type, err));
    if (equals(type, "none")) { /* files of before this key have linear scaling in another alone */
        key_name old;
        snprintf(old.text, sizeof old.text, "%s.rope.scale_linear", h->architecture);
        CRUMB_TRY(crumb_gguf_get_f32(g, old.text, false, &out->factor, err));
    } else if (equals(type, "linear") || equals(type, "yarn")) {
        CRUMB_TRY(crumb_gguf_get_f32(g, scaling_key(h, "factor").text, true, &out->factor, err));
    } else {
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "key '%s': RoPE scaling '%.*s' is not supported", type_key.text,
                          (int)(type.size < 64 ? type.size : 64), type.data);
    }
    CRUMB_TRY(check(h, "factor", out->factor, err));
    return equals(type, "yarn") ? read_yarn(g, h, out, err) : CRUMB_OK;
}

/* ---- angles -------------------------------------------------------------------------------------------------- */

/* The pair that turns so many times within YaRN's original context. */
static double pair_of_turns(const crumb_hparams *h, double turns) {
    const double pi = 3.14159265358979323846, context = h->rope_scaling.original_context;
    return h->rope_dims * log(context / (turns * 2 * pi)) / (2 * log((double)h->rope_theta));
}

/* By how much of its scaling pair i is scaled: 0 for YaRN's fast pairs, 1 for its slow ones. */
static double scaled_part(const crumb_hparams *h, uint32_t i) {
    const crumb_rope_scaling *s = &h->rope_scaling;
    if (!s->yarn) return 1;
    double low = fmax(floor(pair_of_turns(h, (double)s->beta_fast)), 0);
    double high = fmin(ceil(pair_of_turns(h, (double)s->beta_slow)), h->rope_dims - 1);
    return fmin(fmax((i - low) / fmax(high - low, 0.001), 0), 1);
}

void crumb_rope_inv_freq(const crumb_hparams *h, const float *divisors, float *out) {
    for (uint32_t i = 0; i < h->rope_dims / 2; i++) {
        const double f = pow((double)h->rope_theta, -2.0 * i / h->rope_dims), part = scaled_part(h, i);
        const double scaled = part * f / (double)h->rope_scaling.factor + (1 - part) * f;
        out[i] = (float)(divisors ? scaled / (double)divisors[i] : scaled);
    }
}

float crumb_rope_magnitude(const crumb_hparams *h) {
    const crumb_rope_scaling *s = &h->rope_scaling;
    const float yarn = s->yarn && s->factor > 1 ? 1 + 0.1f * logf(s->factor) : 1;
    return yarn * s->attn_factor;
}
