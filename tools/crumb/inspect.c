/* crumb inspect: what is in a GGUF file, also when crumb could not run it. Everything printed comes from the file and
 * is escaped. */
#include "host/base/error.h"
#include "host/base/file.h"
#include "host/container/gguf.h"
#include "tools/crumb/json_util.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_ELEMENTS = 8, SHOWN_BYTES = 96, MAX_TYPES = 256 };

static const char *const value_type_names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                               "bool", "string", "array", "u64", "i64", "f64"};
_Static_assert(sizeof value_type_names / sizeof value_type_names[0] == CRUMB_GGUF_VALUE_TYPE_COUNT, "a name per type");

static const char *tensor_type_name(const crumb_gguf_tensor *t, char buffer[32]) {
    if (t->supported) return crumb_type_get_info(t->type)->name;
    const char *name = crumb_type_gguf_name(t->type_id);
    if (name) return name;
    snprintf(buffer, 32, "type %u", t->type_id);
    return buffer;
}

static uint64_t n_weights(const crumb_gguf_tensor *t) {
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]; /* checked by the reader */
}

/* ---- totals by type ---------------------------------------------------------------------------------------- */

typedef struct type_total {
    uint32_t type_id;
    bool supported;
    char name[32];
    uint64_t n_tensors, n_weights, n_bytes;
} type_total;

static size_t total_by_type(const crumb_gguf *g, type_total *totals) {
    size_t n = 0;
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        char buffer[32];
        const char *name = tensor_type_name(t, buffer);
        size_t j = 0;
        while (j < n && strcmp(totals[j].name, name) != 0) j++;
        if (j == MAX_TYPES) continue;
        if (j == n) {
            totals[n] = (type_total){.type_id = t->type_id, .supported = t->supported};
            snprintf(totals[n++].name, sizeof totals->name, "%s", name);
        }
        totals[j].n_tensors++;
        totals[j].n_weights += n_weights(t);
        totals[j].n_bytes += t->n_bytes;
    }
    return n;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

/* Element i of an array of numbers, little endian. */
static crumb_gguf_value array_number(const crumb_gguf_value *v, uint64_t i) {
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    crumb_gguf_value out = {.type = v->array.type};
    uint8_t size = sizes[out.type];
    uint64_t bits = 0;
    for (uint8_t b = 0; b < size; b++) bits |= (uint64_t)v->array.data[i * size + b] << 8 * b;
    float f32;
    uint32_t low = (uint32_t)bits;
    switch (out.type) {
    case CRUMB_GGUF_F32:
        memcpy(&f32, &low, 4);
        out.f = (double)f32;
        break;
    case CRUMB_GGUF_F64: memcpy(&out.f, &bits, 8); break;
    case CRUMB_GGUF_I8: out.i = (int8_t)bits; break;
    case CRUMB_GGUF_I16: out.i = (int16_t)bits; break;
    case CRUMB_GGUF_I32: out.i = (int32_t)bits; break;
    case CRUMB_GGUF_I64: out.i = (int64_t)bits; break;
    default: out.u = bits; break;
    }
    return out;
}

static void print_text(const char *bytes, size_t n_bytes, bool full) {
    size_t n = full || n_bytes <= SHOWN_BYTES ? n_bytes : SHOWN_BYTES;
    char *text = cli_printable(bytes, n);
    cli_print("\"%s\"%s", text ? text : "", n < n_bytes ? "..." : "");
    free(text);
}

static void print_scalar(const crumb_gguf_value *v, bool full) {
    switch (v->type) {
    case CRUMB_GGUF_STRING: print_text(v->string.data, v->string.size, full); break;
    case CRUMB_GGUF_BOOL: cli_print("%s", v->u ? "true" : "false"); break;
    case CRUMB_GGUF_F32: cli_print("%.9g", v->f); break;
    case CRUMB_GGUF_F64: cli_print("%.17g", v->f); break;
    case CRUMB_GGUF_I8:
    case CRUMB_GGUF_I16:
    case CRUMB_GGUF_I32:
    case CRUMB_GGUF_I64: cli_print("%" PRId64, v->i); break;
    default: cli_print("%" PRIu64, v->u); break;
    }
}

static void print_value(const crumb_gguf_value *v, bool full) {
    if (v->type != CRUMB_GGUF_ARRAY) {
        print_scalar(v, full);
        return;
    }
    uint64_t n = full || v->array.n < SHOWN_ELEMENTS ? v->array.n : SHOWN_ELEMENTS;
    const uint8_t *cursor = v->array.data;
    cli_print("[");
    for (uint64_t i = 0; i < n; i++) {
        crumb_gguf_value element = {.type = CRUMB_GGUF_STRING};
        if (v->array.type == CRUMB_GGUF_STRING)
            element.string = crumb_gguf_next_string(&cursor);
        else
            element = array_number(v, i);
        cli_print("%s", i ? ", " : "");
        print_scalar(&element, full);
    }
    cli_print(n < v->array.n ? ", ...]" : "]");
}

/* ---- text -------------------------------------------------------------------------------------------------- */

static void print_keys(const crumb_gguf *g, bool full) {
    cli_print("metadata: %zu keys\n", crumb_gguf_n_values(g));
    for (size_t i = 0; i < crumb_gguf_n_values(g); i++) {
        const crumb_gguf_value *v = crumb_gguf_value_at(g, i);
        char *key = cli_printable(v->key.data, v->key.size), type[40];
        if (v->type == CRUMB_GGUF_ARRAY)
            snprintf(type, sizeof type, "%s[%" PRIu64 "]", value_type_names[v->array.type], v->array.n);
        else
            snprintf(type, sizeof type, "%s", value_type_names[v->type]);
        cli_print("  %-44s %-14s ", key ? key : "", type);
        print_value(v, full);
        cli_print("\n");
        free(key);
    }
}

static void print_tensors(const crumb_gguf *g) {
    cli_print("tensors: %zu\n", crumb_gguf_n_tensors(g));
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        char shape[96] = "", buffer[32];
        for (uint32_t d = 0, used = 0; d < t->n_dims; d++)
            used += (uint32_t)snprintf(shape + used, sizeof shape - used, "%s%" PRIu64, d ? " x " : "", t->dims[d]);
        cli_print("  %-40s %-8s %-24s %12" PRIu64 " bytes%s\n", t->name, tensor_type_name(t, buffer), shape, t->n_bytes,
                  t->supported ? "" : "  (type not supported)");
    }
}

static void print_totals(const crumb_gguf *g) {
    type_total totals[MAX_TYPES];
    size_t n = total_by_type(g, totals);
    cli_print("totals by type:\n");
    for (size_t i = 0; i < n; i++) {
        char count[32];
        cli_print("  %-8s %6" PRIu64 " tensors %12s weights %10.2f MiB%s\n", totals[i].name, totals[i].n_tensors,
                  cli_count_label(totals[i].n_weights, count), (double)totals[i].n_bytes / (1 << 20),
                  totals[i].supported ? "" : "  (not supported)");
    }
}

static void print_all(const crumb_gguf *g, const cli_options *o) {
    bool all = !o->keys && !o->tensors;
    cli_print("file: %s (GGUF version %u, %.2f MiB of tensors)\n", crumb_gguf_path(g), crumb_gguf_version(g),
              (double)crumb_gguf_data_bytes(g) / (1 << 20));
    if (all || o->keys) print_keys(g, o->full);
    if (all || o->tensors) print_tensors(g);
    if (all || o->tensors) print_totals(g);
}

/* ---- json -------------------------------------------------------------------------------------------------- */

static cJSON *scalar_json(const crumb_gguf_value *v) {
    switch (v->type) {
    case CRUMB_GGUF_STRING: return json_text(v->string.data, v->string.size);
    case CRUMB_GGUF_BOOL: return cJSON_CreateBool(v->u != 0);
    case CRUMB_GGUF_F32: return json_real(v->f, 9);
    case CRUMB_GGUF_F64: return json_real(v->f, 17);
    case CRUMB_GGUF_I8:
    case CRUMB_GGUF_I16:
    case CRUMB_GGUF_I32:
    case CRUMB_GGUF_I64: return json_i64(v->i);
    default: return json_u64(v->u);
    }
}

static cJSON *array_json(const crumb_gguf_value *v, bool full) {
    cJSON *array = cJSON_CreateArray();
    uint64_t n = full || v->array.n < SHOWN_ELEMENTS ? v->array.n : SHOWN_ELEMENTS;
    const uint8_t *cursor = v->array.data;
    for (uint64_t i = 0; i < n && array; i++) {
        crumb_gguf_value element = {.type = CRUMB_GGUF_STRING};
        if (v->array.type == CRUMB_GGUF_STRING)
            element.string = crumb_gguf_next_string(&cursor);
        else
            element = array_number(v, i);
        cJSON_AddItemToArray(array, scalar_json(&element));
    }
    return array;
}

static void add_keys(cJSON *document, const crumb_gguf *g, bool full) {
    cJSON *metadata = cJSON_AddObjectToObject(document, "metadata");
    for (size_t i = 0; i < crumb_gguf_n_values(g) && metadata; i++) {
        const crumb_gguf_value *v = crumb_gguf_value_at(g, i);
        cJSON *entry = cJSON_CreateObject(), *key = json_text(v->key.data, v->key.size);
        json_add_text(entry, "type", value_type_names[v->type]);
        if (v->type == CRUMB_GGUF_ARRAY) {
            json_add_text(entry, "element", value_type_names[v->array.type]);
            json_add_u64(entry, "n", v->array.n);
            cJSON_AddItemToObject(entry, "value", array_json(v, full));
        } else {
            cJSON_AddItemToObject(entry, "value", scalar_json(v));
        }
        cJSON_AddItemToObject(metadata, key ? key->valuestring : "", entry);
        cJSON_Delete(key);
    }
}

static void add_tensors(cJSON *document, const crumb_gguf *g) {
    cJSON *tensors = cJSON_AddArrayToObject(document, "tensors");
    for (size_t i = 0; i < crumb_gguf_n_tensors(g); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(g, i);
        cJSON *entry = cJSON_CreateObject(), *shape;
        char buffer[32];
        json_add_text(entry, "name", t->name);
        json_add_text(entry, "type", tensor_type_name(t, buffer));
        json_add_u64(entry, "type_id", t->type_id);
        cJSON_AddBoolToObject(entry, "supported", t->supported);
        shape = cJSON_AddArrayToObject(entry, "shape");
        for (uint32_t d = 0; d < t->n_dims; d++) cJSON_AddItemToArray(shape, json_u64(t->dims[d]));
        json_add_u64(entry, "part", t->part);
        json_add_u64(entry, "offset", t->offset);
        json_add_u64(entry, "n_bytes", t->n_bytes);
        cJSON_AddItemToArray(tensors, entry);
    }
}

static void add_totals(cJSON *document, const crumb_gguf *g) {
    type_total totals[MAX_TYPES];
    size_t n = total_by_type(g, totals);
    cJSON *array = cJSON_AddArrayToObject(document, "totals");
    for (size_t i = 0; i < n; i++) {
        cJSON *entry = cJSON_CreateObject();
        json_add_text(entry, "type", totals[i].name);
        json_add_u64(entry, "n_tensors", totals[i].n_tensors);
        json_add_u64(entry, "n_weights", totals[i].n_weights);
        json_add_u64(entry, "n_bytes", totals[i].n_bytes);
        cJSON_AddItemToArray(array, entry);
    }
}

static crumb_status print_json(const crumb_gguf *g, const cli_options *o, crumb_error *err) {
    bool all = !o->keys && !o->tensors;
    cJSON *document = json_document();
    json_add_text(document, "file", crumb_gguf_path(g));
    json_add_u64(document, "gguf_version", crumb_gguf_version(g));
    json_add_u64(document, "data_bytes", crumb_gguf_data_bytes(g));
    if (all || o->keys) add_keys(document, g, o->full);
    if (all || o->tensors) add_tensors(document, g);
    if (all || o->tensors) add_totals(document, g);
    return json_print(document, false, "\n", err);
}

/* ---- the subcommand ---------------------------------------------------------------------------------------- */

typedef struct inspection {
    const crumb_gguf *g;
    const cli_options *options;
} inspection;

/* Metadata lies in the mapped file, which may shrink meanwhile. */
static crumb_status inspect_guarded(void *ctx, crumb_error *err) {
    const inspection *i = ctx;
    if (i->options->json) return print_json(i->g, i->options, err);
    print_all(i->g, i->options);
    return CRUMB_OK;
}

int cli_inspect(const cli_options *options) {
    crumb_error err = {0};
    crumb_gguf *g;
    char path[4096];
    if (cli_find_safetensors(options->model, path, sizeof path))
        return cli_inspect_safetensors(path, options->json, &err) == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
    crumb_status status = cli_gguf_open(options->model, &g, &err);
    if (status == CRUMB_OK) {
        status = crumb_file_guard(crumb_gguf_path(g), inspect_guarded, &(inspection){g, options}, &err);
        crumb_gguf_close(g);
    }
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
