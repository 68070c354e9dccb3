/* Attention on matrix instructions: over f16 caches near cpu/ref, and the same in all ways; over int8 ones its bits. */
#include "host/base/half.h"
#include "tests/xe/attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static float rounded(float x) {
    return crumb_bf16_to_f32(crumb_f32_to_bf16(x));
}

/* Distances of results from exact ones. */
typedef struct distance {
    double most, squares;
    size_t n;
} distance;

static void add_distance(const crumb_xe_attention *c, const float *y, distance *to) {
    for (size_t i = 0; i < c->n_q; i++) {
        const double off = fabs((double)y[i] - c->exact[i]);
        to->most = fmax(to->most, off);
        to->squares += off * off;
    }
    to->n += c->n_q;
}

/* The matrix instructions' results are near, and the same for all ways and numbers of rows; the largest error, which
 * stands beside values of up to 1. */
static double compare_matrix_attention(crumb_xe_attention *c, uint32_t sub_group, distance *cpu, distance *matrix) {
    const crumb_cl_heads heads = {c->s->type, c->s->head_dim, c->s->n_head, c->s->n_head_kv};
    const crumb_cl_target target = {
        .rung = CRUMB_CL_DPAS, .sub_group = sub_group, .local_bytes = 64 << 10, .max_work_group = 1024};
    const crumb_cl_kernel *split = crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &target);
    const crumb_cl_kernel *whole = crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target);
    assert_true(split->sub_group == sub_group && whole->sub_group == sub_group);
    double most = 0;
    crumb_xe_run_split(c, split);
    for (size_t i = 0; i < c->n_q; i++) {
        const double off = fabs((double)c->got[i] - (double)c->want[i]);
        if (!(off <= 0x1p-17))
            fail_msg("%s, head_dim %u, batch %d: value %zu is %g, not %g", split->name, c->s->head_dim, c->b, i,
                     (double)c->got[i], (double)c->want[i]);
        most = off > most ? off : most;
    }
    add_distance(c, c->want, cpu);
    add_distance(c, c->got, matrix);
    memcpy(c->want, c->got, c->n_q * sizeof *c->got);
    const uint32_t rows = crumb_cl_attention_rows(whole, &heads, &target);
    crumb_xe_run_whole(c, whole, rows);
    crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
    if (c->s->head_dim == 64 || c->s->head_dim == 128) {
        crumb_xe_run_whole(c, whole, 2);
        crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
    }
    return most;
}

/* In bf16: what the same kernel makes of the same queries in f32, rounded; so its distance from exact results is at
 * most 2^-8 of them, half a last place, and 2^-16. The largest distance in terms of that. */
static double compare_bf16_attention(crumb_xe_attention *c, uint32_t sub_group) {
    const crumb_cl_heads heads = {c->s->type, c->s->head_dim, c->s->n_head, c->s->n_head_kv};
    crumb_cl_target target = {
        .rung = CRUMB_CL_DPAS, .sub_group = sub_group, .local_bytes = 64 << 10, .max_work_group = 1024};
    c->bf16 = false;
    crumb_xe_run_split(c, crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &target));
    for (size_t i = 0; i < c->n_q; i++) c->want[i] = rounded(c->got[i]);
    c->bf16 = target.bf16 = true;
    const crumb_cl_kernel *split = crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &target);
    const crumb_cl_kernel *whole = crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target);
    assert_true(split->bf16 && whole->bf16 && split->sub_group == sub_group && whole->sub_group == sub_group);
    crumb_xe_run_split(c, split);
    crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, split->name);
    crumb_xe_run_whole(c, whole, crumb_cl_attention_rows(whole, &heads, &target));
    crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
    double most = 0;
    for (size_t i = 0; i < c->n_q; i++) {
        const double off = fabs((double)c->got[i] - c->exact[i]) / (0x1p-8 * fabs(c->exact[i]) + 0x1p-16);
        if (!(off <= 1))
            fail_msg("%s, head_dim %u, batch %d: value %zu is %g, not %g", whole->name, c->s->head_dim, c->b, i,
                     (double)c->got[i], c->exact[i]);
        most = fmax(most, off);
    }
    return most;
}

void crumb_xe_matrix_attention_is_near_and_agrees(void **state) {
    (void)state;
    static const crumb_xe_heads heads[] = {{CRUMB_KV_F16, 64, 9, 3, 0, CRUMB_ROPE_NORMAL},
                                           {CRUMB_KV_F16, 128, 4, 1, 0, CRUMB_ROPE_NORMAL},
                                           {CRUMB_KV_F16, 256, 12, 2, 0, CRUMB_ROPE_NORMAL},
                                           {CRUMB_KV_F16, 80, 2, 2, 0, CRUMB_ROPE_NORMAL}};
    double most = 0, most_bf16 = 0;
    distance cpu = {0}, matrix = {0};
    if (!crumb_xe_tested.sub_groups) crumb_xe_skip("sub-groups");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        const crumb_xe_heads *s = &heads[i];
        crumb_xe_cache cache;
        crumb_xe_cache_create(&cache, s);
        for (int b = 0; b < CRUMB_XE_BATCHES; b++) { /* programs take seconds to build */
            crumb_xe_attention c;
            crumb_xe_attention_create(&c, &cache, b, false);
            most = fmax(most, compare_matrix_attention(&c, i % 2 ? 8 : 16, &cpu, &matrix));
            crumb_xe_attention_destroy(&c);
            if (s->head_dim != 64 && s->head_dim != 128) continue;
            crumb_xe_attention_create(&c, &cache, b, true);
            most_bf16 = fmax(most_bf16, compare_bf16_attention(&c, i % 2 ? 8 : 16));
            crumb_xe_attention_destroy(&c);
        }
        crumb_xe_cache_destroy(&cache);
    }
    const double cpu_rms = sqrt(cpu.squares / (double)cpu.n), matrix_rms = sqrt(matrix.squares / (double)matrix.n);
    print_message(
        "the largest distance from the CPU is %.2g; from exact results %.2g (rms %.2g), the CPU's %.2g (%.2g)\n", most,
        matrix.most, matrix_rms, cpu.most, cpu_rms);
    print_message(
        "in bf16 the largest distance from exact results is %.2f of what is allowed, 2^-8 of them and 2^-16\n",
        most_bf16);
    assert_true(matrix_rms <=
                2 * cpu_rms); /* second terms are rounded too, where the instructions round each product */
}

/* Over a cache of bytes matrix instructions make the reference's bits, in all ways. */
static void compare_exact_matrix_attention(crumb_xe_attention *c, uint32_t sub_group) {
    const crumb_cl_heads heads = {c->s->type, c->s->head_dim, c->s->n_head, c->s->n_head_kv};
    const crumb_cl_target target = {.rung = CRUMB_CL_DPAS,
                                    .sub_group = sub_group,
                                    .local_bytes = 64 << 10,
                                    .max_work_group = 1024,
                                    .exact = true,
                                    .bf16 = c->bf16};
    const crumb_cl_kernel *split = crumb_cl_attention_select(CRUMB_CL_ATTENTION_SPLIT, &heads, &target);
    const crumb_cl_kernel *whole = crumb_cl_attention_select(CRUMB_CL_ATTENTION_WHOLE, &heads, &target);
    assert_true(split->sub_group == sub_group && whole->sub_group == sub_group && split->bf16 == c->bf16);
    for (size_t i = 0; c->bf16 && i < c->n_q; i++) c->want[i] = rounded(c->want[i]);
    crumb_xe_run_split(c, split);
    crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, split->name);
    crumb_xe_run_whole(c, whole, crumb_cl_attention_rows(whole, &heads, &target));
    crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
    if (c->bf16 || c->s->head_dim != 64) return;
    crumb_xe_run_whole(c, whole, 2);
    crumb_xe_check_floats(c->got, c->want, c->n_q, c->s, c->b, whole->name);
}

void crumb_xe_matrix_attention_of_bytes_equals_reference(void **state) {
    (void)state;
    static const struct {
        crumb_xe_heads s;
        uint32_t sub_group;
        bool bf16;
    } cases[] = {{{CRUMB_KV_Q8, 64, 9, 3, 0, CRUMB_ROPE_NORMAL}, 16, true},
                 {{CRUMB_KV_Q8, 64, 9, 3, 0, CRUMB_ROPE_NORMAL}, 8, false},
                 {{CRUMB_KV_Q8, 128, 4, 1, 0, CRUMB_ROPE_NORMAL}, 8, true},
                 {{CRUMB_KV_Q8, 128, 14, 2, 0, CRUMB_ROPE_NORMAL}, 16, false},
                 {{CRUMB_KV_Q8, 256, 12, 2, 0, CRUMB_ROPE_NORMAL}, 16, false},
                 {{CRUMB_KV_Q8, 96, 2, 2, 0, CRUMB_ROPE_NORMAL}, 16, false}};
    if (!crumb_xe_tested.sub_groups) crumb_xe_skip("sub-groups");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const crumb_xe_heads *s = &cases[i].s;
        crumb_xe_cache cache;
        crumb_xe_cache_create(&cache, s);
        for (int b = 0; b < CRUMB_XE_BATCHES; b++)
            for (int bf16 = 0; bf16 <= cases[i].bf16; bf16++) {
                crumb_xe_attention c;
                crumb_xe_attention_create(&c, &cache, b, bf16);
                compare_exact_matrix_attention(&c, cases[i].sub_group);
                crumb_xe_attention_destroy(&c);
            }
        crumb_xe_cache_destroy(&cache);
    }
}
