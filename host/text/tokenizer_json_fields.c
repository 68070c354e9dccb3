/* Which fields of a tokenizer.json are read, and what each may be. Whoever reads one later takes what is no text for no
 * text: here it is refused with its name. */
#include "host/text/tokenizer_json_fields.h"

#include <stdio.h>
#include <string.h>

enum { NONE = 1, TEXT = 2, FLAG = 4, NUMBER = 8, OBJECT = 16, LIST = 32 }; /* NONE: absent, or null */

typedef struct field {
    const char *path; /* members by name; "[]": each entry of a list, "*": each member of an object */
    unsigned kinds;
} field;

/* Parents stand before their members. */
#define COMPONENT(path)                                                                                                \
    {path ".type", TEXT}, {path ".pattern", OBJECT | NONE}, {path ".pattern.String", TEXT | NONE},                     \
        {path ".pattern.Regex", TEXT | NONE}, {                                                                        \
        path ".content", TEXT | NONE                                                                                   \
    }
#define NORMALIZER(path)                                                                                               \
    COMPONENT(path), {                                                                                                 \
        path ".prepend", TEXT | NONE                                                                                   \
    }
#define PRE_TOKENIZER(path)                                                                                            \
    COMPONENT(path), {path ".behavior", TEXT | NONE}, {path ".invert", FLAG | NONE},                                   \
        {path ".add_prefix_space", FLAG | NONE}, {path ".use_regex", FLAG | NONE},                                     \
        {path ".individual_digits", FLAG | NONE}, {path ".replacement", TEXT | NONE},                                  \
        {path ".prepend_scheme", TEXT | NONE}, {                                                                       \
        path ".split", FLAG | NONE                                                                                     \
    }
#define POST_PROCESSOR(path)                                                                                           \
    {path ".type", TEXT}, {path ".single", LIST | NONE}, {path ".single[]", OBJECT},                                   \
        {path ".single[].SpecialToken", OBJECT | NONE}, {path ".single[].SpecialToken.id", TEXT},                      \
        {path ".single[].Sequence", OBJECT | NONE}, {path ".special_tokens", OBJECT | NONE},                           \
        {path ".special_tokens.*", OBJECT}, {                                                                          \
        path ".special_tokens.*.ids", LIST                                                                             \
    }
#define DECODER(path)                                                                                                  \
    COMPONENT(path), {path ".replacement", TEXT | NONE}, {path ".start", NUMBER | NONE}, {                             \
        path ".stop", NUMBER | NONE                                                                                    \
    }

static const field fields[] = {
    {"version", TEXT | NONE},
    {"truncation", OBJECT | NONE},
    {"padding", OBJECT | NONE},
    {"model", OBJECT},
    {"model.type", TEXT},
    {"model.vocab", OBJECT},
    {"model.vocab.*", NUMBER},
    {"model.merges", LIST},
    {"model.unk_token", TEXT | NONE},
    {"model.continuing_subword_prefix", TEXT | NONE},
    {"model.end_of_word_suffix", TEXT | NONE},
    {"model.dropout", NUMBER | NONE},
    {"model.byte_fallback", FLAG | NONE},
    {"model.fuse_unk", FLAG | NONE},
    {"model.ignore_merges", FLAG | NONE},
    {"added_tokens", LIST | NONE},
    {"added_tokens[]", OBJECT},
    {"added_tokens[].id", NUMBER},
    {"added_tokens[].content", TEXT},
    {"added_tokens[].special", FLAG | NONE},
    {"added_tokens[].single_word", FLAG | NONE},
    {"added_tokens[].lstrip", FLAG | NONE},
    {"added_tokens[].rstrip", FLAG | NONE},
    {"added_tokens[].normalized", FLAG | NONE},
    {"normalizer", OBJECT | NONE},
    NORMALIZER("normalizer"),
    {"normalizer.normalizers", LIST | NONE},
    {"normalizer.normalizers[]", OBJECT},
    NORMALIZER("normalizer.normalizers[]"),
    {"pre_tokenizer", OBJECT | NONE},
    PRE_TOKENIZER("pre_tokenizer"),
    {"pre_tokenizer.pretokenizers", LIST | NONE},
    {"pre_tokenizer.pretokenizers[]", OBJECT},
    PRE_TOKENIZER("pre_tokenizer.pretokenizers[]"),
    {"post_processor", OBJECT | NONE},
    POST_PROCESSOR("post_processor"),
    {"post_processor.processors", LIST | NONE},
    {"post_processor.processors[]", OBJECT},
    POST_PROCESSOR("post_processor.processors[]"),
    {"decoder", OBJECT | NONE},
    DECODER("decoder"),
    {"decoder.decoders", LIST | NONE},
    {"decoder.decoders[]", OBJECT},
    DECODER("decoder.decoders[]"),
};

static unsigned kind_of(const cJSON *v) {
    if (!v || cJSON_IsNull(v)) return NONE;
    if (cJSON_IsString(v)) return TEXT;
    if (cJSON_IsBool(v)) return FLAG;
    if (cJSON_IsNumber(v)) return NUMBER;
    return cJSON_IsObject(v) ? OBJECT : LIST;
}

static crumb_status check_kind(const field *f, const cJSON *v, crumb_error *err) {
    static const struct {
        unsigned kind;
        const char *name;
    } names[] = {
        {TEXT, "a string"}, {FLAG, "true or false"}, {NUMBER, "a number"}, {OBJECT, "an object"}, {LIST, "a list"}};
    const unsigned kind = kind_of(v);
    if (f->kinds & kind) return CRUMB_OK;
    if (!v) return crumb_fail(err, CRUMB_ERR_FORMAT, "field '%s': missing", f->path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (f->kinds & names[i].kind)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "field '%s': not %s", f->path, names[i].name);
    return CRUMB_OK;
}

/* Follows what is left of the path from v, as often as there are entries and members; where a parent is absent, or not
 * what it should be (which its own row says), there is nothing to check. */
static crumb_status check_from(const field *f, const char *rest, const cJSON *v, crumb_error *err) {
    const cJSON *member;
    char name[40];
    if (!*rest) return check_kind(f, v, err);
    if (strncmp(rest, "[]", 2) == 0) {
        if (!cJSON_IsArray(v)) return CRUMB_OK;
        cJSON_ArrayForEach(member, v) CRUMB_TRY(check_from(f, rest + 2, member, err));
        return CRUMB_OK;
    }
    if (*rest == '.') rest++;
    if (!cJSON_IsObject(v)) return CRUMB_OK;
    if (*rest == '*') {
        cJSON_ArrayForEach(member, v) CRUMB_TRY(check_from(f, rest + 1, member, err));
        return CRUMB_OK;
    }
    const size_t n = strcspn(rest, ".[");
    snprintf(name, sizeof name, "%.*s", (int)n, rest);
    return check_from(f, rest + n, cJSON_GetObjectItemCaseSensitive(v, name), err);
}

crumb_status crumb_tokenizer_json_check_fields(const cJSON *root, crumb_error *err) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        CRUMB_TRY(check_from(&fields[i], fields[i].path, root, err));
    const char *version = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "version"));
    if (!version || strcmp(version, "1.0") == 0) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "field 'version': '%.20s' is something that crumb does not do",
                      version);
}
