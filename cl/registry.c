#include "cl/registry.h"

#include "host/base/checked.h"

#include <stdio.h>
#include <string.h>

static const crumb_cl_kernel kernels[] = {
#define CRUMB_CL_KERNEL(name, op, file, entry, options, local_size)                                                    \
    {name, CRUMB_CL_##op, file, entry, options, local_size, CRUMB_CL_PORTABLE, 0, false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
#define CRUMB_CL_LINEAR(name, rung, bits, codebook, x, x_bits, sub_group, registers, tiles, tokens, local_size, max_n, \
                        rank, file, entry, options)                                                                    \
    {name,   CRUMB_CL_LINEAR, file, entry,  options,   local_size, CRUMB_CL_##rung,                                    \
     bits,   codebook,        x,    x_bits, sub_group, registers,  tiles,                                              \
     tokens, max_n,           rank, 0,      0},
#define CRUMB_CL_DENSE(name, type, sub_group, rows, tokens, max_n, rank, options)                                      \
    {name,                                                                                                             \
     CRUMB_CL_DENSE_MATRIX,                                                                                            \
     "dense_matrix.cl",                                                                                                \
     "dense_matrix",                                                                                                   \
     options,                                                                                                          \
     8 * sub_group,                                                                                                    \
     CRUMB_CL_DPAS_I8,                                                                                                 \
     0,                                                                                                                \
     false,                                                                                                            \
     0,                                                                                                                \
     0,                                                                                                                \
     sub_group,                                                                                                        \
     128,                                                                                                              \
     0,                                                                                                                \
     tokens,                                                                                                           \
     max_n,                                                                                                            \
     rank,                                                                                                             \
     type,                                                                                                             \
     rows},
#include "cl/kernels.def"
#undef CRUMB_CL_KERNEL
#undef CRUMB_CL_LINEAR
#undef CRUMB_CL_DENSE
};
enum { N_KERNELS = sizeof kernels / sizeof kernels[0] };

static const char *const rung_names[] = {"portable", "dp4a", "dpas-i8", "dpas"};

const char *crumb_cl_rung_name(crumb_cl_rung rung) {
    return rung_names[rung];
}

bool crumb_cl_rung_parse(const char *name, crumb_cl_rung *out) {
    for (int i = 0; i < CRUMB_CL_RUNG_COUNT; i++)
        if (strcmp(name, rung_names[i]) == 0) {
            *out = (crumb_cl_rung)i;
            return true;
        }
    return false;
}

const crumb_cl_kernel *crumb_cl_kernels(size_t *n) {
    *n = N_KERNELS;
    return kernels;
}

const crumb_cl_kernel *crumb_cl_kernel_of(crumb_cl_op op) {
    for (int i = 0; i < N_KERNELS; i++)
        if (kernels[i].op == op) return &kernels[i];
    return NULL;
}

/* ---- linear layers ------------------------------------------------------------------------------------------ */

static uint32_t padded_k(const crumb_matrix *w) {
    return (uint32_t)crumb_round_up(w->k, CRUMB_TILE_K);
}

/* -D GROUP: 0 is one scale per row. */
static uint32_t group_option(const crumb_matrix *w) {
    return w->group >= padded_k(w) ? 0 : w->group;
}

/* -D X_GROUP: codes of activations that have one sum. */
static uint32_t x_group_option(const crumb_cl_linear *use) {
    return use->act == CRUMB_ACT_GROUP ? use->act_group : group_option(use->w);
}

/* Numbers that the kernels keep per row of activations: scales and sums. */
static uint32_t sums_of_row(const crumb_cl_linear *use) {
    uint32_t group = x_group_option(use);
    return group ? padded_k(use->w) / group : 1;
}
static uint32_t scales_of_row(const crumb_cl_linear *use) {
    return use->act == CRUMB_ACT_ROW ? 1 : sums_of_row(use);
}

bool crumb_cl_linear_joins(const crumb_matrix *a, const crumb_matrix *b) {
    return a->bits == b->bits && a->k == b->k && a->mul == b->mul && a->sub == b->sub && a->group == b->group &&
           a->super_group == b->super_group && a->scales_f32 == b->scales_f32 && !a->mins == !b->mins &&
           a->indexed == b->indexed && !a->codebook == !b->codebook &&
           (!a->codebook || memcmp(a->codebook, b->codebook, CRUMB_CODEBOOK_ENTRIES) == 0);
}

uint64_t crumb_cl_linear_scratch_bytes(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    if (use->x == 8) return sizeof(int32_t);
    uint64_t per_row = padded_k(use->w) + sizeof(int32_t) * (scales_of_row(use) + sums_of_row(use));
    return per_row * kernel->tokens;
}

/* What linear.cl declares itself: two stages of results, sums of squares, a codebook. */
static uint64_t declared_bytes(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    uint64_t items = kernel->local_size, halves = x_group_option(use) == 16 ? 2 : 1;
    uint64_t stage = items * sizeof(float) * halves * (2u + kernel->tokens);
    return 2 * stage + (use->x == 32 ? 2 * sizeof(float) * items : 0) + 64;
}

bool crumb_cl_linear_fits(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, const crumb_cl_target *target) {
    const crumb_matrix *w = use->w;
    if (kernel->op != CRUMB_CL_LINEAR || kernel->rung > target->rung) return false;
    if (kernel->bits != w->bits || kernel->codebook != (w->codebook != NULL) || w->indexed) return false;
    if (kernel->x && kernel->x != use->x) return false;
    if (kernel->sub_group && kernel->sub_group != target->sub_group) return false;
    if (kernel->local_size > target->max_work_group || padded_k(w) > 1u << 16) return false;
    uint32_t x_group = x_group_option(use);
    /* gemm.cl: surfaces of at least 64 bytes; with group scales Intel's compiler spills its sums. */
    if (kernel->x == 8 && (x_group || padded_k(w) < 64)) return false;
    if (kernel->rung == CRUMB_CL_DPAS_I8 && x_group == 16) return false; /* halves of a block lie in all bytes */
    if (x_group && (padded_k(w) % x_group || (group_option(w) && w->group % x_group))) return false;
    return crumb_cl_linear_scratch_bytes(kernel, use) + declared_bytes(kernel, use) <= target->local_bytes;
}

uint32_t crumb_cl_linear_x_place(const crumb_cl_kernel *kernel, uint32_t k) {
    const uint32_t in = k % CRUMB_TILE_K;
    return k - in + (kernel->x_bits ? crumb_tile_plane_position(kernel->x_bits, in) : in);
}

const crumb_cl_kernel *crumb_cl_linear_select(const crumb_cl_linear *use, uint32_t n, const crumb_cl_target *target) {
    const crumb_cl_kernel *best = NULL;
    for (int i = 0; i < N_KERNELS; i++)
        if (crumb_cl_linear_fits(&kernels[i], use, target) && n <= kernels[i].max_n &&
            (!best || kernels[i].rank > best->rank))
            best = &kernels[i];
    return best;
}

/* ---- dense layers on matrix instructions -------------------------------------------------------------------- */

enum { TERMS = 2, SPLIT_ROWS = 8 }; /* as kernels.def and split.cl have them */

static int type_option(crumb_type type) {
    return type == CRUMB_TYPE_F32 ? 32 : type == CRUMB_TYPE_F16 ? 16 : 17;
}

bool crumb_cl_dense_fits(const crumb_cl_kernel *kernel, const crumb_matrix *w, const crumb_cl_target *target) {
    return kernel->op == CRUMB_CL_DENSE_MATRIX && kernel->rung <= target->rung &&
           kernel->sub_group == target->sub_group && kernel->local_size <= target->max_work_group && w->bits == 0 &&
           kernel->type == type_option(w->type) && w->k % CRUMB_TILE_K == 0;
}

const crumb_cl_kernel *crumb_cl_dense_select(const crumb_matrix *w, uint32_t n, const crumb_cl_target *target) {
    const crumb_cl_kernel *best = NULL;
    for (int i = 0; i < N_KERNELS; i++)
        if (crumb_cl_dense_fits(&kernels[i], w, target) && n <= kernels[i].max_n &&
            (!best || kernels[i].rank > best->rank))
            best = &kernels[i];
    return best;
}

uint64_t crumb_cl_split_bytes(uint32_t n, uint32_t k) {
    return crumb_round_up(n, SPLIT_ROWS) * k * TERMS * sizeof(uint16_t);
}

/* ---- options ------------------------------------------------------------------------------------------------ */

void crumb_cl_matrix_options(const crumb_matrix *w, char *out) {
    if (w->bits == 0) {
        snprintf(out, CRUMB_CL_OPTIONS_MAX, "-D BITS=0 -D TYPE=%d", type_option(w->type));
        return;
    }
    int scale = w->super_group ? 8 : w->scales_f32 ? 32 : 16;
    int length = snprintf(out, CRUMB_CL_OPTIONS_MAX, "-D BITS=%d -D SCALE=%d -D GROUP=%u -D MINS=%d -D CODEBOOK=%d",
                          w->bits, scale, group_option(w), w->mins != NULL, w->codebook != NULL);
    if (w->super_group)
        snprintf(out + length, CRUMB_CL_OPTIONS_MAX - (size_t)length, " -D SUPER_GROUP=%u", w->super_group);
}

void crumb_cl_linear_options(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, char *out) {
    crumb_cl_matrix_options(use->w, out);
    size_t length = strlen(out);
    snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length,
             " -D X_GROUP=%u -D ROW_SCALE=%d -D X=%u -D INPUT=%u -D PARTS=%u -D GATED=%u %s", x_group_option(use),
             use->act == CRUMB_ACT_ROW, use->x, use->x == 32 ? use->input : 0, use->n_parts, use->gated,
             kernel->options);
}

void crumb_cl_quantize_options(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, uint32_t input, char *out) {
    snprintf(out, CRUMB_CL_OPTIONS_MAX, "-D BITS=%d -D X_GROUP=%u -D ROW_SCALE=%d -D INPUT=%u", kernel->x_bits,
             x_group_option(use), use->act == CRUMB_ACT_ROW, input);
}

void crumb_cl_split_options(const crumb_cl_kernel *dense, bool norm, char *out) {
    snprintf(out, CRUMB_CL_OPTIONS_MAX, "%s -D TYPE=%d -D INPUT=%d", crumb_cl_kernel_of(CRUMB_CL_SPLIT)->options,
             dense->type, norm);
}
