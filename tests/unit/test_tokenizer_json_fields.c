/* A tokenizer.json in which one field that is read is missing, or something else than it should be: refused with the
 * field named, whatever stands there instead. */
#include "host/text/tokenizer_json.h"
#include "tests/support/vocab_texts.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What a field may be: s string, b true or false, n number, o object, l list, ? null; -: or absent. */
static const struct field {
    const char *path, *may_be;
} fields[] = {
    {"version", "s?-"},
    {"truncation", "o?-"},
    {"padding", "o?-"},
    {"model", "o"},
    {"model.type", "s"},
    {"model.vocab", "o"},
    {"model.vocab.a", "n-"},
    {"model.merges", "l"},
    {"model.merges[0]", "s"},
    {"model.unk_token", "s?-"},
    {"model.dropout", "n?-"},
    {"model.continuing_subword_prefix", "s?-"},
    {"model.end_of_word_suffix", "s?-"},
    {"model.byte_fallback", "b?-"},
    {"model.fuse_unk", "b?-"},
    {"model.ignore_merges", "b?-"},
    {"added_tokens", "l?-"},
    {"added_tokens[0]", "o"},
    {"added_tokens[0].id", "n"},
    {"added_tokens[0].content", "s"},
    {"added_tokens[0].single_word", "b?-"},
    {"added_tokens[0].lstrip", "b?-"},
    {"added_tokens[0].rstrip", "b?-"},
    {"added_tokens[0].normalized", "b?-"},
    {"added_tokens[0].special", "b?-"},
    {"normalizer", "o?-"},
    {"normalizer.type", "s"},
    {"normalizer.normalizers", "l"},
    {"normalizer.normalizers[0]", "o"},
    {"normalizer.normalizers[0].type", "s"},
    {"normalizer.normalizers[0].prepend", "s"},
    {"normalizer.normalizers[1].type", "s"},
    {"normalizer.normalizers[1].pattern", "o"},
    {"normalizer.normalizers[1].pattern.String", "s"},
    {"normalizer.normalizers[1].content", "s"},
    {"pre_tokenizer", "o?-"},
    {"pre_tokenizer.type", "s"},
    {"pre_tokenizer.add_prefix_space", "b?-"},
    {"pre_tokenizer.use_regex", "b?-"},
    {"pre_tokenizer.replacement", "s"},
    {"pre_tokenizer.prepend_scheme", "s"},
    {"pre_tokenizer.split", "b"},
    {"pre_tokenizer.pretokenizers", "l"},
    {"pre_tokenizer.pretokenizers[0]", "o"},
    {"pre_tokenizer.pretokenizers[0].type", "s"},
    {"pre_tokenizer.pretokenizers[0].behavior", "s"},
    {"pre_tokenizer.pretokenizers[0].invert", "b?-"},
    {"pre_tokenizer.pretokenizers[0].pattern", "o"},
    {"pre_tokenizer.pretokenizers[0].pattern.Regex", "s"},
    {"pre_tokenizer.pretokenizers[0].individual_digits", "b?-"},
    {"pre_tokenizer.pretokenizers[1].add_prefix_space", "b?-"},
    {"pre_tokenizer.pretokenizers[1].use_regex", "b?-"},
    {"pre_tokenizer.pretokenizers[2].individual_digits", "b?-"},
    {"post_processor", "o?-"},
    {"post_processor.type", "s"},
    {"post_processor.single", "l?-"},
    {"post_processor.single[0]", "o"},
    {"post_processor.single[0].SpecialToken", "o"},
    {"post_processor.single[0].SpecialToken.id", "s"},
    {"post_processor.single[1].Sequence", "o"},
    {"post_processor.special_tokens", "o"},
    {"post_processor.special_tokens.<s>", "o"},
    {"post_processor.special_tokens.<s>.ids", "l"},
    {"post_processor.special_tokens.<s>.ids[0]", "n"},
    {"post_processor.processors", "l?-"},
    {"post_processor.processors[0]", "o"},
    {"post_processor.processors[0].type", "s"},
    {"decoder", "o?-"},
    {"decoder.type", "s"},
    {"decoder.decoders", "l?-"},
    {"decoder.decoders[0]", "o"},
    {"decoder.decoders[0].type", "s"},
    {"decoder.decoders[0].pattern", "o"},
    {"decoder.decoders[0].pattern.String", "s"},
    {"decoder.decoders[0].content", "s"},
    {"decoder.decoders[3].start", "n"},
    {"decoder.decoders[3].stop", "n"},
    {"decoder.decoders[3].content", "s"},
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const struct {
    char kind;
    const char *json;
} others[] = {{'s', "\"7\""}, {'s', "\"\""}, {'b', "true"}, {'b', "false"},
              {'n', "7.5"},   {'n', "-1"},   {'o', "{}"},   {'o', "{\"a\":1}"},
              {'l', "[]"},    {'l', "[7]"},  {'?', "null"}, {'-', NULL /* removed */}};

/* Documents of several kinds, with every field in one of them at least. */
static const struct {
    const char *name; /* in tests/oracle/vocabs */
    const char *decoder, *post_processor;
} documents[] = {
    {"gpt-2", "{\"type\":\"ByteLevel\"}", NULL},
    {"falcon", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}",
     "{\"type\":\"ByteLevel\",\"trim_offsets\":false}"},
    {"smollm", NULL, NULL},
    {"llama-bpe", NULL, NULL},
    {"spm",
     "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},"
     "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
     "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
     NULL},
    {"spm-first", "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\"}", NULL},
    {"spm-gemma", NULL, NULL},
};

static void replace(cJSON *document, const char *name, const char *json) {
    if (!json) return;
    cJSON *value = cJSON_Parse(json);
    assert_non_null(value);
    assert_true(cJSON_ReplaceItemInObjectCaseSensitive(document, name, value));
}

static cJSON *read_document(size_t which) {
    char path[256];
    size_t n_bytes;
    snprintf(path, sizeof path, "tests/oracle/vocabs/%s.json", documents[which].name);
    char *text = vocab_read_file(path, &n_bytes);
    cJSON *document = cJSON_ParseWithLength(text, n_bytes);
    assert_non_null(document);
    free(text);
    replace(document, "decoder", documents[which].decoder);
    replace(document, "post_processor", documents[which].post_processor);
    return document;
}

static crumb_status open_document(const cJSON *document, crumb_error *err) {
    crumb_tokenizer *t;
    char *text = cJSON_PrintUnformatted(document);
    const crumb_status status = crumb_tokenizer_open_json(text, strlen(text), "damaged.json", &t, err);
    if (status == CRUMB_OK) crumb_tokenizer_close(t);
    free(text);
    return status;
}

/* Where the path's last name stands: its parent, and it; NULL where it is not there. */
static cJSON *find(cJSON *root, const char *path, cJSON **parent) {
    cJSON *v = root;
    *parent = NULL;
    while (v && *path) {
        char name[40];
        const size_t n = strcspn(path + 1, ".[") + 1;
        *parent = v;
        if (*path == '[') {
            v = cJSON_IsArray(v) ? cJSON_GetArrayItem(v, (int)strtol(path + 1, NULL, 10)) : NULL;
        } else {
            const size_t skip = *path == '.';
            snprintf(name, sizeof name, "%.*s", (int)(n - skip), path + skip);
            v = cJSON_GetObjectItemCaseSensitive(v, name);
        }
        path += n;
    }
    return v;
}

/* As messages name it: "added_tokens[].id" and "model.vocab.*". */
static void name_of(const char *path, char out[128]) {
    char *to = out;
    for (; *path; path++)
        if (*path < '0' || *path > '9') *to++ = *path;
    *to = 0;
}

/* Puts `json` there, or takes away what is there; of a list's entry, which cannot be taken away, that makes null. */
static void damage(cJSON *document, const char *path, const char *json) {
    cJSON *parent, *v = find(document, path, &parent), *other = json ? cJSON_Parse(json) : cJSON_CreateNull();
    assert_true(v && other);
    if (!json && cJSON_IsObject(parent)) {
        cJSON_Delete(cJSON_DetachItemViaPointer(parent, v));
        cJSON_Delete(other);
    } else {
        if (cJSON_IsObject(parent)) other->string = strdup(v->string);
        assert_true(cJSON_ReplaceItemViaPointer(parent, v, other));
    }
}

/* What is of the wrong kind: the whole path. What is not there: that, or the field of which something is missing that
 * says what to do. Of vocabulary, merges and ids, whose entries are many, the list's name. */
static bool is_named(const char *message, const char *path, bool absent) {
    static const char *const wholes[] = {"model.vocab", "model.merges", "post_processor.special_tokens"};
    char name[128], quoted[160];
    name_of(path, name);
    snprintf(quoted, sizeof quoted, "'%s'", name);
    if (strstr(message, quoted)) return true;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        if (strncmp(name, wholes[i], strlen(wholes[i])) == 0 && strstr(message, wholes[i])) return true;
    snprintf(quoted, sizeof quoted, "'%.*s'", (int)strcspn(name, "."), name);
    return absent && strstr(message, quoted);
}

static void one_field(const char *name, const cJSON *sound, const struct field *f) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        crumb_error err = {0};
        const bool absent = strchr("?-", others[i].kind);
        if (strchr(f->may_be, others[i].kind)) continue;
        cJSON *document = cJSON_Duplicate(sound, true);
        damage(document, f->path, others[i].json);
        const crumb_status status = open_document(document, &err);
        if ((status != CRUMB_ERR_FORMAT && !(absent && status == CRUMB_ERR_UNSUPPORTED)) ||
            !is_named(err.message, f->path, absent) || strncmp(err.message, "damaged.json: ", 14) != 0)
            fail_msg("%s: %s as %s: %s: '%s'", name, f->path, others[i].json ? others[i].json : "nothing",
                     crumb_status_name(status), err.message);
        cJSON_Delete(document);
    }
}

static void each_field_is_named(void **state) {
    (void)state;
    bool seen[2][N_FIELDS] = {{false}}; /* in byte-level and in SentencePiece's kind */
    for (size_t which = 0; which < sizeof documents / sizeof *documents; which++) {
        cJSON *document = read_document(which), *parent;
        crumb_error err = {0};
        if (open_document(document, &err) != CRUMB_OK) fail_msg("%s: %s", documents[which].name, err.message);
        for (size_t i = 0; i < N_FIELDS; i++) {
            const bool is_spm = strncmp(documents[which].name, "spm", 3) == 0;
            if (seen[is_spm][i] || !find(document, fields[i].path, &parent)) continue;
            seen[is_spm][i] = true;
            one_field(documents[which].name, document, &fields[i]);
        }
        cJSON_Delete(document);
    }
    for (size_t i = 0; i < N_FIELDS; i++)
        if (!seen[0][i] && !seen[1][i]) fail_msg("%s is in no document", fields[i].path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_field_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
