/* The scalar reference of the activation quantizer: cpu/kernels.h's rule, one value at a time. */
#include "cpu/kernels.h"

#include <math.h>
#include <string.h>

static float largest(const float *x, uint32_t n) {
    float a = 0;
    for (uint32_t i = 0; i < n; i++) a = fmaxf(a, fabsf(x[i]));
    return a;
}

/* n values from x, which begin at k0 of the row, into the row q. Returns their sum. */
static int32_t quantize_span(const float *x, uint32_t n, float scale, unsigned bits, uint32_t k0, int8_t *q) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        float v = fminf(fmaxf(rintf(x[i] * scale), -128.0f), 127.0f);
        uint32_t k = k0 + i;
        q[k / 32 * 32 + crumb_tile_plane_position(bits, k % 32)] = (int8_t)v;
        sum += (int32_t)v;
    }
    return sum;
}

static void quantize_row(const float *x, uint32_t k, unsigned bits, uint32_t n, const crumb_q8 *out) {
    uint32_t n_groups = out->k_padded / out->group;
    int8_t *q = out->q + (size_t)n * out->k_padded;
    memset(q, 0, out->k_padded);
    float a = fmaxf(largest(x, k), 1e-5f), scale = 127.0f / a;
    if (out->row_scale) out->sx[n] = a / 127.0f;
    for (uint32_t g = 0; g < n_groups; g++) {
        uint32_t k0 = g * out->group, k1 = k0 + out->group < k ? k0 + out->group : k;
        if (k1 < k0) k1 = k0; /* padding alone */
        if (!out->row_scale) {
            a = largest(x + k0, k1 - k0);
            bool tiny = a < CRUMB_QUANTIZE_TINY;
            scale = tiny ? 0.0f : 127.0f / a;
            out->sx[(size_t)n * n_groups + g] = tiny ? 0.0f : a / 127.0f;
        }
        out->qsum[(size_t)n * n_groups + g] = quantize_span(x + k0, k1 - k0, scale, bits, k0, q);
    }
}

void crumb_quantize__ref(const float *x, size_t x_stride, uint32_t k, unsigned bits, uint32_t n0, uint32_t n1,
                         const crumb_q8 *out) {
    for (uint32_t n = n0; n < n1; n++) quantize_row(x + n * x_stride, k, bits, n, out);
}
