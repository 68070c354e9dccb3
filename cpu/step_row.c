/* Steps that work row by row: embedding, norms, gated activation, select, rope tables; and the rendezvous. */
#include "cpu/plan.h"

#include "host/base/thread.h"

#include <math.h>
#include <string.h>

void crumb_step_embed(crumb_plan *p, const crumb_step *s, int thread) {
    const crumb_matrix *table = s->op.embed.table;
    float *out = crumb_plan_floats(p, s->op.embed.out), scale = s->op.embed.scale;
    uint32_t n = p->n_rows, width = table->k;
    for (uint32_t r = crumb_share_begin(p, n, thread); r < crumb_share_begin(p, n, thread + 1); r++) {
        float *row = out + (size_t)r * width;
        crumb_matrix_row_to_f32(table, (uint64_t)p->rows[r].token, row);
        if (scale != 1.0f)
            for (uint32_t i = 0; i < width; i++) row[i] *= scale;
    }
}

void crumb_step_rms_norm(crumb_plan *p, const crumb_step *s, int thread) {
    const float *x = crumb_plan_floats(p, s->op.norm.x);
    float *out = crumb_plan_floats(p, s->op.norm.out);
    uint32_t width = p->values[s->op.norm.x].width, unit = s->op.norm.head_dim ? s->op.norm.head_dim : width;
    uint32_t n = crumb_step_n(p, s) * (width / unit);
    for (uint32_t i = crumb_share_begin(p, n, thread); i < crumb_share_begin(p, n, thread + 1); i++)
        p->device->ops->rms_norm(x + (size_t)i * unit, s->op.norm.weight, unit, s->op.norm.eps, out + (size_t)i * unit);
}

void crumb_step_gated(crumb_plan *p, const crumb_step *s, int thread) {
    const float *gate = crumb_plan_floats(p, s->op.gated.gate), *up = crumb_plan_floats(p, s->op.gated.up);
    float *out = crumb_plan_floats(p, s->op.gated.out);
    size_t width = p->values[s->op.gated.out].width, n = crumb_step_n(p, s) * width;
    size_t begin = n * (size_t)thread / (size_t)p->n_threads, end = n * (size_t)(thread + 1) / (size_t)p->n_threads;
    p->device->ops->gated(gate + begin, up + begin, (uint32_t)(end - begin), s->op.gated.fn, out + begin);
}

/* In place this is a compaction: rows move towards the front in order, so one thread does it. */
void crumb_step_select(crumb_plan *p, const crumb_step *s, int thread) {
    if (thread != 0) return;
    const float *x = crumb_plan_floats(p, s->op.select.x);
    float *out = crumb_plan_floats(p, s->op.select.out);
    size_t width = p->values[s->op.select.x].width, to = 0;
    for (uint32_t r = 0; r < p->n_rows; r++)
        if (p->rows[r].wants_output) memmove(out + width * to++, x + width * r, width * sizeof(float));
}

void crumb_step_signal(crumb_plan *p, const crumb_step *s, int thread) {
    if (thread == 0) __atomic_store_n(s->op.rendezvous.flag, p->number, __ATOMIC_RELEASE);
}

/* The other plan may already be at its next replay: any number that is not behind counts. A device that never answers
 * must not hang the engine: the wait is given up after ten seconds, and the replay fails with DEVICE. */
void crumb_step_wait(crumb_plan *p, const crumb_step *s, int thread) {
    if (thread != 0) return;
    const uint64_t give_up_ns = 10u * 1000000000ull;
    uint64_t start = 0;
    for (uint32_t spins = 1;; spins++) {
        uint32_t seen = __atomic_load_n(s->op.rendezvous.flag, __ATOMIC_ACQUIRE);
        if ((int32_t)(seen - p->number) >= 0) return;
        crumb_spin_pause();
        if (spins % 64) continue;
        uint64_t now = crumb_now_ns();
        if (start == 0) start = now;
        if (now - start > give_up_ns) break;
        if (now - start > 50000) crumb_thread_yield();
    }
    atomic_store_explicit(&p->stalled, true, memory_order_relaxed);
}

/* Angles in double: in float, positions of some thousands would lose the low bits of the angle. */
void crumb_step_rope_table(crumb_plan *p, const crumb_step *s, int thread) {
    (void)s;
    float *values = (float *)(void *)(p->scratch + p->rope_values);
    for (uint32_t r = crumb_share_begin(p, p->n_rows, thread); r < crumb_share_begin(p, p->n_rows, thread + 1); r++)
        for (uint32_t t = 0; t < p->n_rope_tables; t++) {
            const crumb_rope_table *table = &p->rope_tables[t];
            uint32_t half = table->dims / 2;
            float *cosines = values + (size_t)r * p->rope_row_floats + table->offset, *sines = cosines + half;
            for (uint32_t i = 0; i < half; i++) {
                double angle = (double)p->rows[r].position * (double)table->inv_freq[i];
                cosines[i] = (float)(cos(angle) * (double)table->magnitude);
                sines[i] = (float)(sin(angle) * (double)table->magnitude);
            }
        }
}
