/* Opening GGUF files: parts, where their tensors lie, and finding keys and tensors. */
#include "host/container/gguf.h"

#include "host/base/checked.h"
#include "host/base/memory.h"
#include "host/container/gguf_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one part: bytes to metadata ---- */

typedef struct guarded_read {
    gguf_part *p;
    uint8_t *copy_to; /* NULL: measure the metadata */
} guarded_read;

/* Runs inside crumb_file_guard: owns and allocates nothing. */
static crumb_status read_metadata(void *ctx, crumb_error *err) {
    const guarded_read *read = ctx;
    gguf_part *p = read->p;
    if (read->copy_to) {
        memcpy(read->copy_to, p->map.data, p->header.n_bytes);
        return CRUMB_OK;
    }
    /* The cast is sound: measuring writes nothing. */
    return gguf_walk(p->path, (uint8_t *)p->map.data, p->map.size, &p->header, NULL, NULL, err);
}

static crumb_status load_metadata(gguf_part *p, crumb_error *err) {
    CRUMB_TRY(crumb_file_guard(p->path, read_metadata, &(guarded_read){.p = p}, err));
    gguf_header measured = p->header;
    CRUMB_TRY(crumb_calloc(measured.n_bytes, 1, "GGUF metadata", (void **)&p->metadata, err));
    CRUMB_TRY(crumb_calloc(measured.n_values, sizeof *p->values, "GGUF keys", (void **)&p->values, err));
    CRUMB_TRY(crumb_calloc(measured.n_tensors, sizeof *p->tensors, "GGUF tensors", (void **)&p->tensors, err));
    CRUMB_TRY(crumb_file_guard(p->path, read_metadata, &(guarded_read){.p = p, .copy_to = p->metadata}, err));
    gguf_header copied;
    CRUMB_TRY(gguf_walk(p->path, p->metadata, measured.n_bytes, &copied, NULL, NULL, err));
    if (copied.n_bytes != measured.n_bytes || copied.n_values != measured.n_values ||
        copied.n_tensors != measured.n_tensors)
        return crumb_fail(err, CRUMB_ERR_IO, "%s: the file changed while it was being read", p->path);
    return gguf_walk(p->path, p->metadata, measured.n_bytes, &p->header, p->values, p->tensors, err);
}

static crumb_status find_data(gguf_part *p, crumb_error *err) {
    p->alignment = 32;
    for (uint64_t i = 0; i < p->header.n_values; i++) {
        const crumb_gguf_value *v = &p->values[i];
        if (v->key.size != 17 || memcmp(v->key.data, "general.alignment", 17) != 0) continue;
        if (v->type != CRUMB_GGUF_U32 || v->u == 0 || (v->u & (v->u - 1)) != 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key 'general.alignment' must be a u32 and a power of two",
                              p->path);
        p->alignment = v->u;
    }
    p->data_offset = crumb_round_up(p->header.n_bytes, p->alignment);
    return CRUMB_OK;
}

static void close_part(gguf_part *p) {
    if (p->mapped) crumb_file_map_close(&p->map);
    free(p->path);
    free(p->metadata);
    free(p->values);
    free(p->tensors);
}

/* ---- where tensors lie ---- */

static int compare_places(const void *a, const void *b) {
    const crumb_gguf_tensor *x = *(const crumb_gguf_tensor *const *)a, *y = *(const crumb_gguf_tensor *const *)b;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static uint64_t n_rows(const crumb_gguf_tensor *t) {
    return t->dims[1] * t->dims[2] * t->dims[3];
}

/* Bytes from tensor i (in order of place) to the next one, or to the end of its file. */
static uint64_t span_of(const crumb_gguf *g, const crumb_gguf_tensor *const *placed, size_t i) {
    const crumb_gguf_tensor *next = i + 1 < g->n_tensors ? placed[i + 1] : NULL;
    uint64_t end = next && next->part == placed[i]->part ? next->offset : g->parts[placed[i]->part].map.size;
    return end - placed[i]->offset;
}

/* Some type ids have densities (bytes per 256 weights) that only the spans tell. All tensors of such an id have the
 * same one in a model, which must fill each span up to the padding that alignment asks for. */
static uint32_t find_density(const crumb_gguf *g, const crumb_gguf_tensor *const *placed, uint32_t id,
                             const uint32_t densities[3]) {
    uint32_t found = 0;
    for (int d = 0; d < 3 && densities[d]; d++) {
        bool fits = true;
        for (size_t i = 0; i < g->n_tensors; i++) {
            const crumb_gguf_tensor *t = placed[i];
            uint64_t size, span = span_of(g, placed, i);
            if (t->type_id != id) continue;
            fits = fits && crumb_mul_u64(t->dims[0] * n_rows(t), densities[d], &size) && size % 256 == 0 &&
                   size / 256 <= span && span - size / 256 < g->parts[t->part].alignment;
        }
        if (fits && found) return 0;
        if (fits) found = densities[d];
    }
    return found;
}

static void find_densities(crumb_gguf *g, const crumb_gguf_tensor *const *placed) {
    static const uint32_t q2_0[3] = {72, 68, 42}, mxfp4[3] = {136};
    g->q2_0_density = find_density(g, placed, CRUMB_GGUF_ID_Q2_0, q2_0);
    g->mxfp4_density = find_density(g, placed, CRUMB_GGUF_ID_MXFP4, mxfp4);
}

static uint32_t density_of(const crumb_gguf *g, uint32_t id) {
    return id == CRUMB_GGUF_ID_MXFP4 ? g->mxfp4_density : g->q2_0_density;
}

/* File offsets of all tensors, checked to be aligned and inside their file. */
static crumb_status place_tensors(crumb_gguf *g, crumb_error *err) {
    for (size_t i = 0; i < g->n_tensors; i++) {
        crumb_gguf_tensor *t = &g->tensors[i];
        const gguf_part *p = &g->parts[t->part];
        if (t->offset % p->alignment != 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: tensor '%.80s': offset %llu is not a multiple of %llu",
                              p->path, t->name, (unsigned long long)t->offset, (unsigned long long)p->alignment);
        if (!crumb_add_u64(t->offset, p->data_offset, &t->offset) || t->offset >= p->map.size)
            return crumb_fail(err, CRUMB_ERR_FORMAT,
                              "%s: tensor '%.80s' begins at offset %llu, but the file has %llu "
                              "bytes; it is truncated or damaged: download it again",
                              p->path, t->name, (unsigned long long)t->offset, (unsigned long long)p->map.size);
    }
    return CRUMB_OK;
}

/* Writers put tensors next to each other, with padding up to the alignment: more bytes before the next one than its
 * type and shape ask for belong to another type, or another shape. Behind the last one anything may stand. */
static crumb_status check_gap(const crumb_gguf *g, const crumb_gguf_tensor *t, uint64_t span, crumb_error *err) {
    const gguf_part *part = &g->parts[t->part];
    if (!t->supported || span - t->n_bytes < part->alignment || t->offset + span == part->map.size) return CRUMB_OK;
    return crumb_fail(
        err, CRUMB_ERR_FORMAT,
        "%s: tensor '%.80s' has %llu bytes by its type and shape, but %llu lie before the next tensor: one of "
        "these is wrong",
        part->path, t->name, (unsigned long long)t->n_bytes, (unsigned long long)span);
}

/* Types and sizes; tensors in order of place may neither overlap nor leave gaps. */
static crumb_status size_tensors(crumb_gguf *g, crumb_gguf_tensor *const *placed, crumb_error *err) {
    for (size_t i = 0; i < g->n_tensors; i++) {
        crumb_gguf_tensor *t = placed[i];
        const char *path = g->parts[t->part].path;
        uint64_t span = span_of(g, (const crumb_gguf_tensor *const *)placed, i);
        t->supported = crumb_type_from_gguf(t->type_id, density_of(g, t->type_id), &t->type, NULL) == CRUMB_OK;
        if (t->supported) {
            crumb_status status = crumb_type_tensor_bytes(t->type, n_rows(t), t->dims[0], &t->n_bytes, err);
            if (status != CRUMB_OK) return crumb_fail_prefix(err, status, "%s: tensor '%.80s'", path, t->name);
        }
        /* Of an unknown type only the place is known: it must at least not be another tensor's. */
        if (span < (t->n_bytes ? t->n_bytes : 1))
            return crumb_fail(err, CRUMB_ERR_FORMAT,
                              "%s: tensor '%.80s' needs %llu bytes at offset %llu, but only "
                              "%llu lie before %s; the file is truncated or damaged: download it again",
                              path, t->name, (unsigned long long)t->n_bytes, (unsigned long long)t->offset,
                              (unsigned long long)span,
                              t->offset + span == g->parts[t->part].map.size ? "its end" : "the next tensor");
        CRUMB_TRY(check_gap(g, t, span, err));
        if (!crumb_add_u64(g->data_bytes, t->n_bytes, &g->data_bytes)) g->data_bytes = UINT64_MAX;
    }
    return CRUMB_OK;
}

static crumb_status resolve_tensors(crumb_gguf *g, crumb_error *err) {
    crumb_gguf_tensor **placed;
    CRUMB_TRY(place_tensors(g, err));
    CRUMB_TRY(crumb_calloc(g->n_tensors, sizeof(void *), "GGUF tensor order", (void **)&placed, err));
    for (size_t i = 0; i < g->n_tensors; i++) placed[i] = &g->tensors[i];
    qsort(placed, g->n_tensors, sizeof *placed, compare_places);
    find_densities(g, (const crumb_gguf_tensor *const *)placed);
    crumb_status status = size_tensors(g, placed, err);
    free(placed);
    return status;
}

/* ---- finding by name ---- */

static int compare_bytes(crumb_bytes a, crumb_bytes b) {
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int compare_keys(const void *a, const void *b) {
    const crumb_gguf_value *x = *(const crumb_gguf_value *const *)a, *y = *(const crumb_gguf_value *const *)b;
    return compare_bytes(x->key, y->key);
}

static int compare_names(const void *a, const void *b) {
    const crumb_gguf_tensor *x = *(const crumb_gguf_tensor *const *)a, *y = *(const crumb_gguf_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static crumb_status index_values(crumb_gguf *g, crumb_error *err) {
    CRUMB_TRY(crumb_calloc(g->n_values, sizeof(void *), "GGUF key index", (void **)&g->values_by_key, err));
    for (size_t i = 0; i < g->n_values; i++) g->values_by_key[i] = &g->values[i];
    qsort(g->values_by_key, g->n_values, sizeof(void *), compare_keys);
    for (size_t i = 1; i < g->n_values; i++)
        if (compare_keys(&g->values_by_key[i - 1], &g->values_by_key[i]) == 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key '%.*s' occurs twice", g->parts[0].path,
                              GGUF_TEXT(g->values_by_key[i]->key));
    return CRUMB_OK;
}

crumb_status gguf_index_tensors(crumb_gguf *g, crumb_error *err) {
    CRUMB_TRY(crumb_calloc(g->n_tensors, sizeof(void *), "GGUF tensor index", (void **)&g->tensors_by_name, err));
    for (size_t i = 0; i < g->n_tensors; i++) g->tensors_by_name[i] = &g->tensors[i];
    qsort(g->tensors_by_name, g->n_tensors, sizeof(void *), compare_names);
    for (size_t i = 1; i < g->n_tensors; i++) {
        const crumb_gguf_tensor *t = g->tensors_by_name[i];
        if (strcmp(g->tensors_by_name[i - 1]->name, t->name) == 0)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: tensor '%.80s' occurs twice", g->parts[t->part].path,
                              t->name);
    }
    return CRUMB_OK;
}

const crumb_gguf_value *crumb_gguf_find(const crumb_gguf *g, const char *key) {
    const crumb_gguf_value wanted = {.key = {key, strlen(key)}}, *w = &wanted;
    const crumb_gguf_value *const *found = bsearch(&w, g->values_by_key, g->n_values, sizeof(void *), compare_keys);
    return found ? *found : NULL;
}

const crumb_gguf_tensor *crumb_gguf_find_tensor(const crumb_gguf *g, const char *name) {
    const crumb_gguf_tensor wanted = {.name = name}, *w = &wanted;
    const crumb_gguf_tensor *const *found =
        bsearch(&w, g->tensors_by_name, g->n_tensors, sizeof(void *), compare_names);
    return found ? *found : NULL;
}

crumb_status crumb_gguf_require_tensor(const crumb_gguf *g, const char *name, const crumb_gguf_tensor **out,
                                       crumb_error *err) {
    crumb_type type;
    *out = crumb_gguf_find_tensor(g, name);
    if (!*out) return crumb_fail(err, CRUMB_ERR_FORMAT, "tensor '%s' is missing", name);
    crumb_status status = crumb_type_from_gguf((*out)->type_id, density_of(g, (*out)->type_id), &type, err);
    return status == CRUMB_OK ? status : crumb_fail_prefix(err, status, "tensor '%s'", name);
}

/* ---- all parts ---- */

static crumb_status open_part(const char *path, gguf_part *p, crumb_error *err) {
    CRUMB_TRY(crumb_calloc(strlen(path) + 1, 1, "a path", (void **)&p->path, err));
    memcpy(p->path, path, strlen(path));
    CRUMB_TRY(crumb_file_map_open(path, &p->map, err));
    p->mapped = true;
    CRUMB_TRY(load_metadata(p, err));
    return find_data(p, err);
}

/* An integer key of one part; `missing` where it is absent. */
static crumb_status part_integer(const gguf_part *p, const char *key, uint64_t missing, uint64_t *out,
                                 crumb_error *err) {
    *out = missing;
    for (uint64_t i = 0; i < p->header.n_values; i++) {
        const crumb_gguf_value *v = &p->values[i];
        if (v->key.size != strlen(key) || memcmp(v->key.data, key, v->key.size) != 0) continue;
        bool is_signed = v->type == CRUMB_GGUF_I32 || v->type == CRUMB_GGUF_I16 || v->type == CRUMB_GGUF_I64;
        bool is_unsigned = v->type == CRUMB_GGUF_U32 || v->type == CRUMB_GGUF_U16 || v->type == CRUMB_GGUF_U64;
        if ((!is_signed && !is_unsigned) || (is_signed && v->i < 0))
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key '%s' is not a count", p->path, key);
        *out = v->u;
    }
    return CRUMB_OK;
}

/* model-00001-of-00003.gguf -> model-00002-of-00003.gguf and so on. */
static crumb_status open_other_parts(crumb_gguf *g, uint32_t n_parts, crumb_error *err) {
    char tail[32], path[4096];
    const char *first = g->parts[0].path;
    int tail_size = snprintf(tail, sizeof tail, "-00001-of-%05u.gguf", n_parts);
    size_t size = strlen(first);
    if (size < (size_t)tail_size || size >= sizeof path || strcmp(first + size - tail_size, tail) != 0)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: the first of %u parts must be named *%s", first, n_parts, tail);
    for (uint32_t i = 1; i < n_parts; i++) {
        uint64_t no;
        snprintf(path, sizeof path, "%.*s-%05u-of-%05u.gguf", (int)(size - (size_t)tail_size), first, i + 1, n_parts);
        g->n_parts++;
        CRUMB_TRY(open_part(path, &g->parts[i], err));
        CRUMB_TRY(part_integer(&g->parts[i], "split.no", UINT64_MAX, &no, err));
        if (no != i)
            return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key 'split.no' does not say that it is part %u of %u", path,
                              i + 1, n_parts);
    }
    return CRUMB_OK;
}

static crumb_status open_parts(crumb_gguf *g, const char *path, crumb_error *err) {
    gguf_part first = {0};
    uint64_t no = 0, count = 1;
    crumb_status status = open_part(path, &first, err);
    if (status == CRUMB_OK) status = part_integer(&first, "split.no", 0, &no, err);
    if (status == CRUMB_OK) status = part_integer(&first, "split.count", 1, &count, err);
    if (status == CRUMB_OK && no != 0)
        status = crumb_fail(err, CRUMB_ERR_ARGUMENT,
                            "%s: is part %llu of a split model; give the first part, "
                            "*-00001-of-%05llu.gguf",
                            path, (unsigned long long)no + 1, (unsigned long long)count);
    if (status == CRUMB_OK && count > 99999)
        status = crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key 'split.count' is %llu; at most 99999 parts are possible",
                            path, (unsigned long long)count);
    if (count == 0) count = 1;
    if (status == CRUMB_OK) status = crumb_calloc(count, sizeof *g->parts, "GGUF parts", (void **)&g->parts, err);
    if (status != CRUMB_OK) {
        close_part(&first);
        return status;
    }
    g->parts[0] = first;
    g->n_parts = 1;
    return count == 1 ? CRUMB_OK : open_other_parts(g, (uint32_t)count, err);
}

/* One list of the tensors of all parts; the first part's keys are the model's. */
static crumb_status join_parts(crumb_gguf *g, crumb_error *err) {
    uint64_t n_tensors = 0, n_expected;
    for (uint32_t i = 0; i < g->n_parts; i++) n_tensors += g->parts[i].header.n_tensors;
    CRUMB_TRY(part_integer(&g->parts[0], "split.tensors.count", n_tensors, &n_expected, err));
    if (g->n_parts > 1 && n_expected != n_tensors)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: key 'split.tensors.count' is %llu, but the parts have %llu",
                          g->parts[0].path, (unsigned long long)n_expected, (unsigned long long)n_tensors);
    CRUMB_TRY(crumb_calloc(n_tensors, sizeof *g->tensors, "GGUF tensors", (void **)&g->tensors, err));
    for (uint32_t i = 0; i < g->n_parts; i++) {
        gguf_part *p = &g->parts[i];
        for (uint64_t j = 0; j < p->header.n_tensors; j++) {
            g->tensors[g->n_tensors] = p->tensors[j];
            g->tensors[g->n_tensors++].part = i;
        }
        free(p->tensors);
        p->tensors = NULL;
    }
    g->values = g->parts[0].values;
    g->n_values = (size_t)g->parts[0].header.n_values;
    CRUMB_TRY(index_values(g, err));
    CRUMB_TRY(gguf_index_tensors(g, err));
    return resolve_tensors(g, err);
}

static crumb_status finish(crumb_gguf *g, crumb_status status, crumb_gguf **out, crumb_error *err) {
    if (status == CRUMB_OK) status = join_parts(g, err);
    if (status != CRUMB_OK) {
        crumb_gguf_close(g);
        return status;
    }
    *out = g;
    return CRUMB_OK;
}

crumb_status crumb_gguf_open(const char *path, crumb_gguf **out, crumb_error *err) {
    crumb_gguf *g;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *g, "a GGUF file", (void **)&g, err));
    return finish(g, open_parts(g, path, err), out, err);
}

static crumb_status open_memory_part(crumb_gguf *g, const void *data, size_t n_bytes, const char *name,
                                     crumb_error *err) {
    CRUMB_TRY(crumb_calloc(1, sizeof *g->parts, "GGUF parts", (void **)&g->parts, err));
    g->n_parts = 1;
    gguf_part *p = &g->parts[0];
    p->map = (crumb_file_map){data, n_bytes};
    CRUMB_TRY(crumb_calloc(strlen(name) + 1, 1, "a name", (void **)&p->path, err));
    memcpy(p->path, name, strlen(name));
    CRUMB_TRY(load_metadata(p, err));
    CRUMB_TRY(find_data(p, err));
    uint64_t count;
    CRUMB_TRY(part_integer(p, "split.count", 1, &count, err));
    if (count > 1) return crumb_fail(err, CRUMB_ERR_UNSUPPORTED, "%s: a split model cannot be read from memory", name);
    return CRUMB_OK;
}

crumb_status crumb_gguf_open_memory(const void *data, size_t n_bytes, const char *name, crumb_gguf **out,
                                    crumb_error *err) {
    crumb_gguf *g;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *g, "a GGUF file", (void **)&g, err));
    return finish(g, open_memory_part(g, data, n_bytes, name, err), out, err);
}

void crumb_gguf_close(crumb_gguf *g) {
    if (!g) return;
    gguf_source_close(g);
    for (uint32_t i = 0; i < g->n_parts; i++) close_part(&g->parts[i]);
    free(g->parts);
    free(g->tensors);
    free(g->values_by_key);
    free(g->tensors_by_name);
    free(g);
}

/* ---- what was read ---- */

const char *crumb_gguf_path(const crumb_gguf *g) {
    return g->parts[0].path;
}
uint32_t crumb_gguf_n_parts(const crumb_gguf *g) {
    return g->n_parts;
}
const char *crumb_gguf_part_path(const crumb_gguf *g, uint32_t part) {
    return g->parts[part].path;
}
uint32_t crumb_gguf_version(const crumb_gguf *g) {
    return g->parts[0].header.version;
}
uint64_t crumb_gguf_data_bytes(const crumb_gguf *g) {
    return g->data_bytes;
}
size_t crumb_gguf_n_values(const crumb_gguf *g) {
    return g->n_values;
}
const crumb_gguf_value *crumb_gguf_value_at(const crumb_gguf *g, size_t index) {
    return &g->values[index];
}
size_t crumb_gguf_n_tensors(const crumb_gguf *g) {
    return g->n_tensors;
}
const crumb_gguf_tensor *crumb_gguf_tensor_at(const crumb_gguf *g, size_t index) {
    return &g->tensors[index];
}
const uint8_t *crumb_gguf_tensor_data(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    return g->source ? gguf_source_data(g, t) : g->parts[t->part].map.data + t->offset;
}
void crumb_gguf_tensor_release(const crumb_gguf *g, const crumb_gguf_tensor *t) {
    const gguf_part *p = &g->parts[t->part];
    if (g->source)
        gguf_source_release(g, t);
    else if (p->mapped)
        crumb_file_map_release(&p->map, (size_t)t->offset, (size_t)t->n_bytes);
}
