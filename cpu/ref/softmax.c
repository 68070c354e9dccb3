#include "cpu/attention.h"
#include "cpu/float.h"

#include <math.h>

static float softmax(float *s, uint32_t n, float scale, float *sum) {
    float max = -INFINITY, lanes[8] = {0};
    for (uint32_t j = 0; j < n; j++) {
        s[j] *= scale;
        max = s[j] > max ? s[j] : max;
    }
    for (uint32_t j = 0; j < n; j++) {
        s[j] = crumb_float_ops__ref.exp(s[j] - max);
        lanes[j % 8] += s[j];
    }
    for (int step = 4; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
    *sum = lanes[0];
    return max;
}

void crumb_softmax__ref(float *s, uint32_t n_rows, const uint32_t *n_keys, float scale, float *m, float *l) {
    for (uint32_t r = 0; r < n_rows; r++)
        if (n_keys[r]) m[r] = softmax(s + (size_t)r * CRUMB_ATTENTION_CHUNK, n_keys[r], scale, &l[r]);
}
