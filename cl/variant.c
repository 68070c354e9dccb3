#include "cl/variant.h"

#include "host/base/checked.h"
#include "host/kernel/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 6, UNSET = UINT32_MAX, ANY_N = 0xffff };

typedef enum knob_kind { KNOB_OPTION, KNOB_REGISTERS, KNOB_FUSED } knob_kind;

typedef struct knob {
    const char *name, *option; /* option: of the row's -D options; rows without it lack the knob */
    knob_kind kind;
    uint32_t n_values, values[MAX_VALUES];
} knob;

static const knob knobs[] = {
    {"tokens", "TOKENS", KNOB_OPTION, 4, {1, 2, 4, 8}}, {"slices", "SLICES", KNOB_OPTION, 6, {1, 2, 4, 8, 16, 32}},
    {"tiles", "TILES", KNOB_OPTION, 4, {1, 2, 4, 8}},   {"tm", "TM", KNOB_OPTION, 4, {1, 2, 4, 8}},
    {"tn", "TN", KNOB_OPTION, 5, {1, 2, 4, 8, 16}},     {"across", "ACROSS", KNOB_OPTION, 4, {1, 2, 4, 8}},
    {"step", "STEP", KNOB_OPTION, 4, {4, 8, 16, 32}},   {"ahead", "AHEAD", KNOB_OPTION, 4, {0, 1, 2, 3}},
    {"registers", NULL, KNOB_REGISTERS, 2, {128, 256}}, {"fused", NULL, KNOB_FUSED, 1, {1}},
};
enum { N_KNOBS = sizeof knobs / sizeof knobs[0] };

/* ---- the row's -D options ------------------------------------------------------------------------------------ */

/* Where the value of -D NAME= begins; NULL: the options do not have it. */
static const char *find_option(const char *options, const char *name) {
    const size_t n = strlen(name);
    for (const char *p = options; (p = strstr(p, "-D ")); p++)
        if (strncmp(p + 3, name, n) == 0 && p[3 + n] == '=') return p + 4 + n;
    return NULL;
}

static uint32_t option_of(const char *options, const char *name, uint32_t standard) {
    const char *value = find_option(options, name);
    return value ? (uint32_t)strtoul(value, NULL, 10) : standard;
}

static bool replace_option(char *options, size_t size, const char *name, uint32_t value) {
    char rest[192];
    const char *at = find_option(options, name);
    if (!at) return false;
    snprintf(rest, sizeof rest, "%s", at + strcspn(at, " "));
    const size_t begin = (size_t)(at - options);
    const int n = snprintf(options + begin, size - begin, "%u%s", value, rest);
    return n > 0 && (size_t)n < size - begin;
}

/* ---- knobs --------------------------------------------------------------------------------------------------- */

/* Rows that are meant for a few rows of activations keep their TOKENS: other rows have other ones. */
static bool has_knob(const crumb_cl_kernel *row, const knob *k) {
    if (row->op != CRUMB_CL_LINEAR) return false;
    if (k->kind == KNOB_FUSED) return row->x == 0;
    if (k->kind == KNOB_REGISTERS) return true;
    if (strcmp(k->option, "TOKENS") == 0 && row->max_n < ANY_N) return false;
    return find_option(row->options, k->option) != NULL;
}

size_t crumb_cl_variant_count(const crumb_cl_kernel *row) {
    size_t n = 1;
    for (int i = 0; i < N_KNOBS; i++)
        if (has_knob(row, &knobs[i])) n *= knobs[i].n_values + 1;
    return n;
}

void crumb_cl_variant_print(const crumb_cl_kernel *row, size_t number, char *out, size_t size) {
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < N_KNOBS; i++) {
        const knob *k = &knobs[i];
        if (!has_knob(row, k)) continue;
        const size_t which = number % (k->n_values + 1); /* 0: as the row has it */
        number /= k->n_values + 1;
        if (which && used < size)
            used +=
                (size_t)snprintf(out + used, size - used, "%s%s=%u", used ? " " : "", k->name, k->values[which - 1]);
    }
}

static uint32_t own_value(const crumb_cl_kernel *row, const knob *k) {
    if (k->kind == KNOB_REGISTERS) return row->registers;
    return k->kind == KNOB_FUSED ? 0 : option_of(row->options, k->option, 0);
}

static bool apply(const crumb_cl_kernel *row, const knob *k, uint32_t value, crumb_cl_variant *out) {
    bool known = false;
    for (uint32_t i = 0; i < k->n_values; i++) known = known || k->values[i] == value;
    if (!known || !has_knob(row, k) || own_value(row, k) == value) return false;
    if (k->kind == KNOB_REGISTERS) return out->kernel.registers = (uint16_t)value, true;
    if (k->kind == KNOB_FUSED) return out->x = 32, true;
    return replace_option(out->options, sizeof out->options, k->option, value);
}

/* ---- rules --------------------------------------------------------------------------------------------------- */

/* Lanes of a slice: a sub-group where the kernel has TN, else a tile's rows. */
static uint32_t lanes_of(const crumb_cl_kernel *kernel) {
    return find_option(kernel->options, "TN") && kernel->sub_group ? kernel->sub_group : CRUMB_TILE_ROWS;
}

/* gemv.cl: a step's weights are whole 2D blocks of 8 to 32 lines, or, with plain blocks, at most as many registers. */
static bool step_allowed(const crumb_cl_kernel *kernel, uint32_t step) {
    const uint32_t lines = kernel->bits == 3 && kernel->sub_group == 16 ? step : step * kernel->bits;
    return lines <= 32 && (kernel->sub_group == 8 || lines >= 8);
}

/* What the kernels' files say of their options. */
static bool allowed(const crumb_cl_variant *v) {
    const char *o = v->options;
    const crumb_cl_kernel *kernel = &v->kernel;
    const uint32_t tm = option_of(o, "TM", 0), tn = option_of(o, "TN", 0);
    if (tm) {
        const bool joins = kernel->slices > 1;
        if (joins && (option_of(o, "ACROSS", 1) > 1 || option_of(o, "IN_REGISTERS", 0))) return false;
        if (tm == 8 && (joins || kernel->sub_group != 16 || !kernel->groups)) return false;
        const uint32_t sums = kernel->bits == 3 && kernel->sub_group == 16 ? 2 : 1; /* gemm.cl's SPLIT_BITS */
        return sums * tm * 8 * tn * (CRUMB_TILE_ROWS / kernel->sub_group) <=
               kernel->registers / 2u; /* beside operands */
    }
    if (tn) return CRUMB_TILE_ROWS * tn * kernel->tokens <= kernel->local_size && step_allowed(kernel, kernel->step);
    return kernel->tokens <= kernel->slices && kernel->slices <= CRUMB_TILE_ROWS;
}

/* The numbers of the row that follow from its options. */
static void derive(crumb_cl_variant *v) {
    const char *o = v->options;
    const uint32_t slices = option_of(o, "SLICES", 0), tn = option_of(o, "TN", 0), across = option_of(o, "ACROSS", 1);
    if (!slices) return;
    v->kernel.slices = (uint8_t)slices;
    v->kernel.local_size = lanes_of(&v->kernel) * slices * across;
    v->kernel.tokens = (uint16_t)option_of(o, "TOKENS", v->kernel.tokens);
    v->kernel.tiles = (uint16_t)(tn ? tn * across : option_of(o, "TILES", v->kernel.tiles));
    v->kernel.step = (uint8_t)option_of(o, "STEP", v->kernel.step);
    if (find_option(o, "TM")) v->kernel.tokens = (uint16_t)(8 * option_of(o, "TM", 1));
}

void crumb_cl_variant_of(const crumb_cl_kernel *row, crumb_cl_variant *out) {
    *out = (crumb_cl_variant){.kernel = *row, .x = row->x ? row->x : 8};
    snprintf(out->options, sizeof out->options, "%s", row->options);
    out->kernel.options = out->options;
}

/* A knob of the text "name=value name=value"; NULL: no such knob. */
static const knob *find_knob(const char *text, size_t n_name) {
    for (int i = 0; i < N_KNOBS; i++)
        if (strlen(knobs[i].name) == n_name && strncmp(knobs[i].name, text, n_name) == 0) return &knobs[i];
    return NULL;
}

bool crumb_cl_variant_make(const crumb_cl_kernel *row, const char *text, crumb_cl_variant *out) {
    crumb_cl_variant_of(row, out);
    for (const char *p = text; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        const knob *k = find_knob(p, strcspn(p, "= "));
        const uint32_t value = k ? crumb_tuning_knob(p, k->name, UNSET) : UNSET;
        if (value == UNSET || !apply(row, k, value, out)) return false;
    }
    if (!*text) return true; /* the row itself, whatever it is */
    derive(out);
    return allowed(out);
}

/* gemm.cl fetches nothing ahead in groups: a variant that says otherwise than its row is the same program. */
static bool says_ahead(const crumb_cl_variant *v) {
    size_t n;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, v->kernel.name) == 0)
            return option_of(rows[i].options, "AHEAD", 0) != option_of(v->options, "AHEAD", 0);
    return false;
}

bool crumb_cl_variant_fits(const crumb_cl_variant *v, const crumb_cl_linear *use, const crumb_cl_target *target) {
    enum { HALVES_SIZE = 64 }; /* TOKENS * SLICES where sums are of half a block: local memory is declared for them */
    const uint32_t group = use->act == CRUMB_ACT_GROUP ? use->act_group : use->w->group;
    if (group == 16 && v->kernel.form == CRUMB_CL_PLAIN &&
        v->kernel.tokens * (v->kernel.local_size / CRUMB_TILE_ROWS) > HALVES_SIZE)
        return false;
    if (v->kernel.form == CRUMB_CL_GEMM && group < crumb_round_up(use->w->k, CRUMB_TILE_K) && says_ahead(v))
        return false;
    return crumb_cl_linear_fits(&v->kernel, use, target);
}
