/* The element-wise parts of the training step, each one pass over memory; the matrix products stay in numpy (BLAS).
 *
 * Rows are tokens. All arrays are dense and row-major. REAL is float for training; the self-test compiles the same
 * file with REAL=double, so that finite differences are sharp enough to find a wrong term.
 */
#include <stdint.h>
#include <string.h>
#include <tgmath.h>

#ifndef REAL
#define REAL float
#endif
typedef REAL real;

/* y = x / rms(x) * gain, then (quant != 0) rounded to int8 steps per row as BitNet does: s = 127 / max|y|. */
void norm_forward(const real *x, const real *gain, int64_t n, int64_t d, real eps, int64_t quant, real *y,
                  real *inv_rms) {
    for (int64_t i = 0; i < n; i++, x += d, y += d) {
        real sum = 0, top = (real)1e-5;
        for (int64_t j = 0; j < d; j++) sum += x[j] * x[j];
        const real inv = 1 / sqrt(sum / d + eps);
        inv_rms[i] = inv;
        for (int64_t j = 0; j < d; j++) {
            y[j] = x[j] * inv * gain[j];
            const real a = y[j] < 0 ? -y[j] : y[j];
            top = a > top ? a : top;
        }
        if (!quant) continue;
        const real s = 127 / top, back = top / 127;
        for (int64_t j = 0; j < d; j++) y[j] = rint(y[j] * s) * back;
    }
}

/* Straight-through for the rounding. dx is added to (it is the residual stream's gradient), dgain too. */
void norm_backward(const real *x, const real *gain, const real *inv_rms, const real *dy, int64_t n, int64_t d, real *dx,
                   real *dgain) {
    for (int64_t i = 0; i < n; i++, x += d, dy += d, dx += d) {
        const real inv = inv_rms[i];
        real dot = 0;
        for (int64_t j = 0; j < d; j++) dot += dy[j] * gain[j] * x[j];
        dot *= inv * inv / d;
        for (int64_t j = 0; j < d; j++) {
            dx[j] += inv * (dy[j] * gain[j] - x[j] * dot);
            dgain[j] += dy[j] * x[j] * inv;
        }
    }
}

/* Rotates `heads` heads per row in place, element i with i + head_dim/2 (NEOX). A row is `stride` values long and
 * its position is row % seq. turn = +1 forward, -1 backward (the transpose of a rotation is the inverse rotation). */
void rope(real *x, const real *cosines, const real *sines, int64_t n, int64_t stride, int64_t seq, int64_t heads,
          int64_t head_dim, int64_t turn) {
    const int64_t half = head_dim / 2;
    for (int64_t i = 0; i < n; i++, x += stride) {
        const real *c = cosines + i % seq * half, *s = sines + i % seq * half;
        for (int64_t h = 0; h < heads; h++) {
            real *a = x + h * head_dim, *b = a + half;
            for (int64_t j = 0; j < half; j++) {
                const real u = a[j], v = b[j], t = turn * s[j];
                a[j] = u * c[j] - v * t;
                b[j] = v * c[j] + u * t;
            }
        }
    }
}

/* In place over `maps` square score maps: row i keeps columns 0..i, scaled, as probabilities; the rest becomes 0. */
void causal_softmax_forward(real *p, int64_t maps, int64_t seq, real scale) {
    for (int64_t r = 0; r < maps * seq; r++, p += seq) {
        const int64_t len = r % seq + 1;
        real top = p[0], sum = 0;
        for (int64_t j = 1; j < len; j++) top = p[j] > top ? p[j] : top;
        for (int64_t j = 0; j < len; j++) {
            p[j] = exp((p[j] - top) * scale);
            sum += p[j];
        }
        const real inv = 1 / sum;
        for (int64_t j = 0; j < len; j++) p[j] *= inv;
        memset(p + len, 0, (size_t)(seq - len) * sizeof *p);
    }
}

/* dp becomes the gradient of the unscaled scores. */
void causal_softmax_backward(const real *p, real *dp, int64_t maps, int64_t seq, real scale) {
    for (int64_t r = 0; r < maps * seq; r++, p += seq, dp += seq) {
        const int64_t len = r % seq + 1;
        real dot = 0;
        for (int64_t j = 0; j < len; j++) dot += p[j] * dp[j];
        for (int64_t j = 0; j < len; j++) dp[j] = p[j] * (dp[j] - dot) * scale;
        memset(dp + len, 0, (size_t)(seq - len) * sizeof *dp);
    }
}

/* gate_up holds [gate | up], each d wide: h = relu(gate)^2 * up. */
void gate_forward(const real *gate_up, int64_t n, int64_t d, real *h) {
    for (int64_t i = 0; i < n; i++, gate_up += 2 * d, h += d)
        for (int64_t j = 0; j < d; j++) {
            const real g = gate_up[j] > 0 ? gate_up[j] : 0;
            h[j] = g * g * gate_up[d + j];
        }
}

/* gate_up is overwritten by its own gradient. */
void gate_backward(real *gate_up, const real *dh, int64_t n, int64_t d) {
    for (int64_t i = 0; i < n; i++, gate_up += 2 * d, dh += d)
        for (int64_t j = 0; j < d; j++) {
            const real g = gate_up[j] > 0 ? gate_up[j] : 0;
            gate_up[j] = 2 * g * gate_up[d + j] * dh[j];
            gate_up[d + j] = g * g * dh[j];
        }
}

/* Sum of -log p(target); logits become the gradient of `scale` times that sum. Rows with target < 0 do not count. */
double cross_entropy(real *logits, const int32_t *target, int64_t n, int64_t vocab, real scale) {
    double loss = 0;
    for (int64_t i = 0; i < n; i++, logits += vocab) {
        if (target[i] < 0) {
            memset(logits, 0, (size_t)vocab * sizeof *logits);
            continue;
        }
        real top = logits[0], sum = 0;
        for (int64_t j = 1; j < vocab; j++) top = logits[j] > top ? logits[j] : top;
        const real aim = logits[target[i]] - top;
        for (int64_t j = 0; j < vocab; j++) {
            logits[j] = exp(logits[j] - top);
            sum += logits[j];
        }
        loss += log((double)sum) - (double)aim;
        const real f = scale / sum;
        for (int64_t j = 0; j < vocab; j++) logits[j] *= f;
        logits[target[i]] -= scale;
    }
    return loss;
}

/* table[token[i]] += rows[i] */
void scatter_add(real *table, const int32_t *token, const real *rows, int64_t n, int64_t d) {
    for (int64_t i = 0; i < n; i++, rows += d)
        for (int64_t j = 0; j < d; j++) table[token[i] * d + j] += rows[j];
}
