/* The rows of kernels.def: for values in f32, and once more for values in bf16. */
#include "cl/registry.h"

static const crumb_cl_kernel kernels[] = {
#define CRUMB_CL_KERNEL(name_, op_, file_, entry_, options_, local_size_)                                              \
    {.name = ROW_NAME(name_),                                                                                          \
     .bf16 = ROW_BF16,                                                                                                 \
     .op = CRUMB_CL_##op_,                                                                                             \
     .file = file_,                                                                                                    \
     .entry = entry_,                                                                                                  \
     .options = ROW_OPTIONS(options_),                                                                                 \
     .local_size = local_size_},
#define CRUMB_CL_FLOATS(name_, tokens_, max_n_)                                                                        \
    {.name = ROW_NAME(name_),                                                                                          \
     .bf16 = ROW_BF16,                                                                                                 \
     .op = CRUMB_CL_LINEAR_DENSE,                                                                                      \
     .file = "linear_dense.cl",                                                                                        \
     .entry = "linear_dense",                                                                                          \
     .options = ROW_OPTIONS("-D TOKENS=" #tokens_),                                                                    \
     .local_size = 128,                                                                                                \
     .tokens = tokens_,                                                                                                \
     .max_n = max_n_},
#define CRUMB_CL_LINEAR(name_, rung_, bits_, codebook_, sub_group_, tiles_, tokens_, slices_, max_n_, rank_, options_) \
    {.name = ROW_NAME(name_),                                                                                          \
     .bf16 = ROW_BF16,                                                                                                 \
     .op = CRUMB_CL_LINEAR,                                                                                            \
     .file = "linear.cl",                                                                                              \
     .entry = "linear",                                                                                                \
     .options = ROW_OPTIONS(options_ " -D TOKENS=" #tokens_ " -D SLICES=" #slices_ " -D TILES=" #tiles_),              \
     .local_size = CRUMB_TILE_ROWS * (slices_),                                                                        \
     .rung = CRUMB_CL_##rung_,                                                                                         \
     .bits = bits_,                                                                                                    \
     .codebook = codebook_,                                                                                            \
     .x_bits = bits_,                                                                                                  \
     .x_rows = 1,                                                                                                      \
     .sub_group = sub_group_,                                                                                          \
     .registers = 128,                                                                                                 \
     .tiles = tiles_,                                                                                                  \
     .tokens = tokens_,                                                                                                \
     .slices = slices_,                                                                                                \
     .max_n = max_n_,                                                                                                  \
     .rank = rank_},
#define CRUMB_CL_GEMV(name_, bits_, x_bits_, x_pairs_, sub_group_, registers_, tiles_, tokens_, slices_, step_,        \
                      max_n_, rank_)                                                                                   \
    {.name = ROW_NAME(name_),                                                                                          \
     .bf16 = ROW_BF16,                                                                                                 \
     .op = CRUMB_CL_LINEAR,                                                                                            \
     .file = "gemv.cl",                                                                                                \
     .entry = "linear",                                                                                                \
     .options = ROW_OPTIONS("-cl-std=CL3.0 -D X_ORDER=" #x_bits_ " -D X_PAIRS=" #x_pairs_ " -D SUB_GROUP=" #sub_group_ \
                            " -D TN=" #tiles_ " -D TOKENS=" #tokens_ " -D SLICES=" #slices_ " -D STEP=" #step_),       \
     .local_size = (sub_group_) * (slices_),                                                                           \
     .form = CRUMB_CL_GEMV,                                                                                            \
     .rung = CRUMB_CL_DPAS,                                                                                            \
     .bits = bits_,                                                                                                    \
     .x_bits = x_bits_,                                                                                                \
     .x_pairs = x_pairs_,                                                                                              \
     .x_rows = 1,                                                                                                      \
     .sub_group = sub_group_,                                                                                          \
     .registers = registers_,                                                                                          \
     .tiles = tiles_,                                                                                                  \
     .tokens = tokens_,                                                                                                \
     .step = step_,                                                                                                    \
     .slices = slices_,                                                                                                \
     .max_n = max_n_,                                                                                                  \
     .rank = rank_},
#define CRUMB_CL_GEMM(name_, bits_, x_bits_, in_registers_, sub_group_, registers_, tm_, tn_, across_, slices_,        \
                      groups_, min_n_, max_n_, rank_, more_)                                                           \
    {.name = ROW_NAME(name_),                                                                                          \
     .bf16 = ROW_BF16,                                                                                                 \
     .op = CRUMB_CL_LINEAR,                                                                                            \
     .file = "gemm.cl",                                                                                                \
     .entry = "linear",                                                                                                \
     .options =                                                                                                        \
         ROW_OPTIONS("-cl-std=CL3.0 -D X_ORDER=" #x_bits_ " -D SUB_GROUP=" #sub_group_ " -D TM=" #tm_ " -D TN=" #tn_   \
                     " -D ACROSS=" #across_ " -D SLICES=" #slices_ " -D IN_REGISTERS=" #in_registers_ more_),          \
     .local_size = (sub_group_) * (across_) * (slices_),                                                               \
     .form = CRUMB_CL_GEMM,                                                                                            \
     .rung = CRUMB_CL_DPAS,                                                                                            \
     .bits = bits_,                                                                                                    \
     .x = (in_registers_) ? 32 : 0,                                                                                    \
     .x_bits = x_bits_,                                                                                                \
     .x_rows = (sub_group_) == 8 ? 8 : 1,                                                                              \
     .sub_group = sub_group_,                                                                                          \
     .registers = registers_,                                                                                          \
     .tiles = (tn_) * (across_),                                                                                       \
     .tokens = 8 * (tm_),                                                                                              \
     .step = 4,                                                                                                        \
     .slices = slices_,                                                                                                \
     .groups = groups_,                                                                                                \
     .min_n = min_n_,                                                                                                  \
     .max_n = max_n_,                                                                                                  \
     .rank = rank_},
#define CRUMB_CL_DENSE(name_, type_, sub_group_, rows_, tokens_, max_n_, rank_, options_)                              \
    {.name = ROW_NAME(name_),                                                                                          \
     .bf16 = ROW_BF16,                                                                                                 \
     .op = CRUMB_CL_DENSE_MATRIX,                                                                                      \
     .file = "dense_matrix.cl",                                                                                        \
     .entry = "dense_matrix",                                                                                          \
     .options = ROW_OPTIONS(options_),                                                                                 \
     .local_size = 8 * (sub_group_),                                                                                   \
     .rung = CRUMB_CL_DPAS_I8,                                                                                         \
     .sub_group = sub_group_,                                                                                          \
     .registers = 128,                                                                                                 \
     .tokens = tokens_,                                                                                                \
     .max_n = max_n_,                                                                                                  \
     .rank = rank_,                                                                                                    \
     .type = type_,                                                                                                    \
     .rows = rows_},
#define CRUMB_CL_ATTENTION(name_, op_, entry_, kv_, sub_group_, registers_, rank_, options_)                           \
    {.name = ROW_NAME(name_),                                                                                          \
     .bf16 = ROW_BF16,                                                                                                 \
     .op = CRUMB_CL_##op_,                                                                                             \
     .file = "attention_matrix.cl",                                                                                    \
     .entry = entry_,                                                                                                  \
     .options = ROW_OPTIONS(options_ " -D SUB_GROUP=" #sub_group_),                                                    \
     .local_size = 8 * (sub_group_),                                                                                   \
     .rung = CRUMB_CL_DPAS_I8,                                                                                         \
     .sub_group = sub_group_,                                                                                          \
     .registers = registers_,                                                                                          \
     .rank = rank_,                                                                                                    \
     .kv = CRUMB_KV_##kv_},
#define ROW_NAME(name)       name
#define ROW_OPTIONS(options) options
#define ROW_BF16             false
#define CRUMB_CL_F32_KERNEL  CRUMB_CL_KERNEL
#include "cl/kernels.def"
#undef ROW_NAME
#undef ROW_OPTIONS
#undef ROW_BF16
#undef CRUMB_CL_F32_KERNEL
#define ROW_NAME(name)       name "_bf16"
#define ROW_OPTIONS(options) options CRUMB_CL_BF16_VALUES
#define ROW_BF16             true
#define CRUMB_CL_F32_KERNEL(...)
#include "cl/kernels.def"
};
enum { N_KERNELS = sizeof kernels / sizeof kernels[0] };

const crumb_cl_kernel *crumb_cl_kernels(size_t *n) {
    *n = N_KERNELS;
    return kernels;
}

const crumb_cl_kernel *crumb_cl_kernel_of(crumb_cl_op op, bool bf16) {
    const crumb_cl_kernel *any = NULL;
    for (int i = 0; i < N_KERNELS; i++) {
        if (kernels[i].op != op) continue;
        if (kernels[i].bf16 == bf16) return &kernels[i];
        any = &kernels[i];
    }
    return any;
}
