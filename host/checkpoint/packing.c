/* How weights are packed: config.json's quantization_config, or a file of settings beside it. */
#include "host/checkpoint/internal.h"

#include <string.h>

/* One of `accepted` ("a|b"), the first where the key is absent. */
static crumb_status get_word(const checkpoint_object *q, const char *key, const char *accepted, const char **out) {
    const char *text = "";
    *out = accepted;
    if (!checkpoint_get(q->json, key)) return CRUMB_OK;
    CRUMB_TRY(checkpoint_get_text(q, key, &text));
    for (const char *p = accepted; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (strcspn(p, "|") == strlen(text) && strncmp(p, text, strlen(text)) == 0) return *out = p, CRUMB_OK;
    return checkpoint_unsupported(q, key, text);
}

static bool is_word(const char *found, const char *word) {
    return strcspn(found, "|") == strlen(word) && strncmp(found, word, strlen(word)) == 0;
}

static const char *present(const cJSON *q, const char *key, const char *older) {
    return !checkpoint_get(q, key) && checkpoint_get(q, older) ? older : key;
}

const char *checkpoint_bits_key(const cJSON *quantization) {
    return present(quantization, "bits", "w_bit");
}

const char *checkpoint_group_key(const cJSON *quantization) {
    return present(quantization, "group_size", "q_group_size");
}

static crumb_status read_bits_and_group(const checkpoint_object *q, struct checkpoint_packing *out) {
    const char *bits_key = checkpoint_bits_key(q->json), *group_key = checkpoint_group_key(q->json);
    int32_t bits = 0, group = 0;
    CRUMB_TRY(checkpoint_get_integer(q, bits_key, true, 0, 64, &bits));
    CRUMB_TRY(checkpoint_get_integer(q, group_key, true, -1, 1 << 20, &group));
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return checkpoint_unsupported(q, bits_key, "other than 2, 3, 4 and 8");
    if (group == 0) return checkpoint_unsupported(q, group_key, "neither -1 nor a number of weights");
    out->bits = (uint8_t)bits;
    out->group = group == -1 ? 0 : (uint32_t)group;
    return CRUMB_OK;
}

static crumb_status read_gptq(const checkpoint_object *q, struct checkpoint_packing *out) {
    const char *format, *newer;
    checkpoint_object dynamic;
    bool marlin = false;
    CRUMB_TRY(get_word(q, "format", "gptq|gptq_v2", &newer)); /* what newer writers call it, some of them only so */
    const bool is_newer = checkpoint_get(q->json, "format") != NULL;
    CRUMB_TRY(get_word(q, "checkpoint_format", "gptq|gptq_v2", &format));
    if (!checkpoint_get(q->json, "checkpoint_format")) format = newer;
    if (is_newer && is_word(format, "gptq") != is_word(newer, "gptq"))
        return checkpoint_damaged(q, "format", "another version than checkpoint_format says");
    CRUMB_TRY(checkpoint_get_flag(q, "desc_act", &out->act_order));
    CRUMB_TRY(checkpoint_get_flag(q, "is_marlin_format", &marlin));
    if (marlin) return checkpoint_unsupported(q, "is_marlin_format", "true");
    CRUMB_TRY(get_word(q, "pack_dtype", "int32", &(const char *){NULL}));
    CRUMB_TRY(checkpoint_get_object(q, "dynamic", &dynamic));
    if (dynamic.json && dynamic.json->child) return checkpoint_unsupported(q, "dynamic", "settings of single layers");
    out->method = CHECKPOINT_GPTQ;
    out->zeros_less_one = is_word(format, "gptq");
    return read_bits_and_group(q, out);
}

static crumb_status read_awq(const checkpoint_object *q, struct checkpoint_packing *out) {
    const char *unused;
    bool zero_point = true;
    CRUMB_TRY(get_word(q, "version", "gemm|GEMM", &unused)); /* others have another order of bits */
    CRUMB_TRY(read_bits_and_group(q, out));
    if (out->bits != 4) return checkpoint_unsupported(q, checkpoint_bits_key(q->json), "other than 4");
    CRUMB_TRY(checkpoint_get_flag(q, "zero_point", &zero_point));
    if (!zero_point) return checkpoint_unsupported(q, "zero_point", "false");
    out->method = CHECKPOINT_AWQ;
    return CRUMB_OK;
}

/* transformers' defaults: layers that divide, weights packed beforehand. */
static crumb_status read_bitnet(const checkpoint_object *q, struct checkpoint_packing *out) {
    const char *layers, *mode;
    bool norm = false;
    CRUMB_TRY(get_word(q, "linear_class", "bitlinear|autobitlinear", &layers));
    CRUMB_TRY(get_word(q, "quantization_mode", "offline|online", &mode));
    const bool divides = is_word(layers, "bitlinear"), online = is_word(mode, "online");
    if (divides && online) return checkpoint_unsupported(q, "quantization_mode", "online with bitlinear");
    CRUMB_TRY(checkpoint_get_flag(q, "use_rms_norm", &norm));
    if (norm) return checkpoint_unsupported(q, "use_rms_norm", "true");
    *out = (struct checkpoint_packing){.method = CHECKPOINT_BITNET, .bits = 2, .divides = divides, .online = online};
    return CRUMB_OK;
}

crumb_status checkpoint_packing_read(const checkpoint_object *quantization, struct checkpoint_packing *out) {
    const char *method = "";
    *out = (struct checkpoint_packing){.method = CHECKPOINT_PLAIN};
    if (!quantization->json) return CRUMB_OK;
    CRUMB_TRY(checkpoint_get_text(quantization, "quant_method", &method));
    if (strcmp(method, "gptq") == 0) return read_gptq(quantization, out);
    if (strcmp(method, "awq") == 0) return read_awq(quantization, out);
    if (strcmp(method, "bitnet") == 0) return read_bitnet(quantization, out);
    return checkpoint_unsupported(quantization, "quant_method", method);
}

bool checkpoint_is_packed(const struct checkpoint_packing *p, const char *part, crumb_dtype dtype) {
    if (p->method == CHECKPOINT_BITNET) return !p->online && strcmp(part, "weight") == 0 && dtype == CRUMB_DTYPE_U8;
    return (p->method == CHECKPOINT_GPTQ || p->method == CHECKPOINT_AWQ) && strcmp(part, "qweight") == 0;
}

bool checkpoint_is_beside(const struct checkpoint_packing *p, const char *part) {
    if (p->method == CHECKPOINT_BITNET) return !p->online && strcmp(part, "weight_scale") == 0;
    if (p->method == CHECKPOINT_PARETOQ) return strcmp(part, "weight_clip_val") == 0;
    if (p->method == CHECKPOINT_PLAIN) return false;
    return strcmp(part, "qzeros") == 0 || strcmp(part, "scales") == 0 || strcmp(part, "g_idx") == 0;
}
