/* Prints, one a line, how each kernel is built for a few layers that models have: name, rung, bits, sub-group,
 * registers, tile-rows and rows of activations of a work-group, its items, the most rows it is meant for, rank, layer,
 * file, entry point, options; separated by tabs. With a file's name, the text of its programs. With --knobs N, of
 * linear layers on matrix instructions every N-th of the combinations of knobs that `crumb tune` tries of each row; the
 * name is the row's, and the knobs behind a slash. With --rows, the names of all rows, each of which has a line. */
#include "cl/program.h"
#include "cl/variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROPE_OPTIONS "-D HEAD_DIM=128 -D N_HEAD=32 -D N_HEAD_KV=8 -D DIMS=128 -D PAIRING=1 -D STORE=1 -D WG=64"

/* Of what launches there are: for several rows codes come from memory, and fused kernels are what `crumb tune` may
 * take. For one row on a GPU each work-group quantizes (fuses in cl/tuned.c): a norm for q/k/v and gate/up, and for
 * BitNet's o and down; of other models' o and down what attention or gate/up have written. A gate's product is
 * quantized by quantize.cl alone, whatever its function (may_fuse in cl/record_linear.c); that fused kernels can is
 * compiled of rows, and of GPTQ's groups. */
typedef enum rows_served { ANY_ROWS, ONE_ROW } rows_served;

static const struct {
    const char *name;
    uint32_t group, x;    /* group 4096: one scale per row, else that of both sides */
    uint32_t super_group; /* as K-quants have it */
    bool wide, mins;      /* wide: f32 scales and mins, as GPTQ's weights have them */
    uint32_t input;       /* what a kernel quantizes: INPUT of common.cl */
    bool ordered;         /* and ORDER */
    rows_served rows;
} layers[] = {
    {"row", 4096, 8, 0, false, false, 0, false, ANY_ROWS},             /* one scale per row: ternary models */
    {"row-fused", 4096, 32, 0, false, false, 0, false, ANY_ROWS},      /* quantized by every work-group */
    {"row-fused-norm", 4096, 32, 0, false, false, 1, false, ONE_ROW},  /* a norm's columns */
    {"row-fused-order", 4096, 32, 0, false, false, 1, true, ANY_ROWS}, /* the same in another order */
    {"row-fused-gated", 4096, 32, 0, false, false, 2, false, ANY_ROWS},
    {"group128", 128, 8, 0, false, false, 0, false, ANY_ROWS},
    {"group128-mins", 128, 8, 0, true, true, 0, false, ANY_ROWS}, /* GPTQ */
    {"group128-fused", 128, 32, 0, false, false, 0, false, ANY_ROWS},
    {"group128-fused-norm", 128, 32, 0, false, false, 1, false, ONE_ROW}, /* Q1_0 */
    {"group128-mins-fused-norm", 128, 32, 0, true, true, 1, false, ONE_ROW},
    {"group128-fused-order", 128, 32, 0, true, true, 1, true, ANY_ROWS}, /* GPTQ with act-order */
    {"group128-fused-gated", 128, 32, 0, true, true, 2, true, ANY_ROWS},
    {"group64", 64, 8, 0, false, false, 0, false, ANY_ROWS},
    {"group64-mins", 64, 8, 0, true, true, 0, false, ANY_ROWS},
    {"group64-fused", 64, 32, 0, false, false, 0, false, ONE_ROW},
    {"group64-fused-norm", 64, 32, 0, false, false, 1, false, ONE_ROW}, /* Q2_0 */
    {"group32", 32, 8, 0, false, false, 0, false, ANY_ROWS},
    {"group32-mins", 32, 8, 256, false, true, 0, false, ANY_ROWS}, /* 4-bit K-quants */
    {"group32-fused", 32, 32, 0, false, false, 0, false, ANY_ROWS},
    {"group32-fused-norm", 32, 32, 0, false, false, 1, false, ONE_ROW},         /* Q4_0 */
    {"group32-mins-f16-fused-norm", 32, 32, 0, false, true, 1, false, ONE_ROW}, /* Q4_1 */
    {"group32-mins-fused", 32, 32, 256, false, true, 0, false, ONE_ROW},
    {"group32-mins-fused-norm", 32, 32, 256, false, true, 1, false, ONE_ROW},
    {"group16", 16, 8, 256, false, true, 0, false, ANY_ROWS}, /* 2-bit K-quants; those of 3 and 6 bits lack the mins */
    {"group16-wide", 16, 8, 0, true, true, 0, false, ANY_ROWS},
    {"group16-fused", 16, 32, 256, false, true, 0, false, ONE_ROW},
    {"group16-fused-norm", 16, 32, 256, false, true, 1, false, ONE_ROW},
};
enum { ROW_GROUP = 4096 };

/* Of one matrix, or several in one launch: q/k/v, gate/up with silu, and with BitNet's squared relu. */
static const struct {
    const char *suffix;
    uint32_t n, gated;
} parts[] = {{"", 1, 0}, {"-qkv", 3, 0}, {"-gate", 2, 1}, {"-relu2-gate", 2, 2}};
enum { QKV = 1 };

/* Which of them, but for values in bf16, are worth compiling. The portable kernels of one matrix stand for all. Layers
 * of one row have rows of one row of activations. Behind a norm that several matrices read their launch is what models
 * have; else what a kernel quantizes, which is read before its loop, is compiled of one matrix, and in small groups a
 * gate's two loops are more than what three matrices have. Ternary models alone have squared relu, and codebooks groups
 * of 32 alone. */
static bool is_listed(const crumb_cl_kernel *kernel, size_t layer, size_t part) {
    const bool one_row = kernel->tokens == 1;
    if (kernel->rung == CRUMB_CL_PORTABLE && (part || layers[layer].input)) return false;
    if (layers[layer].rows == ONE_ROW && (!one_row || (kernel->codebook && layers[layer].group != 32))) return false;
    if (!part) return true;
    if (kernel->codebook && layers[layer].ordered) return false;
    if (layers[layer].input > 1 || (layers[layer].input && !one_row)) return false;
    if (layers[layer].rows == ONE_ROW && !layers[layer].input) return false;
    if (part == QKV) return layers[layer].group >= 128 || layers[layer].input;
    const bool fused_alone = layers[layer].x == 32 && !layers[layer].input;
    return parts[part].gated == 1 ||
           (kernel->bits == 2 && layers[layer].group == ROW_GROUP && !layers[layer].ordered && !fused_alone);
}

/* Whether it fits, and is printed. */
static bool print_if_fits(const crumb_cl_variant *variant, const char *knobs, size_t layer, size_t part) {
    const crumb_cl_kernel *kernel = &variant->kernel;
    static const int8_t entries[CRUMB_CODEBOOK_ENTRIES] = {0};
    static const uint16_t some_supers[1];
    char options[CRUMB_CL_OPTIONS_MAX];
    const bool by_row = layers[layer].group == ROW_GROUP;
    const crumb_matrix w = {.bits = kernel->bits,
                            .mul = kernel->bits == 1 ? 2 : 1, /* 1 bit: -1 and 1 */
                            .m = 4096,
                            .k = 4096,
                            .group = layers[layer].group,
                            .super_group = layers[layer].super_group,
                            .scales_f32 = layers[layer].wide,
                            .mins = layers[layer].mins ? some_supers : NULL,
                            .codebook = kernel->codebook ? entries : NULL};
    const crumb_cl_linear use = {.w = &w,
                                 .act = by_row ? CRUMB_ACT_ROW : CRUMB_ACT_GROUP,
                                 .act_group = by_row ? 0 : layers[layer].group,
                                 .n_parts = parts[part].n,
                                 .gated = parts[part].gated,
                                 .x = layers[layer].x,
                                 .input = layers[layer].input,
                                 .ordered = layers[layer].ordered};
    const uint32_t local_kb = kernel->sub_group == 16 ? 128 : 64; /* of Xe2 and later; of those before */
    const crumb_cl_target target = {kernel->rung, kernel->sub_group, local_kb << 10, 1024, 0, kernel->bf16, false,
                                    false};
    if (!crumb_cl_variant_fits(variant, &use, &target)) return false;
    crumb_cl_linear_options(kernel, &use, options);
    printf("%s%s%s\t%s\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%d\t%s%s\t%s\t%s\t%s %s%s\n", kernel->name, *knobs ? "/" : "",
           knobs, crumb_cl_rung_name(kernel->rung), kernel->bits, kernel->sub_group, kernel->registers, kernel->tiles,
           kernel->tokens, kernel->local_size, kernel->max_n, kernel->rank, layers[layer].name, parts[part].suffix,
           kernel->file, kernel->entry, CRUMB_CL_BUILD_OPTIONS, options,
           kernel->registers == 256 ? " " CRUMB_CL_LARGE_REGISTERS : "");
    return true;
}

/* Kernels for values in bf16 are the others but at both ends: in how they read what they quantize, and what they write;
 * so of several matrices those that quantize rows with one scale stand for them. */
static void print_variant(const crumb_cl_variant *variant, const char *knobs, size_t layer, size_t part) {
    const crumb_cl_kernel *kernel = &variant->kernel;
    const bool by_row = layers[layer].group == ROW_GROUP;
    if (!is_listed(kernel, layer, part)) return;
    if (kernel->bf16 && (layers[layer].x == 8 || layers[layer].input > 1 || layers[layer].ordered)) return;
    if (kernel->bf16 && !by_row && layers[layer].rows == ONE_ROW) return;
    if (kernel->bf16 && part && (!by_row || kernel->rung != CRUMB_CL_DPAS)) return;
    (void)print_if_fits(variant, knobs, layer, part);
}

/* Values in bf16 that are written alone, of codes from memory: the first layer that a row fits stands for all. One row
 * of activations is quantized by each work-group. */
static void print_codes_to_bf16(const crumb_cl_variant *variant) {
    if (!variant->kernel.bf16 || variant->kernel.tokens == 1) return;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        if (layers[i].x == 8 && print_if_fits(variant, "", i, 0)) return;
}

static void print_dense(const crumb_cl_kernel *kernel, const char *layer, const crumb_cl_dense *use) {
    char options[CRUMB_CL_OPTIONS_MAX];
    crumb_cl_dense_options(kernel, use, options);
    printf("%s\t%s\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%d\t%s\t%s\t%s\t%s %s\n", kernel->name,
           crumb_cl_rung_name(kernel->rung), kernel->bits, kernel->sub_group, kernel->registers, kernel->tiles,
           kernel->tokens, kernel->local_size, kernel->max_n, kernel->rank, layer, kernel->file, kernel->entry,
           CRUMB_CL_BUILD_OPTIONS, options);
}

/* Dense layers on matrix instructions: one matrix, and where it joins them q/k/v of a norm, gate and up. */
static void print_dense_layers(const crumb_cl_kernel *kernel) {
    const bool owns = crumb_cl_dense_owns(kernel);
    print_dense(kernel, "dense", &(crumb_cl_dense){.n_parts = 1});
    if (kernel->bf16 || !crumb_cl_dense_joins(kernel)) return;
    print_dense(kernel, "dense-qkv", &(crumb_cl_dense){.n_parts = 3, .norm = owns});
    print_dense(kernel, "dense-gate", &(crumb_cl_dense){.n_parts = 2, .gated = 1, .norm = owns});
}

/* On any device: of weights of each type, and of one row all that a launch can do. */
static void print_floats(const crumb_cl_kernel *kernel) {
    print_dense(kernel, "f32", &(crumb_cl_dense){.type = CRUMB_TYPE_F32, .n_parts = 1});
    print_dense(kernel, "f16", &(crumb_cl_dense){.type = CRUMB_TYPE_F16, .n_parts = 3});
    print_dense(kernel, "bf16",
                &(crumb_cl_dense){.type = CRUMB_TYPE_BF16, .n_parts = 2, .gated = 1, .norm = kernel->tokens == 1});
}

/* Attention for the heads of Llama 3 8B, and for others; without matrix instructions for the former, and many rows. */
static void print_attention(const crumb_cl_kernel *kernel) {
    static const crumb_cl_heads all[] = {{CRUMB_KV_F16, 128, 32, 8}, {CRUMB_KV_F16, 64, 32, 8},
                                         {CRUMB_KV_F16, 256, 8, 4},  {CRUMB_KV_Q8, 128, 32, 8},
                                         {CRUMB_KV_Q8, 96, 28, 4},   {CRUMB_KV_Q8, 256, 8, 4}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char options[CRUMB_CL_OPTIONS_MAX];
        const crumb_cl_target target = {kernel->rung, kernel->sub_group, 64u << 10, 1024, 0, kernel->bf16, false,
                                        false};
        if (crumb_cl_attention_select(kernel->op, &all[i], &target) != kernel ||
            (!kernel->sub_group && all[i].head_dim != 128))
            continue;
        const uint32_t whole = crumb_cl_attention_rows(kernel, &all[i], &target);
        const uint32_t rows = kernel->op == CRUMB_CL_ATTENTION_WHOLE ? whole : 1;
        crumb_cl_attention_options(kernel, &all[i], rows, crumb_cl_standard("OpenCL 3.0"), options);
        printf("%s\t%s\t0\t%u\t%u\t0\t%u\t%u\t%u\t%d\theads%u%s\t%s\t%s\t%s %s%s\n", kernel->name,
               crumb_cl_rung_name(kernel->rung), kernel->sub_group, kernel->registers, rows, kernel->local_size,
               kernel->max_n, kernel->rank, all[i].head_dim, all[i].kv == CRUMB_KV_Q8 ? "-q8" : "", kernel->file,
               kernel->entry, CRUMB_CL_BUILD_OPTIONS, options,
               kernel->registers == 256 ? " " CRUMB_CL_LARGE_REGISTERS : "");
    }
}

/* Ops with one kernel, with options as cl/record_*.c make them. */
static void print_other(const crumb_cl_kernel *kernel) {
    static const struct {
        crumb_cl_op op;
        const char *layer, *options;
    } others[] = {
        {CRUMB_CL_EMBED, "f16", "-D BITS=0 -D TYPE=16"},
        {CRUMB_CL_EMBED, "q8", "-D BITS=8 -D SCALE=16 -D GROUP=32 -D MINS=0 -D CODEBOOK=0"},
        {CRUMB_CL_EMBED, "k6", "-D BITS=6 -D SCALE=8 -D GROUP=16 -D MINS=0 -D CODEBOOK=0 -D SUPER_GROUP=256"},
        {CRUMB_CL_RMS_NORM, "row", "-D WG=128"},
        {CRUMB_CL_QUANTIZE, "row", "-D BITS=8 -D X_PAIRS=0 -D X_GROUP=0 -D ROW_SCALE=1 -D INPUT=1"},
        {CRUMB_CL_QUANTIZE, "gated", "-D BITS=2 -D X_PAIRS=0 -D X_GROUP=0 -D ROW_SCALE=1 -D INPUT=2"},
        {CRUMB_CL_QUANTIZE, "gated-rows8", "-D BITS=8 -D X_PAIRS=0 -D X_GROUP=0 -D ROW_SCALE=1 -D INPUT=3 -D X_ROWS=8"},
        {CRUMB_CL_QUANTIZE, "gated-group32", "-D BITS=4 -D X_PAIRS=0 -D X_GROUP=32 -D ROW_SCALE=0 -D INPUT=2"},
        {CRUMB_CL_QUANTIZE, "rows8", "-D BITS=8 -D X_PAIRS=0 -D X_GROUP=0 -D ROW_SCALE=1 -D INPUT=1 -D X_ROWS=8"},
        {CRUMB_CL_QUANTIZE, "group32", "-D BITS=4 -D X_PAIRS=0 -D X_GROUP=32 -D ROW_SCALE=0 -D INPUT=1"},
        {CRUMB_CL_QUANTIZE, "group16", "-D BITS=2 -D X_PAIRS=0 -D X_GROUP=16 -D ROW_SCALE=0 -D INPUT=1"},
        {CRUMB_CL_SPLIT, "f16", "-D TYPE=16 -D INPUT=1"},
        {CRUMB_CL_SPLIT, "bf16", "-D TYPE=17 -D INPUT=0"},
        {CRUMB_CL_LINEAR_F32, "group32", "-D BITS=4 -D SCALE=16 -D GROUP=32 -D MINS=1 -D CODEBOOK=0"},
        {CRUMB_CL_LINEAR_F32, "k6", "-D BITS=6 -D SCALE=8 -D GROUP=16 -D MINS=0 -D CODEBOOK=0 -D SUPER_GROUP=256"},
        {CRUMB_CL_ROPE_STORE, "f16", ROPE_OPTIONS " -D KV=16"},
        {CRUMB_CL_ROPE_STORE, "q8", ROPE_OPTIONS " -D KV=8"},
        {CRUMB_CL_GATED, "silu", "-D FN=1"},
        {CRUMB_CL_GATED, "relu2", "-D FN=2"},
        {CRUMB_CL_SELECT, "row", "-D WG=128"},
        {CRUMB_CL_TOP, "first", "-D FIRST=1 -D LAST=0 -D K=128 -D WG=128"},
        {CRUMB_CL_TOP, "between", "-D FIRST=0 -D LAST=0 -D K=128 -D WG=128"},
        {CRUMB_CL_TOP, "last", "-D FIRST=0 -D LAST=1 -D K=128 -D WG=128"},
        {CRUMB_CL_TOP, "only", "-D FIRST=1 -D LAST=1 -D K=128 -D WG=128"},
        {CRUMB_CL_PLACE, "row", "-D WG=128"},
        {CRUMB_CL_GATHER, "row", "-D WG=128"},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].op == kernel->op)
            printf("%s\tportable\t0\t0\t128\t0\t%u\t%u\t%u\t0\t%s\t%s\t%s\t%s %s %s\n", kernel->name, kernel->tokens,
                   kernel->local_size, kernel->max_n, others[i].layer, kernel->file, kernel->entry,
                   CRUMB_CL_BUILD_OPTIONS, others[i].options, kernel->options);
}

/* What `crumb tune` may run of a row, by layers of one matrix. */
static void print_knobs(const crumb_cl_kernel *row, size_t every, size_t *number) {
    static const char *const tried[] = {"row", "row-fused", "group128", "group128-fused", "group32"};
    for (size_t i = 1; i < crumb_cl_variant_count(row); i++) {
        char knobs[128];
        crumb_cl_variant v;
        crumb_cl_variant_print(row, i, knobs, sizeof knobs);
        if (!crumb_cl_variant_make(row, knobs, &v)) continue;
        for (size_t j = 0; j < sizeof layers / sizeof layers[0]; j++)
            for (size_t t = 0; t < sizeof tried / sizeof tried[0]; t++)
                if (strcmp(layers[j].name, tried[t]) == 0 && layers[j].x == v.x && (*number)++ % every == 0)
                    print_variant(&v, knobs, j, 0);
    }
}

static int print_text(const char *file) {
    const char *own = crumb_cl_text(file);
    if (!own) return fprintf(stderr, "list_variants: there is no kernel text %s\n", file), 1;
    printf("%s\n%s", crumb_cl_text("common.cl"), own);
    return 0;
}

static void print_linear(const crumb_cl_kernel *kernel) {
    crumb_cl_variant v;
    crumb_cl_variant_of(kernel, &v);
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) print_variant(&v, "", i, part);
    print_codes_to_bf16(&v);
}

int main(int argc, char **argv) {
    size_t n, number = 0;
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n);
    const bool rows = argc > 1 && strcmp(argv[1], "--rows") == 0;
    const unsigned long every = argc > 2 && strcmp(argv[1], "--knobs") == 0 ? strtoul(argv[2], NULL, 10) : 0;
    for (size_t i = 0; every && i < n; i++)
        if (kernels[i].op == CRUMB_CL_LINEAR && kernels[i].sub_group) print_knobs(&kernels[i], every, &number);
    for (size_t i = 0; rows && i < n; i++) printf("%s\n", kernels[i].name);
    if (rows) return 0;
    if (argc > 1) return every ? 0 : print_text(argv[1]);
    for (size_t i = 0; i < n; i++)
        if (kernels[i].op == CRUMB_CL_DENSE_MATRIX) print_dense_layers(&kernels[i]);
    for (size_t i = 0; i < n; i++)
        if (kernels[i].op == CRUMB_CL_LINEAR_DENSE) print_floats(&kernels[i]);
    for (size_t i = 0; i < n; i++)
        if (kernels[i].op == CRUMB_CL_ATTENTION_WHOLE || kernels[i].op == CRUMB_CL_ATTENTION_SPLIT)
            print_attention(&kernels[i]);
    for (size_t i = 0; i < n; i++) print_other(&kernels[i]);
    for (size_t i = 0; i < n; i++)
        if (kernels[i].op == CRUMB_CL_LINEAR) print_linear(&kernels[i]);
    return 0;
}
