/* BitNet's checkpoints of floats (quantization_mode "online"): transformers' AutoBitLinear makes each matrix ternary
 * when it is used, s = 1 / max(mean |w|, 1e-5), code = round-half-even(w s) within -1..1, w' = code / s. Here that is
 * done once.
 */
#include "host/base/memory.h"
#include "host/checkpoint/internal.h"
#include "host/lowbit/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Whole parts of a module's name from its beginning, or any end of it. */
static bool names_module(const char *name, const char *module) {
    const size_t n = strlen(name);
    const bool begins = strncmp(module, name, n) == 0 && (name[n - 1] == '.' || module[n] == '.' || !module[n]);
    return begins || ends_with(module, name);
}

/* transformers' versions take a name of the list for a pattern of a module's beginning or its end, or for any part of
 * it: where these do not agree, none is right for certain. */
static crumb_status find_in_list(const checkpoint_config *c, const char *module, bool *listed, crumb_error *err) {
    const cJSON *v;
    *listed = false;
    cJSON_ArrayForEach(v, c->not_converted) {
        const char *name = v->valuestring;
        const bool named = names_module(name, module);
        if (named) *listed = true;
        if (!strpbrk(name, "*+?[](){}|^$\\") && (named || !strstr(module, name))) continue;
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED,
                          "%s: key 'quantization_config.modules_to_not_convert': whether '%.60s' means '%.80s' is not "
                          "certain",
                          c->path, name, module);
    }
    return CRUMB_OK;
}

crumb_status checkpoint_is_absmean(const checkpoint_config *c, const crumb_safetensor *from, bool *out,
                                   crumb_error *err) {
    char module[512];
    bool listed;
    const size_t n = strlen(from->name);
    *out = false;
    if (!c->packing.online || strncmp(from->name, "model.layers.", 13) != 0 || !ends_with(from->name, "_proj.weight") ||
        n >= sizeof module)
        return CRUMB_OK;
    memcpy(module, from->name, n + 1);
    module[n - strlen(".weight")] = 0;
    CRUMB_TRY(find_in_list(c, module, &listed, err));
    *out = !listed;
    return CRUMB_OK;
}

static crumb_status fail(const crumb_safetensors *files, const crumb_safetensor *t, const char *problem,
                         crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: tensor '%.80s': %s", crumb_safetensors_path(files, t), t->name,
                      problem);
}

crumb_status checkpoint_absmean_plan(const crumb_safetensors *files, checkpoint_tensor *t, crumb_gguf_tensor *d,
                                     crumb_error *err) {
    const crumb_safetensor *from = t->from;
    const bool is_float =
        from->dtype == CRUMB_DTYPE_F16 || from->dtype == CRUMB_DTYPE_BF16 || from->dtype == CRUMB_DTYPE_F32;
    if (!is_float || from->n_dims != 2 || from->n_values == 0)
        return fail(files, from, "not a matrix of F32, F16 or BF16", err);
    t->kind = CHECKPOINT_ABSMEAN;
    t->m = from->dims[0];
    t->k = from->dims[1];
    d->type = CRUMB_TYPE_I2_S;
    return crumb_type_gguf_id(d->type, &d->type_id, err);
}

static void load_row(const crumb_safetensors *files, const checkpoint_tensor *t, uint64_t row, float *out) {
    const uint64_t size = t->from->n_bytes / t->from->n_values;
    const uint8_t *in = crumb_safetensors_data(files, t->from) + row * t->k * size;
    for (uint64_t i = 0; i < t->k; i++) out[i] = checkpoint_load_float(t->from->dtype, in + i * size);
}

static crumb_status make_rows(const crumb_safetensors *files, const checkpoint_tensor *t, float *row, uint8_t *out,
                              crumb_error *err) {
    const uint64_t row_bytes = crumb_type_row_bytes(CRUMB_TYPE_I2_S, t->k);
    crumb_ternary_sums sums = {0};
    for (uint64_t m = 0; m < t->m; m++) {
        load_row(files, t, m, row);
        crumb_ternary_sums_add(&sums, row, t->k);
    }
    const float mean = (float)(sums.abs / (double)sums.n), inverse = 1 / fmaxf(mean, 1e-5f), scale = 1 / inverse;
    if (!isfinite(mean)) return fail(files, t->from, "a weight is NaN or infinite; the file is damaged", err);
    for (uint64_t m = 0; m < t->m; m++) {
        load_row(files, t, checkpoint_row_from(t, t->m, m), row);
        for (uint64_t i = 0; i < t->k; i++) row[i] = fmaxf(-1, fminf(1, rintf(row[i] * inverse)));
        crumb_type_encode_row(CRUMB_TYPE_I2_S, CRUMB_ENCODE_ABSMEAN, row, t->k, 1, out + m * row_bytes);
    }
    memcpy(out + t->m * row_bytes, &scale, sizeof scale); /* the rest is zero already */
    return CRUMB_OK;
}

crumb_status checkpoint_absmean_make(const crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                                     crumb_error *err) {
    float *row;
    CRUMB_TRY(crumb_calloc(t->k, sizeof *row, "a row of weights", (void **)&row, err));
    const crumb_status status = make_rows(files, t, row, out, err);
    free(row);
    return status;
}
