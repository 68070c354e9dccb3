#include "cl/registry.h"

#include "host/base/checked.h"

#include <stdio.h>
#include <string.h>

enum {
    X_ROWS = 8,       /* the most that x_rows is */
    FED = 8,          /* matrix instructions of each quantized activation, at least: else quantizing takes longer */
    CORE_LANES = 128, /* of all engines of an Xe-core: 8 of 16 lanes, or 16 of 8 */
};

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

/* Columns that are loaded together. */
static uint32_t step_k_of(const crumb_cl_kernel *kernel) {
    return kernel->step ? CRUMB_TILE_K * kernel->step : CRUMB_TILE_K;
}

/* gemm.cl's PIECES > 1: rows whose numbers come from local memory. */
static bool staged(const crumb_cl_kernel *kernel) {
    return kernel->form == CRUMB_CL_GEMM && kernel->tokens == 64;
}

/* gemv.cl's N_PARTIALS: groups whose sums lie in local memory at once, up to its SUM_BYTES of them. */
static uint64_t gemv_partials(const crumb_cl_kernel *kernel, uint32_t group, uint32_t k) {
    const uint64_t of_step = step_k_of(kernel) / group, of_round = of_step * kernel->slices, sum_bytes = 32768;
    const uint64_t round_bytes = of_round * CRUMB_TILE_ROWS * sizeof(int32_t) * kernel->tokens * kernel->tiles;
    const uint64_t rounds = round_bytes < sum_bytes ? sum_bytes / round_bytes : 1, most = rounds * of_round + of_step;
    const uint64_t all = crumb_round_up(k, step_k_of(kernel)) / group;
    return all < most ? all : most;
}

/* gemv.cl's sums, one per group or slice; gemm.cl's, which slices join, or numbers of groups. */
static uint64_t partial_bytes(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    uint32_t group = x_group_option(use);
    uint64_t n_partials = kernel->slices;
    if (staged(kernel)) return sizeof(float) * (2u + (use->w->mins != NULL)) * kernel->tokens * sums_of_row(use);
    if (kernel->form == CRUMB_CL_PLAIN || (kernel->form == CRUMB_CL_GEMM && kernel->slices == 1)) return 0;
    if (kernel->form == CRUMB_CL_GEMV && group) n_partials = gemv_partials(kernel, group, padded_k(use->w));
    return n_partials * CRUMB_TILE_ROWS * sizeof(int32_t) * kernel->tokens * kernel->tiles;
}

uint64_t crumb_cl_linear_scratch_bytes(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    uint64_t per_row =
        crumb_round_up(padded_k(use->w), step_k_of(kernel)) + sizeof(int32_t) * (scales_of_row(use) + sums_of_row(use));
    uint64_t x_bytes = use->x == 32 && kernel->x != 32 ? per_row * kernel->tokens : 0;
    uint64_t n_bytes = x_bytes + partial_bytes(kernel, use);
    return n_bytes ? n_bytes : sizeof(int32_t);
}

/* What the texts declare themselves. linear.cl: two stages of results, a codebook; gemm.cl: a start of sums; all: sums
 * of squares. */
static uint64_t declared_bytes(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    uint64_t items = kernel->local_size, halves = x_group_option(use) == 16 ? 2 : 1;
    uint64_t stage = kernel->form == CRUMB_CL_PLAIN ? items * sizeof(float) * halves * (2u + kernel->tokens) : 0;
    return 2 * stage + (use->x == 32 ? 2 * sizeof(float) * items : 0) + 8 * 64;
}

static bool plain_fits(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    return !kernel->sub_group ||
           x_group_option(use) != 16; /* matrix instructions: halves of a block lie in all bytes */
}

static bool gemv_fits(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    uint32_t group = x_group_option(use), k = padded_k(use->w), step_k = CRUMB_TILE_K * kernel->step;
    if (group && ((group != 32 && group != 64 && group != 128) || step_k % group)) return false;
    if (kernel->x_pairs && group == 32) return false;                           /* a pair of blocks has one sum */
    if (kernel->bits == 8 && kernel->tokens == 8 && use->x == 32) return false; /* as over, by an eighth */
    /* It counts bytes of codes in 32 bits, since dg2 adds no wider numbers. */
    if (kernel->sub_group == 8 && crumb_matrix_codes_bytes(use->w) > UINT32_MAX) return false;
    return k % 64 == 0 && (kernel->sub_group == 16 || k >= step_k);
}

/* Of gemm.cl: sums of 8 rows of activations x SUB_GROUP of weights that a sub-group has. */
static uint32_t sum_blocks(const crumb_cl_kernel *kernel) {
    const uint32_t blocks = kernel->tokens / 8u * kernel->tiles; /* of tile-rows, of all that do not share K */
    return kernel->local_size ? blocks * CRUMB_TILE_ROWS * kernel->slices / kernel->local_size : 0;
}

/* Of gemm.cl: a gate whose work-groups quantize, which has two loops beside what that keeps in registers. Such loops
 * spill with codes of 4 and 8 bits in sub-groups of 16, where they quantize in registers or split K of 8 bits; in those
 * of 8 with 1 and 2 bits where they split K, beside the division of dg2, and with 3 and 4 bits, 16 rows and two
 * tile-rows they are over the budget of tests/xe/machine_code.py by 2 %. */
static bool gate_quantizes_badly(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    if (use->x != 32 || !use->gated) return false;
    if (kernel->sub_group == 16 && kernel->x == 32) return kernel->bits == 4 || kernel->bits == 8;
    if (kernel->sub_group == 16) return kernel->bits == 8 && kernel->slices > 1;
    if (kernel->bits <= 2 && kernel->slices > 1) return true;
    return (kernel->bits == 3 || kernel->bits == 4) && kernel->tokens == 16;
}

/* Of gemm.cl: 8 bits in sub-groups of 8, whose operands are put together from two loads. In groups their tiles are
 * those that no others serve: of 128 columns the larger one would spill. */
static bool wide_operands_fit(const crumb_cl_kernel *kernel, uint32_t group) {
    if (kernel->bits != 8 || kernel->sub_group != 8 || !kernel->groups) return true;
    return group && (group == 128) == (sum_blocks(kernel) <= 4);
}

/* Groups' floats take too large a part of smaller tiles. */
static bool gemm_fits(const crumb_cl_kernel *kernel, const crumb_cl_linear *use) {
    const uint32_t group = x_group_option(use), k = padded_k(use->w);
    if (k < 64) return false;
    if (kernel->x == 32 &&
        (group || use->input || use->ordered || use->w->k % (kernel->bf16 ? 8 : 4) || kernel->tokens > 16))
        return false; /* rows as surfaces */
    if (kernel->x == 32 && sum_blocks(kernel) * 8u < kernel->tokens * (uint32_t)FED) return false;
    /* In local memory, by each work-group for all its tile-rows, which are two operands in sub-groups of 8. */
    if (kernel->x != 32 && use->x == 32 && kernel->tiles * CRUMB_TILE_ROWS < FED * kernel->sub_group) return false;
    if (group && (kernel->slices > 1 || !kernel->groups || k / group < 2)) return false;
    if (!wide_operands_fit(kernel, group)) return false;
    if (staged(kernel) && (group < CRUMB_TILE_K || use->x == 32)) return false;
    if ((kernel->bits == 5 || kernel->bits == 6) && !group) return false;        /* no format has rows of one scale */
    if (kernel->bits == 6 && kernel->sub_group == 8 && group > 32) return false; /* nor such groups: they would spill */
    /* Two loops, of which each puts together operands of 8 registers from two loads, beside 128 of sums: they spill. */
    if (kernel->bits == 8 && kernel->sub_group == 8 && use->gated && sum_blocks(kernel) > 8) return false;
    /* The same where parts of K are added up, beside the division of dg2, which has none that is exact. */
    if ((kernel->bits == 3 || kernel->bits == 4) && kernel->sub_group == 8 && use->gated && kernel->slices > 1)
        return false;
    if (gate_quantizes_badly(kernel, use)) return false;
    /* The tile for groups of 16; quantizing larger ones it is over the budget of tests/xe/machine_code.py. */
    if (kernel->bits == 2 && kernel->sub_group == 16 && kernel->groups && sum_blocks(kernel) <= 8 && group > 16 &&
        use->x == 32)
        return false;
    /* Several loops with mins, which are a product more for each sum, in tiles that fill the registers without. */
    if (group > 64 && use->w->mins && use->gated && kernel->bits == 8) return false;
    if (group > 64 && use->w->mins && use->n_parts > 1 && kernel->bits == 5 && kernel->sub_group == 8) return false;
    if (group == 16) return sum_blocks(kernel) <= 8; /* beside them, codes of all tile-rows and two groups' numbers */
    return !group || group == 32 || group == 64 || group == 128;
}

bool crumb_cl_linear_fits(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, const crumb_cl_target *target) {
    const crumb_matrix *w = use->w;
    if (kernel->op != CRUMB_CL_LINEAR || kernel->rung > target->rung || kernel->bf16 != target->bf16) return false;
    if (kernel->bits != w->bits || kernel->codebook != (w->codebook != NULL) || w->indexed) return false;
    if (kernel->x && kernel->x != use->x) return false;
    if (kernel->sub_group && kernel->sub_group != target->sub_group) return false;
    if (kernel->local_size > target->max_work_group || padded_k(w) > 1u << 16) return false;
    uint32_t x_group = x_group_option(use);
    if (x_group && (padded_k(w) % x_group || (group_option(w) && w->group % x_group))) return false;
    if (target->no_blocks && kernel->form != CRUMB_CL_PLAIN && kernel->sub_group == 16) return false;
    if (kernel->form == CRUMB_CL_PLAIN && !plain_fits(kernel, use)) return false;
    if (kernel->form == CRUMB_CL_GEMV && !gemv_fits(kernel, use)) return false;
    if (kernel->form == CRUMB_CL_GEMM && !gemm_fits(kernel, use)) return false;
    return crumb_cl_linear_scratch_bytes(kernel, use) + declared_bytes(kernel, use) <= target->local_bytes;
}

uint64_t crumb_cl_linear_x_bytes(uint32_t n, uint32_t k_padded) {
    return crumb_round_up(n, X_ROWS) * k_padded;
}

uint64_t crumb_cl_linear_x_place(const crumb_cl_kernel *kernel, uint32_t k_padded, uint32_t n, uint32_t k) {
    const uint32_t block = k / CRUMB_TILE_K, in = k % CRUMB_TILE_K, rows = kernel->x_rows;
    uint32_t place = CRUMB_TILE_K * block + (kernel->x_bits ? crumb_tile_plane_position(kernel->x_bits, in) : in);
    const uint32_t quarter = place / 16 % 4; /* of two 32-blocks */
    if (kernel->x_pairs && quarter == 1) place += 16;
    if (kernel->x_pairs && quarter == 2) place -= 16;
    const uint64_t first = (uint64_t)(n / rows * rows) * k_padded, to = place / CRUMB_TILE_K;
    return first + (to * rows + n % rows) * CRUMB_TILE_K + place % CRUMB_TILE_K;
}

bool crumb_cl_linear_scaled(const crumb_cl_kernel *kernel) {
    return strstr(kernel->options, "-D SCALED=1") != NULL;
}

/* Highest rank first. */
static const crumb_cl_kernel *select_by_rank(const crumb_cl_linear *use, uint32_t n, const crumb_cl_target *target) {
    size_t n_kernels;
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n_kernels), *best = NULL;
    for (size_t i = 0; i < n_kernels; i++)
        if (crumb_cl_linear_fits(&kernels[i], use, target) && n >= kernels[i].min_n && n <= kernels[i].max_n &&
            (!best || kernels[i].rank > best->rank))
            best = &kernels[i];
    return best;
}

uint64_t crumb_cl_linear_items(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, uint32_t n) {
    const uint64_t tiles = use->tiles ? use->tiles : crumb_div_up(use->w->m, CRUMB_TILE_ROWS);
    return crumb_div_up(tiles, kernel->tiles) * crumb_div_up(n, kernel->tokens) * kernel->local_size;
}

const crumb_cl_kernel *crumb_cl_linear_select(const crumb_cl_linear *use, uint32_t n, const crumb_cl_target *target) {
    const uint64_t enough = (uint64_t)CORE_LANES * target->xe_cores;
    size_t n_kernels;
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n_kernels);
    const crumb_cl_kernel *first = select_by_rank(use, n, target), *best = first;
    if (!first || !first->sub_group) return first;
    for (size_t i = 0; i < n_kernels && crumb_cl_linear_items(best, use, n) < enough; i++) {
        const crumb_cl_kernel *k = &kernels[i];
        if (k->form != first->form || k->tokens > first->tokens || n < k->min_n || n > k->max_n) continue;
        if (!crumb_cl_linear_fits(k, use, target)) continue;
        const uint64_t items = crumb_cl_linear_items(k, use, n), of_best = crumb_cl_linear_items(best, use, n);
        if (items > of_best || (items == of_best && k->local_size < best->local_size)) best = k; /* on more cores */
    }
    return best;
}

/* ---- dense layers on matrix instructions -------------------------------------------------------------------- */

enum { TERMS = 2, SPLIT_ROWS = 8 }; /* as kernels.def and split.cl have them */

static int type_option(crumb_type type) {
    return type == CRUMB_TYPE_F32 ? 32 : type == CRUMB_TYPE_F16 ? 16 : 17;
}

bool crumb_cl_dense_fits(const crumb_cl_kernel *kernel, const crumb_matrix *w, const crumb_cl_target *target) {
    return kernel->op == CRUMB_CL_DENSE_MATRIX && !target->exact && kernel->rung <= target->rung &&
           kernel->bf16 == target->bf16 && kernel->sub_group == target->sub_group &&
           kernel->local_size <= target->max_work_group && w->bits == 0 && kernel->type == type_option(w->type) &&
           w->k % CRUMB_TILE_K == 0;
}

const crumb_cl_kernel *crumb_cl_dense_select(const crumb_matrix *w, uint32_t n, const crumb_cl_target *target) {
    size_t n_kernels;
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n_kernels), *best = NULL;
    for (size_t i = 0; i < n_kernels; i++)
        if (crumb_cl_dense_fits(&kernels[i], w, target) && n <= kernels[i].max_n &&
            (!best || kernels[i].rank > best->rank))
            best = &kernels[i];
    return best;
}

const crumb_cl_kernel *crumb_cl_floats_select(uint32_t n, bool bf16) {
    size_t n_kernels;
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n_kernels);
    for (size_t i = 0; i < n_kernels; i++)
        if (kernels[i].op == CRUMB_CL_LINEAR_DENSE && kernels[i].bf16 == bf16 && n <= kernels[i].max_n)
            return &kernels[i];
    return NULL;
}

bool crumb_cl_dense_owns(const crumb_cl_kernel *kernel) {
    return kernel->op == CRUMB_CL_LINEAR_DENSE || kernel->tokens == 1;
}

bool crumb_cl_dense_joins(const crumb_cl_kernel *kernel) {
    return kernel->op == CRUMB_CL_LINEAR_DENSE || kernel->tokens <= SPLIT_ROWS; /* SPREAD=1 */
}

uint64_t crumb_cl_split_bytes(uint32_t n, uint32_t k) {
    return crumb_round_up(n, SPLIT_ROWS) * k * TERMS * sizeof(uint16_t);
}

/* ---- attention ---------------------------------------------------------------------------------------------- */

/* Queries that a work-group takes at most: what its kernel's registers hold. */
static uint32_t most_queries(const crumb_cl_kernel *kernel) {
    return kernel->sub_group == 16 ? 32 : 16;
}

/* As attention_matrix.cl says. */
static uint64_t matrix_local_bytes(const crumb_cl_kernel *kernel, uint32_t head_dim) {
    return most_queries(kernel) * (4ull * head_dim + 700);
}

static bool attention_fits(const crumb_cl_kernel *kernel, const crumb_cl_heads *h, const crumb_cl_target *target) {
    if (kernel->rung > target->rung || kernel->bf16 != target->bf16) return false;
    return !kernel->sub_group ||
           (!(target->exact && h->kv == CRUMB_KV_F16) && kernel->sub_group == target->sub_group &&
            !(target->no_blocks && kernel->sub_group == 16) && h->kv == kernel->kv &&
            h->head_dim % (h->kv == CRUMB_KV_Q8 ? 32 : 16) == 0 && h->head_dim >= 32 &&
            h->head_dim <= 16u * kernel->sub_group && h->n_head / h->n_head_kv <= most_queries(kernel) &&
            kernel->local_size <= target->max_work_group &&
            matrix_local_bytes(kernel, h->head_dim) <= target->local_bytes);
}

const crumb_cl_kernel *crumb_cl_attention_select(crumb_cl_op op, const crumb_cl_heads *heads,
                                                 const crumb_cl_target *target) {
    size_t n_kernels;
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n_kernels), *best = NULL;
    for (size_t i = 0; i < n_kernels; i++)
        if (kernels[i].op == op && attention_fits(&kernels[i], heads, target) &&
            (!best || kernels[i].rank > best->rank))
            best = &kernels[i];
    return best;
}

uint32_t crumb_cl_attention_rows(const crumb_cl_kernel *kernel, const crumb_cl_heads *h,
                                 const crumb_cl_target *target) {
    const uint32_t sharing = h->n_head / h->n_head_kv;
    const uint64_t query_bytes = 12ull * h->head_dim + (h->kv == CRUMB_KV_Q8 ? 1100 : 600);
    const uint64_t fit = kernel->sub_group ? UINT64_MAX : target->local_bytes / (query_bytes * sharing);
    const uint64_t most = most_queries(kernel) / sharing, rows = fit < most ? fit : most;
    return rows ? (uint32_t)rows : 1;
}

void crumb_cl_attention_options(const crumb_cl_kernel *kernel, const crumb_cl_heads *h, uint32_t rows,
                                const char *standard, char *out) {
    const bool joins = kernel->op == CRUMB_CL_ATTENTION_SPLIT && !kernel->sub_group;
    snprintf(out, CRUMB_CL_OPTIONS_MAX, "%s%s -D HEAD_DIM=%u -D KV=%d -D N_HEAD=%u -D N_HEAD_KV=%u -D ROWS=%u",
             joins ? standard : "", kernel->options, h->head_dim, h->kv == CRUMB_KV_Q8 ? 8 : 16, h->n_head,
             h->n_head_kv, rows);
}

const char *crumb_cl_standard(const char *version) {
    static const char opencl[] = "OpenCL ";
    if (strncmp(version, opencl, sizeof opencl - 1) != 0) return "-cl-std=CL3.0";
    switch (version[sizeof opencl - 1]) {
    case '1': return "";
    case '2': return "-cl-std=CL2.0";
    default: return "-cl-std=CL3.0";
    }
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

/* -D MUL of gemm.cl. */
static int mul_option(const crumb_matrix *w) {
    return w->mul == 1 || (w->mul == 2 && w->bits == 1) ? w->mul : 0;
}

void crumb_cl_linear_options(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, char *out) {
    crumb_cl_matrix_options(use->w, out);
    size_t length = strlen(out);
    snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length,
             " -D X_GROUP=%u -D ROW_SCALE=%d -D X=%u -D INPUT=%u%s -D PARTS=%u -D GATED=%u %s", x_group_option(use),
             use->act == CRUMB_ACT_ROW, use->x, use->x == 32 ? use->input : 0,
             use->x == 32 && use->ordered ? CRUMB_CL_ORDERED : "", use->n_parts, use->gated, kernel->options);
    length = strlen(out);
    if (kernel->form == CRUMB_CL_GEMM)
        length += (size_t)snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, " -D MUL=%d", mul_option(use->w));
    if (kernel->bf16 && use->f32_results)
        snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, "%s", CRUMB_CL_F32_RESULTS);
}

void crumb_cl_quantize_options(const crumb_cl_kernel *kernel, const crumb_cl_linear *use, char *out) {
    snprintf(out, CRUMB_CL_OPTIONS_MAX, "-D BITS=%d -D X_PAIRS=%d -D X_GROUP=%u -D ROW_SCALE=%d -D INPUT=%u%s",
             kernel->x_bits, kernel->x_pairs, x_group_option(use), use->act == CRUMB_ACT_ROW, use->input,
             use->ordered ? CRUMB_CL_ORDERED : "");
    size_t length = strlen(out);
    if (kernel->x_rows > 1)
        length += (size_t)snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, " -D X_ROWS=%u", kernel->x_rows);
    if (crumb_cl_linear_scaled(kernel))
        length += (size_t)snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, "%s", CRUMB_CL_ONLY_SCALES);
    if (kernel->bf16) snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, "%s", CRUMB_CL_BF16_VALUES);
}

void crumb_cl_split_options(const crumb_cl_kernel *dense, bool norm, char *out) {
    snprintf(out, CRUMB_CL_OPTIONS_MAX, "%s -D TYPE=%d -D INPUT=%d",
             crumb_cl_kernel_of(CRUMB_CL_SPLIT, dense->bf16)->options, dense->type, norm);
}

void crumb_cl_dense_options(const crumb_cl_kernel *kernel, const crumb_cl_dense *use, char *out) {
    const bool matrix = kernel->op == CRUMB_CL_DENSE_MATRIX, owns = crumb_cl_dense_owns(kernel);
    size_t length =
        (size_t)snprintf(out, CRUMB_CL_OPTIONS_MAX, "-D DENSE_PARTS=%u -D GATED=%u", use->n_parts, use->gated);
    if (!matrix)
        length += (size_t)snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, " -D TYPE=%d", type_option(use->type));
    if (matrix) length += (size_t)snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, " -D OWN=%d", owns);
    if (owns)
        length += (size_t)snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, " -D X_GROUP=0 -D INPUT=%d", use->norm);
    snprintf(out + length, CRUMB_CL_OPTIONS_MAX - length, " %s", kernel->options);
}
