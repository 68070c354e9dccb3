/* Single kernels on many rows of activations, against the int8 peak; and on a few, against what of the two is less. */
#include "tools/crumb/suite_kernels.h"

/* ---- many rows --------------------------------------------------------------------------------------------- */

typedef struct gemm_target {
    uint32_t group;
    double wanted;
} gemm_target;

static const gemm_target gemm_targets[] = {{0, 0.80}, {256, 0.80}, {128, 0.80}, {32, 0.65}, {16, 0.50}};

/* The peak is that of the kernel's own tier, so that lower ones are held to the same part of theirs. */
static crumb_status gemm_row(suite_state *s, const char *format, const gemm_target *t, kernels_shape shape,
                             const char *forced, crumb_error *err) {
    const crumb_kernel_problem p = suite_problem(s, format, t->group, shape);
    const size_t kernel = suite_pick(s, &p, forced ? forced : s->tier);
    suite_row row = {.section = "gemm", .unit = "GOPS", .wanted = t->wanted, .baseline_name = "int8 peak"};
    kernels_turns turns = {0};
    char scales[32] = "row", name[16];
    if (t->group) snprintf(scales, sizeof scales, "%u", t->group);
    snprintf(row.what, sizeof row.what, "%u x %u x %u, %s, scales per %s, %s", shape.m, shape.k, shape.n,
             suite_weights_name(format, name), scales,
             kernel == SIZE_MAX ? "no kernel" : kernels_info(&s->choice, kernel).name);
    if (kernel == SIZE_MAX) return suite_skip(s, &row, "no kernel takes groups of this size", err);
    crumb_status status = suite_turns(s, &p, kernel, SIZE_MAX, s->rounds, &turns, err);
    if (status == CRUMB_OK) {
        row.n_bytes = kernels_turns_bytes(&turns, 0);
        row.measured = kernels_turns_gops(&turns, 0);
        row.baseline = row.peak_gops = kernels_turns_median(&turns, 0, TURNS_PEAK_GOPS);
        row.ratio = kernels_turns_median(&turns, 0, TURNS_PEAK_SHARE);
        suite_alone(&row, &turns, 0, SIZE_MAX, TURNS_PEAK_SHARE);
        if (row.baseline <= 0) snprintf(row.note, sizeof row.note, "this tier has no int8 peak to compare with");
        status = suite_row_add(s, &row, err);
    }
    kernels_turns_destroy(&turns);
    return status;
}

static crumb_status gemm_shape(suite_state *s, kernels_shape shape, crumb_error *err) {
    for (size_t g = 0; g < sizeof gemm_targets / sizeof gemm_targets[0]; g++)
        for (size_t f = 0; f < s->choice.n_formats; f++) {
            const gemm_target *t = &gemm_targets[g];
            const char *format = s->choice.formats[f]->name;
            if ((t->group && shape.k % t->group) || !suite_case(s, "gemm/%s/%u", format, t->group)) continue;
            const crumb_kernel_problem p = suite_problem(s, format, t->group, shape);
            const char *forced[SUITE_LOWER_TIERS];
            const size_t n = suite_lower_tiers(s, &p, forced);
            CRUMB_TRY(gemm_row(s, format, t, shape, NULL, err));
            for (size_t i = 0; i < n; i++) CRUMB_TRY(gemm_row(s, format, t, shape, forced[i], err));
        }
    return CRUMB_OK;
}

crumb_status suite_gemm(suite_state *s, crumb_error *err) {
    if (s->choice.n_shapes == 0) return gemm_shape(s, (kernels_shape){8192, 2048, 512}, err);
    for (size_t i = 0; i < s->choice.n_shapes; i++)
        if (s->choice.shapes[i].n > 1) CRUMB_TRY(gemm_shape(s, s->choice.shapes[i], err));
    return CRUMB_OK;
}

/* ---- a few rows -------------------------------------------------------------------------------------------- */

/* What memory or products allow, whichever is less: from some number of rows on it is products. Nothing is wanted. */
static crumb_status few_row(suite_state *s, const char *format, kernels_shape shape, const char *forced,
                            crumb_error *err) {
    const crumb_kernel_problem p = suite_usual_problem(s, format, shape);
    const size_t kernel = suite_pick(s, &p, forced ? forced : s->tier);
    suite_row row = {.section = "few", .unit = "GOPS"};
    kernels_turns turns = {0};
    char name[16];
    snprintf(row.what, sizeof row.what, "%u x %u x %u, %s, %s", shape.m, shape.k, shape.n,
             suite_weights_name(format, name),
             kernel == SIZE_MAX ? "no kernel" : kernels_info(&s->choice, kernel).name);
    if (kernel == SIZE_MAX) return suite_skip(s, &row, "no kernel takes it here", err);
    crumb_status status = suite_turns(s, &p, kernel, SIZE_MAX, s->rounds, &turns, err);
    if (status == CRUMB_OK) {
        row.n_bytes = kernels_turns_bytes(&turns, 0);
        row.measured = kernels_turns_gops(&turns, 0);
        row.read_gb_s = kernels_turns_median(&turns, 0, TURNS_READ_GB_S);
        row.peak_gops = kernels_turns_median(&turns, 0, TURNS_PEAK_GOPS);
        const double from_memory = row.read_gb_s * 2 * shape.m * shape.k * shape.n / (double)row.n_bytes;
        const bool memory = row.peak_gops <= 0 || from_memory < row.peak_gops;
        row.baseline = memory ? from_memory : row.peak_gops;
        snprintf(row.baseline_name, sizeof row.baseline_name, "%s", memory ? "by bytes read" : "int8 peak");
        row.ratio = kernels_turns_median(&turns, 0, memory ? TURNS_READ_SHARE : TURNS_PEAK_SHARE);
        suite_alone(&row, &turns, 0, SIZE_MAX, memory ? TURNS_READ_SHARE : TURNS_PEAK_SHARE);
        if (p.group) snprintf(row.note, sizeof row.note, "scales per %u", p.group);
        status = suite_row_add(s, &row, err);
    }
    kernels_turns_destroy(&turns);
    return status;
}

crumb_status suite_few(suite_state *s, crumb_error *err) {
    static const char *const formats[] = {"1", "1.58", "2", "4", "8"};
    enum { MOST = 16 };
    kernels_shape shape = {8192, 2048, 1};
    for (size_t i = s->choice.n_shapes; i-- > 0;)
        if (s->choice.shapes[i].n == 1) shape = s->choice.shapes[i];
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        for (shape.n = 2; shape.n <= MOST; shape.n *= 2) {
            const char *format = formats[i], *forced[SUITE_LOWER_TIERS];
            if (!suite_wants_format(s, format) || !suite_case(s, "few/%s/%u", format, shape.n)) continue;
            const crumb_kernel_problem p = suite_usual_problem(s, format, shape);
            const size_t n = suite_lower_tiers(s, &p, forced);
            CRUMB_TRY(few_row(s, format, shape, NULL, err));
            for (size_t j = 0; j < n; j++) CRUMB_TRY(few_row(s, format, shape, forced[j], err));
        }
    return CRUMB_OK;
}
