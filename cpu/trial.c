#include "cpu/trial.h"

#include "cpu/knobs.h"

#include "host/base/checked.h"
#include "host/base/memory.h"

#include <stdlib.h>

static crumb_status allocate(uint64_t n_bytes, void **out, crumb_error *err) {
    *out = aligned_alloc(64, crumb_round_up(n_bytes + !n_bytes, 64));
    if (*out) return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for a trial of %llu MB", (unsigned long long)(n_bytes >> 20));
}

crumb_status crumb_trial_create(const crumb_trial_params *params, uint64_t *seed, crumb_trial *out, crumb_error *err) {
    CRUMB_TRY(crumb_trial_generate(params, seed, out, err));
    if (params->normal) crumb_quantize__ref(out->xf, params->k, params->k, params->bits, 0, params->n, &out->x);
    out->scratch_bytes = crumb_cpu_knobs_scratch(&out->w);
    return allocate(out->scratch_bytes, &out->scratch, err);
}

crumb_linear_args crumb_trial_args(const crumb_trial *t, float *y, size_t y_stride) {
    return (crumb_linear_args){.w = &t->w,
                               .x = t->x,
                               .xf = t->xf,
                               .xf_stride = t->params.k,
                               .n = t->params.n,
                               .tile0 = 0,
                               .tile1 = (uint32_t)crumb_div_up(t->w.m, CRUMB_TILE_ROWS),
                               .y = y,
                               .y_stride = y_stride,
                               .out_scale = 1.0f,
                               .scratch = t->scratch,
                               .scratch_bytes = t->scratch_bytes};
}

static crumb_status pack(crumb_trial *t, const crumb_cpu_layout *layout, const crumb_linear_args *args,
                         crumb_error *err) {
    crumb_trial_unpack(t);
    t->packed_bytes = layout->packed_bytes(&t->w);
    CRUMB_TRY(crumb_pages_alloc(t->packed_bytes, "a trial's weights", &t->packed, err));
    layout->pack(&t->w, t->packed);
    if (layout->prepare) {
        CRUMB_TRY(allocate(layout->prepared_bytes(args), &t->prepared, err));
        layout->prepare(args, t->prepared);
    }
    t->packed_for = layout;
    return CRUMB_OK;
}

crumb_status crumb_trial_pack(crumb_trial *t, const crumb_cpu_layout *layout, crumb_linear_args *args,
                              crumb_error *err) {
    if (t->packed_for != layout) CRUMB_TRY(pack(t, layout, args, err));
    args->packed = t->packed;
    args->prepared = t->prepared;
    return CRUMB_OK;
}

crumb_status crumb_trial_interleave(crumb_trial *t, crumb_isa isa, crumb_linear_args *args, crumb_error *err) {
    crumb_interleave_fn *interleave = crumb_cpu_interleave_select(isa);
    const size_t n_codes = (size_t)t->params.n * t->x.k_padded;
    if (!interleave || !t->params.bits) return CRUMB_OK;
    if (!t->interleaved) CRUMB_TRY(allocate(n_codes * CRUMB_INTERLEAVE_BYTES, &t->interleaved, err));
    if (!t->reach) CRUMB_TRY(allocate(n_codes / CRUMB_TILE_K * CRUMB_Q8_REACH * sizeof(uint16_t), &t->reach, err));
    args->x.interleaved = t->interleaved;
    args->x.reach = t->reach;
    interleave(&args->x, crumb_cpu_operand_bits(isa, &t->w), 0, t->params.n);
    return CRUMB_OK;
}

static double compute_power(const crumb_trial *t, const float *y) {
    const crumb_trial_params *p = &t->params;
    float *row = t->scratch;
    double power = 0, random = 0;
    for (uint32_t m = 0; m < p->m; m++) {
        crumb_matrix_row_to_f32(&t->w, m, row);
        for (uint32_t n = 0; n < p->n; n++) {
            const float *x = t->xf + (size_t)n * p->k;
            for (uint32_t k = 0; k < p->k; k++) random += (double)(row[k] * x[k]) * (double)(row[k] * x[k]);
            power += (double)y[(size_t)n * p->m + m] * (double)y[(size_t)n * p->m + m];
        }
    }
    return power > random ? power : random;
}

double crumb_trial_power(crumb_trial *t, const float *y) {
    if (t->power < 0) t->power = compute_power(t, y);
    return t->power;
}
