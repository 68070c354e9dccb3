/* Prints, one a line, how each linear kernel with dot-product or matrix instructions, and attention, is built for a few
 * layers that models have: name, rung, bits, sub-group, registers, tile-rows and rows of activations of a work-group,
 * its items, the most rows it is meant for, rank, layer, file, options; separated by tabs. With a file's name, the text
 * of its programs. */
#include "cl/program.h"
#include "cl/registry.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    crumb_act_quant act;
    uint32_t group, act_group, x;
    uint32_t super_group; /* with mins, as 2-bit K-quants have it */
    bool wide;            /* f32 scales and mins, as GPTQ's weights have them */
} layers[] = {
    {"row", CRUMB_ACT_ROW, 4096, 0, 8, 0, false},         /* one scale per row: ternary models */
    {"row-fused", CRUMB_ACT_ROW, 4096, 0, 32, 0, false},  /* quantized by every work-group */
    {"group128", CRUMB_ACT_GROUP, 128, 128, 8, 0, false}, /* scales of 128 on both sides */
    {"group32", CRUMB_ACT_GROUP, 32, 32, 8, 0, false},     {"group16", CRUMB_ACT_GROUP, 16, 16, 8, 256, false},
    {"group16-wide", CRUMB_ACT_GROUP, 16, 16, 8, 0, true},
};

/* Kernels for values in bf16 are the others but at both ends: in how they read what they quantize, and what they write.
 */
static void print_variant(const crumb_cl_kernel *kernel, size_t layer) {
    static const int8_t entries[CRUMB_CODEBOOK_ENTRIES] = {0};
    static const uint16_t some_supers[1];
    char options[CRUMB_CL_OPTIONS_MAX];
    const crumb_matrix w = {.bits = kernel->bits,
                            .mul = kernel->bits == 1 ? 2 : 1, /* 1 bit: -1 and 1 */
                            .m = 4096,
                            .k = 4096,
                            .group = layers[layer].group,
                            .super_group = layers[layer].super_group,
                            .scales_f32 = layers[layer].wide,
                            .mins = layers[layer].super_group || layers[layer].wide ? some_supers : NULL,
                            .codebook = kernel->codebook ? entries : NULL};
    const crumb_cl_linear use = {
        .w = &w, .act = layers[layer].act, .act_group = layers[layer].act_group, .n_parts = 1, .x = layers[layer].x};
    const crumb_cl_target target = {kernel->rung, kernel->sub_group, 128u << 10, 1024, 0, kernel->bf16, false, false};
    if (kernel->bf16 && layers[layer].x == 8) return;
    if (!crumb_cl_linear_fits(kernel, &use, &target)) return;
    crumb_cl_linear_options(kernel, &use, options);
    printf("%s\t%s\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%d\t%s\t%s\t%s %s%s\n", kernel->name, crumb_cl_rung_name(kernel->rung),
           kernel->bits, kernel->sub_group, kernel->registers, kernel->tiles, kernel->tokens, kernel->local_size,
           kernel->max_n, kernel->rank, layers[layer].name, kernel->file, CRUMB_CL_BUILD_OPTIONS, options,
           kernel->registers == 256 ? " " CRUMB_CL_LARGE_REGISTERS : "");
}

static void print_dense(const crumb_cl_kernel *kernel) {
    printf("%s\t%s\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%d\tdense\t%s\t%s %s\n", kernel->name, crumb_cl_rung_name(kernel->rung),
           kernel->bits, kernel->sub_group, kernel->registers, kernel->tiles, kernel->tokens, kernel->local_size,
           kernel->max_n, kernel->rank, kernel->file, CRUMB_CL_BUILD_OPTIONS, kernel->options);
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
        crumb_cl_attention_options(kernel, &all[i], rows, options);
        printf("%s\t%s\t0\t%u\t%u\t0\t%u\t%u\t%u\t%d\theads%u%s\t%s\t%s %s%s\n", kernel->name,
               crumb_cl_rung_name(kernel->rung), kernel->sub_group, kernel->registers, rows, kernel->local_size,
               kernel->max_n, kernel->rank, all[i].head_dim, all[i].kv == CRUMB_KV_Q8 ? "-q8" : "", kernel->file,
               CRUMB_CL_BUILD_OPTIONS, options, kernel->registers == 256 ? " " CRUMB_CL_LARGE_REGISTERS : "");
    }
}

static int print_text(const char *file) {
    const char *own = crumb_cl_text(file);
    if (!own) return fprintf(stderr, "list_variants: there is no kernel text %s\n", file), 1;
    printf("%s\n%s", crumb_cl_text("common.cl"), own);
    return 0;
}

int main(int argc, char **argv) {
    size_t n;
    if (argc > 1) return print_text(argv[1]);
    const crumb_cl_kernel *kernels = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++)
        if (kernels[i].op == CRUMB_CL_DENSE_MATRIX) print_dense(&kernels[i]);
    for (size_t i = 0; i < n; i++)
        if (kernels[i].sub_group ? strcmp(kernels[i].file, "attention_matrix.cl") == 0
                                 : kernels[i].op == CRUMB_CL_ATTENTION_WHOLE && !kernels[i].bf16)
            print_attention(&kernels[i]);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; kernels[i].rung != CRUMB_CL_PORTABLE && j < sizeof layers / sizeof layers[0]; j++)
            print_variant(&kernels[i], j);
    return 0;
}
