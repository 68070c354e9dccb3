/* Kernels with other parameters than their rows have: what knobs make of every row of cl/kernels.def. */
#include "cl/variant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const crumb_cl_kernel *find(const char *name) {
    size_t n;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    fail_msg("no kernel %s", name);
    return NULL;
}

static void number_0_is_the_row(void **state) {
    (void)state;
    size_t n;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++) {
        char knobs[128];
        crumb_cl_variant v;
        crumb_cl_variant_print(&rows[i], 0, knobs, sizeof knobs);
        assert_string_equal(knobs, "");
        assert_true(crumb_cl_variant_make(&rows[i], knobs, &v));
        assert_string_equal(v.kernel.options, rows[i].options);
        assert_int_equal(v.kernel.local_size, rows[i].local_size);
        assert_int_equal(v.kernel.tiles, rows[i].tiles);
        assert_int_equal(v.kernel.tokens, rows[i].tokens);
        assert_int_equal(v.kernel.registers, rows[i].registers);
    }
}

/* Of every row: all combinations print differently, are read back as they were printed, and what they say holds. */
static void combinations_are_what_they_say(void **state) {
    (void)state;
    size_t n, n_made = 0;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++) {
        size_t made = 0;
        for (size_t j = 1; j < crumb_cl_variant_count(&rows[i]); j++) {
            char knobs[128], wanted[32];
            crumb_cl_variant v;
            unsigned value;
            crumb_cl_variant_print(&rows[i], j, knobs, sizeof knobs);
            assert_true(*knobs);
            if (!crumb_cl_variant_make(&rows[i], knobs, &v)) continue;
            made++;
            const char *slices = strstr(knobs, "slices=");
            if (slices && sscanf(slices, "slices=%u", &value) == 1) {
                snprintf(wanted, sizeof wanted, "-D SLICES=%u", value);
                assert_non_null(strstr(v.kernel.options, wanted));
                assert_true(v.kernel.local_size % value == 0);
            }
            assert_int_equal(strstr(knobs, "fused=1") != NULL, v.x == 32 && rows[i].x == 0);
            assert_true(strlen(v.kernel.options) <= strlen(rows[i].options) + 8);
        }
        if (rows[i].op == CRUMB_CL_LINEAR) assert_true(made >= 10);
        n_made += made;
    }
    assert_true(n_made > 1000);
}

static void rules_and_unknown_knobs_refuse(void **state) {
    (void)state;
    static const char *const refused[] = {"tiles=2",  "tiles=3",  "slices=",       "slices=8",         "warp=1",
                                          "tokens=4", "fused=0",  "registers=128", "registers=100000", "tiles",
                                          "=",        "tiles=-4", "tiles=4 warp=1"};
    const crumb_cl_kernel *row = find("linear_u2_gemv__portable");
    crumb_cl_variant v;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_false(crumb_cl_variant_make(row, refused[i], &v));
    assert_true(crumb_cl_variant_make(row, "slices=4 tiles=1 fused=1", &v));
    assert_int_equal(v.kernel.local_size, 64);
    assert_int_equal(v.kernel.tiles, 1);
    assert_int_equal(v.x, 32);
    row = find("linear_u2_gemm__portable");
    assert_true(crumb_cl_variant_make(row, "tokens=4 slices=4", &v));
    assert_int_equal(v.kernel.tokens, 4);
    assert_false(crumb_cl_variant_make(row, "slices=4", &v)); /* 8 rows need 8 slices */
}

static void gemm_splits_columns_or_rows(void **state) {
    (void)state;
    const crumb_cl_kernel *row = find("gemm_u2_16x128__dpas16"), *gemv = find("gemv_u2_small__dpas16");
    crumb_cl_variant v;
    assert_true(crumb_cl_variant_make(row, "slices=4 across=1", &v));
    assert_int_equal(v.kernel.local_size, 64);
    assert_int_equal(v.kernel.tiles, 8);
    assert_int_equal(v.kernel.tokens, 16);
    assert_int_equal(v.kernel.slices, 4);
    assert_false(crumb_cl_variant_make(row, "slices=4", &v)); /* four across */
    assert_false(crumb_cl_variant_make(row, "tn=16", &v));    /* more sums than registers */
    assert_true(crumb_cl_variant_make(gemv, "step=8 slices=32", &v));
    assert_int_equal(v.kernel.step, 8);
    assert_int_equal(v.kernel.local_size, 512);
    assert_false(crumb_cl_variant_make(gemv, "step=32", &v)); /* 4 KB: no 2D block is as large */
    assert_true(crumb_cl_variant_make(find("gemv_u3_small__dpas16"), "step=32", &v));
}

/* In groups it fetches nothing ahead, so that another distance would be the same program. */
static void nothing_is_fetched_ahead_in_groups(void **state) {
    (void)state;
    const crumb_cl_target target = {CRUMB_CL_DPAS, 16, 128 << 10, 1024, 20, false, false, false};
    for (uint32_t group = 128; group <= 4096; group += 4096 - 128) {
        const crumb_matrix w = {.bits = 2, .mul = 1, .m = 4096, .k = 4096, .group = group};
        const crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 1, .x = 8};
        crumb_cl_variant v;
        assert_true(crumb_cl_variant_make(find("gemm_u2_16x128__dpas16"), "", &v));
        assert_true(crumb_cl_variant_fits(&v, &use, &target));
        assert_true(crumb_cl_variant_make(find("gemm_u2_16x128__dpas16"), "ahead=3", &v));
        assert_int_equal(crumb_cl_variant_fits(&v, &use, &target), group == 4096);
    }
}

/* Activations that are quantized in registers are so once for at least 8 matrix instructions. */
static void codes_made_in_registers_feed_eight(void **state) {
    (void)state;
    const crumb_matrix w = {.bits = 2, .mul = 1, .m = 4096, .k = 4096, .group = 4096};
    const crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 1, .x = 32};
    const crumb_cl_target target = {CRUMB_CL_DPAS, 16, 128 << 10, 1024, 20, false, false, false};
    const crumb_cl_kernel *row = find("gemm_u2_8x256__dpas16");
    static const struct {
        const char *knobs;
        bool fits;
    } cases[] = {{"", true},      {"tn=8", true},       {"tn=8 tm=2", true},
                 {"tn=4", false}, {"tn=4 tm=2", false}, {"tn=1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_cl_variant v;
        assert_true(crumb_cl_variant_make(row, cases[i].knobs, &v));
        assert_int_equal(crumb_cl_variant_fits(&v, &use, &target), cases[i].fits);
    }
    size_t n, n_checked = 0;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++) {
        const char *tn = strstr(rows[i].options, "-D TN=");
        if (!strstr(rows[i].options, "-D IN_REGISTERS=1")) continue;
        assert_int_equal(rows[i].x, 32);
        assert_true(tn && atoi(tn + 6) >= 8);
        n_checked++;
    }
    assert_true(n_checked >= 3);
}

/* Those that each work-group of gemm.cl quantizes into local memory feed as many, one or two for each of its tile-rows.
 */
static void codes_made_by_a_work_group_feed_eight(void **state) {
    (void)state;
    static const struct {
        const char *row, *knobs;
        bool fits;
    } cases[] = {{"gemm_u2_16x128__dpas16", "fused=1", true},
                 {"gemm_u2_16x128__dpas16", "across=1 fused=1", true}, /* 8 tile-rows */
                 {"gemm_u2_16x128__dpas16", "tn=4 across=1 fused=1", false},
                 {"gemm_u2_16x128__dpas16", "tn=4 across=2 fused=1", true},
                 {"gemm_u2_8x64_split__dpas16", "fused=1", false},
                 {"gemm_u2_8x64_split__dpas16", "tn=8 fused=1", true},
                 {"gemm_u2_8x64_split__dpas8", "fused=1", true}, /* 4, of which each is two operands */
                 {"gemm_u2_8x64_split__dpas8", "tn=2 fused=1", false}};
    const crumb_matrix w = {.bits = 2, .mul = 1, .m = 4096, .k = 4096, .group = 4096};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 1, .x = 32};
        const crumb_cl_kernel *row = find(cases[i].row);
        const crumb_cl_target target = {CRUMB_CL_DPAS, row->sub_group, 128 << 10, 1024, 20, false, false, false};
        crumb_cl_variant v;
        assert_true(crumb_cl_variant_make(row, cases[i].knobs, &v));
        if (crumb_cl_variant_fits(&v, &use, &target) != cases[i].fits) fail_msg("%s %s", row->name, cases[i].knobs);
        use.x = v.x = 8;
        assert_true(crumb_cl_variant_fits(&v, &use, &target));
    }
}

/* Scales of 16, as K-quants have them. */
static const char *selected_of_16(uint8_t bits, uint32_t sub_group, uint32_t n) {
    const crumb_cl_target target = {CRUMB_CL_DPAS, sub_group, 128 << 10, 1024, 0, false, false, false};
    const crumb_matrix w = {.bits = bits, .mul = 1, .m = 4096, .k = 4096, .group = 16, .super_group = 256};
    const crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_GROUP, .act_group = 16, .n_parts = 1, .x = 8};
    return crumb_cl_linear_select(&use, n, &target)->name;
}

static const char *selected(uint32_t sub_group, uint32_t xe_cores, uint32_t m, uint32_t n) {
    const crumb_matrix w = {.bits = 2, .mul = 1, .m = m, .k = 2560, .group = 2560};
    const crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 1, .x = 8};
    const crumb_cl_target target = {CRUMB_CL_DPAS, sub_group, 64 << 10, 1024, xe_cores, false, false, false};
    return crumb_cl_linear_select(&use, n, &target)->name;
}

/* In groups K is not split: where cores would have no work-group, one has one sub-group, and its rows of weights. */
static void small_matrices_in_groups_spread(void **state) {
    (void)state;
    static const struct {
        uint32_t m;
        const char *name;
    } rows[] = {{14336, "gemm_u4_16x128__dpas16"}, {1024, "gemm_u4_16x128_alone__dpas16"}};
    const crumb_cl_target target = {CRUMB_CL_DPAS, 16, 128 << 10, 1024, 20, false, false, false};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const crumb_matrix w = {.bits = 4, .mul = 1, .m = rows[i].m, .k = 4096, .group = 32};
        const crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_GROUP, .act_group = 32, .n_parts = 1, .x = 8};
        assert_string_equal(crumb_cl_linear_select(&use, 32, &target)->name, rows[i].name);
    }
}

/* On any rung a row of a linear layer is found, however many cores a device has. */
static void other_rungs_have_rows_for_small_matrices(void **state) {
    (void)state;
    const crumb_matrix w = {.bits = 2, .mul = 1, .m = 64, .k = 256, .group = 256};
    for (uint32_t sub_group = 8; sub_group <= 16; sub_group += 8)
        for (crumb_cl_rung rung = CRUMB_CL_PORTABLE; rung <= CRUMB_CL_DPAS; rung++)
            for (uint32_t x = 8; x <= 32; x += 24)
                for (uint32_t n = 1; n <= 512; n *= 2) {
                    const crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 1, .x = x};
                    const crumb_cl_target target = {rung, sub_group, 64 << 10, 1024, 64, false, false, false};
                    const crumb_cl_kernel *row = crumb_cl_linear_select(&use, n, &target);
                    assert_non_null(row);
                    assert_true(row->rung <= rung && row->op == CRUMB_CL_LINEAR);
                }
}

/* A gate's two loops of 8 bits would spill in sub-groups of 8, with as many sums as one has: that tile is not for
 * gates. */
static void gates_of_8_bits_have_a_smaller_tile(void **state) {
    (void)state;
    const crumb_matrix w = {.bits = 8, .mul = 1, .m = 14336, .k = 4096, .group = 4096};
    const crumb_cl_target target = {CRUMB_CL_DPAS, 8, 64 << 10, 1024, 32, false, false, false};
    crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 2, .x = 8};
    assert_string_equal(crumb_cl_linear_select(&use, 512, &target)->name, "gemm_u8_32x32__dpas8");
    use.gated = 1;
    assert_string_equal(crumb_cl_linear_select(&use, 512, &target)->name, "gemm_u8_32x16__dpas8");
    assert_false(crumb_cl_linear_fits(find("gemm_u8_32x32__dpas8"), &use, &target));
}

/* In groups they have tiles of their own there, the smaller one where a group's sums are of 128 columns. */
static void groups_of_8_bits_have_tiles_in_sub_groups_of_8(void **state) {
    (void)state;
    static const struct {
        uint32_t group;
        const char *name;
    } cases[] = {{16, "gemm_u8_16x32__dpas8"},
                 {32, "gemm_u8_16x32__dpas8"},
                 {64, "gemm_u8_16x32__dpas8"},
                 {128, "gemm_u8_16x16__dpas8"}};
    const crumb_cl_target target = {CRUMB_CL_DPAS, 8, 64 << 10, 1024, 32, false, false, false};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const crumb_matrix w = {.bits = 8, .mul = 1, .m = 4096, .k = 4096, .group = cases[i].group};
        const crumb_cl_linear use = {
            .w = &w, .act = CRUMB_ACT_GROUP, .act_group = cases[i].group, .n_parts = 1, .x = 8};
        assert_string_equal(crumb_cl_linear_select(&use, 512, &target)->name, cases[i].name);
    }
}

/* Beside a division made exact, sums of parts of K and two loops of 3 or 4 bits would spill there as well. */
static void gates_of_3_and_4_bits_do_not_split_k(void **state) {
    (void)state;
    const crumb_cl_target target = {CRUMB_CL_DPAS, 8, 64 << 10, 1024, 32, false, false, false};
    crumb_matrix w = {.bits = 4, .mul = 1, .m = 640, .k = 2560, .group = 2560};
    crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 2, .x = 8};
    assert_string_equal(crumb_cl_linear_select(&use, 32, &target)->name, "gemm_u4_8x64_split__dpas8");
    use.gated = 1;
    assert_int_equal(crumb_cl_linear_select(&use, 32, &target)->slices, 1);
    w.bits = 3;
    assert_int_equal(crumb_cl_linear_select(&use, 32, &target)->slices, 1);
    w.bits = 2;
    assert_string_equal(crumb_cl_linear_select(&use, 32, &target)->name, "gemm_u2_8x64_split__dpas8");
}

/* Those of 1 and 2 bits would where their work-groups also quantize, into private memory. */
static void gates_of_1_and_2_bits_that_quantize_do_not_split_k(void **state) {
    (void)state;
    const crumb_cl_target target = {CRUMB_CL_DPAS, 8, 64 << 10, 1024, 32, false, false, false};
    for (uint8_t bits = 1; bits <= 2; bits++) {
        const crumb_cl_kernel *row = find(bits == 1 ? "gemm_u1_8x64_split__dpas8" : "gemm_u2_8x64_split__dpas8");
        const crumb_matrix w = {.bits = bits, .mul = 1, .m = 640, .k = 2560, .group = 2560};
        crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 2, .x = 32};
        assert_true(crumb_cl_linear_fits(row, &use, &target));
        use.gated = 1;
        assert_false(crumb_cl_linear_fits(row, &use, &target));
        use.x = 8;
        assert_true(crumb_cl_linear_fits(row, &use, &target));
    }
}

/* Several loops with mins in groups of 128 would spill: of 5 bits in sub-groups of 8, and gates of 8 bits. */
static void several_matrices_with_mins_have_fewer_kernels(void **state) {
    (void)state;
    static const uint16_t some[1];
    const crumb_cl_target target = {CRUMB_CL_DPAS, 8, 64 << 10, 1024, 32, false, false, false};
    crumb_matrix w = {.bits = 5, .mul = 1, .m = 4096, .k = 4096, .group = 128, .scales_f32 = true, .mins = some};
    crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_GROUP, .act_group = 128, .n_parts = 1, .x = 8};
    assert_string_equal(crumb_cl_linear_select(&use, 512, &target)->name, "gemm_u5_16x32__dpas8");
    use.n_parts = 3;
    assert_string_equal(crumb_cl_linear_select(&use, 512, &target)->name, "linear_u5_8__dpas8-i8");
    w.bits = 8;
    const crumb_cl_target xe2 = {CRUMB_CL_DPAS, 16, 128 << 10, 1024, 20, false, false, false};
    assert_string_equal(crumb_cl_linear_select(&use, 512, &xe2)->name, "gemm_u8_16x128__dpas16");
    use.n_parts = 2;
    use.gated = 1;
    assert_string_equal(crumb_cl_linear_select(&use, 512, &xe2)->name, "gemv_u8_8__dpas16");
}

/* Where a work-group of the kernel of highest rank has so many rows of weights that cores would have none. */
static void small_matrices_split_k(void **state) {
    (void)state;
    assert_string_equal(selected(16, 20, 6912, 32), "gemm_u2_8x64__dpas16");
    assert_string_equal(selected_of_16(2, 16, 512), "gemm_u2_16x64__dpas16");
    assert_string_equal(selected_of_16(3, 16, 512), "gemm_u3_32x32__dpas16");
    assert_string_equal(selected_of_16(6, 16, 512), "gemm_u6_32x32__dpas16");
    assert_string_equal(selected_of_16(6, 8, 512), "gemm_u6_16x32__dpas8");
    assert_string_equal(selected_of_16(4, 16, 512), "linear_u4_gemm__dp4a");
    assert_string_equal(selected_of_16(2, 16, 1), "linear_u2_gemv__dp4a");
    assert_string_equal(selected_of_16(2, 8, 512), "gemm_u2_16x32__dpas8");
    assert_string_equal(selected_of_16(3, 8, 512), "gemm_u3_16x32__dpas8");
    assert_string_equal(selected(16, 20, 640, 32), "gemm_u2_8x64_split__dpas16");
    assert_string_equal(selected(16, 0, 640, 32), "gemm_u2_8x64__dpas16"); /* who knows */
    assert_string_equal(selected(16, 20, 640, 512), "gemm_u2_16x128__dpas16");
    assert_string_equal(selected(16, 20, 640, 1), "gemv_u2_small__dpas16");
    assert_string_equal(selected(16, 20, 6912, 1), "gemv_u2__dpas16");
    assert_string_equal(selected(8, 32, 640, 1), "gemv_u2_small__dpas8");
    assert_string_equal(selected(8, 32, 6912, 1), "gemv_u2__dpas8");
    assert_string_equal(selected(8, 32, 6912, 512), "gemm_u2_32x32__dpas8");
    assert_string_equal(selected(8, 32, 640, 32), "gemm_u2_8x64_split__dpas8");
}

/* However long rows are, sums of groups have room in the local memory of an A770's work-group, with codes too. */
static void long_rows_in_groups_are_gemvs(void **state) {
    (void)state;
    static const struct {
        uint8_t bits;
        uint32_t group;
        const char *name;
    } rows[] = {{1, 128, "gemv_u1__dpas8"}, {2, 128, "gemv_u2__dpas8"}, {2, 64, "gemv_u2__dpas8"},
                {3, 128, "gemv_u3__dpas8"}, {4, 32, "gemv_u4__dpas8"},  {8, 32, "gemv_u8__dpas8"}};
    const crumb_cl_target target = {CRUMB_CL_DPAS, 8, 64 << 10, 1024, 32, false, false, false};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (uint32_t x = 8; x <= 32; x += 24) {
            const crumb_matrix w = {.bits = rows[i].bits, .mul = 1, .m = 16384, .k = 14336, .group = rows[i].group};
            const crumb_cl_linear use = {
                .w = &w, .act = CRUMB_ACT_GROUP, .act_group = rows[i].group, .n_parts = 1, .x = x};
            assert_string_equal(crumb_cl_linear_select(&use, 1, &target)->name, rows[i].name);
        }
}

/* gemv.cl for sub-groups of 8 counts what it reads in 32 bits. */
static void codes_of_4_gib_are_counted_rightly(void **state) {
    (void)state;
    const uint32_t limit = (uint32_t)((4ull << 30) / (2560 / 4)); /* rows of 2 bits */
    assert_string_equal(selected(8, 32, limit - 16, 1), "gemv_u2__dpas8");
    assert_string_equal(selected(8, 32, limit + 16, 1), "linear_u2_gemv__dpas8-i8");
    assert_string_equal(selected(16, 20, limit + 16, 1), "gemv_u2__dpas16");
}

/* Values in bf16 have rows of their own: as many, but for TOP, which reads logits. */
static void values_in_bf16_take_their_rows(void **state) {
    (void)state;
    size_t n, n_bf16 = 0;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    const crumb_matrix w = {.bits = 2, .mul = 1, .m = 6912, .k = 2560, .group = 2560};
    const crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 1, .x = 32, .f32_results = true};
    crumb_cl_target target = {CRUMB_CL_DPAS, 16, 64 << 10, 1024, 20, false, false, false};
    char options[CRUMB_CL_OPTIONS_MAX];
    for (size_t i = 0; i < n; i++) n_bf16 += rows[i].bf16;
    assert_int_equal(n, 2 * n_bf16 + 1);
    crumb_cl_linear_options(crumb_cl_linear_select(&use, 1, &target), &use, options);
    assert_null(strstr(options, "RESULTS"));
    target.bf16 = true;
    assert_string_equal(crumb_cl_linear_select(&use, 1, &target)->name, "gemv_u2__dpas16_bf16");
    crumb_cl_linear_options(crumb_cl_linear_select(&use, 1, &target), &use, options);
    assert_non_null(strstr(options, " -D VALUES=16"));
    assert_non_null(strstr(options, " -D RESULTS=32"));
    assert_string_equal(crumb_cl_kernel_of(CRUMB_CL_GATED, true)->name, "gated_bf16");
    assert_string_equal(crumb_cl_kernel_of(CRUMB_CL_TOP, true)->name, "top");
    assert_string_equal(crumb_cl_floats_select(1, true)->name, "linear_dense_bf16");
}

/* Sub-groups of 16 without 2D block loads: the kernels that load so are left out, of linear layers and of attention. */
static void block_loads_are_needed(void **state) {
    (void)state;
    const crumb_matrix w = {.bits = 2, .mul = 1, .m = 6912, .k = 2560, .group = 2560};
    const crumb_cl_linear use = {.w = &w, .act = CRUMB_ACT_ROW, .n_parts = 1, .x = 8};
    const crumb_cl_heads heads = {.kv = CRUMB_KV_F16, .head_dim = 128, .n_head = 32, .n_head_kv = 8};
    crumb_cl_target target = {CRUMB_CL_DPAS, 16, 64 << 10, 1024, 20, false, false, false};
    assert_int_equal(crumb_cl_linear_select(&use, 64, &target)->form, CRUMB_CL_GEMM);
    assert_int_equal(crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target)->sub_group, 16);
    target.no_blocks = true;
    for (uint32_t n = 1; n <= 64; n *= 8) {
        assert_int_equal(crumb_cl_linear_select(&use, n, &target)->form, CRUMB_CL_PLAIN);
        assert_int_equal(crumb_cl_linear_select(&use, n, &target)->rung, CRUMB_CL_DPAS_I8);
    }
    assert_int_equal(crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target)->sub_group, 0);
    target.sub_group = 8; /* whose loads are plain in any case */
    assert_int_equal(crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target)->sub_group, 8);
}

/* Each code of a few rows has a place of its own. */
static void activations_have_places(void **state) {
    (void)state;
    enum { N = 9, K = 192 };
    size_t n;
    const crumb_cl_kernel *rows = crumb_cl_kernels(&n);
    for (size_t i = 0; i < n; i++) {
        bool taken[16 * K] = {false};
        const uint64_t n_bytes = crumb_cl_linear_x_bytes(N, K);
        if (rows[i].op != CRUMB_CL_LINEAR) continue;
        assert_true(n_bytes <= sizeof taken);
        for (uint32_t row = 0; row < N; row++)
            for (uint32_t k = 0; k < K; k++) {
                const uint64_t place = crumb_cl_linear_x_place(&rows[i], K, row, k);
                assert_true(place < n_bytes && !taken[place]);
                taken[place] = true;
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(number_0_is_the_row),
        cmocka_unit_test(combinations_are_what_they_say),
        cmocka_unit_test(rules_and_unknown_knobs_refuse),
        cmocka_unit_test(gemm_splits_columns_or_rows),
        cmocka_unit_test(nothing_is_fetched_ahead_in_groups),
        cmocka_unit_test(codes_made_in_registers_feed_eight),
        cmocka_unit_test(codes_made_by_a_work_group_feed_eight),
        cmocka_unit_test(gates_of_8_bits_have_a_smaller_tile),
        cmocka_unit_test(groups_of_8_bits_have_tiles_in_sub_groups_of_8),
        cmocka_unit_test(gates_of_3_and_4_bits_do_not_split_k),
        cmocka_unit_test(gates_of_1_and_2_bits_that_quantize_do_not_split_k),
        cmocka_unit_test(several_matrices_with_mins_have_fewer_kernels),
        cmocka_unit_test(small_matrices_split_k),
        cmocka_unit_test(small_matrices_in_groups_spread),
        cmocka_unit_test(other_rungs_have_rows_for_small_matrices),
        cmocka_unit_test(long_rows_in_groups_are_gemvs),
        cmocka_unit_test(codes_of_4_gib_are_counted_rightly),
        cmocka_unit_test(values_in_bf16_take_their_rows),
        cmocka_unit_test(block_loads_are_needed),
        cmocka_unit_test(activations_have_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
