/* Folders as transformers writes them (tests/oracle/checkpoints): the same weights and answers as the GGUF files that
 * they are the same models as, also after they have been written as GGUF. */
#include "tests/model/fixture.h"
#include "tests/support/compare_tokens.h"

#include "host/checkpoint/internal.h"
#include "host/gptq/run.h"
#include "host/model/rewrite.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_ROWS = 16, MAX_VOCAB = 70 };

static const char folders[] = "tests/oracle/checkpoints/*";

static FILE *open_file(const char *path, const char *mode) {
    FILE *f = fopen(path, mode);
    if (f) return f;
    fail_msg("cannot open %s", path);
    abort(); /* fail_msg does not come back, which its declaration does not say */
}

static crumb_gguf *open_any(const char *path) {
    crumb_gguf *g;
    crumb_error err = {0};
    if (crumb_checkpoint_open_any(path, &g, &err) != CRUMB_OK) fail_msg("%s", err.message);
    return g;
}

/* A tensor as floats, its columns where they belong; freed by the caller. */
static float *read_tensor(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    const uint64_t k = t->dims[0], m = t->dims[1] * t->dims[2] * t->dims[3];
    float *out = calloc(k * m, sizeof *out), *row = malloc(k * sizeof *row);
    crumb_error err = {0};
    assert_true(out && row);
    if (crumb_gguf_tensor_hold(g, t, &err) != CRUMB_OK) fail_msg("%s", err.message);
    const uint8_t *data = crumb_gguf_tensor_data(g, t);
    const float scale = t->type == CRUMB_TYPE_I2_S ? crumb_type_i2_s_scale(data, m, k) : 0;
    for (uint64_t i = 0; i < m; i++) {
        crumb_type_row_to_f32(t->type, data + i * crumb_type_row_bytes(t->type, k), k, scale, row);
        for (uint64_t j = 0; j < k; j++) out[i * k + (t->order ? t->order[j] : j)] = row[j];
    }
    free(row);
    crumb_gguf_tensor_drop(g, t);
    crumb_gguf_tensor_release(g, t);
    return out;
}

/* Every tensor of a is in b with the same shape and floats. */
static void assert_same_tensors(const crumb_gguf *a, const crumb_gguf *b, float tolerance) {
    assert_int_equal(crumb_gguf_n_tensors(a), crumb_gguf_n_tensors(b));
    for (size_t i = 0; i < crumb_gguf_n_tensors(a); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(a, i), *other = crumb_gguf_find_tensor(b, t->name);
        if (!other) fail_msg("%s: no tensor %s", crumb_gguf_path(b), t->name);
        assert_memory_equal(t->dims, other->dims, sizeof t->dims);
        float *x = read_tensor(a, t), *y = read_tensor(b, other);
        const uint64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        for (uint64_t j = 0; j < n; j++)
            if (!(fabsf(x[j] - y[j]) <= tolerance * fabsf(x[j])))
                fail_msg("%s: %s[%llu] is %g, not %g", crumb_gguf_path(b), t->name, (unsigned long long)j, (double)y[j],
                         (double)x[j]);
        free(x);
        free(y);
    }
}

/* ---- packed weights ------------------------------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

/* The method and bits that a name says: "gptq_v2.3.order.narrow.qweight". */
static struct checkpoint_packing packing_of(const char *name) {
    struct checkpoint_packing p = {.method = strncmp(name, "awq", 3) == 0 ? CHECKPOINT_AWQ : CHECKPOINT_GPTQ};
    p.bits = (uint8_t)(strchr(name, '.')[1] - '0');
    p.group = ends_with(name, ".narrow.qweight") ? 16 : ends_with(name, ".narrowest.qweight") ? 8 : 64;
    p.zeros_less_one = strncmp(name, "gptq.", 5) == 0;
    return p;
}

static crumb_type type_of(const struct checkpoint_packing *p) {
    static const crumb_type of_16[] =
        {[2] = CRUMB_TYPE_INT2_G16, [3] = CRUMB_TYPE_INT3_G16, [4] = CRUMB_TYPE_INT4_G16, [8] = CRUMB_TYPE_INT8_G16},
                            of_64[] = {[2] = CRUMB_TYPE_INT2,
                                       [3] = CRUMB_TYPE_INT3,
                                       [4] = CRUMB_TYPE_INT4,
                                       [8] = CRUMB_TYPE_INT8};
    return p->group == 8 ? CRUMB_TYPE_F16 : p->group == 16 ? of_16[p->bits] : of_64[p->bits];
}

static void compare_packed(crumb_safetensors *files, const crumb_safetensor *qweight) {
    char name[64];
    const struct checkpoint_packing packing = packing_of(qweight->name);
    checkpoint_tensor t = {.from = qweight, .packing = &packing};
    crumb_gguf_tensor d = {.dims = {1, 1, 1, 1}};
    crumb_error err = {0};
    uint64_t n_bytes;
    snprintf(name, sizeof name, "%.*s.expected", (int)(strrchr(qweight->name, '.') - qweight->name), qweight->name);
    const crumb_safetensor *expected = crumb_safetensors_find(files, name);
    assert_non_null(expected);
    if (checkpoint_packed_plan(files, &t, &d, &err) != CRUMB_OK) fail_msg("%s", err.message);
    assert_true(d.dims[1] == expected->dims[0] && d.dims[0] == expected->dims[1]);
    assert_int_equal(d.type, type_of(&packing));
    assert_true((d.order != NULL) == (strstr(name, "order") && d.type != CRUMB_TYPE_F16));
    assert_int_equal(crumb_type_tensor_bytes(d.type, d.dims[1], d.dims[0], &n_bytes, &err), CRUMB_OK);
    uint8_t *bytes = calloc(n_bytes, 1);
    float *row = malloc(d.dims[0] * sizeof *row);
    assert_true(bytes && row);
    if (checkpoint_packed_make(files, &t, bytes, &err) != CRUMB_OK) fail_msg("%s", err.message);
    for (uint64_t m = 0; m < d.dims[1]; m++) {
        const uint8_t *want = crumb_safetensors_data(files, expected) + m * d.dims[0] * sizeof *row;
        crumb_type_row_to_f32(d.type, bytes + m * crumb_type_row_bytes(d.type, d.dims[0]), d.dims[0], 0, row);
        for (uint64_t i = 0; i < d.dims[0]; i++) {
            float w;
            memcpy(&w, want + (d.order ? d.order[i] : i) * sizeof w, sizeof w);
            if (!(fabsf(row[i] - w) <= 1e-6f * fabsf(w))) /* scale * code and scale * zero are rounded apart */
                fail_msg("%s: weight %llu of row %llu is %g, not %g", name, (unsigned long long)i,
                         (unsigned long long)m, (double)row[i], (double)w);
        }
    }
    free(row);
    free(bytes);
    free(t.order);
}

static void packed_weights_are_what_was_packed(void **state) {
    (void)state;
    crumb_safetensors *files;
    crumb_error err = {0};
    size_t n = 0;
    if (crumb_safetensors_open("tests/oracle/packed.safetensors", &files, &err) != CRUMB_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; i < crumb_safetensors_n(files); i++) {
        const crumb_safetensor *t = crumb_safetensors_at(files, i);
        if (strcmp(strrchr(t->name, '.'), ".qweight") != 0) continue;
        compare_packed(files, t);
        n++;
    }
    assert_int_equal(n, 28);
    crumb_safetensors_close(files);
}

typedef struct logits_sink {
    const fixture *f;
    token_tally *tally;
    const token_rule *rule;
    const float *reference;
    const char *where;
} logits_sink;

static crumb_status judge(void *user, size_t index, const float *logits) {
    const logits_sink *s = user;
    token_tally_add_logits(s->tally, s->rule, s->where, logits, s->f->n_vocab, s->reference + index * s->f->n_vocab);
    return CRUMB_OK;
}

static bool answers_like(const fixture *f, const char *path) {
    static const token_rule rule = {.near_tie = 1e-3f, .max_error = 0.02f};
    crumb_model_params params = crumb_model_params_default();
    crumb_session_params session_params = crumb_session_params_default();
    crumb_model *model;
    crumb_session *session;
    crumb_error err = {0};
    token_tally tally = {0};
    params.device = "cpu";
    params.n_threads = 2;
    session_params.activation = CRUMB_ACTIVATION_FLOAT;
    session_params.n_ctx = 32;
    if (crumb_model_open(path, &params, &model, &err) != CRUMB_OK) fail_msg("%s", err.message);
    if (crumb_session_create(model, &session_params, &session, &err) != CRUMB_OK) fail_msg("%s", err.message);
    logits_sink sink = {f, &tally, &rule, fixture_logits(f, CRUMB_ACTIVATION_FLOAT), path};
    if (crumb_session_score(session, f->tokens, f->n_tokens, 0, judge, &sink, &err) != CRUMB_OK)
        fail_msg("%s", err.message);
    crumb_session_destroy(session);
    crumb_model_close(model);
    return token_tally_report(&tally, &rule, path) && token_tally_nmse(&tally) < 1e-5;
}

static const char *base_name(const char *path) {
    return strrchr(path, '/') + 1;
}

/* The model that a folder is made from: its name, up to a '+'. */
static const fixture *find_fixture(const fixture *all, size_t n, const char *folder) {
    const char *name = base_name(folder);
    for (size_t i = 0; i < n; i++)
        if (strlen(all[i].name) == strcspn(name, "+") && strncmp(all[i].name, name, strlen(all[i].name)) == 0)
            return &all[i];
    fail_msg("%s: no such model in tests/oracle/expected", folder);
    return NULL;
}

static void checkpoints_have_the_weights_of_their_gguf_files(void **state) {
    (void)state;
    glob_t found;
    assert_int_equal(glob(folders, 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 18);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char path[512];
        const char *name = base_name(found.gl_pathv[i]);
        if (strstr(name, "+order")) continue; /* the same function with other matrices */
        snprintf(path, sizeof path, "tests/oracle/models/%.*s.gguf", (int)strcspn(name, "+"), name);
        crumb_gguf *gguf = open_any(path), *checkpoint = open_any(found.gl_pathv[i]);
        assert_same_tensors(gguf, checkpoint, 1e-6f); /* what follows from RoPE's settings is computed in double here */
        crumb_gguf_close(gguf);
        crumb_gguf_close(checkpoint);
    }
    globfree(&found);
}

static void checkpoints_answer_as_transformers_does(void **state) {
    (void)state;
    glob_t found;
    size_t n;
    bool good = true;
    fixture *fixtures = fixtures_load(&n);
    assert_int_equal(glob(folders, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        good &= answers_like(find_fixture(fixtures, n, found.gl_pathv[i]), found.gl_pathv[i]);
    assert_true(good);
    globfree(&found);
    fixtures_free(fixtures, n);
}

/* A group has the same weights and activations wherever its columns stand: int8 activations have the same scales and
 * the same sums; norms and the output matrix, whose columns stand elsewhere too, add floats up in another order. */
static void compare_ordered(const fixture *f, const char *in_place, const char *in_order) {
    static float plain[MAX_ROWS * MAX_VOCAB], ordered[MAX_ROWS * MAX_VOCAB];
    assert_true(f->n_tokens <= MAX_ROWS && f->n_vocab <= MAX_VOCAB);
    score_tokens(in_place, f->tokens, f->n_tokens, f->n_vocab, CRUMB_ACTIVATION_AUTO, plain);
    score_tokens(in_order, f->tokens, f->n_tokens, f->n_vocab, CRUMB_ACTIVATION_AUTO, ordered);
    const double error = squared_error(ordered, plain, (size_t)f->n_tokens * f->n_vocab);
    if (!(error <= 1e-11)) fail_msg("%s: squared error %g", in_order, error);
}

static void act_order_computes_the_same(void **state) {
    (void)state;
    size_t n;
    fixture *fixtures = fixtures_load(&n);
    const fixture *f = find_fixture(fixtures, n, "tests/oracle/checkpoints/llama-q4_0+order");
    compare_ordered(f, "tests/oracle/checkpoints/llama-q4_0+gptq_v2", "tests/oracle/checkpoints/llama-q4_0+order");
    compare_ordered(f, "tests/oracle/checkpoints/llama-q4_0+narrow",
                    "tests/oracle/checkpoints/llama-q4_0+order-narrow");
    fixtures_free(fixtures, n);
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

static const char out_path[] = "test_checkpoints.out.gguf";

static crumb_status rewrite(const crumb_gguf *g, const crumb_type *types, uint64_t identity, crumb_progress_fn progress,
                            void *user, uint64_t *n_kept, crumb_error *err) {
    const crumb_rewrite r = {.from = g,
                             .path = out_path,
                             .types = types,
                             .identity = identity,
                             .n_threads = 2,
                             .progress = progress,
                             .progress_user = user};
    return crumb_rewrite_run(&r, n_kept, err);
}

/* GGUF has no type for groups of 16 with scales that are not in two levels. */
static bool has_groups_of_16(const crumb_gguf_tensor *t) {
    const crumb_type_info *info = crumb_type_get_info(t->type);
    return info->scale_kind == CRUMB_SCALE_F32 && info->group == 16;
}

static crumb_type *types_of(const crumb_gguf *g) {
    const size_t n = crumb_gguf_n_tensors(g);
    crumb_encode_method method;
    crumb_type *types = calloc(n, sizeof *types);
    assert_non_null(types);
    for (size_t i = 0; i < n; i++) {
        crumb_error err = {0};
        if (crumb_rewrite_same_type(g, crumb_gguf_tensor_at(g, i), &types[i], &method, &err) != CRUMB_OK)
            fail_msg("%s", err.message);
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        if (t->order || has_groups_of_16(t))
            assert_int_equal(types[i], CRUMB_TYPE_F16);
        else
            assert_true(types[i] == t->type || types[i] != CRUMB_TYPE_F16); /* all are symmetric */
        assert_int_equal(method, CRUMB_ENCODE_RTN);
    }
    return types;
}

static void remove_outputs(void) {
    static const char *const ends[] = {"", ".partial", ".partial.done"};
    char path[256];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", out_path, ends[i]);
        unlink(path);
    }
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* Keys that a converter must have written for others to read the file. */
static void assert_keys(const crumb_gguf *g) {
    static const char *const keys[] = {"general.architecture",        "general.name",
                                       "tokenizer.ggml.model",        "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.eos_token_id", "tokenizer.chat_template"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!crumb_gguf_find(g, keys[i])) fail_msg("no key %s", keys[i]);
}

static void converted_files_hold_the_same(void **state) {
    (void)state;
    glob_t found;
    assert_int_equal(glob(folders, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        crumb_gguf *from = open_any(found.gl_pathv[i]);
        crumb_type *types = types_of(from);
        crumb_error err = {0};
        uint64_t n_kept;
        remove_outputs();
        if (rewrite(from, types, 1, NULL, NULL, &n_kept, &err) != CRUMB_OK) fail_msg("%s", err.message);
        assert_int_equal(n_kept, 0);
        crumb_gguf *to = open_any(out_path);
        const bool halves = strstr(found.gl_pathv[i], "+order") || strstr(found.gl_pathv[i], "+narrow");
        assert_same_tensors(from, to, halves ? 0x1p-11f : 0); /* packed ones are f16 then */
        assert_keys(to);
        crumb_gguf_close(to);
        crumb_gguf_close(from);
        free(types);
    }
    remove_outputs();
    globfree(&found);
}

typedef struct stop_at {
    float fraction;
} stop_at;

static bool go_on_until(void *user, float fraction) {
    return fraction < ((const stop_at *)user)->fraction;
}

/* Whole bytes of the file. */
static uint64_t size_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

static void work_that_was_stopped_is_taken_up(void **state) {
    (void)state;
    crumb_gguf *from = open_any("tests/oracle/checkpoints/llama-f16");
    crumb_type *types = types_of(from);
    crumb_error err = {0};
    uint64_t n_kept;
    stop_at half = {0.5f};
    char partial[256], done[256];
    snprintf(partial, sizeof partial, "%s.partial", out_path);
    snprintf(done, sizeof done, "%s.partial.done", out_path);
    remove_outputs();

    assert_int_equal(rewrite(from, types, 1, go_on_until, &half, &n_kept, &err), CRUMB_ERR_INTERRUPTED);
    assert_false(exists(out_path));
    assert_true(exists(partial));
    const uint64_t whole = size_of(partial), sums = size_of(done);
    assert_true(sums > 24 + 8);

    /* the last whole tensor's bytes are damaged: it is written again, and those before it are not */
    FILE *f = open_file(partial, "r+b");
    assert_int_equal(fseek(f, (long)whole - 40, SEEK_SET), 0);
    fputc(0x5a, f);
    fclose(f);
    assert_int_equal(rewrite(from, types, 1, NULL, NULL, &n_kept, &err), CRUMB_OK);
    assert_int_equal(n_kept, (sums - 24) / 8 - 1);
    assert_false(exists(partial));
    assert_false(exists(done));
    crumb_gguf *to = open_any(out_path);
    assert_same_tensors(from, to, 0);
    crumb_gguf_close(to);

    /* another model's work is not taken up */
    unlink(out_path);
    assert_int_equal(rewrite(from, types, 1, go_on_until, &half, &n_kept, &err), CRUMB_ERR_INTERRUPTED);
    assert_int_equal(rewrite(from, types, 2, NULL, NULL, &n_kept, &err), CRUMB_OK);
    assert_int_equal(n_kept, 0);
    to = open_any(out_path);
    assert_same_tensors(from, to, 0);
    crumb_gguf_close(to);
    crumb_gguf_close(from);
    free(types);
    remove_outputs();
}

/* ---- GPTQ's form ---------------------------------------------------------------------------------------------- */

static const char gptq_out[] = "test_checkpoints.gptq";

/* *n_plain: tensors of the file that are not packed. */
static crumb_status write_gptq(crumb_progress_fn progress, void *user, uint64_t *n_kept, uint64_t *n_plain,
                               crumb_error *err) {
    crumb_gguf *from = open_any("tests/oracle/checkpoints/qwen2-f16-yarn");
    const crumb_gptq_run run = {.form = {.from = from,
                                         .from_path = "tests/oracle/checkpoints/qwen2-f16-yarn",
                                         .to = gptq_out,
                                         .bits = 3,
                                         .group = 32},
                                .n_threads = 2,
                                .progress = progress,
                                .progress_user = user};
    *n_plain = crumb_gguf_n_tensors(from) - 8; /* q, k, v and o of two layers */
    const crumb_status status = crumb_gptq_run_all(&run, n_kept, err);
    crumb_gguf_close(from);
    return status;
}

static void remove_gptq(void) {
    static const char *const names[] = {"config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "model.safetensors",
                                        "model.safetensors.partial",
                                        "model.safetensors.partial.done"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", gptq_out, names[i]);
        unlink(path);
    }
    rmdir(gptq_out);
}

/* Stopped, and with only some of a matrix's four tensors whole: these stay, and the others are made again. */
static void parts_of_a_packed_matrix_are_taken_up(void **state) {
    (void)state;
    static const char model[] = "test_checkpoints.gptq/model.safetensors",
                      done[] = "test_checkpoints.gptq/model.safetensors.partial.done",
                      config[] = "test_checkpoints.gptq/config.json";
    crumb_error err = {0};
    uint64_t n_kept, n_plain;
    size_t n_whole, n_again;
    stop_at half = {0.5f};
    remove_gptq();
    if (write_gptq(NULL, NULL, &n_kept, &n_plain, &err) != CRUMB_OK) fail_msg("%s", err.message);
    uint8_t *whole = read_whole_file(model, &n_whole);
    for (long cut = 1; cut <= 4; cut++) {
        remove_gptq();
        assert_int_equal(write_gptq(go_on_until, &half, &n_kept, &n_plain, &err), CRUMB_ERR_INTERRUPTED);
        assert_false(exists(config));
        const uint64_t sums = (size_of(done) - 24) / 8;
        assert_true(sums > 8);
        assert_int_equal(truncate(done, (off_t)size_of(done) - 8 * cut), 0);
        if (write_gptq(NULL, NULL, &n_kept, &n_plain, &err) != CRUMB_OK) fail_msg("%s", err.message);
        assert_int_equal(n_kept, (sums - (uint64_t)cut - n_plain) / 4);
        uint8_t *again = read_whole_file(model, &n_again);
        assert_int_equal(n_again, n_whole);
        assert_memory_equal(again, whole, n_whole);
        free(again);
    }
    free(whole);
    assert_true(exists(config) && !exists(done));
    remove_gptq();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_weights_are_what_was_packed),
        cmocka_unit_test(checkpoints_have_the_weights_of_their_gguf_files),
        cmocka_unit_test(checkpoints_answer_as_transformers_does),
        cmocka_unit_test(act_order_computes_the_same),
        cmocka_unit_test(converted_files_hold_the_same),
        cmocka_unit_test(work_that_was_stopped_is_taken_up),
        cmocka_unit_test(parts_of_a_packed_matrix_are_taken_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
