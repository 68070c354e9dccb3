/* Folders as transformers writes them (tests/oracle/checkpoints) with one thing wrong: refused, with the file and the
 * key or the tensor named. */
#include "tests/model/fixture.h"

#include "host/base/json.h"
#include "host/checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static FILE *open_file(const char *path, const char *mode) {
    if (*mode == 'w') unlink(path); /* some file systems wait for the disk where a file is written over */
    FILE *f = fopen(path, mode);
    if (f) return f;
    fail_msg("cannot open %s", path);
    abort(); /* fail_msg does not come back, which its declaration does not say */
}

/* Whole bytes of the file. */
static uint64_t size_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

/* ---- a folder to damage --------------------------------------------------------------------------------------- */

static const char work[] = "test_checkpoint_damage.work";

static void copy_file(const char *from, const char *to) {
    size_t n;
    uint8_t *bytes = read_whole_file(from, &n);
    FILE *f = open_file(to, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    free(bytes);
}

static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};

static void make_work(const char *model) {
    char from[512], to[512];
    mkdir(work, 0700);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "tests/oracle/checkpoints/%s/%s", model, files[i]);
        snprintf(to, sizeof to, "%s/%s", work, files[i]);
        copy_file(from, to);
    }
}

static void remove_file(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", work, name);
    unlink(path);
}

static void remove_work(void) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) remove_file(files[i]);
    rmdir(work);
}

/* Replaces the first `from` in a file of the work folder. */
static void edit(const char *file, const char *from, const char *to) {
    char path[512];
    size_t n;
    snprintf(path, sizeof path, "%s/%s", work, file);
    char *text = (char *)read_whole_file(path, &n), *at = strstr(text, from);
    if (!at) fail_msg("%s: no %s", path, from);
    FILE *f = open_file(path, "wb");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(f);
    free(text);
}

/* Opening must fail, with a message that has the word. */
static void assert_refused(const char *says) {
    crumb_gguf *g;
    crumb_error err = {0};
    if (crumb_checkpoint_open(work, &g, &err) == CRUMB_OK) fail_msg("nothing was wrong where '%s' should be", says);
    if (!strstr(err.message, says)) fail_msg("'%s' does not say '%s'", err.message, says);
    assert_null(g);
}

/* ---- field by field ------------------------------------------------------------------------------------------ */

enum kind { COUNT, REAL, FLAG, WORD, TEXT, OBJECT, LIST, ID, BITS, GROUP, LEVELS };

/* What each kind of field is not. */
static const char *const wrong[][12] = {
    [COUNT] = {"\"4\"", "[4]", "{}", "true", "-4", "0", "2.5", "1e300", "2147483647"},
    [REAL] = {"\"1\"", "[1]", "{}", "true", "-1", "0", "1e300", "1e-60"},
    [FLAG] = {"\"false\"", "0", "1", "[]", "{}"},
    [WORD] = {"7", "true", "[\"silu\"]", "{}", "\"other\"", "\"llam\"", "\"gptqs\""},
    [TEXT] = {"7", "true", "{}"},
    [OBJECT] = {"7", "true", "\"llama3\"", "[]", "[1]"},
    [LIST] = {"7", "true", "\"lm_head\"", "{}", "[7]", "[\"\"]"},
    [ID] = {"\"4\"", "true", "{}", "[]", "[\"x\"]", "2.5", "-2", "1000000", "1e300", "[1, 1000000]", "[1, -1]"},
    [BITS] = {"\"4\"", "true", "5", "0", "-4", "2.5", "[4]", "{}", "1e300"},
    [GROUP] = {"\"32\"", "true", "0", "-2", "2.5", "[32]", "{}", "1e300"},
    [LEVELS] = {"\"2\"", "true", "-1", "2.5", "5", "15", "[2]", "{}", "1e300"},
};

static const struct field {
    const char *model, *file, *path;
    enum kind kind;
    bool required;
} fields[] = {
    {"llama-f16", "config.json", "model_type", WORD, true},
    {"llama-f16", "config.json", "hidden_act", WORD, false},
    {"llama-f16", "config.json", "vocab_size", COUNT, true},
    {"llama-f16", "config.json", "hidden_size", COUNT, true},
    {"llama-f16", "config.json", "intermediate_size", COUNT, true},
    {"llama-f16", "config.json", "num_hidden_layers", COUNT, true},
    {"llama-f16", "config.json", "max_position_embeddings", COUNT, true},
    {"llama-f16", "config.json", "num_attention_heads", COUNT, true},
    {"llama-f16", "config.json", "num_key_value_heads", COUNT, false},
    {"llama-f16", "config.json", "head_dim", COUNT, false},
    {"llama-f16", "config.json", "rms_norm_eps", REAL, true},
    {"llama-f16", "config.json", "tie_word_embeddings", FLAG, false},
    {"llama-f16", "config.json", "attention_bias", FLAG, false},
    {"llama-f16", "config.json", "mlp_bias", FLAG, false},
    {"llama-f16", "config.json", "layer_types", LIST, false},
    {"llama-f16", "config.json", "rope_theta", REAL, false},
    {"llama-f16", "config.json", "partial_rotary_factor", REAL, false},
    {"llama-f16", "config.json", "sliding_window", COUNT, false},
    {"llama-f16", "config.json", "use_sliding_window", FLAG, false},
    {"llama-f16", "config.json", "w_bits", LEVELS, false},
    {"llama-f16", "config.json", "bos_token_id", ID, false},
    {"llama-f16", "config.json", "eos_token_id", ID, false},
    {"llama-f16", "config.json", "pad_token_id", ID, false},
    {"llama-f16", "config.json", "quantization_config", OBJECT, false},
    {"llama-f16", "config.json", "rope_scaling", OBJECT, false},
    {"llama-f16", "config.json", "rope_parameters", OBJECT, false},
    {"llama-q4_0+gptq", "config.json", "rope_parameters.rope_theta", REAL, false},
    {"llama-q4_0+gptq", "config.json", "rope_parameters.rope_type", WORD, false},
    {"llama-q4_0+gptq", "config.json", "rope_parameters.partial_rotary_factor", REAL, false},
    {"llama-q4_1", "config.json", "rope_scaling.rope_type", WORD, true},
    {"llama-q4_1", "config.json", "rope_scaling.rope_theta", REAL, false},
    {"llama-q4_1", "config.json", "rope_scaling.factor", REAL, true},
    {"llama-q4_1", "config.json", "rope_scaling.low_freq_factor", REAL, true},
    {"llama-q4_1", "config.json", "rope_scaling.high_freq_factor", REAL, true},
    {"llama-q4_1", "config.json", "rope_scaling.original_max_position_embeddings", COUNT, true},
    {"qwen2-f16-yarn", "config.json", "rope_scaling.factor", REAL, true},
    {"qwen2-f16-yarn", "config.json", "rope_scaling.original_max_position_embeddings", COUNT, false},
    {"qwen2-f16-yarn", "config.json", "rope_scaling.beta_fast", REAL, false},
    {"qwen2-f16-yarn", "config.json", "rope_scaling.beta_slow", REAL, false},
    {"qwen2-f16-yarn", "config.json", "rope_scaling.attention_factor", REAL, false},
    {"qwen2-f16-yarn", "config.json", "rope_scaling.truncate", FLAG, false},
    {"llama-bf16", "config.json", "rope_parameters.factor", REAL, true},
    {"llama-q4_0+gptq", "config.json", "quantization_config.quant_method", WORD, true},
    {"llama-q4_0+gptq", "config.json", "quantization_config.bits", BITS, true},
    {"llama-q4_0+gptq", "config.json", "quantization_config.group_size", GROUP, true},
    {"llama-q4_0+gptq", "config.json", "quantization_config.checkpoint_format", WORD, false},
    {"llama-q4_0+gptq", "config.json", "quantization_config.is_marlin_format", FLAG, false},
    {"llama-q4_0+gptq", "config.json", "quantization_config.pack_dtype", WORD, false},
    {"llama-q4_0+gptq", "config.json", "quantization_config.dynamic", OBJECT, false},
    {"llama-q4_0+awq", "config.json", "quantization_config.bits", BITS, true},
    {"llama-q4_0+awq", "config.json", "quantization_config.group_size", GROUP, true},
    {"llama-q4_0+awq", "config.json", "quantization_config.version", WORD, false},
    {"llama-q4_0+awq", "config.json", "quantization_config.zero_point", FLAG, false},
    {"bitnet-b1.58-i2_s+auto", "config.json", "quantization_config.linear_class", WORD, false},
    {"bitnet-b1.58-i2_s+auto", "config.json", "quantization_config.quantization_mode", WORD, false},
    {"bitnet-b1.58-i2_s+auto", "config.json", "quantization_config.use_rms_norm", FLAG, false},
    {"bitnet-b1.58-i2_s+online", "config.json", "quantization_config.modules_to_not_convert", LIST, false},
    {"llama-q4_0+gptq", "quantize_config.json", "quant_method", WORD, false},
    {"llama-q4_0+gptq", "quantize_config.json", "bits", BITS, true},
    {"llama-q4_0+gptq", "quantize_config.json", "group_size", GROUP, true},
    {"llama-q4_0+gptq", "quantize_config.json", "desc_act", FLAG, false},
    {"llama-q4_0+gptq", "quantize_config.json", "checkpoint_format", WORD, false},
    {"llama-q4_0+gptq", "quantize_config.json", "is_marlin_format", FLAG, false},
    {"llama-q4_0+awq", "quant_config.json", "bits", BITS, true},
    {"llama-q4_0+awq", "quant_config.json", "group_size", GROUP, true},
    {"llama-q4_0+awq", "quant_config.json", "version", WORD, false},
    {"llama-q4_1", "tokenizer_config.json", "bos_token", TEXT, false},
    {"llama-q4_1", "tokenizer_config.json", "eos_token", TEXT, false},
    {"llama-q4_1", "tokenizer_config.json", "eos_token.content", TEXT, true},
    {"llama-q4_1", "tokenizer_config.json", "pad_token", TEXT, false},
    {"llama-q4_1", "tokenizer_config.json", "add_bos_token", FLAG, false},
    {"llama-q4_1", "tokenizer_config.json", "add_eos_token", FLAG, false},
    {"llama-q4_1", "tokenizer_config.json", "chat_template", TEXT, false},
};

/* Puts `json` where the path leads, or takes away what is there (NULL). */
static void set_field(cJSON *object, const char *path, const char *json) {
    const char *dot = strchr(path, '.');
    char name[64];
    if (dot) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        cJSON *parent = cJSON_GetObjectItemCaseSensitive(object, name);
        assert_true(cJSON_IsObject(parent));
        set_field(parent, dot + 1, json);
        return;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(object, path);
    if (json) assert_true(cJSON_AddItemToObject(object, path, cJSON_Parse(json)));
}

static cJSON *read_document(const char *model, const char *file) {
    char path[512];
    size_t n;
    cJSON *document;
    snprintf(path, sizeof path, "tests/oracle/checkpoints/%s/%s", model, file);
    char *text = (char *)read_whole_file(path, &n);
    assert_int_equal(crumb_json_parse_object(text, n, &document, NULL), CRUMB_OK);
    free(text);
    return document;
}

static void write_document(const char *name, cJSON *document) {
    char path[512], *text = cJSON_Print(document);
    snprintf(path, sizeof path, "%s/%s", work, name);
    FILE *file = open_file(path, "wb");
    fprintf(file, "%s", text);
    fclose(file);
    free(text);
    cJSON_Delete(document);
}

static bool is_settings(const char *file) {
    return strncmp(file, "quant", 5) == 0;
}

/* What the field's file says; settings in a file of their own come out of config.json. */
static cJSON *begin_document(const struct field *f) {
    cJSON *document = read_document(f->model, is_settings(f->file) ? "config.json" : f->file);
    if (!is_settings(f->file)) return document;
    cJSON *settings = cJSON_DetachItemFromObjectCaseSensitive(document, "quantization_config");
    write_document("config.json", document);
    return settings;
}

static void damage(const struct field *f, const char *json) {
    char path[512], says[600], why[192];
    crumb_gguf *g;
    crumb_error err = {0};
    cJSON *document = begin_document(f);
    set_field(document, f->path, json);
    write_document(f->file, document);
    snprintf(path, sizeof path, "%s/%s", work, f->file);
    snprintf(says, sizeof says, "%s: key '%s", path, f->path);
    snprintf(why, sizeof why, "%s: '%s' is %s", f->model, f->path, json ? json : "not there");
    if (crumb_checkpoint_open(work, &g, &err) == CRUMB_OK) fail_msg("%s, which is taken", why);
    if (strncmp(err.message, says, strlen(says)) != 0) fail_msg("%s: '%s' does not say '%s'", why, err.message, says);
    assert_null(g);
}

static void each_field_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *f = &fields[i];
        make_work(f->model);
        for (size_t j = 0; j < 12 && wrong[f->kind][j]; j++) damage(f, wrong[f->kind][j]);
        if (f->required) damage(f, "null");
        if (f->required) damage(f, NULL);
        if (is_settings(f->file)) remove_file(f->file);
    }
    remove_work();
}

/* ---- what does not fit the rest ------------------------------------------------------------------------------- */

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"model_type\": \"llama\"", "\"model_type\": \"gemma\"", "'model_type': 'gemma'"},
        {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "'hidden_act': 'gelu'"},
        {"\"vocab_size\": ", "\"vocab\": ", "'vocab_size': missing"},
        {"\"num_attention_heads\": 2", "\"num_attention_heads\": 0", "'num_attention_heads'"},
        {"\"num_attention_heads\": 2", "\"num_attention_heads\": 3",
         "'num_attention_heads' (times head_dim): 66, but the tensor"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2.5", "'num_hidden_layers'"},
        {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"small\"", "'rms_norm_eps'"},
        {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"longrope\"}", "'rope_scaling.type': 'longrope'"},
        {"\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}",
         "'rope_scaling.low_freq_factor'"},
        {"\"rope_scaling\": null", "\"quarot\": {\"mode\": 1}", "'quarot': names a transform"},
        {"\"rope_scaling\": null", "\"partial_rotary_factor\": 0.5", "'partial_rotary_factor'"},
        {"\"rope_scaling\": null", "\"rope_parameters\": {\"full_attention\": {}}", "'rope_parameters.full_attention'"},
        {"\"rope_scaling\": null", "\"rope_parameters\": {\"rope_theta\": 5}",
         "'rope_parameters.rope_theta': another value"},
        {"\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {\"rope_type\": \"default\"}",
         "'rope_scaling': another value than rope_parameters has"},
        {"\"rope_scaling\": null", "\"attention_bias\": true", "'attention_bias': true, but"},
        {"\"rope_scaling\": null", "\"mlp_bias\": true", "'mlp_bias': true, but"},
        {"\"rope_scaling\": null", "\"layer_types\": [\"full_attention\", \"linear_attention\"]",
         "'layer_types': 'linear_attention'"},
        {"\"rope_scaling\": null", "\"layer_types\": [\"sliding_attention\"]", "'layer_types': 'sliding_attention'"},
        {"\"rope_scaling\": null", "\"quantization_config\": {\"quant_method\": \"bitnet\"}", "no tensor is packed so"},
        {"1e-05", "1.5", "'rms_norm_eps': not below 1"},
        {"{", "[", "config.json: not a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_work("llama-f16");
        edit("config.json", cases[i].from, cases[i].to);
        assert_refused(cases[i].says);
    }
    remove_work();
}

static void what_is_wrong_beside_it_is_named(void **state) {
    (void)state;
    make_work("llama-f16");
    edit("tokenizer.json", "\"model\"", "\"modell\"");
    assert_refused("tokenizer.json: field 'model'");
    make_work("llama-f16");
    edit("tokenizer.json", "\"1.0\"", "\"2.0\"");
    assert_refused("tokenizer.json: field 'version': '2.0'");
    make_work("llama-q4_1");
    edit("tokenizer_config.json", "\"bos_token\": \"<s>\"", "\"bos_token\": \"<x>\"");
    assert_refused("tokenizer_config.json: key 'bos_token': its text is no token");
    make_work("llama-f16");
    edit("tokenizer_config.json", "{", "");
    assert_refused("tokenizer_config.json: not a JSON object");
    remove_work();
    assert_refused("config.json");
    make_work("llama-f16");
    unlink("test_checkpoint_damage.work/model.safetensors");
    assert_refused("no model.safetensors");
    remove_work();
}

static void unknown_packing_is_named(void **state) {
    (void)state;
    static const struct {
        const char *model, *from, *to, *says;
    } cases[] = {
        {"llama-q4_0+gptq", "\"gptq\"", "\"hqq\"", "'quantization_config.quant_method': 'hqq'"},
        {"llama-q4_0+gptq", "\"bits\": 4", "\"bits\": 5", "'quantization_config.bits'"},
        {"llama-q4_0+gptq", "\"bits\": 4", "\"bits\": 8", "qweight"},
        {"llama-q4_0+gptq", "\"group_size\": 32", "\"group_size\": 64", "scales"},
        {"llama-q4_0+gptq", "\"group_size\": 32", "\"group_size\": 0", "'quantization_config.group_size'"},
        {"llama-q4_0+gptq", "\"sym\"", "\"dynamic\": {\"x\": 1}, \"s\"", "'quantization_config.dynamic'"},
        {"llama-q4_0+gptq", "\"sym\"", "\"rotation\": \"hadamard\", \"s\"",
         "'quantization_config.rotation': names a transform"},
        {"llama-q4_0+gptq", "\"quantization_config\"", "\"online_hadamard\": true, \"quantization_config\"",
         "'online_hadamard': names a transform"},
        {"llama-q4_0+gptq_v2", "\"gptq_v2\"", "\"marlin\"", "'quantization_config.checkpoint_format': 'marlin'"},
        {"llama-q4_0+gptq", "\"quantization_config\"", "\"none\"", "quantization_config"},
        {"llama-q4_0+awq", "\"gemm\"", "\"gemv\"", "'quantization_config.version': 'gemv'"},
        {"bitnet-b1.58-i2_s+auto", "\"offline\"", "\"later\"", "'quantization_config.quantization_mode': 'later'"},
        {"bitnet-b1.58-i2_s+auto", "\"offline\"", "\"online\"", "not a matrix of F32, F16 or BF16"},
        {"bitnet-b1.58-i2_s+auto", "\"offline\"", "\"offline\", \"use_rms_norm\": true",
         "'quantization_config.use_rms_norm': 'true'"},
        {"bitnet-b1.58-i2_s+online", "\"autobitlinear\"", "\"bitlinear\"",
         "'quantization_config.quantization_mode': 'online with bitlinear'"},
        {"bitnet-b1.58-i2_s+online", "\"lm_head\"", "\"lm_head\", \"model.layers.*\"",
         "'quantization_config.modules_to_not_convert': whether 'model.layers.*' means"},
        {"bitnet-b1.58-i2_s+online", "\"lm_head\"", "\"self_attn\"",
         "'quantization_config.modules_to_not_convert': whether 'self_attn' means 'model.layers.0.self_attn"},
        {"bitnet-b1.58-i2_s+auto", "\"autobitlinear\"", "\"other\"", "'quantization_config.linear_class': 'other'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_work(cases[i].model);
        edit("config.json", cases[i].from, cases[i].to);
        assert_refused(cases[i].says);
    }
    remove_work();
}

/* Overwrites value `index` of an I32 tensor in the work folder. */
static void set_i32(const char *tensor, size_t index, int32_t value) {
    static const char path[] = "test_checkpoint_damage.work/model.safetensors";
    size_t n;
    uint64_t n_header;
    uint8_t *bytes = read_whole_file(path, &n);
    memcpy(&n_header, bytes, 8);
    cJSON *header = cJSON_ParseWithLength((const char *)bytes + 8, n_header);
    const cJSON *at = cJSON_GetObjectItem(cJSON_GetObjectItem(header, tensor), "data_offsets");
    assert_non_null(at);
    FILE *f = open_file(path, "r+b");
    assert_int_equal(fseek(f, (long)(8 + n_header + 4 * index) + (long)at->child->valuedouble, SEEK_SET), 0);
    assert_int_equal(fwrite(&value, sizeof value, 1, f), 1);
    fclose(f);
    cJSON_Delete(header);
    free(bytes);
}

static void groups_without_scales_are_named(void **state) {
    (void)state;
    static const int32_t groups[] = {-1, 1000, INT32_MAX};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        make_work("llama-q4_0+order");
        set_i32("model.layers.1.mlp.down_proj.g_idx", 5, groups[i]);
        assert_refused("model.layers.1.mlp.down_proj.g_idx': a group that there is no scale for");
    }
    remove_work();
}

static void cut_off_files_do_no_harm(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (unsigned part = 0; part < 24; part++) {
            char path[512];
            crumb_gguf *g;
            crumb_error err = {0};
            make_work("llama-f16");
            snprintf(path, sizeof path, "%s/%s", work, files[i]);
            assert_int_equal(truncate(path, (off_t)(size_of(path) * part / 24)), 0);
            if (crumb_checkpoint_open(work, &g, &err) == CRUMB_OK) fail_msg("%s: %u/24 is enough", path, part);
            if (!strstr(err.message, files[i])) fail_msg("'%s' does not name %s", err.message, files[i]);
        }
    remove_work();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_field_is_named),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_is_wrong_beside_it_is_named),
        cmocka_unit_test(unknown_packing_is_named),
        cmocka_unit_test(groups_without_scales_are_named),
        cmocka_unit_test(cut_off_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
