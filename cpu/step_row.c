/* Steps that work row by row: embedding, norms, gated activation, select, top, place, gather, rope tables; and the
 * rendezvous. */
#include "cpu/plan.h"

#include "host/base/thread.h"
#include "host/kernel/rendezvous.h"

#include <math.h>
#include <string.h>

static uint32_t one_item(const crumb_plan *p, const crumb_step *s) {
    (void)p;
    (void)s;
    return 1;
}

/* ---- embedding --------------------------------------------------------------------------------------------- */

static uint32_t embed_items(const crumb_plan *p, const crumb_step *s) {
    (void)s;
    return crumb_even_items(p, p->n_rows, 4);
}

static void embed(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)walker;
    const crumb_matrix *table = s->op.embed.table;
    float *out = crumb_plan_floats(p, s->op.embed.out), scale = s->op.embed.scale;
    uint32_t n_items = embed_items(p, s), width = table->k;
    uint64_t end = crumb_even_begin(p->n_rows, item + 1, n_items);
    for (uint64_t r = crumb_even_begin(p->n_rows, item, n_items); r < end; r++) {
        float *row = out + r * width;
        crumb_matrix_row_to_f32(table, (uint64_t)p->rows[r].token, row);
        if (scale != 1.0f)
            for (uint32_t i = 0; i < width; i++) row[i] *= scale;
    }
}

const crumb_step_kind crumb_step_embed = {embed_items, embed};

/* ---- norm -------------------------------------------------------------------------------------------------- */

typedef struct norm_shape {
    uint32_t width, n_items;
    uint64_t n; /* vectors of `width` to normalise: rows, or heads of rows */
} norm_shape;

static norm_shape shape_of_norm(const crumb_plan *p, const crumb_step *s) {
    uint32_t row = p->values[s->op.norm.x].width;
    norm_shape shape = {.width = s->op.norm.head_dim ? s->op.norm.head_dim : row};
    shape.n = (uint64_t)crumb_step_n(p, s) * (row / shape.width);
    shape.n_items = crumb_even_items(p, shape.n, 1 + 2048 / shape.width);
    return shape;
}

static uint32_t norm_items(const crumb_plan *p, const crumb_step *s) {
    return shape_of_norm(p, s).n_items;
}

static void norm(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)walker;
    norm_shape shape = shape_of_norm(p, s);
    const float *x = crumb_plan_floats(p, s->op.norm.x);
    float *out = crumb_plan_floats(p, s->op.norm.out);
    uint64_t end = crumb_even_begin(shape.n, item + 1, shape.n_items) * shape.width;
    for (uint64_t i = crumb_even_begin(shape.n, item, shape.n_items) * shape.width; i < end; i += shape.width)
        p->device->ops->rms_norm(x + i, s->op.norm.weight, shape.width, s->op.norm.eps, out + i);
}

const crumb_step_kind crumb_step_rms_norm = {norm_items, norm};

/* ---- gated activation -------------------------------------------------------------------------------------- */

static uint64_t gated_values(const crumb_plan *p, const crumb_step *s) {
    return (uint64_t)crumb_step_n(p, s) * p->values[s->op.gated.out].width;
}

static uint32_t gated_items(const crumb_plan *p, const crumb_step *s) {
    return crumb_even_items(p, gated_values(p, s), 1024);
}

static void gated(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)walker;
    const float *gate = crumb_plan_floats(p, s->op.gated.gate), *up = crumb_plan_floats(p, s->op.gated.up);
    float *out = crumb_plan_floats(p, s->op.gated.out);
    uint32_t n_items = gated_items(p, s);
    size_t begin = crumb_even_begin(gated_values(p, s), item, n_items);
    size_t end = crumb_even_begin(gated_values(p, s), item + 1, n_items);
    p->device->ops->gated(gate + begin, up + begin, (uint32_t)(end - begin), s->op.gated.fn, out + begin);
}

const crumb_step_kind crumb_step_gated = {gated_items, gated};

/* ---- select ------------------------------------------------------------------------------------------------ */

/* In place this is a compaction: rows move towards the front in order, so it is a single item. */
static void select_rows(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)item;
    (void)walker;
    const float *x = crumb_plan_floats(p, s->op.select.x);
    float *out = crumb_plan_floats(p, s->op.select.out);
    size_t width = p->values[s->op.select.x].width, to = 0;
    for (uint32_t r = 0; r < p->n_rows; r++)
        if (p->rows[r].wants_output) memmove(out + width * to++, x + width * r, width * sizeof(float));
}

const crumb_step_kind crumb_step_select = {one_item, select_rows};

/* ---- top --------------------------------------------------------------------------------------------------- */

static uint32_t top_items(const crumb_plan *p, const crumb_step *s) {
    return crumb_step_n(p, s);
}

/* Values that are found are kept in order; most of a row's values are smaller than the last of them. */
static void top(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)walker;
    const uint32_t width = p->values[s->op.top.x].width, k = s->op.top.k;
    const float *x = crumb_plan_floats(p, s->op.top.x) + (size_t)item * width;
    float *values = crumb_plan_floats(p, s->op.top.out) + (size_t)item * 2 * k;
    uint32_t indices[CRUMB_TOP_MAX_K] = {0}, n = 0;
    for (uint32_t i = 0; i < width; i++) {
        if (isnan(x[i]) || (n == k && !(x[i] > values[k - 1]))) continue;
        uint32_t at = n < k ? n++ : k - 1;
        for (; at > 0 && values[at - 1] < x[i]; at--) {
            values[at] = values[at - 1];
            indices[at] = indices[at - 1];
        }
        values[at] = x[i];
        indices[at] = i;
    }
    for (; n < k; n++) {
        values[n] = -INFINITY;
        indices[n] = UINT32_MAX;
    }
    memcpy(values + k, indices, k * sizeof *indices);
}

const crumb_step_kind crumb_step_top = {top_items, top};

/* ---- place ------------------------------------------------------------------------------------------------- */

static uint32_t place_items(const crumb_plan *p, const crumb_step *s) {
    return crumb_even_items(p, crumb_step_n(p, s), 1 + 4096 / p->values[s->op.place.x].width);
}

static void place(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)walker;
    const size_t from = p->values[s->op.place.x].width, to = p->values[s->op.place.out].width;
    const float *x = crumb_plan_floats(p, s->op.place.x);
    float *out = crumb_plan_floats(p, s->op.place.out) + s->op.place.column;
    const uint32_t n = crumb_step_n(p, s), n_items = place_items(p, s);
    const uint64_t end = crumb_even_begin(n, item + 1, n_items);
    for (uint64_t r = crumb_even_begin(n, item, n_items); r < end; r++)
        memcpy(out + r * to, x + r * from, from * sizeof *x);
}

const crumb_step_kind crumb_step_place = {place_items, place};

/* ---- gather ------------------------------------------------------------------------------------------------ */

static uint64_t gather_values(const crumb_plan *p, const crumb_step *s) {
    return (uint64_t)crumb_step_n(p, s) * p->values[s->op.gather.x].width;
}

static uint32_t gather_items(const crumb_plan *p, const crumb_step *s) {
    return crumb_even_items(p, gather_values(p, s), 4096);
}

static void gather(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)walker;
    const uint64_t width = p->values[s->op.gather.x].width, n_values = gather_values(p, s);
    const uint32_t *from = s->op.gather.from, n_items = gather_items(p, s);
    const uint64_t end = crumb_even_begin(n_values, item + 1, n_items);
    for (uint64_t i = crumb_even_begin(n_values, item, n_items); i < end;) {
        const uint64_t row = i / width * width, row_end = row + width < end ? row + width : end;
        const float *x = crumb_plan_floats(p, s->op.gather.x) + row;
        float *out = crumb_plan_floats(p, s->op.gather.out);
        for (; i < row_end; i++) out[i] = x[from[i - row]];
    }
}

const crumb_step_kind crumb_step_gather = {gather_items, gather};

/* ---- rendezvous -------------------------------------------------------------------------------------------- */

static void give_signal(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)item;
    (void)walker;
    crumb_flag_raise(s->op.rendezvous.flag, p->number);
}

const crumb_step_kind crumb_step_signal = {one_item, give_signal};

static void wait_for_signal(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    const uint32_t *flag = s->op.rendezvous.flag;
    crumb_patience patience = {0};
    (void)item;
    (void)walker;
    if (p->stalled || crumb_flag_is_raised(flag, p->number)) return;
    const uint64_t begin = crumb_now_ns();
    while (!p->stalled && !crumb_flag_is_raised(flag, p->number))
        p->stalled = !crumb_patience_wait(&patience, s->op.rendezvous.given_up);
    if (s->op.rendezvous.waited) *s->op.rendezvous.waited += crumb_now_ns() - begin;
}

const crumb_step_kind crumb_step_wait = {one_item, wait_for_signal};

/* ---- tables of cosines and sines ------------------------------------------------------------------------------ */

static uint32_t table_items(const crumb_plan *p, const crumb_step *s) {
    (void)s;
    return crumb_even_items(p, p->n_rows, 4);
}

/* Angles in double: in float, positions of some thousands would lose the low bits of the angle. */
static void fill_tables(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    (void)walker;
    float *values = (float *)(void *)(p->scratch + p->rope_values);
    uint32_t n_items = table_items(p, s);
    uint64_t end = crumb_even_begin(p->n_rows, item + 1, n_items);
    for (uint64_t r = crumb_even_begin(p->n_rows, item, n_items); r < end; r++)
        for (uint32_t t = 0; t < p->n_rope_tables; t++) {
            const crumb_rope_table *table = &p->rope_tables[t];
            uint32_t half = table->dims / 2;
            float *cosines = values + r * p->rope_row_floats + table->offset, *sines = cosines + half;
            for (uint32_t i = 0; i < half; i++) {
                double angle = (double)p->rows[r].position * (double)table->inv_freq[i];
                cosines[i] = (float)(cos(angle) * (double)table->magnitude);
                sines[i] = (float)(sin(angle) * (double)table->magnitude);
            }
        }
}

const crumb_step_kind crumb_step_rope_table = {table_items, fill_tables};
