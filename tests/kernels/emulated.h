/* Tiers that the test machine may lack, compiled a second time with their dot product replaced by an exact emulation.
 */
#ifndef CRUMB_TESTS_EMULATED_H
#define CRUMB_TESTS_EMULATED_H

#include "cpu/attention.h"
#include "cpu/kernels.h"

/* Rows named as the registry's, with functions of their own. They need AVX2. */
const crumb_cpu_kernel *crumb_emulated_kernels(size_t *n);
/* What interleaves activations for an emulated kernel: as crumb_cpu_interleave_select for its real tier. */
crumb_interleave_fn *crumb_emulated_interleave_of(const crumb_cpu_kernel *kernel);
crumb_interleave_fn crumb_interleave__avxvnni_emulated, crumb_interleave__avx512vnni_emulated;

/* X(op, form of the codes, their bits, range of codebooks, tier) */
#define EMULATED_FOR_FORMS(X, op, tier)                                                                                \
    X(op, u1, 1, 0, tier)                                                                                              \
    X(op, u2, 2, 0, tier)                                                                                              \
    X(op, u3, 3, 0, tier)                                                                                              \
    X(op, u4, 4, 0, tier)                                                                                              \
    X(op, u5, 5, 0, tier)                                                                                              \
    X(op, u6, 6, 0, tier)                                                                                              \
    X(op, u8, 8, 0, tier)                                                                                              \
    X(op, c4, 4, 255, tier)
#define EMULATED_FOR_ALL(X)                                                                                            \
    EMULATED_FOR_FORMS(X, gemv, avxvnni)                                                                               \
    EMULATED_FOR_FORMS(X, gemm, avxvnni)                                                                               \
    X(gemv, c4, 4, 255, avxvnniint8)                                                                                   \
    X(gemm, c4, 4, 255, avxvnniint8)                                                                                   \
    EMULATED_FOR_FORMS(X, gemv, avx512ymm)                                                                             \
    EMULATED_FOR_FORMS(X, gemm, avx512ymm)                                                                             \
    EMULATED_FOR_FORMS(X, gemv, avx512vnni)                                                                            \
    EMULATED_FOR_FORMS(X, gemm, avx512vnni)

#define EMULATED_PROTOTYPE(op, form, bits, range, tier) crumb_linear_fn crumb_##op##_##form##_i8__##tier##_emulated;
EMULATED_FOR_ALL(EMULATED_PROTOTYPE)

/* X(name, bits, activations, layout, tier): kernels with layouts of their own */
#define EMULATED_FOR_LAYOUTS(X)                                                                                        \
    X(georganas_u2_i8, 2, ACT_I8, crumb_layout_georganas_u2, avxvnni)                                                  \
    X(georganas_u1_i8, 1, ACT_I8, crumb_layout_georganas_u1, avxvnni)                                                  \
    X(gemm_b8_i8, 1, ACT_I8, crumb_layout_index, avxvnni)                                                              \
    X(gemm_t5_i8, 2, ACT_I8, crumb_layout_index, avxvnni)                                                              \
    X(georganas_u2_i8, 2, ACT_I8, crumb_layout_georganas_u2, avxvnniint8)                                              \
    X(georganas_u1_i8, 1, ACT_I8, crumb_layout_georganas_u1, avxvnniint8)                                              \
    X(georganas_u2_i8, 2, ACT_I8, crumb_layout_georganas_u2, avx512ymm)                                                \
    X(georganas_u1_i8, 1, ACT_I8, crumb_layout_georganas_u1, avx512ymm)                                                \
    X(gemm_b8_i8, 1, ACT_I8, crumb_layout_index, avx512ymm)                                                            \
    X(gemm_t5_i8, 2, ACT_I8, crumb_layout_index, avx512ymm)                                                            \
    X(gemm_b8_i8, 1, ACT_I8, crumb_layout_index, avx512vnni)                                                           \
    X(gemm_t5_i8, 2, ACT_I8, crumb_layout_index, avx512vnni)                                                           \
    X(gemv_t5_i8, 2, 1 << CRUMB_ACT_ROW, crumb_layout_index_t5, avx512vnni)                                            \
    X(gemv_t5_i8, 2, 1 << CRUMB_ACT_ROW, crumb_layout_index_t5_ordered, avx512vbmi)

/* Attention. */
extern const crumb_kv_ops crumb_kv_f16__avx512vnni_emulated, crumb_kv_q8__avxvnni_emulated,
    crumb_kv_q8__avx512ymm_emulated, crumb_kv_q8__avx512vnni_emulated;
void crumb_softmax__avx512vnni_emulated(float *s, uint32_t n_rows, const uint32_t *n_keys, float scale, float *m,
                                        float *l);

#define EMULATED_LAYOUT_PROTOTYPE(name, bits, acts, layout, tier) crumb_linear_fn crumb_##name##__##tier##_emulated;
EMULATED_FOR_LAYOUTS(EMULATED_LAYOUT_PROTOTYPE)

#endif
