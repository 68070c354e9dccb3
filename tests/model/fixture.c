#include "tests/model/fixture.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint8_t *read_whole_file(const char *path, size_t *n_bytes) {
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    assert_true(size > 0);
    rewind(f);
    uint8_t *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)size, f), size);
    bytes[size] = 0;
    fclose(f);
    *n_bytes = (size_t)size;
    return bytes;
}

static void fixture_load(const char *path, fixture *out) {
    size_t n_bytes;
    uint8_t *bytes = read_whole_file(path, &n_bytes);
    uint32_t header[3];
    assert_true(n_bytes > 20 && memcmp(bytes, "CRUMBFX1", 8) == 0);
    memcpy(header, bytes + 8, sizeof header);
    *out = (fixture){.bytes = bytes, .n_tokens = header[0], .n_vocab = header[1], .n_sets = header[2]};
    const char *base = strrchr(path, '/') + 1;
    snprintf(out->name, sizeof out->name, "%.*s", (int)(strlen(base) - strlen(".bin")), base);
    snprintf(out->model_path, sizeof out->model_path, "tests/oracle/models/%s.gguf", out->name);

    size_t set_bytes = 4 + sizeof(float) * out->n_tokens * out->n_vocab;
    assert_in_range(out->n_sets, 1, FIXTURE_MAX_SETS);
    assert_int_equal(n_bytes, 20 + sizeof(int32_t) * out->n_tokens + out->n_sets * set_bytes);
    out->tokens = (const int32_t *)(bytes + 20); /* 4-byte aligned, as malloc's 16 are */
    const uint8_t *at = bytes + 20 + sizeof(int32_t) * out->n_tokens;
    for (uint32_t s = 0; s < out->n_sets; s++, at += set_bytes) {
        uint32_t activation;
        memcpy(&activation, at, 4);
        out->activation[s] = (crumb_activation)activation;
        out->logits[s] = (const float *)(at + 4);
    }
}

fixture *fixtures_load(size_t *n) {
    glob_t found;
    assert_int_equal(glob("tests/oracle/expected/*.bin", 0, NULL, &found), 0);
    fixture *all = calloc(found.gl_pathc, sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < found.gl_pathc; i++) fixture_load(found.gl_pathv[i], &all[i]);
    *n = found.gl_pathc;
    globfree(&found);
    return all;
}

void fixtures_free(fixture *fixtures, size_t n) {
    for (size_t i = 0; i < n; i++) free(fixtures[i].bytes);
    free(fixtures);
}

const float *fixture_logits(const fixture *f, crumb_activation activation) {
    for (uint32_t s = 0; s < f->n_sets; s++) {
        if (f->activation[s] == activation) return f->logits[s];
    }
    return NULL;
}

/* ---- logits -------------------------------------------------------------------------------------------------- */

typedef struct rows {
    float *logits;
    uint32_t n_vocab;
} rows;

static crumb_status keep_row(void *user, size_t index, const float *logits) {
    const rows *to = user;
    memcpy(to->logits + index * to->n_vocab, logits, to->n_vocab * sizeof *logits);
    return CRUMB_OK;
}

void score_tokens(const char *model_path, const int32_t *tokens, size_t n_tokens, uint32_t n_vocab,
                  crumb_activation activation, float *logits) {
    crumb_model_params params = crumb_model_params_default();
    crumb_session_params session_params = crumb_session_params_default();
    rows to = {logits, n_vocab};
    crumb_model_info info;
    crumb_model *model;
    crumb_session *session;
    crumb_error err = {0};
    params.device = "cpu";
    params.n_threads = 1;
    session_params.n_ctx = 32;
    session_params.activation = activation;
    if (crumb_model_open(model_path, &params, &model, &err) != CRUMB_OK) fail_msg("%s", err.message);
    crumb_model_get_info(model, &info);
    assert_int_equal(info.n_vocab, n_vocab);
    if (crumb_session_create(model, &session_params, &session, &err) != CRUMB_OK) fail_msg("%s", err.message);
    if (crumb_session_score(session, tokens, n_tokens, 0, keep_row, &to, &err) != CRUMB_OK) fail_msg("%s", err.message);
    crumb_session_destroy(session);
    crumb_model_close(model);
}

double squared_error(const float *found, const float *wanted, size_t n) {
    double error = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = (double)wanted[i], d = (double)found[i] - x;
        error += d * d;
        sum += x * x;
    }
    assert_true(sum > 0 && isfinite(sum));
    return error / sum;
}
