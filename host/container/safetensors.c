#include "host/container/safetensors.h"

#include "host/base/checked.h"
#include "host/base/file.h"
#include "host/base/json.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, MAX_HEADER_BYTES = 100 << 20, MAX_PARTS = 4096 }; /* the format's own limit; ours */

typedef struct part {
    char *path;
    crumb_file_map map;
    bool mapped;
    cJSON *header; /* names stay in it */
    uint64_t data_offset;
} part;

struct crumb_safetensors {
    part *parts;
    uint32_t n_parts;
    crumb_safetensor *tensors; /* [n_tensors], sorted by name */
    size_t n_tensors, capacity;
};

static const struct {
    const char *name;
    uint8_t n_bytes;
} dtypes[CRUMB_DTYPE_COUNT] = {
    [CRUMB_DTYPE_BOOL] = {"BOOL", 1},       [CRUMB_DTYPE_U8] = {"U8", 1},           [CRUMB_DTYPE_I8] = {"I8", 1},
    [CRUMB_DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [CRUMB_DTYPE_F8_E5M2] = {"F8_E5M2", 1}, [CRUMB_DTYPE_U16] = {"U16", 2},
    [CRUMB_DTYPE_I16] = {"I16", 2},         [CRUMB_DTYPE_F16] = {"F16", 2},         [CRUMB_DTYPE_BF16] = {"BF16", 2},
    [CRUMB_DTYPE_U32] = {"U32", 4},         [CRUMB_DTYPE_I32] = {"I32", 4},         [CRUMB_DTYPE_F32] = {"F32", 4},
    [CRUMB_DTYPE_U64] = {"U64", 8},         [CRUMB_DTYPE_I64] = {"I64", 8},         [CRUMB_DTYPE_F64] = {"F64", 8},
};

const char *crumb_dtype_name(crumb_dtype dtype) {
    return dtypes[dtype].name;
}

/* ---- one tensor -------------------------------------------------------------------------------------------- */

static crumb_status damaged(const part *p, const char *tensor, const char *problem, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: tensor '%.80s': %s; the file is damaged", p->path, tensor, problem);
}

/* A whole number that a double holds exactly. */
static bool read_count(const cJSON *v, uint64_t *out) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) || !(v->valuedouble <= 9007199254740992.0)) return false;
    *out = (uint64_t)v->valuedouble;
    return (double)*out == v->valuedouble;
}

static crumb_status read_dtype(const part *p, const cJSON *entry, crumb_safetensor *t, crumb_error *err) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(entry, "dtype");
    if (!cJSON_IsString(v)) return damaged(p, t->name, "dtype: missing, or not a string", err);
    for (int i = 0; i < CRUMB_DTYPE_COUNT; i++)
        if (strcmp(dtypes[i].name, v->valuestring) == 0) return t->dtype = (crumb_dtype)i, CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s: tensor '%.80s': dtype '%.20s' is not supported", p->path,
                      t->name, v->valuestring);
}

static crumb_status read_shape(const part *p, const cJSON *entry, crumb_safetensor *t, crumb_error *err) {
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape"), *v;
    if (!cJSON_IsArray(shape)) return damaged(p, t->name, "shape: missing, or not a list", err);
    t->n_values = 1;
    cJSON_ArrayForEach(v, shape) {
        if (t->n_dims == CRUMB_SAFETENSORS_MAX_DIMS) return damaged(p, t->name, "shape: more than 8 dimensions", err);
        if (!read_count(v, &t->dims[t->n_dims])) return damaged(p, t->name, "shape: a dimension is not a count", err);
        if (!crumb_mul_u64(t->n_values, t->dims[t->n_dims++], &t->n_values))
            return damaged(p, t->name, "shape: the size overflows", err);
    }
    return CRUMB_OK;
}

static crumb_status read_place(const part *p, const cJSON *entry, crumb_safetensor *t, crumb_error *err) {
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    uint64_t begin, end, expected;
    if (cJSON_GetArraySize(offsets) != 2 || !cJSON_IsArray(offsets) || !read_count(offsets->child, &begin) ||
        !read_count(offsets->child->next, &end))
        return damaged(p, t->name, "data_offsets: missing, or not two counts", err);
    if (begin > end || end > p->map.size - p->data_offset)
        return damaged(p, t->name, "data_offsets: its bytes do not lie in the file", err);
    if (!crumb_mul_u64(t->n_values, dtypes[t->dtype].n_bytes, &expected) || expected != end - begin)
        return damaged(p, t->name, "shape and dtype do not fit its data_offsets", err);
    t->offset = p->data_offset + begin;
    t->n_bytes = end - begin;
    return CRUMB_OK;
}

/* ---- one file ---------------------------------------------------------------------------------------------- */

typedef struct header_read {
    const part *p;
    char *copy_to; /* NULL: only its size is read */
    uint64_t n_bytes;
} header_read;

/* Runs inside crumb_file_guard: owns and allocates nothing. */
static crumb_status read_header(void *ctx, crumb_error *err) {
    header_read *read = ctx;
    const part *p = read->p;
    if (read->copy_to) return memcpy(read->copy_to, p->map.data + LENGTH_BYTES, read->n_bytes), CRUMB_OK;
    if (p->map.size < LENGTH_BYTES)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: too short for a safetensors file", p->path);
    memcpy(&read->n_bytes, p->map.data, LENGTH_BYTES);
    if (read->n_bytes > p->map.size - LENGTH_BYTES || read->n_bytes > MAX_HEADER_BYTES)
        return crumb_fail(err, CRUMB_ERR_FORMAT,
                          "%s: not a safetensors file, or cut off: its header would have %llu bytes", p->path,
                          (unsigned long long)read->n_bytes);
    return CRUMB_OK;
}

static crumb_status load_header(part *p, crumb_error *err) {
    header_read read = {.p = p};
    CRUMB_TRY(crumb_file_guard(p->path, read_header, &read, err));
    CRUMB_TRY(crumb_calloc(read.n_bytes + 1, 1, "a safetensors header", (void **)&read.copy_to, err));
    crumb_status status = crumb_file_guard(p->path, read_header, &read, err);
    if (status == CRUMB_OK) {
        p->data_offset = LENGTH_BYTES + read.n_bytes;
        status = crumb_json_parse_object(read.copy_to, read.n_bytes, &p->header, err);
        if (status != CRUMB_OK) crumb_fail_prefix(err, status, "%s: the header is damaged", p->path);
    }
    free(read.copy_to);
    return status;
}

static int compare_places(const void *a, const void *b) {
    const crumb_safetensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

/* What lies between tensors, or behind them, is nobody's: the format does not allow it. */
static crumb_status check_places(const part *p, crumb_safetensor *tensors, size_t n, crumb_error *err) {
    uint64_t end = p->data_offset;
    qsort(tensors, n, sizeof *tensors, compare_places);
    for (size_t i = 0; i < n; end += tensors[i++].n_bytes)
        if (tensors[i].offset != end)
            return damaged(p, tensors[i].name, "data_offsets: its bytes overlap another tensor's, or leave a gap", err);
    if (end != p->map.size)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: %llu bytes behind the last tensor; the file is damaged", p->path,
                          (unsigned long long)(p->map.size - end));
    return CRUMB_OK;
}

static crumb_status reserve(crumb_safetensors *s, size_t n, crumb_error *err) {
    if (s->capacity - s->n_tensors >= n) return CRUMB_OK;
    const size_t larger = 2 * s->capacity + n;
    void *grown = realloc(s->tensors, larger * sizeof *s->tensors);
    if (!grown) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for the list of tensors");
    s->tensors = grown;
    s->capacity = larger;
    return CRUMB_OK;
}

/* Texts by name, of which none says how tensors are read. */
static crumb_status check_metadata(const part *p, const cJSON *entry, crumb_error *err) {
    const cJSON *v;
    bool sound = cJSON_IsObject(entry);
    cJSON_ArrayForEach(v, entry) sound = sound && cJSON_IsString(v);
    if (sound) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: __metadata__: not an object of strings; the file is damaged",
                      p->path);
}

static crumb_status add_tensors(crumb_safetensors *s, uint32_t number, crumb_error *err) {
    const part *p = &s->parts[number];
    const size_t first = s->n_tensors;
    const cJSON *entry;
    CRUMB_TRY(load_header(&s->parts[number], err));
    CRUMB_TRY(reserve(s, (size_t)cJSON_GetArraySize(p->header) + 1, err)); /* an array even where there is no tensor */
    cJSON_ArrayForEach(entry, p->header) {
        if (strcmp(entry->string, "__metadata__") == 0) {
            CRUMB_TRY(check_metadata(p, entry, err));
            continue;
        }
        crumb_safetensor t = {.name = entry->string, .part = number};
        for (const char *c = t.name; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f) return damaged(p, "?", "its name has control characters", err);
        if (!*t.name) return damaged(p, "", "its name is empty", err);
        if (!cJSON_IsObject(entry)) return damaged(p, t.name, "not an object of dtype, shape and data_offsets", err);
        CRUMB_TRY(read_dtype(p, entry, &t, err));
        CRUMB_TRY(read_shape(p, entry, &t, err));
        CRUMB_TRY(read_place(p, entry, &t, err));
        s->tensors[s->n_tensors++] = t;
    }
    return check_places(p, s->tensors + first, s->n_tensors - first, err);
}

static crumb_status open_part(crumb_safetensors *s, const char *path, crumb_error *err) {
    part *p = &s->parts[s->n_parts];
    CRUMB_TRY(crumb_calloc(strlen(path) + 1, 1, "a path", (void **)&p->path, err));
    s->n_parts++;
    memcpy(p->path, path, strlen(path));
    CRUMB_TRY(crumb_file_map_open(path, &p->map, err));
    p->mapped = true;
    return add_tensors(s, s->n_parts - 1, err);
}

/* ---- several files ----------------------------------------------------------------------------------------- */

/* The part of that path; NULL: it is not open yet. */
static const part *find_part(const crumb_safetensors *s, const char *path) {
    for (uint32_t i = 0; i < s->n_parts; i++)
        if (strcmp(s->parts[i].path, path) == 0) return &s->parts[i];
    return NULL;
}

/* Opens what `file`, named by the index for one of its tensors, is in the index's folder. */
static crumb_status open_named(crumb_safetensors *s, const char *index, const cJSON *entry, crumb_error *err) {
    const char *slash = strrchr(index, '/'), *file = cJSON_IsString(entry) ? entry->valuestring : "";
    char path[4096];
    if (!*file || strchr(file, '/') || strcmp(file, "..") == 0)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: weight_map: tensor '%.80s' is not in a file of this folder",
                          index, entry->string);
    const int n = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - index) : 0, index, file);
    if (n < 0 || (size_t)n >= sizeof path)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: the path is too long", index);
    if (find_part(s, path)) return CRUMB_OK;
    if (s->n_parts == MAX_PARTS)
        return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s: more than %d files", index, MAX_PARTS);
    return open_part(s, path, err);
}

typedef struct index_read {
    crumb_file_map map;
    char *copy_to;
} index_read;

/* Runs inside crumb_file_guard. */
static crumb_status copy_index(void *ctx, crumb_error *err) {
    (void)err;
    const index_read *read = ctx;
    memcpy(read->copy_to, read->map.data, read->map.size);
    return CRUMB_OK;
}

static crumb_status parse_index(const char *path, index_read *read, cJSON **out, crumb_error *err) {
    if (read->map.size > MAX_HEADER_BYTES) return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: too large for an index", path);
    CRUMB_TRY(crumb_calloc(read->map.size, 1, "an index of safetensors files", (void **)&read->copy_to, err));
    CRUMB_TRY(crumb_file_guard(path, copy_index, read, err));
    const crumb_status status = crumb_json_parse_object(read->copy_to, read->map.size, out, err);
    return status == CRUMB_OK ? CRUMB_OK : crumb_fail_prefix(err, status, "%s", path);
}

static crumb_status read_index(const char *path, cJSON **out, crumb_error *err) {
    index_read read = {.copy_to = NULL};
    *out = NULL;
    CRUMB_TRY(crumb_file_map_open(path, &read.map, err));
    const crumb_status status = parse_index(path, &read, out, err);
    free(read.copy_to);
    crumb_file_map_close(&read.map);
    return status;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const crumb_safetensor *)a)->name, ((const crumb_safetensor *)b)->name);
}

static crumb_status sort_names(crumb_safetensors *s, crumb_error *err) {
    qsort(s->tensors, s->n_tensors, sizeof *s->tensors, compare_names);
    for (size_t i = 1; i < s->n_tensors; i++)
        if (strcmp(s->tensors[i - 1].name, s->tensors[i].name) == 0)
            return damaged(&s->parts[s->tensors[i].part], s->tensors[i].name, "it is there twice", err);
    return CRUMB_OK;
}

/* Readers that go by the index would not find a tensor that is in another file than it says, or in none. */
static crumb_status check_index(const crumb_safetensors *s, const char *path, const cJSON *map, crumb_error *err) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, map) {
        const crumb_safetensor *t = crumb_safetensors_find(s, entry->string);
        const char *in = t ? crumb_safetensors_path(s, t) : "", *slash = strrchr(in, '/');
        if (strcmp(slash ? slash + 1 : in, entry->valuestring) != 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: weight_map: tensor '%.80s' is not in '%.80s'", path,
                              entry->string, entry->valuestring);
    }
    return CRUMB_OK;
}

static crumb_status open_index(crumb_safetensors *s, const char *path, crumb_error *err) {
    cJSON *index;
    const cJSON *entry;
    CRUMB_TRY(read_index(path, &index, err));
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map");
    crumb_status status = CRUMB_OK;
    if (!cJSON_IsObject(map) || !map->child)
        status = crumb_fail(err, CRUMB_ERR_FORMAT, "%s: no 'weight_map' with tensors", path);
    for (entry = map ? map->child : NULL; entry && status == CRUMB_OK; entry = entry->next)
        status = open_named(s, path, entry, err);
    if (status == CRUMB_OK) status = sort_names(s, err);
    if (status == CRUMB_OK) status = check_index(s, path, map, err);
    cJSON_Delete(index);
    return status;
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static crumb_status create(uint32_t n_parts, crumb_safetensors **out, crumb_error *err) {
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "safetensors files", (void **)out, err));
    return crumb_calloc(n_parts, sizeof *(*out)->parts, "safetensors files", (void **)&(*out)->parts, err);
}

/* Closes what is left of files that could not be opened. */
static crumb_status finish(crumb_status status, crumb_safetensors **s) {
    if (status == CRUMB_OK) return CRUMB_OK;
    crumb_safetensors_close(*s);
    *s = NULL;
    return status;
}

crumb_status crumb_safetensors_open(const char *path, crumb_safetensors **out, crumb_error *err) {
    static const char index_end[] = ".index.json";
    const size_t n = strlen(path), n_end = sizeof index_end - 1;
    const bool is_index = n >= n_end && strcmp(path + n - n_end, index_end) == 0;
    crumb_status status = create(is_index ? MAX_PARTS : 1, out, err);
    if (status == CRUMB_OK) status = is_index ? open_index(*out, path, err) : open_part(*out, path, err);
    if (status == CRUMB_OK && !is_index) status = sort_names(*out, err);
    return finish(status, out);
}

static crumb_status open_memory_part(crumb_safetensors *s, const void *data, size_t n_bytes, const char *name,
                                     crumb_error *err) {
    part *p = &s->parts[0];
    CRUMB_TRY(crumb_calloc(strlen(name) + 1, 1, "a name", (void **)&p->path, err));
    s->n_parts = 1;
    memcpy(p->path, name, strlen(name));
    p->map = (crumb_file_map){data, n_bytes};
    CRUMB_TRY(add_tensors(s, 0, err));
    return sort_names(s, err);
}

crumb_status crumb_safetensors_open_memory(const void *data, size_t n_bytes, const char *name, crumb_safetensors **out,
                                           crumb_error *err) {
    crumb_status status = create(1, out, err);
    if (status == CRUMB_OK) status = open_memory_part(*out, data, n_bytes, name, err);
    return finish(status, out);
}

void crumb_safetensors_close(crumb_safetensors *s) {
    if (!s) return;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        if (s->parts[i].mapped) crumb_file_map_close(&s->parts[i].map);
        cJSON_Delete(s->parts[i].header);
        free(s->parts[i].path);
    }
    free(s->parts);
    free(s->tensors);
    free(s);
}

/* ---- what was read ----------------------------------------------------------------------------------------- */

size_t crumb_safetensors_n(const crumb_safetensors *s) {
    return s->n_tensors;
}
const crumb_safetensor *crumb_safetensors_at(const crumb_safetensors *s, size_t index) {
    return &s->tensors[index];
}
const crumb_safetensor *crumb_safetensors_find(const crumb_safetensors *s, const char *name) {
    const crumb_safetensor wanted = {.name = name};
    return s->n_tensors ? bsearch(&wanted, s->tensors, s->n_tensors, sizeof wanted, compare_names) : NULL;
}
const uint8_t *crumb_safetensors_data(const crumb_safetensors *s, const crumb_safetensor *t) {
    return s->parts[t->part].map.data + t->offset;
}
void crumb_safetensors_release(const crumb_safetensors *s, const crumb_safetensor *t) {
    const part *p = &s->parts[t->part];
    if (p->mapped) crumb_file_map_release(&p->map, (size_t)t->offset, (size_t)t->n_bytes);
}
const char *crumb_safetensors_path(const crumb_safetensors *s, const crumb_safetensor *t) {
    return s->parts[t->part].path;
}
