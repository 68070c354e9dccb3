#include "cpu/op_kernels.h"

#define FLOATS(name_, kind_, tier, isa_, rank_)                                                                        \
    {.name = name_ "__" #tier,                                                                                         \
     .op = name_,                                                                                                      \
     .kind = CRUMB_OP_##kind_,                                                                                         \
     .isa = CRUMB_ISA_##isa_,                                                                                          \
     .rank = rank_,                                                                                                    \
     .bound = "float",                                                                                                 \
     .floats = &crumb_float_ops__##tier}
#define ATTENTION(type, kv_type_, bound_, tier, isa_, rank_)                                                           \
    {.name = "attention_" #type "__" #tier,                                                                            \
     .op = "attention",                                                                                                \
     .kind = CRUMB_OP_ATTENTION,                                                                                       \
     .isa = CRUMB_ISA_##isa_,                                                                                          \
     .rank = rank_,                                                                                                    \
     .bound = bound_,                                                                                                  \
     .kv_type = CRUMB_KV_##kv_type_,                                                                                   \
     .kv = &crumb_kv_##type##__##tier}
#define QUANTIZE(tier, isa_, rank_)                                                                                    \
    {.name = "quantize__" #tier,                                                                                       \
     .op = "quantize",                                                                                                 \
     .kind = CRUMB_OP_LINEAR,                                                                                          \
     .isa = CRUMB_ISA_##isa_,                                                                                          \
     .rank = rank_,                                                                                                    \
     .bound = "clamped to int8",                                                                                       \
     .quantize = crumb_quantize__##tier}
#define SUMS_Q8 "int32: keys 2^27, values 2^29"

static const crumb_cpu_op_kernel rows[] = {
    FLOATS("norm", RMS_NORM, ref, SCALAR, 0),
    FLOATS("norm", RMS_NORM, avx2, AVX2, 10),
    FLOATS("rope", ROPE, ref, SCALAR, 0),
    FLOATS("rope", ROPE, avx2, AVX2, 10),
    FLOATS("gated", GATED, ref, SCALAR, 0),
    FLOATS("gated", GATED, avx2, AVX2, 10),
    QUANTIZE(ref, SCALAR, 0),
    QUANTIZE(avx2, AVX2, 10),
    ATTENTION(f16, F16, "float", ref, SCALAR, 0),
    ATTENTION(f16, F16, "float", avx2, AVX2, 10),
    ATTENTION(f16, F16, "float", avx512vnni, AVX512VNNI, 30),
    ATTENTION(q8, Q8, SUMS_Q8, ref, SCALAR, 0),
    ATTENTION(q8, Q8, SUMS_Q8, avx2, AVX2, 10),
    ATTENTION(q8, Q8, SUMS_Q8, avxvnni, AVXVNNI, 20),
    ATTENTION(q8, Q8, SUMS_Q8, avx512ymm, AVX512YMM, 20),
    ATTENTION(q8, Q8, SUMS_Q8, avx512vnni, AVX512VNNI, 30),
};

const crumb_cpu_op_kernel *crumb_cpu_op_kernels(size_t *n) {
    *n = sizeof rows / sizeof *rows;
    return rows;
}

/* The references fit every tier. */
static const crumb_cpu_op_kernel *select_row(crumb_op_kind kind, crumb_kv_type type, crumb_isa isa) {
    const crumb_cpu_op_kernel *best = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const crumb_cpu_op_kernel *row = &rows[i];
        if (row->kind != kind || row->kv_type != type || !crumb_isa_includes(isa, row->isa)) continue;
        if (!best || row->rank > best->rank) best = row;
    }
    return best;
}

const crumb_kv_ops *crumb_kv_ops_select(crumb_kv_type type, crumb_isa isa) {
    return select_row(CRUMB_OP_ATTENTION, type, isa)->kv;
}

/* One table for all of a tier's. */
const crumb_float_ops *crumb_float_ops_select(crumb_isa isa) {
    return select_row(CRUMB_OP_RMS_NORM, CRUMB_KV_F16, isa)->floats;
}

crumb_quantize_fn *crumb_cpu_quantize_select(crumb_isa isa) {
    return select_row(CRUMB_OP_LINEAR, CRUMB_KV_F16, isa)->quantize;
}
