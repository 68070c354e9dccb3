/* The scalar reference of linear layers with dense weights: float activations, each sum in eight lanes,
 *     lane[k % 8] = fma(w[m,k], x[n,k], lane[k % 8])      k rising
 * then lanes i + 4, i + 2, i + 1 added, which every other tier does as well, so that all agree bit for bit. */
#include "cpu/kernels.h"

#include "host/base/half.h"

#include <math.h>

static float weight_at(const crumb_matrix *w, uint64_t i) {
    switch (w->type) {
    case CRUMB_TYPE_F16: return crumb_f16_to_f32(((const uint16_t *)w->codes)[i]);
    case CRUMB_TYPE_BF16: return crumb_bf16_to_f32(((const uint16_t *)w->codes)[i]);
    default: return ((const float *)w->codes)[i];
    }
}

void crumb_linear_dense__ref(const crumb_linear_args *a) {
    const crumb_matrix *w = a->w;
    uint64_t end = (uint64_t)a->tile1 * CRUMB_TILE_ROWS < w->m ? (uint64_t)a->tile1 * CRUMB_TILE_ROWS : w->m;
    for (uint64_t m = (uint64_t)a->tile0 * CRUMB_TILE_ROWS; m < end; m++)
        for (uint32_t n = 0; n < a->n; n++) {
            float lanes[8] = {0};
            for (uint32_t k = 0; k < w->k; k++)
                lanes[k % 8] = fmaf(weight_at(w, m * w->k + k), a->xf[n * a->xf_stride + k], lanes[k % 8]);
            for (int step = 4; step > 0; step /= 2)
                for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
            float y = a->out_scale == 1.0f ? lanes[0] : lanes[0] * a->out_scale;
            if (a->bias) y = y + a->bias[m];
            if (a->add) y = y + a->add[n * a->add_stride + m];
            a->y[n * a->y_stride + m] = y;
        }
}
