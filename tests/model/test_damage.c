/* GGUF files of every type and architecture (tests/oracle/models), each with one field of one tensor changed: refused
 * with the tensor named, and never taken for a model of another shape. */
#include "host/model/arch.h"
#include "host/model/weights.h"
#include "tests/model/fixture.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TYPE_IDS = 48 };

typedef struct file {
    uint8_t *data;
    size_t size;
    char name[64];
} file;

/* As far as a model's weights are planned: every tensor is there, in the shape that the keys ask for. */
static crumb_status plan(const file *f, crumb_error *err) {
    crumb_gguf *g;
    crumb_network net = {0};
    crumb_weights weights = {0};
    crumb_bytes architecture = {NULL, 0};
    char name[32];
    crumb_status status = crumb_gguf_open_memory(f->data, f->size, f->name, &g, err);
    if (status != CRUMB_OK) return status;
    if (crumb_gguf_get_string(g, "general.architecture", true, &architecture, err) != CRUMB_OK)
        fail_msg("%s", err->message);
    snprintf(name, sizeof name, "%.*s", (int)architecture.size, architecture.data);
    net.arch = crumb_arch_find(name);
    assert_non_null(net.arch);
    status = crumb_hparams_read(g, net.arch->name, &net.hparams, err);
    if (status == CRUMB_OK) status = crumb_weights_plan(g, NULL, &net, &weights, err);
    crumb_weights_free(&weights);
    free(net.layers);
    crumb_gguf_close(g);
    return status;
}

/* Where the tensor's entry goes on behind its name: u32 n_dims, u64 dims[n_dims], u32 type, u64 offset. */
static uint8_t *find_entry(const file *f, const char *name) {
    const uint64_t length = strlen(name);
    uint8_t needle[8 + 128];
    assert_true(length <= 128);
    memcpy(needle, &length, 8);
    memcpy(needle + 8, name, length);
    uint8_t *at = memmem(f->data, f->size, needle, 8 + length);
    assert_non_null(at);
    return at + 8 + length;
}

/* The file is refused, with the tensor named, or its neighbour where the bytes are not theirs alone. */
static void expect_refusal(const file *f, const char *tensor, const char *change, uint64_t value) {
    crumb_error err = {0};
    if (plan(f, &err) == CRUMB_OK)
        fail_msg("%s: '%s' with %s %llu is taken", f->name, tensor, change, (unsigned long long)value);
    if (!strstr(err.message, "tensor '") && !strstr(err.message, "key '"))
        fail_msg("%s: '%s' with %s %llu: '%s' names nothing", f->name, tensor, change, (unsigned long long)value,
                 err.message);
}

static void change_dims(const file *f, const crumb_gguf_tensor *t, uint8_t *entry) {
    for (uint32_t d = 0; d < t->n_dims; d++) {
        const uint64_t n = t->dims[d],
                       values[] = {0, 1, n - 1, n + 1, n + 32, n + 256, 2 * n, n / 2, UINT64_C(1) << 62};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            if (values[i] == n) continue;
            memcpy(entry + 4 + 8 * (size_t)d, &values[i], 8);
            expect_refusal(f, t->name, d ? "rows" : "columns", values[i]);
        }
        memcpy(entry + 4 + 8 * (size_t)d, &n, 8);
    }
}

static uint64_t padded(uint64_t n_bytes) {
    return (n_bytes + 31) / 32 * 32;
}

/* Types of which so many weights have as many bytes, but for padding, cannot be told apart, nor is their shape another.
 * The same holds for fewer bytes in the last place of a file, behind which anything may stand. */
static void change_type(const file *f, const crumb_gguf_tensor *t, bool is_last, uint8_t *entry) {
    uint8_t *at = entry + 4 + 8 * (size_t)t->n_dims;
    for (uint32_t id = 0; id < N_TYPE_IDS; id++) {
        crumb_error err = {0};
        crumb_gguf *g;
        if (id == t->type_id) continue;
        memcpy(at, &id, 4);
        bool is_possible = false;
        if (crumb_gguf_open_memory(f->data, f->size, f->name, &g, &err) == CRUMB_OK) {
            const crumb_gguf_tensor *other = crumb_gguf_find_tensor(g, t->name);
            is_possible = other->supported && (is_last || padded(other->n_bytes) == padded(t->n_bytes));
            crumb_gguf_close(g);
        }
        if (!is_possible) expect_refusal(f, t->name, "type", id);
    }
    memcpy(at, &t->type_id, 4);
}

/* seen: of each type, whether it is in the file. */
static void each_tensor(const char *path, const char *name, bool seen[CRUMB_TYPE_GGUF_COUNT]) {
    file f = {0};
    crumb_gguf *g;
    crumb_error err = {0};
    uint64_t last = 0;
    f.data = read_whole_file(path, &f.size);
    snprintf(f.name, sizeof f.name, "%.63s", name);
    if (plan(&f, &err) != CRUMB_OK) fail_msg("%s", err.message);
    if (crumb_gguf_open(path, &g, &err) != CRUMB_OK) fail_msg("%s", err.message);
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++)
        if (crumb_gguf_tensor_at(g, i)->offset > last) last = crumb_gguf_tensor_at(g, i)->offset;
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        uint8_t *entry = find_entry(&f, t->name);
        seen[t->type] = true;
        change_dims(&f, t, entry);
        change_type(&f, t, t->offset == last, entry);
    }
    if (plan(&f, &err) != CRUMB_OK) fail_msg("%s", err.message); /* all is as it was */
    crumb_gguf_close(g);
    free(f.data);
}

static void changed_tensors_are_refused(void **state) {
    (void)state;
    glob_t found;
    bool seen[CRUMB_TYPE_GGUF_COUNT] = {false};
    assert_int_equal(glob("tests/oracle/models/*.gguf", 0, NULL, &found), 0);
    assert_true(found.gl_pathc >= 18);
    for (size_t i = 0; i < found.gl_pathc; i++)
        each_tensor(found.gl_pathv[i], strrchr(found.gl_pathv[i], '/') + 1, seen);
    globfree(&found);
    for (int type = 0; type < CRUMB_TYPE_GGUF_COUNT; type++)
        if (!seen[type]) fail_msg("no model has weights of type %s", crumb_type_get_info((crumb_type)type)->name);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(changed_tensors_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
