/* Linear layers: preparing the activations (norm, quantization) and dividing tiles of weights among threads. */
#include "cpu/divide.h"

#include "host/base/checked.h"

/* Whether a linear step's inputs are prepared once for all threads, in a step of their own, rather than by each thread
 * for itself. Preparing a value takes about a quarter of a nanosecond; one more step costs about half a microsecond,
 * and reading from another core's cache. */
static bool shares_inputs(const crumb_plan *p, const crumb_step *s) {
    const uint64_t most_values = 16384;
    uint64_t n = crumb_step_n(p, s);
    return n > 1 && (n > CRUMB_LOCAL_ROWS || n * s->linear.k > most_values);
}

/* Whether the shared inputs are interleaved as well: for batches that only GEMMs serve. */
static bool interleaves(const crumb_plan *p, uint32_t n) {
    return n > CRUMB_SMALL_N && p->device->interleave;
}

typedef struct q8_layout {
    size_t sx, qsum, interleaved, reach, tables, total; /* byte offsets behind q, and all of it */
} q8_layout;

static size_t table_row_bytes(const crumb_linear_input *in) {
    const crumb_linear_args one_row = {.n = 1, .x.k_padded = in->k_padded};
    return in->prepares ? in->prepares->prepared_bytes(&one_row) : 0;
}

static q8_layout layout_q8(const crumb_linear_input *in, uint32_t capacity) {
    uint64_t n_groups = in->k_padded / in->group, n_scales = in->row_scale ? 1 : n_groups;
    q8_layout layout;
    layout.sx = crumb_round_up((uint64_t)capacity * in->k_padded, 64);
    layout.qsum = layout.sx + crumb_round_up(capacity * n_scales * sizeof(float), 64);
    layout.interleaved = layout.qsum + crumb_round_up(capacity * n_groups * sizeof(int32_t), 64);
    const bool interleaves = capacity > CRUMB_SMALL_N;
    layout.reach = layout.interleaved + (interleaves ? layout.sx * in->code_bytes : 0);
    layout.tables =
        layout.reach +
        (interleaves ? crumb_round_up(layout.sx / CRUMB_TILE_K * CRUMB_Q8_REACH * sizeof(uint16_t), 64) : 0);
    layout.total = layout.tables + table_row_bytes(in) * (capacity < in->prepare_n ? capacity : in->prepare_n);
    return layout;
}

static size_t float_bytes(const crumb_step *s, uint32_t capacity) {
    return s->linear.norm_weight ? crumb_round_up((uint64_t)capacity * s->linear.k * sizeof(float), 64) : 0;
}

size_t crumb_linear_input_bytes(const crumb_step *s, uint32_t capacity) {
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < s->linear.n_inputs; i++) {
        const crumb_linear_input *in = &s->linear.inputs[i];
        n_bytes += in->quantized ? layout_q8(in, capacity).total : float_bytes(s, capacity);
    }
    return n_bytes;
}

typedef struct prepared {
    crumb_q8 q8[CRUMB_LINEAR_MAX_PARTS];
    char *tables[CRUMB_LINEAR_MAX_PARTS];
    float *normed; /* [capacity][k], where floats are wanted behind a norm */
} prepared;

static prepared inputs_of(const crumb_plan *p, const crumb_step *s, int thread, bool shared) {
    prepared out = {0};
    char *base = shared ? p->scratch + p->shared_inputs : crumb_plan_thread(p, thread) + p->local_inputs;
    uint32_t capacity = shared ? p->max_rows : CRUMB_LOCAL_ROWS;
    for (uint32_t i = 0; i < s->linear.n_inputs; i++) {
        const crumb_linear_input *in = &s->linear.inputs[i];
        if (in->quantized) {
            q8_layout layout = layout_q8(in, capacity);
            out.q8[i] = (crumb_q8){.q = (int8_t *)base,
                                   .sx = (float *)(void *)(base + layout.sx),
                                   .qsum = (int32_t *)(void *)(base + layout.qsum),
                                   .k_padded = in->k_padded,
                                   .group = in->group,
                                   .row_scale = in->row_scale};
            if (shared && interleaves(p, crumb_step_n(p, s))) {
                out.q8[i].interleaved = (int8_t *)base + layout.interleaved;
                out.q8[i].reach = (uint16_t *)(void *)(base + layout.reach);
            }
            if (crumb_step_n(p, s) <= in->prepare_n) out.tables[i] = base + layout.tables;
            base += layout.total;
        } else if (s->linear.norm_weight) {
            out.normed = (float *)(void *)base;
            base += float_bytes(s, capacity);
        }
    }
    return out;
}

/* Rows [n0, ...) of quantized activations. */
static crumb_q8 rows_from(const crumb_linear_input *in, crumb_q8 x, uint32_t n0) {
    if (!x.q) return x; /* floats are wanted */
    size_t n_groups = x.k_padded / x.group;
    x.q += (size_t)n0 * x.k_padded;
    x.sx += n0 * (x.row_scale ? 1 : n_groups);
    x.qsum += n0 * n_groups;
    if (!x.interleaved) return x;
    x.interleaved += (size_t)n0 * x.k_padded * in->code_bytes;
    x.reach += (size_t)n0 * x.k_padded / CRUMB_TILE_K * CRUMB_Q8_REACH;
    return x;
}

static void make_tables(const crumb_linear_input *in, const crumb_q8 *x, char *tables, uint32_t n0, uint32_t n1) {
    const crumb_linear_args args = {.x = rows_from(in, *x, n0), .n = n1 - n0};
    in->prepares->prepare(&args, tables + n0 * table_row_bytes(in));
}

static void prepare_rows(const crumb_plan *p, const crumb_step *s, int thread, const prepared *in, uint32_t n0,
                         uint32_t n1) {
    uint32_t k = s->linear.k;
    const float *x = crumb_plan_floats(p, s->linear.x);
    float *one_row = (float *)(void *)(crumb_plan_thread(p, thread) + p->local_row);
    for (uint32_t n = n0; n < n1; n++) {
        const float *row = x + (size_t)n * k;
        if (s->linear.norm_weight) {
            float *to = in->normed ? in->normed + (size_t)n * k : one_row;
            p->device->ops->rms_norm(row, s->linear.norm_weight, k, s->linear.norm_eps, to);
            row = to;
        }
        for (uint32_t i = 0; i < s->linear.n_inputs; i++)
            if (s->linear.inputs[i].quantized)
                p->device->quantize(row, 0, k, s->linear.inputs[i].bits, n, n + 1, &in->q8[i]);
    }
    for (uint32_t i = 0; i < s->linear.n_inputs; i++)
        if (in->tables[i]) make_tables(&s->linear.inputs[i], &in->q8[i], in->tables[i], n0, n1);
}

/* Rows that one item of preparing takes a multiple of, but for the last. */
static uint32_t prepare_unit(const crumb_plan *p, uint32_t n) {
    return interleaves(p, n) ? CRUMB_INTERLEAVE_ROWS : 1;
}

static uint32_t prepare_items(const crumb_plan *p, const crumb_step *s) {
    uint32_t n = crumb_step_n(p, s);
    return shares_inputs(p, s) ? crumb_even_items(p, crumb_div_up(n, prepare_unit(p, n)), 1) : 0;
}

static void prepare(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    prepared in = inputs_of(p, s, walker->thread, true);
    uint32_t n = crumb_step_n(p, s), n_items = prepare_items(p, s), unit = prepare_unit(p, n);
    uint64_t n_units = crumb_div_up(n, unit), end = crumb_even_begin(n_units, item + 1, n_items) * unit;
    uint32_t n0 = (uint32_t)crumb_even_begin(n_units, item, n_items) * unit, n1 = end < n ? (uint32_t)end : n;
    prepare_rows(p, s, walker->thread, &in, n0, n1);
    for (uint32_t i = 0; i < s->linear.n_inputs; i++)
        if (in.q8[i].interleaved) p->device->interleave(&in.q8[i], s->linear.inputs[i].operand_bits, n0, n1);
}

const crumb_step_kind crumb_step_prepare = {prepare_items, prepare};

/* Tiles [tile0, tile1) of one part, for rows [n0, n1). */
static void compute(const crumb_plan *p, const crumb_step *s, int thread, const prepared *in,
                    const crumb_linear_range *range, uint32_t tile0, uint32_t tile1, uint32_t n0, uint32_t n1) {
    uint32_t n = crumb_step_n(p, s);
    const crumb_linear_part *part = &range->part;
    const crumb_cpu_kernel *kernel = range->kernel[n <= CRUMB_SMALL_N ? n : 0];
    const size_t table_bytes = in->tables[range->input] ? table_row_bytes(&s->linear.inputs[range->input]) : 0;
    crumb_linear_args args = {
        .w = part->w,
        .x = rows_from(&s->linear.inputs[range->input], in->q8[range->input], n0),
        .xf = (in->normed ? in->normed : crumb_plan_floats(p, s->linear.x)) + (size_t)n0 * s->linear.k,
        .xf_stride = s->linear.k,
        .n = n1 - n0,
        .tile0 = tile0,
        .tile1 = tile1,
        .y = crumb_plan_floats(p, part->out) + (size_t)n0 * p->values[part->out].width,
        .y_stride = p->values[part->out].width,
        .out_scale = part->out_scale,
        .bias = part->bias,
        .scratch = crumb_plan_thread(p, thread) + p->kernel_scratch,
        .scratch_bytes = p->kernel_scratch_bytes,
        .knobs = range->knobs[n > CRUMB_SMALL_N],
        .packed = part->w->indexed ? part->w->codes : NULL,
        .prepared = in->tables[range->input] ? in->tables[range->input] + n0 * table_bytes : NULL,
    };
    if (s->linear.add != CRUMB_NO_VALUE) {
        args.add_stride = p->values[s->linear.add].width;
        args.add = crumb_plan_floats(p, s->linear.add) + n0 * args.add_stride;
    }
    kernel->run(&args);
}

static void activate(const crumb_plan *p, const crumb_step *s, uint32_t tile0, uint32_t tile1, uint32_t n0,
                     uint32_t n1) {
    crumb_value gate = s->linear.parts[0].part.out, up = s->linear.parts[1].part.out, out = s->linear.gated_out;
    size_t width = p->values[out].width, m0 = (size_t)tile0 * CRUMB_TILE_ROWS, m1 = (size_t)tile1 * CRUMB_TILE_ROWS;
    if (m1 > width) m1 = width;
    for (uint32_t n = n0; n < n1; n++) {
        size_t at = n * width + m0;
        p->device->ops->gated(crumb_plan_floats(p, gate) + at, crumb_plan_floats(p, up) + at, (uint32_t)(m1 - m0),
                              s->linear.gated_fn, crumb_plan_floats(p, out) + at);
    }
}

/* Gate and up are taken in blocks whose results are still in L2 when they are read again. A few rows always are. */
enum { GATED_ROWS = 16 * CRUMB_INTERLEAVE_ROWS, GATED_TILES = 8 };

static void compute_gated(const crumb_plan *p, const crumb_step *s, int thread, const prepared *in, uint32_t begin,
                          uint32_t end) {
    const uint32_t n = crumb_step_n(p, s), n_tiles = n > CRUMB_SMALL_N ? GATED_TILES : end - begin;
    for (uint32_t n0 = 0, n1; n0 < n; n0 = n1) {
        n1 = n - n0 < GATED_ROWS ? n : n0 + GATED_ROWS;
        for (uint32_t tile0 = begin, tile1; tile0 < end; tile0 = tile1) {
            tile1 = end - tile0 < n_tiles ? end : tile0 + n_tiles;
            for (int i = 0; i < 2; i++) compute(p, s, thread, in, &s->linear.parts[i], tile0, tile1, n0, n1);
            activate(p, s, tile0, tile1, n0, n1);
        }
    }
}

/* Units [begin, end) of the step's work: the tiles of all its parts in a row, or where gate and up are taken together
 * the tiles of either. */
static void compute_units(const crumb_plan *p, const crumb_step *s, int thread, const prepared *in, uint32_t begin,
                          uint32_t end) {
    if (s->linear.gated) {
        compute_gated(p, s, thread, in, begin, end);
        return;
    }
    uint32_t first = 0;
    for (uint32_t i = 0; i < s->linear.n_parts && first < end; i++) {
        const crumb_linear_range *range = &s->linear.parts[i];
        uint32_t n_tiles = range->tile1 - range->tile0, last = first + n_tiles;
        uint32_t from = begin > first ? begin : first, to = end < last ? end : last;
        if (from < to)
            compute(p, s, thread, in, range, range->tile0 + from - first, range->tile0 + to - first, 0,
                    crumb_step_n(p, s));
        first = last;
    }
}

/* Tiles [begin, end) of the step's units as compute_units takes them: the part and the tile that a unit is. */
static const crumb_linear_range *range_of_unit(const crumb_step *s, uint32_t unit, uint32_t *tile) {
    *tile = unit;
    for (uint32_t i = 0; !s->linear.gated && i < s->linear.n_parts; i++) {
        const crumb_linear_range *range = &s->linear.parts[i];
        uint32_t n_tiles = range->tile1 - range->tile0;
        if (unit < n_tiles) {
            *tile = range->tile0 + unit;
            return range;
        }
        unit -= n_tiles;
    }
    return &s->linear.parts[0];
}

/* Memory would rest while a thread waits for others, and while it prepares its inputs. The weights that it is going to
 * read first, where each of up to four streams begins, are fetched meanwhile; from there on kernels fetch ahead for
 * themselves. */
static void fetch_weights(const crumb_step *s, uint32_t begin, uint32_t end) {
    enum { STREAMS = 4, LINES = 16 };
    for (uint32_t i = 0; i < STREAMS; i++) {
        uint32_t tile, unit = begin + (end - begin) * i / STREAMS;
        const crumb_matrix *w = range_of_unit(s, unit, &tile)->part.w;
        const uint64_t tile_bytes = crumb_matrix_codes_bytes(w) / crumb_div_up(w->m, CRUMB_TILE_ROWS);
        const char *at = (const char *)w->codes + tile * tile_bytes;
        for (uint32_t line = 0; line < LINES; line++) __builtin_prefetch(at + (size_t)line * 64, 0, 2);
    }
}

static crumb_units *units_of_last_time(const crumb_plan *p, int thread) {
    return (crumb_units *)(void *)(crumb_plan_thread(p, thread) + p->local_units);
}

void crumb_linear_fetch_next(const crumb_plan *p, uint32_t step, int thread) {
    do {
        step++;
    } while (step < p->n_steps && p->steps[step].kind != &crumb_step_linear);
    if (step == p->n_steps) return;
    const crumb_units units = units_of_last_time(p, thread)[step];
    if (units.begin < units.end) fetch_weights(&p->steps[step], units.begin, units.end);
}

static uint32_t linear_items(const crumb_plan *p, const crumb_step *s) {
    return crumb_step_n(p, s) ? crumb_divide_items(p, s) : 0;
}

static void linear(crumb_plan *p, const crumb_step *s, uint32_t item, crumb_walker *walker) {
    const uint64_t began = item & CRUMB_WALK_SHARES ? crumb_ticks() : 0;
    const crumb_units units = crumb_divide_units(p, s, item);
    uint32_t index = (uint32_t)(s - p->steps);
    bool shared = shares_inputs(p, s);
    prepared in = inputs_of(p, s, walker->thread, shared);
    if (walker->prepared_step != index) {
        units_of_last_time(p, walker->thread)[index] = units;
        fetch_weights(s, units.begin, units.end);
        if (!shared) prepare_rows(p, s, walker->thread, &in, 0, crumb_step_n(p, s));
    }
    walker->prepared_step = index;
    compute_units(p, s, walker->thread, &in, units.begin, units.end);
    if (item & CRUMB_WALK_SHARES) crumb_divide_took(p, item, walker->thread, crumb_ticks() - began);
}

const crumb_step_kind crumb_step_linear = {linear_items, linear};
