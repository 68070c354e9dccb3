/* Every low-bit kernel of the registry that this machine can run, and every tier that it cannot run in an exact
 * emulation, against the scalar reference: bit for bit, for each n, with tails, all groups and all zero points. */
#include "cpu/lowbit/gemm_shape.h"
#include "cpu/trial.h"
#include "tests/kernels/emulated.h"

#include "host/base/checked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 20261121;
static size_t n_compared;

static const uint32_t batch_sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
enum { MAX_BATCH = 33, N_BATCH_SIZES = sizeof batch_sizes / sizeof batch_sizes[0] };

/* As wide as the AVX2 kernels take, as wide as int8 is, and with no entry that is negative. */
static const int8_t codebook_of_31[] = {3, -16, -1, 15, 0, 7, -7, 1, 12, -12, 5, -5, 9, -9, 2, -2};
static const int8_t codebook_of_255[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 127, -128, 113};
static const int8_t codebook_of_254[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 127, 127, 113};
static const int8_t codebook_above_0[] = {100, 101, 127, 103, 104, 105, 106, 107,
                                          108, 109, 110, 111, 112, 113, 114, 115};

/* What each width of codes means in a file type of host/lowbit/types.h, and something that none means. */
static const struct {
    unsigned bits, max_code;
    int mul, sub;
    const int8_t *codebook;
} meanings[] = {{1, 1, 2, 1, NULL},
                {2, 2, 1, 1, NULL},
                {4, 15, 1, 8, NULL},
                {4, 15, 1, 0, NULL},
                {8, 255, 1, 128, NULL},
                {8, 255, 1, 0, NULL}, /* as GPTQ's, with mins */
                {1, 1, 1, 0, NULL},
                {2, 3, 2, 3, NULL},
                {3, 7, 1, 4, NULL}, /* as GPTQ's and Q3_K's */
                {3, 7, 1, 0, NULL},
                {3, 4, 2, 4, NULL},
                {5, 31, 1, 16, NULL}, /* as Q5_0 and Q5_1, Q6_K */
                {5, 31, 1, 0, NULL},
                {6, 63, 1, 32, NULL},
                {6, 40, 3, 60, NULL},
                {4, 15, 1, 0, crumb_codebook_e2m1},
                {4, 15, 1, 0, crumb_codebook_iq4_nl},
                {4, 15, 1, 0, codebook_of_254},
                {4, 15, 1, 0, codebook_of_31},
                {4, 15, 1, 0, codebook_of_255},
                {4, 15, 1, 0, codebook_above_0}};
enum { N_MEANINGS = sizeof meanings / sizeof meanings[0] };

static const uint32_t shapes_m[] = {1, 15, 16, 17, 33, 48, 80, 112};
static const uint32_t groups[] = {16, 32, 64, 128, 256, 0};

static uint32_t pick(const uint32_t *values, size_t n) {
    return values[crumb_random_u64(&seed) % n];
}

/* K for a weight group: mostly small, sometimes long enough for every kernel's blocking. */
static uint32_t pick_k(uint32_t group) {
    static const uint32_t free_k[] = {32, 64, 96, 160, 288, 576, 33, 100, 1000, 2080};
    if (!group) return pick(free_k, sizeof free_k / sizeof free_k[0]);
    uint32_t longest = crumb_random_u64(&seed) % 8 ? 640 : 2304;
    return group * (1 + (uint32_t)(crumb_random_u64(&seed) % (longest / group)));
}

/* The largest that fits K; 0: none. */
static uint32_t pick_super_group(const crumb_trial_params *p) {
    const uint32_t k_padded = (uint32_t)crumb_round_up(p->k, CRUMB_TILE_K);
    uint32_t super_group = 256;
    while (super_group >= CRUMB_TILE_K && k_padded % super_group) super_group /= 2;
    return super_group < CRUMB_TILE_K || super_group % p->group ? 0 : super_group;
}

static void check_equal(const crumb_cpu_kernel *kernel, const crumb_trial_params *p, const float *y,
                        const float *expected, uint32_t n, uint32_t m0, uint32_t m1) {
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t m = 0; m < p->m; m++) {
            float want = m >= m0 && m < m1 ? expected[(size_t)i * p->m + m] : 12345.0f;
            float got = y[(size_t)i * p->m + m];
            if (memcmp(&want, &got, sizeof want) == 0) continue;
            fail_msg(
                "%s: y[%u][%u] is %a, not %a; bits %u mul %d sub %d codebook %d m %u k %u n %u group %u/%u act %d/%u "
                "min %d f32 %d fill %d",
                kernel->name, i, m, (double)got, (double)want, p->bits, p->mul, p->sub,
                p->codebook ? p->codebook[0] : 0, p->m, p->k, n, p->group, p->super_group, (int)p->act, p->act_group,
                p->has_min, p->scales_f32, (int)p->fill);
        }
}

/* One kernel on n rows and tile-rows [tile0, tile1) of a case. */
static void run_and_check(const crumb_cpu_kernel *kernel, const crumb_trial_params *p, crumb_linear_args args,
                          const float *expected, uint32_t n) {
    float *y = malloc((size_t)n * p->m * sizeof(float));
    assert_non_null(y);
    for (size_t i = 0; i < (size_t)n * p->m; i++) y[i] = 12345.0f;
    args.n = n;
    args.y = y;
    kernel->run(&args);
    check_equal(kernel, p, y, expected, n, args.tile0 * CRUMB_TILE_ROWS, args.tile1 * CRUMB_TILE_ROWS);
    free(y);
    n_compared++;
}

/* A GEMM whose caller has interleaved the activations, in two ranges where there are enough of them. */
static void check_interleaved(const crumb_cpu_kernel *kernel, const crumb_trial_params *p, crumb_linear_args args,
                              crumb_interleave_fn *interleave, const float *expected, uint32_t n) {
    args.x.interleaved = malloc((size_t)n * args.x.k_padded * CRUMB_INTERLEAVE_BYTES);
    args.x.reach = malloc((size_t)n * args.x.k_padded / CRUMB_TILE_K * CRUMB_Q8_REACH * sizeof *args.x.reach);
    assert_true(args.x.interleaved && args.x.reach);
    uint32_t half = n > CRUMB_INTERLEAVE_ROWS ? CRUMB_INTERLEAVE_ROWS : 0;
    const unsigned operand_bits = crumb_cpu_operand_bits(kernel->isa, args.w);
    interleave(&args.x, operand_bits, half, n);
    if (half) interleave(&args.x, operand_bits, 0, half);
    run_and_check(kernel, p, args, expected, n);
    free(args.x.interleaved);
    free(args.x.reach);
}

static bool takes(const crumb_cpu_kernel *kernel, const crumb_trial_params *p, const crumb_matrix *w) {
    return !kernel->layout && kernel->isa != CRUMB_ISA_SCALAR && (kernel->acts >> p->act & 1) &&
           crumb_cpu_kernel_takes(kernel, w);
}

typedef void check_fn(const crumb_cpu_kernel *kernel, const crumb_trial_params *p, const crumb_linear_args *args,
                      crumb_interleave_fn *interleave, const float *expected);

/* For every batch size, whole and in a split of the tile-rows. */
static void check_batches(const crumb_cpu_kernel *kernel, const crumb_trial_params *p, const crumb_linear_args *args,
                          crumb_interleave_fn *interleave, const float *expected) {
    for (int j = 0; j < N_BATCH_SIZES && batch_sizes[j] <= p->n; j++)
        run_and_check(kernel, p, *args, expected, batch_sizes[j]);
    for (int j = 0; j < N_BATCH_SIZES && kernel->op == CRUMB_CPU_GEMM && batch_sizes[j] <= p->n; j++)
        check_interleaved(kernel, p, *args, interleave, expected, batch_sizes[j]);
    crumb_linear_args part = *args;
    part.tile0 = (uint32_t)(crumb_random_u64(&seed) % args->tile1);
    part.tile1 = part.tile0 + 1 + (uint32_t)(crumb_random_u64(&seed) % (args->tile1 - part.tile0));
    run_and_check(kernel, p, part, expected, 1 + (uint32_t)(crumb_random_u64(&seed) % p->n));
}

/* GEMMs on all rows of activations at once. */
static void check_all_rows(const crumb_cpu_kernel *kernel, const crumb_trial_params *p, const crumb_linear_args *args,
                           crumb_interleave_fn *interleave, const float *expected) {
    if (kernel->op != CRUMB_CPU_GEMM) return;
    run_and_check(kernel, p, *args, expected, p->n);
    check_interleaved(kernel, p, *args, interleave, expected, p->n);
}

/* All kernels that take the case. */
static void compare_case(const crumb_trial_params *p, check_fn *check) {
    crumb_trial c;
    assert_int_equal(crumb_trial_create(p, &seed, &c, NULL), CRUMB_OK);
    float *expected = malloc((size_t)p->n * p->m * sizeof(float));
    assert_non_null(expected);
    crumb_linear_args args = crumb_trial_args(&c, expected, p->m);
    if (crumb_random_u64(&seed) % 2) args.bias = c.bias;
    if (crumb_random_u64(&seed) % 2) args.out_scale = 0.37f;
    args.add = crumb_random_u64(&seed) % 2 ? c.add : NULL;
    args.add_stride = p->m;
    crumb_linear_i8__ref(&args);

    size_t n_real, n_emulated, n_kernels;
    const crumb_cpu_kernel *real = crumb_cpu_kernels(&n_real), *emulated = crumb_emulated_kernels(&n_emulated);
    n_kernels = n_real + n_emulated;
    for (size_t i = 0; i < n_kernels; i++) {
        const crumb_cpu_kernel *kernel = i < n_real ? &real[i] : &emulated[i - n_real];
        crumb_interleave_fn *interleave =
            i < n_real ? crumb_cpu_interleave_select(kernel->isa) : crumb_emulated_interleave_of(kernel);
        if (!takes(kernel, p, &c.w) || (i < n_real && !crumb_isa_available(kernel->isa))) continue;
        check(kernel, p, &args, interleave, expected);
    }
    free(expected);
    crumb_trial_destroy(&c);
}

static void kernels_equal_reference_on_random_layers(void **state) {
    (void)state;
    for (int meaning = 0; meaning < N_MEANINGS; meaning++)
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
            for (int variant = 0; variant < 16; variant++) {
                crumb_trial_params p = {.bits = meanings[meaning].bits,
                                        .mul = meanings[meaning].mul,
                                        .sub = meanings[meaning].sub,
                                        .codebook = meanings[meaning].codebook,
                                        .group = groups[g],
                                        .n = MAX_BATCH,
                                        .m = pick(shapes_m, sizeof shapes_m / sizeof shapes_m[0]),
                                        .act = variant & 1 ? CRUMB_ACT_ROW : CRUMB_ACT_GROUP,
                                        .has_min = variant & 2,
                                        .scales_f32 = variant & 4,
                                        .fill = variant & 8 ? CRUMB_FILL_SUMS : CRUMB_FILL_RANDOM};
                p.k = pick_k(p.group);
                if (p.group && variant & 4) p.super_group = pick_super_group(&p);
                uint32_t whole = p.group ? p.group : (uint32_t)crumb_round_up(p.k, CRUMB_TILE_K);
                p.act_group = 16u << crumb_random_u64(&seed) % 4;
                while (whole % p.act_group) p.act_group /= 2;
                if ((uint64_t)p.k * p.m > 60000) p.m = 17;
                compare_case(&p, check_batches);
            }
}

/* A prompt's rows are more than one block of a GEMM's columns, of which the last may be smaller; up to as many rows as
 * the largest prompts have. Blocks and chunks of K as for other machines' caches. */
static void gemms_take_blocks_of_columns(void **state) {
    (void)state;
    static const crumb_caches caches[] = {{.l1_bytes = 32 << 10, .l2_bytes = 512 << 10},
                                          {.l1_bytes = 8 << 10, .l2_bytes = 64 << 10}}; /* chunks of 32 and 64 steps */
    static const struct {
        uint32_t m, k, n;
    } shapes[] = {{17, 96, 800}, {33, 2304, 200}, {16, 64, 4096}};
    for (int meaning = 0; meaning < N_MEANINGS; meaning++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            crumb_trial_params p = {.bits = meanings[meaning].bits,
                                    .mul = meanings[meaning].mul,
                                    .sub = meanings[meaning].sub,
                                    .codebook = meanings[meaning].codebook,
                                    .m = shapes[i].m,
                                    .k = shapes[i].k,
                                    .n = shapes[i].n,
                                    .group = groups[(size_t)meaning % (sizeof groups / sizeof groups[0])],
                                    .act = (meaning + i) % 2 ? CRUMB_ACT_ROW : CRUMB_ACT_GROUP,
                                    .act_group = 32,
                                    .has_min = meaning % 4 < 2};
            if (p.group && p.k % p.group) p.group = 0;
            if (p.group == 16) p.act_group = 16;
            crumb_caches_set(&caches[((size_t)meaning / 2 + i) % 2]);
            assert_true(crumb_gemm_block_columns(p.n, p.k, &(crumb_cpu_knobs){0}) < p.n);
            compare_case(&p, check_all_rows);
        }
    crumb_caches_set(NULL);
}

/* All codes those of the largest value and all activations the largest or smallest: the bound that each row of
 * kernels.def states is reached, and the int32 sum of a whole group shows in y. */
static void kernels_hold_at_their_bounds(void **state) {
    (void)state;
    static const uint32_t lengths[] = {512, 2048, CRUMB_LINEAR_MAX_K};
    for (int meaning = 0; meaning < N_MEANINGS; meaning++)
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
            for (crumb_trial_fill fill = CRUMB_FILL_POSITIVE; fill <= CRUMB_FILL_NEGATIVE; fill++)
                for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
                    if (lengths[i] == CRUMB_LINEAR_MAX_K && groups[g]) continue;
                    crumb_trial_params p = {.bits = meanings[meaning].bits,
                                            .max_code = meanings[meaning].max_code,
                                            .mul = meanings[meaning].mul,
                                            .sub = meanings[meaning].sub,
                                            .codebook = meanings[meaning].codebook,
                                            .group = groups[g],
                                            .m = lengths[i] > 4096 ? 1 : 17,
                                            .k = lengths[i],
                                            .n = lengths[i] > 4096 ? 2 : 8,
                                            .act = CRUMB_ACT_ROW,
                                            .fill = fill};
                    compare_case(&p, check_batches);
                    p.act = CRUMB_ACT_GROUP;
                    p.act_group = p.group && p.group < 128 ? p.group : 128;
                    compare_case(&p, check_batches);
                }
}

/* The reference itself, on a layer small enough to do by hand: w = scale * (u - 1), two groups, three rows. */
static void reference_is_right_on_a_layer_by_hand(void **state) {
    (void)state;
    static uint32_t codes[2 * 2 * 16]; /* [block][dword][row] */
    static uint16_t scales[2 * 16];    /* [group][row] */
    int8_t q[64] = {0};
    /* Row 2: u = 2 at k = 0 (L 0, dword 0), k = 17 (L 3, dword 0) and k = 32 + 31 (L 31, dword 1), else 1. */
    for (int i = 0; i < 64; i++) codes[i] = 0x55555555;
    codes[0 * 16 + 2] += 1u << 0 | 1u << (2 * 3);
    codes[(2 + 1) * 16 + 2] += 1u << (2 * 15);
    scales[0 * 16 + 2] = 0x3c00; /* 1.0 */
    scales[1 * 16 + 2] = 0x3800; /* 0.5 */
    q[crumb_tile_plane_position(2, 0)] = 7;
    q[crumb_tile_plane_position(2, 17)] = -3;
    q[crumb_tile_plane_position(2, 5)] = 100;
    q[32 + crumb_tile_plane_position(2, 31)] = 20;
    int32_t qsum[2] = {104, 20};
    float sx = 2.0f, y[3] = {-1, -1, -1}, scratch[64];
    crumb_matrix w = {
        .bits = 2, .max_code = 2, .mul = 1, .sub = 1, .m = 3, .k = 64, .group = 32, .codes = codes, .scales = scales};
    crumb_linear_args args = {.w = &w,
                              .x = {.q = q, .sx = &sx, .qsum = qsum, .k_padded = 64, .group = 32, .row_scale = true},
                              .n = 1,
                              .tile1 = 1,
                              .y = y,
                              .y_stride = 3,
                              .out_scale = 1.0f,
                              .scratch = scratch,
                              .scratch_bytes = sizeof scratch};
    crumb_linear_i8__ref(&args);
    assert_true(y[0] == 0.0f && y[1] == 0.0f);
    assert_true(y[2] == 2.0f * (1.0f * (7 - 3) + 0.5f * 20));
}

/* A codebook never meets a kernel that would take its codes for values, or whose sums it would overflow. */
static void codebooks_get_kernels_that_take_them(void **state) {
    (void)state;
    const struct {
        const int8_t *codebook;
        crumb_isa isa;
        uint32_t n;
        const char *kernel;
    } cases[] = {{NULL, CRUMB_ISA_AVX2, 1, "gemv_u4_i8__avx2"},
                 {crumb_codebook_e2m1, CRUMB_ISA_AVX2, 1, "gemv_c4_i8__avx2"},
                 {crumb_codebook_e2m1, CRUMB_ISA_AVX2, 9, "gemm_c4_i8__avx2"},
                 {codebook_of_31, CRUMB_ISA_AVX2, 9, "gemm_c4_i8__avx2"},
                 {crumb_codebook_iq4_nl, CRUMB_ISA_AVX2, 1, "gemv_c4_i8_signed__avx2"},
                 {crumb_codebook_iq4_nl, CRUMB_ISA_AVX2, 9, "gemm_c4_i8_wide__avx2"},
                 {codebook_of_254, CRUMB_ISA_AVX2, 1, "gemv_c4_i8_signed__avx2"},
                 {codebook_of_255, CRUMB_ISA_AVX2, 1, "gemv_c4_i8_wide__avx2"}, /* has -128 */
                 {codebook_of_255, CRUMB_ISA_AVX2, 9, "gemm_c4_i8_wide__avx2"},
                 {crumb_codebook_iq4_nl, CRUMB_ISA_AVXVNNI, 1, "gemv_c4_i8__avxvnni"},
                 {codebook_of_255, CRUMB_ISA_AVXVNNI, 1, "gemv_c4_i8__avxvnni"},
                 {codebook_of_255, CRUMB_ISA_AVXVNNIINT8, 1, "gemv_c4_i8__avxvnniint8"},
                 {crumb_codebook_e2m1, CRUMB_ISA_AVXVNNIINT8, 9, "gemm_c4_i8__avxvnniint8"},
                 {NULL, CRUMB_ISA_AVXVNNIINT8, 1, "gemv_u4_i8__avxvnni"},
                 {NULL, CRUMB_ISA_AVXVNNIINT8, 9, "gemm_u4_i8__avxvnni"},
                 {codebook_of_255, CRUMB_ISA_AVX512YMM, 1, "gemv_c4_i8__avx512ymm"},
                 {NULL, CRUMB_ISA_AVX512YMM, 9, "gemm_u4_i8__avx512ymm"},
                 {NULL, CRUMB_ISA_AVX512VNNI, 9, "gemm_u4_i8__avx512vnni"},
                 {codebook_of_255, CRUMB_ISA_AVX512VNNI, 9, "gemm_c4_i8__avx512vnni"},
                 {crumb_codebook_e2m1, CRUMB_ISA_SCALAR, 1, "gemm_c4_i8__ref"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const crumb_matrix w = {
            .bits = 4, .max_code = 15, .mul = 1, .codebook = cases[i].codebook, .m = 16, .k = 32, .group = 32};
        assert_string_equal(crumb_cpu_kernel_select(&w, CRUMB_ACT_GROUP, cases[i].n, cases[i].isa)->name,
                            cases[i].kernel);
    }
}

/* Whatever a file has, no tier but the scalar one leaves it to the reference. */
static void every_width_and_group_has_a_fast_kernel(void **state) {
    (void)state;
    static const uint32_t n_rows[] = {1, 2, 5, 16, 512};
    for (int meaning = 0; meaning < N_MEANINGS; meaning++)
        for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++)
            for (int isa = CRUMB_ISA_AVX2; isa < CRUMB_ISA_COUNT; isa++)
                for (size_t i = 0; i < sizeof n_rows / sizeof n_rows[0]; i++)
                    for (int act = CRUMB_ACT_ROW; act <= CRUMB_ACT_GROUP; act++) {
                        const crumb_matrix w = {.bits = (uint8_t)meanings[meaning].bits,
                                                .max_code = (uint8_t)meanings[meaning].max_code,
                                                .mul = meanings[meaning].mul,
                                                .sub = meanings[meaning].sub,
                                                .codebook = meanings[meaning].codebook,
                                                .m = 16,
                                                .k = 512,
                                                .group = groups[g] ? groups[g] : 512};
                        const crumb_cpu_kernel *found =
                            crumb_cpu_kernel_select(&w, (crumb_act_quant)act, n_rows[i], (crumb_isa)isa);
                        if (found->isa == CRUMB_ISA_SCALAR)
                            fail_msg("%u bits in groups of %u, %u rows: %s in tier %s", w.bits, w.group, n_rows[i],
                                     found->name, crumb_isa_name((crumb_isa)isa));
                    }
}

/* A plan interleaves activations once, for the GEMM of its tier, and prepares them once for its GEMV on the index
 * layout: a kernel that wants another order is never taken, whatever a tuning record says. */
static void kernels_of_another_order_are_not_taken(void **state) {
    (void)state;
    const struct {
        crumb_isa isa;
        const char *kernel;
        bool taken;
    } cases[] = {{CRUMB_ISA_AVX2, "gemm_u8_i8__avx2", true},
                 {CRUMB_ISA_AVXVNNI, "gemm_u8_i8__avx2", false},
                 {CRUMB_ISA_AVXVNNI, "gemv_u8_i8__avx2", true},
                 {CRUMB_ISA_AVXVNNI, "gemm_u8_i8__ref", true},
                 {CRUMB_ISA_AVXVNNIINT8, "gemm_u8_i8__avxvnni", true},
                 {CRUMB_ISA_AVX512YMM, "gemm_u8_i8__avx512vnni", false},
                 {CRUMB_ISA_AVX512VNNI, "gemm_u8_i8__avx512ymm", true},
                 {CRUMB_ISA_AVX512VNNI, "gemm_u8_i8__avxvnni", false},
                 {CRUMB_ISA_AVX512VBMI, "gemm_u8_i8__avx512vnni", true},
                 {CRUMB_ISA_AVX2, "gemv_t5_i8__avx2", true},
                 {CRUMB_ISA_AVX512VNNI, "gemv_t5_i8__avx2", true},
                 {CRUMB_ISA_AVX512VNNI, "gemv_t5_i8__avx512vnni", true},
                 {CRUMB_ISA_AVX512VBMI, "gemv_t5_i8__avx2", false},
                 {CRUMB_ISA_AVX512VBMI, "gemv_t5_i8__avx512vnni", false},
                 {CRUMB_ISA_AVX512VBMI, "gemv_t5_i8__avx512vbmi", true},
                 {CRUMB_ISA_AVX512VBMI, "gemm_t5_i8__avx512vnni", true}};
    const crumb_matrix bytes = {.bits = 8, .max_code = 255, .mul = 1, .sub = 128, .m = 16, .k = 32, .group = 32};
    const crumb_matrix trits = {
        .bits = 2, .max_code = 2, .mul = 1, .sub = 1, .m = 16, .k = 32, .group = 32, .indexed = true};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const crumb_matrix *w = strstr(cases[i].kernel, "_t5_") ? &trits : &bytes;
        const crumb_cpu_kernel *found = crumb_cpu_kernel_find(cases[i].kernel, w, CRUMB_ACT_ROW, 1, cases[i].isa);
        if (!found != !cases[i].taken)
            fail_msg("%s is%s taken in tier %s", cases[i].kernel, found ? "" : " not", crumb_isa_name(cases[i].isa));
    }
}

/* Every row is either run above or belongs to a tier that this machine lacks, and then an emulated row stands for it.
 */
static void every_variant_is_covered(void **state) {
    (void)state;
    size_t n_real, n_emulated, run = 0, lacking = 0;
    const crumb_cpu_kernel *real = crumb_cpu_kernels(&n_real), *emulated = crumb_emulated_kernels(&n_emulated);
    for (size_t i = 0; i < n_real; i++) {
        if (!real[i].bits || real[i].layout || real[i].isa == CRUMB_ISA_SCALAR) continue;
        bool has_emulation = real[i].isa == CRUMB_ISA_AVX2;
        for (size_t j = 0; j < n_emulated; j++) has_emulation |= strcmp(real[i].name, emulated[j].name) == 0;
        if (!has_emulation) fail_msg("%s has no emulated twin", real[i].name);
        crumb_isa_available(real[i].isa) ? run++ : lacking++;
    }
    print_message("variants run: %zu, emulated: %zu, of tiers this machine lacks: %zu, comparisons: %zu\n", run,
                  n_emulated, lacking, n_compared);
    assert_true(run > 0 && n_compared > 0);
}

int main(void) {
    const char *given = getenv("CRUMB_TEST_SEED");
    if (given) seed = strtoull(given, NULL, 10);
    printf("CRUMB_TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_is_right_on_a_layer_by_hand),
        cmocka_unit_test(codebooks_get_kernels_that_take_them),
        cmocka_unit_test(every_width_and_group_has_a_fast_kernel),
        cmocka_unit_test(kernels_of_another_order_are_not_taken),
        cmocka_unit_test(kernels_equal_reference_on_random_layers),
        cmocka_unit_test(gemms_take_blocks_of_columns),
        cmocka_unit_test(kernels_hold_at_their_bounds),
        cmocka_unit_test(every_variant_is_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
