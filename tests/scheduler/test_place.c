/* scheduler/place: who computes what on the machines that are known, under their memory, and as constraints ask. */
#include "scheduler/place.h"
#include "tests/scheduler/shapes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static crumb_profile machine(const char *name, const char *kernels) {
    crumb_profile p;
    crumb_error err = {0};
    size_t n;
    const char *text = crumb_profile_embedded(name, &n);
    if (crumb_profile_parse(text, n, name, kernels, NULL, NULL, &p, &err) != CRUMB_OK) fail_msg("%s", err.message);
    return p;
}

static crumb_place_problem problem_of(const crumb_profile *m, const shape *s) {
    return (crumb_place_problem){.machine = m,
                                 .layers = s->layer,
                                 .n_layers = s->n_layers,
                                 .n_prompt = 512,
                                 .n_generate = 128,
                                 .gpu_layers = -1,
                                 .split = -1};
}

static crumb_placement place(const crumb_place_problem *p) {
    crumb_placement out;
    crumb_error err = {0};
    if (crumb_place(p, &out, &err) != CRUMB_OK) fail_msg("%s", err.message);
    assert_true(strlen(out.why) > 20);
    assert_string_equal(out.considered[0].name, out.name);
    return out;
}

/* How much of all rows a device computes. */
static double part_of(const crumb_placement *p, crumb_phase phase, size_t device) {
    double sum = 0;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const crumb_place_part *part = &p->part[phase][i];
        sum += part->device == device ? part->share : part->other == device ? 1 - part->share : 0;
    }
    return sum / p->n_layers;
}

static void lunar_lake_reads_prompts_on_its_gpu_and_decodes_on_the_cpu_or_both(void **state) {
    (void)state;
    static const char *const kernels[] = {"crumb", "paper"};
    shape s;
    shape_make(&llama3_8b, &s);
    for (int i = 0; i < 2; i++) {
        const crumb_profile m = machine("lnl", kernels[i]);
        const crumb_place_problem problem = problem_of(&m, &s);
        crumb_placement p = place(&problem);
        print_message("lnl, %s: %s\n", kernels[i], p.why);
        assert_true(part_of(&p, CRUMB_PHASE_PREFILL, 1) == 1);
        assert_true(part_of(&p, CRUMB_PHASE_DECODE, 0) > 0);
        assert_true(p.moved_bytes == 0 && p.move_ns == 0); /* both devices see one cache */
        assert_int_equal(p.sum[CRUMB_PHASE_PREFILL].bound, CRUMB_BOUND_COMPUTE);
        assert_int_equal(p.sum[CRUMB_PHASE_DECODE].bound, CRUMB_BOUND_BANDWIDTH);
        assert_true(p.memory_bytes[0] < UINT64_C(4000000000)); /* the weights exist once */
        crumb_placement_free(&p);
    }
}

static void a_discrete_card_takes_all(void **state) {
    (void)state;
    static const char *const names[] = {"bmg", "a770"};
    shape s;
    shape_make(&llama3_8b, &s);
    for (int i = 0; i < 2; i++) {
        const crumb_profile m = machine(names[i], "crumb");
        const crumb_place_problem problem = problem_of(&m, &s);
        crumb_placement p = place(&problem);
        print_message("%s: %s\n", names[i], p.why);
        assert_true(part_of(&p, CRUMB_PHASE_PREFILL, 1) == 1);
        assert_true(part_of(&p, CRUMB_PHASE_DECODE, 1) == 1);
        assert_int_equal(p.memory_bytes[0], 0);
        crumb_placement_free(&p);
    }
}

/* 8 bits of 27 billion weights: more than twice the card's 12 GB. */
static void what_does_not_fit_goes_to_the_processor(void **state) {
    (void)state;
    static const shape_params large = {5376, 21504, 2048, 262144, 62, CRUMB_WORK_U8, CRUMB_WORK_F16};
    const crumb_profile m = machine("bmg", "crumb");
    shape s;
    shape_make(&large, &s);
    crumb_place_problem problem = problem_of(&m, &s);
    crumb_placement p = place(&problem);
    const double on_card = part_of(&p, CRUMB_PHASE_DECODE, 1);
    print_message("overflow: %s\n", p.why);
    assert_true(on_card > 0.2 && on_card < 0.6);
    assert_true(part_of(&p, CRUMB_PHASE_DECODE, 0) == 1 - on_card || fabs(part_of(&p, 1, 0) + on_card - 1) < 1e-12);
    assert_true(p.memory_bytes[1] <= m.device[1].memory_bytes / 16 * 15 + 16);
    /* as full as it goes: another layer would not fit */
    assert_true(p.memory_bytes[1] + s.layer[0].resident_bytes > m.device[1].memory_bytes / 16 * 15);
    crumb_placement_free(&p);
    problem.free_bytes[1] = 3000000000;
    p = place(&problem);
    assert_true(part_of(&p, CRUMB_PHASE_DECODE, 1) < on_card);
    assert_true(p.memory_bytes[1] <= 3000000000);
    crumb_placement_free(&p);
}

static void what_fits_nowhere_is_an_error_with_the_sizes(void **state) {
    (void)state;
    const crumb_profile m = machine("lnl", "crumb");
    crumb_placement p;
    crumb_error err = {0};
    shape s;
    shape_make(&llama3_8b, &s);
    crumb_place_problem problem = problem_of(&m, &s);
    problem.n_ctx = 1000000;
    assert_int_equal(crumb_place(&problem, &p, &err), CRUMB_ERR_MEMORY);
    assert_non_null(strstr(err.message, "GB"));
    problem.n_ctx = 0;
    problem.scratch_bytes[0] = problem.scratch_bytes[1] = UINT64_C(15000000000);
    assert_int_equal(crumb_place(&problem, &p, &err), CRUMB_ERR_MEMORY);
}

/* Short prompts and long ones, and what is generated, weigh against each other. */
static void the_prompt_and_its_length_decide(void **state) {
    (void)state;
    crumb_profile m = machine("bmg", "crumb");
    shape s;
    shape_make(&llama3_8b, &s);
    m.device[1].read_gb_s = m.device[1].together_gb_s = 40; /* a card that computes fast and reads slowly */
    crumb_place_problem problem = problem_of(&m, &s);
    problem.n_prompt = 4096;
    crumb_placement once = place(&problem); /* weights exist once: no layer changes its memory */
    for (uint32_t i = 0; i < once.n_layers; i++) {
        assert_int_equal(once.part[0][i].device, once.part[1][i].device);
        assert_true(once.part[0][i].share == once.part[1][i].share);
    }
    crumb_placement_free(&once);
    problem.copies = true;
    crumb_placement p = place(&problem);
    print_message("slow memory: %s\n", p.why);
    assert_true(part_of(&p, CRUMB_PHASE_PREFILL, 1) > 0.9);
    assert_true(part_of(&p, CRUMB_PHASE_DECODE, 0) > 0.5);
    assert_true(p.moved_bytes > 0 && p.moved_bytes <= 4096 * 32 * s.layer[0].kv_bytes);
    assert_true(fabs(p.ttft_ns - p.sum[0].ns - p.move_ns) < 1);
    crumb_placement_free(&p);
    problem.n_prompt = 4;
    p = place(&problem);
    assert_true(part_of(&p, CRUMB_PHASE_PREFILL, 0) > 0.5); /* not worth the way */
    crumb_placement_free(&p);
}

static void layers_are_split_only_where_bandwidths_add_up(void **state) {
    (void)state;
    crumb_profile m = machine("lnl", "crumb");
    shape s;
    shape_make(&llama3_8b, &s);
    crumb_place_problem problem = problem_of(&m, &s);
    m.device[0].read_gb_s = m.device[1].read_gb_s = 80;
    m.device[0].together_gb_s = m.device[1].together_gb_s = 70;
    crumb_placement p = place(&problem);
    print_message("adding up: %s\n", p.why);
    assert_true(p.part[CRUMB_PHASE_DECODE][0].share > 0.3 && p.part[CRUMB_PHASE_DECODE][0].share < 0.7);
    const double split_ns = p.sum[CRUMB_PHASE_DECODE].ns;
    crumb_placement_free(&p);
    problem.split = 0;
    p = place(&problem);
    assert_true(p.part[CRUMB_PHASE_DECODE][0].share == 1);
    assert_true(split_ns < 0.65 * p.sum[CRUMB_PHASE_DECODE].ns);
    crumb_placement_free(&p);
    problem.split = -1;
    m.device[0].together_gb_s = m.device[1].together_gb_s = 40;
    p = place(&problem);
    assert_true(p.part[CRUMB_PHASE_DECODE][0].share == 1);
    crumb_placement_free(&p);
}

/* Where a card and the processor share layers in both phases, each has its rows of the weights, and keys and values of
 * its heads: every byte once. Only while decoding they cannot, since the card would need all of the weights for the
 * prompt: whole_prefill leaves it at both phases alike. */
static void a_split_on_a_card_counts_every_byte_once(void **state) {
    (void)state;
    const crumb_profile m = machine("bmg", "crumb");
    shape s;
    shape_make(&llama3_8b, &s);
    crumb_place_problem problem = problem_of(&m, &s);
    uint64_t all = 0;
    problem.n_ctx = 4096;
    for (uint32_t i = 0; i < s.n_layers; i++) all += s.layer[i].resident_bytes + s.layer[i].kv_bytes * problem.n_ctx;
    for (int i = 1; i < 19; i++) {
        problem.split = i % 10 / 10.0;
        problem.whole_prefill = i > 10;
        if (i == 10) continue;
        crumb_placement p = place(&problem);
        assert_true(fabs((double)(p.memory_bytes[0] + p.memory_bytes[1]) - (double)all) < 16);
        assert_true(fabs((double)p.memory_bytes[1] / (double)all - problem.split) < 1e-6);
        assert_int_equal(p.moved_bytes, 0);
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            for (uint32_t l = 0; l < p.n_layers; l++) assert_true(p.part[phase][l].share == problem.split);
        crumb_placement_free(&p);
    }
}

/* Nobody asks: a card that reads its own memory several times as fast as the processor gains less from the processor's
 * share of the rows than exchanges across PCIe take, and prompts lose. With a processor that reads as fast as the card
 * computes, and exchanges for nothing, both phases are split, by one share. */
static void a_card_is_split_only_where_that_pays(void **state) {
    (void)state;
    static const char *const cards[] = {"bmg", "a770"};
    shape s;
    shape_make(&llama3_8b, &s);
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        const crumb_profile m = machine(cards[i], "crumb");
        crumb_place_problem problem = problem_of(&m, &s);
        problem.whole_prefill = true;
        crumb_placement p = place(&problem);
        const double alone_ns = p.total_ns;
        assert_true(part_of(&p, CRUMB_PHASE_PREFILL, 1) == 1 && part_of(&p, CRUMB_PHASE_DECODE, 1) == 1);
        crumb_placement_free(&p);
        double least_ns = INFINITY;
        for (int tenths = 5; tenths < 10; tenths++) {
            problem.split = tenths / 10.0;
            p = place(&problem);
            if (p.total_ns < least_ns) least_ns = p.total_ns;
            crumb_placement_free(&p);
        }
        printf("%s: split at best %.2f times the time of the card alone\n", cards[i], least_ns / alone_ns);
        assert_true(least_ns > alone_ns);
    }
    crumb_profile m = machine("bmg", "crumb");
    crumb_profile_device *cpu = &m.device[0], *card = &m.device[1];
    cpu->read_gb_s = cpu->together_gb_s = card->read_gb_s;
    cpu->n_cores = 0;
    for (int w = 0; w < CRUMB_WORK_COUNT; w++) {
        cpu->gops[w] = card->gops[w];
        cpu->share[w] = card->share[w];
    }
    cpu->exchange_us = card->exchange_us = 0;
    card->transfer_gb_s = 1000;
    crumb_place_problem problem = problem_of(&m, &s);
    problem.whole_prefill = true;
    crumb_placement p = place(&problem);
    const double share = p.part[CRUMB_PHASE_DECODE][0].share;
    assert_true(share > 0.3 && share < 0.7);
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
        for (uint32_t l = 0; l < p.n_layers; l++) assert_true(p.part[phase][l].share == share);
    crumb_placement_free(&p);
}

static void constraints_are_followed(void **state) {
    (void)state;
    const crumb_profile m = machine("lnl", "crumb");
    shape s;
    shape_make(&llama3_8b, &s);
    crumb_place_problem problem = problem_of(&m, &s);
    for (int32_t n = 0; n <= 34; n++) { /* llama.cpp counts the head as one more layer, and from the end */
        problem.gpu_layers = n;
        crumb_placement p = place(&problem);
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
            for (uint32_t i = 0; i < p.n_layers; i++) {
                assert_int_equal(p.part[phase][i].device, i + (uint32_t)n >= p.n_layers);
                assert_true(p.part[phase][i].share == 1);
            }
        crumb_placement_free(&p);
    }
    problem.gpu_layers = -1;
    problem.split = 0.25;
    crumb_placement p = place(&problem);
    for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++)
        for (uint32_t i = 0; i < p.n_layers; i++)
            assert_true(p.part[phase][i].device == 1 && p.part[phase][i].other == 0 && p.part[phase][i].share == 0.25);
    crumb_placement_free(&p);
    problem.split = -1;
    for (unsigned d = 0; d < 2; d++) {
        problem.devices = 1u << d;
        p = place(&problem);
        assert_true(part_of(&p, CRUMB_PHASE_PREFILL, d) == 1 && part_of(&p, CRUMB_PHASE_DECODE, d) == 1);
        crumb_placement_free(&p);
    }
}

static void constraints_that_contradict_each_other_are_errors(void **state) {
    (void)state;
    const crumb_profile two = machine("lnl", "crumb"), one = machine("arl", "crumb");
    crumb_placement p;
    shape s;
    shape_make(&llama3_8b, &s);
    crumb_place_problem problem = problem_of(&one, &s);
    problem.gpu_layers = 1;
    assert_int_equal(crumb_place(&problem, &p, NULL), CRUMB_ERR_ARGUMENT);
    problem.gpu_layers = -1;
    problem.split = 0.5;
    assert_int_equal(crumb_place(&problem, &p, NULL), CRUMB_ERR_ARGUMENT);
    problem.machine = &two;
    problem.gpu_layers = 3;
    assert_int_equal(crumb_place(&problem, &p, NULL), CRUMB_ERR_ARGUMENT);
    problem.split = NAN;
    assert_int_equal(crumb_place(&problem, &p, NULL), CRUMB_ERR_ARGUMENT);
    problem.split = -1;
    problem.devices = 2; /* the GPU alone */
    assert_int_equal(crumb_place(&problem, &p, NULL), CRUMB_ERR_ARGUMENT);
    problem.gpu_layers = -1;
    problem.devices = 4;
    assert_int_equal(crumb_place(&problem, &p, NULL), CRUMB_ERR_ARGUMENT);
    problem.devices = 0;
    problem.n_layers = 0;
    assert_int_equal(crumb_place(&problem, &p, NULL), CRUMB_ERR_ARGUMENT);
}

/* What the engine can carry out: prompts are never split, single rows may be. */
static void prompts_stay_whole_where_that_is_asked_for(void **state) {
    (void)state;
    crumb_profile m = machine("lnl", "crumb");
    shape s;
    shape_make(&llama3_8b, &s);
    m.device[0].together_gb_s = m.device[0].read_gb_s; /* both at once as fast as each alone */
    m.device[1].together_gb_s = m.device[1].read_gb_s;
    for (int w = 0; w < CRUMB_WORK_COUNT; w++) m.device[0].gops[w] = m.device[1].gops[w];
    crumb_place_problem problem = problem_of(&m, &s);
    problem.n_prompt = 2048; /* so much that splitting it gains more than the margin */
    crumb_placement any = place(&problem);
    assert_true(any.part[CRUMB_PHASE_PREFILL][0].share < 1 && any.part[CRUMB_PHASE_DECODE][0].share < 1);
    crumb_placement_free(&any);
    problem.whole_prefill = true;
    crumb_placement whole = place(&problem);
    assert_true(whole.part[CRUMB_PHASE_PREFILL][0].share == 1 && whole.part[CRUMB_PHASE_DECODE][0].share < 1);
    crumb_placement_free(&whole);
    problem.split = 0.25;
    whole = place(&problem);
    assert_true(whole.part[CRUMB_PHASE_PREFILL][0].share == 1 && whole.part[CRUMB_PHASE_DECODE][0].share == 0.25);
    crumb_placement_free(&whole);
}

/* A placement on two devices that gains little is not taken, and one that gains more is, whatever the margin: from the
 * smallest, at which it is not taken any more, to the largest, at which it still was, there is one step. */
static void what_gains_less_than_the_margin_is_not_taken(void **state) {
    (void)state;
    crumb_profile m = machine("lnl", "crumb");
    shape s;
    shape_make(&llama3_8b, &s);
    crumb_place_problem problem = problem_of(&m, &s);
    double alone_ns = INFINITY;
    for (unsigned d = 0; d < 2; d++) {
        problem.devices = 1u << d;
        crumb_placement p = place(&problem);
        alone_ns = fmin(alone_ns, p.total_ns);
        crumb_placement_free(&p);
    }
    problem.devices = 0;
    uint32_t n_both = 0, n_alone = 0;
    for (int percent = 1; percent < 100; percent++) {
        problem.margin = percent / 100.0;
        crumb_placement p = place(&problem);
        const bool alone = p.total_ns >= alone_ns;
        assert_true(alone || p.total_ns < (1 - problem.margin) * alone_ns);
        assert_true(alone || n_alone == 0); /* once it is too little it stays so */
        *(alone ? &n_alone : &n_both) += 1;
        crumb_placement_free(&p);
    }
    print_message("taken up to a margin of %u%%\n", n_both);
    assert_true(n_both > 1 && n_alone > 5);
}

/* The same where nobody names a margin: beside a processor so slow that it helps by a few percent, by less than
 * predictions are good for, the GPU is alone. */
static void a_few_percent_are_not_enough(void **state) {
    (void)state;
    const crumb_profile known = machine("lnl", "crumb");
    shape s;
    shape_make(&llama3_8b, &s);
    double gain = 1;
    for (double factor = 1; gain > 0.75 * CRUMB_PLACE_MARGIN; factor *= 1.01) {
        crumb_profile m = known;
        m.device[0] = crumb_cost_corrected(&known.device[0], factor);
        crumb_place_problem problem = problem_of(&m, &s);
        problem.devices = 2;
        crumb_placement alone = place(&problem);
        problem.devices = 0;
        crumb_placement usual = place(&problem);
        problem.margin = 1e-6;
        crumb_placement best = place(&problem);
        gain = 1 - best.total_ns / alone.total_ns;
        if (fabs(gain - CRUMB_PLACE_MARGIN) > 0.1 * CRUMB_PLACE_MARGIN) /* not at the border itself */
            assert_true((usual.total_ns < alone.total_ns) == (gain > CRUMB_PLACE_MARGIN));
        crumb_placement_free(&alone);
        crumb_placement_free(&usual);
        crumb_placement_free(&best);
    }
    print_message("alone where both gain %.1f%%\n", 100 * gain);
    assert_true(gain > 0.5 * CRUMB_PLACE_MARGIN);
}

/* Without caches of their own: nothing moves, and keys and values exist once. */
static void devices_with_one_cache_move_nothing(void **state) {
    (void)state;
    crumb_profile m = machine("lnl", "crumb");
    shape s;
    shape_make(&llama3_8b, &s);
    const crumb_place_problem problem = problem_of(&m, &s);
    crumb_placement one = place(&problem);
    assert_true(one.move_ns == 0 && one.moved_bytes == 0);
    m.device[1].transfer_gb_s = 10;
    crumb_placement two = place(&problem);
    assert_int_equal(two.moved_bytes, 512 * 32 * s.layer[0].kv_bytes); /* from the GPU's cache to the CPU's, once */
    assert_true(two.move_ns > 0 && two.move_ns < 0.05 * two.ttft_ns);
    assert_int_equal(two.memory_bytes[0] - one.memory_bytes[0], (uint64_t)640 * 32 * s.layer[0].kv_bytes);
    crumb_placement_free(&one);
    crumb_placement_free(&two);
}

/* A processor that is measured to be slower than was thought loses its work. */
static void measurements_correct_predictions(void **state) {
    (void)state;
    const crumb_profile m = machine("lnl", "crumb");
    crumb_correction c = {0};
    shape s;
    shape_make(&llama3_8b, &s);
    crumb_place_problem problem = problem_of(&m, &s);
    problem.correction = &c;
    crumb_placement before = place(&problem);
    assert_true(part_of(&before, CRUMB_PHASE_DECODE, 0) == 1);
    for (int i = 0; i < 5; i++)
        crumb_correction_update(&c, 0, CRUMB_PHASE_DECODE, CRUMB_SPAN_LAYERS, before.sum[1].ns, 1.5 * before.sum[1].ns);
    crumb_placement after = place(&problem);
    print_message("corrected: %s\n", after.why);
    assert_true(part_of(&after, CRUMB_PHASE_DECODE, 0) < 0.5);
    crumb_placement_free(&before);
    crumb_placement_free(&after);
}

/* Whatever the machine: the same answer again, sums that agree, the chosen one no slower than any simpler one that
 * fits. */
static void answers_are_sound_for_any_machine(void **state) {
    (void)state;
    uint64_t seed = 1;
    shape s;
    shape_make(&llama3_8b, &s);
    for (int round = 0; round < 200; round++) {
        crumb_profile m = machine(round % 3 ? "lnl" : "bmg", "crumb");
        if (round % 3 == 2) { /* an integrated GPU and two cards */
            m.device[2] = machine("bmg", "crumb").device[1];
            m.device[3] = machine("a770", "crumb").device[1];
            snprintf(m.device[2].name, sizeof m.device[2].name, "gpu1");
            snprintf(m.device[3].name, sizeof m.device[3].name, "gpu2");
            m.n_devices = 4;
        }
        for (size_t d = 0; d < m.n_devices; d++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            m.device[d].read_gb_s = 10 + (double)(seed >> 40) / (1 << 24) * 500;
            m.device[d].together_gb_s = m.device[d].read_gb_s * (0.3 + (double)(seed >> 20 & 0xffff) / 0xffff * 0.7);
            m.device[d].memory_bytes = 2000000000 + (seed >> 30) % 8000000000;
        }
        crumb_place_problem problem = problem_of(&m, &s);
        problem.n_prompt = 1 + (uint32_t)(seed >> 50);
        crumb_placement a, b;
        crumb_error err = {0};
        const crumb_status status = crumb_place(&problem, &a, &err);
        assert_int_equal(crumb_place(&problem, &b, NULL), status);
        if (status != CRUMB_OK) {
            assert_int_equal(status, CRUMB_ERR_MEMORY);
            continue;
        }
        assert_string_equal(a.why, b.why);
        assert_string_equal(a.considered[0].name, a.name);
        assert_true(a.n_considered > 1 && a.n_considered <= CRUMB_PLACE_MAX_CONSIDERED);
        for (int phase = 0; phase < CRUMB_PHASE_COUNT; phase++) {
            double sum = 0;
            for (uint32_t i = 0; i < a.n_layers; i++) sum += a.cost[phase][i].ns;
            assert_true(fabs(sum - a.sum[phase].ns) < 1e-6 * sum);
        }
        assert_true(fabs(a.ttft_ns + 128 * a.sum[1].ns - a.total_ns) < 1e-6 * a.total_ns);
        for (size_t d = 0; d < m.n_devices; d++)
            assert_true(a.memory_bytes[d] <= m.device[d].memory_bytes - m.device[d].memory_bytes / 16);
        for (size_t i = 0; i < a.n_considered; i++)
            assert_true(!a.considered[i].fits || a.considered[i].total_ns >= 0.92 * a.total_ns);
        crumb_placement_free(&a);
        crumb_placement_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lunar_lake_reads_prompts_on_its_gpu_and_decodes_on_the_cpu_or_both),
        cmocka_unit_test(a_discrete_card_takes_all),
        cmocka_unit_test(what_does_not_fit_goes_to_the_processor),
        cmocka_unit_test(what_fits_nowhere_is_an_error_with_the_sizes),
        cmocka_unit_test(the_prompt_and_its_length_decide),
        cmocka_unit_test(layers_are_split_only_where_bandwidths_add_up),
        cmocka_unit_test(a_split_on_a_card_counts_every_byte_once),
        cmocka_unit_test(a_card_is_split_only_where_that_pays),
        cmocka_unit_test(constraints_are_followed),
        cmocka_unit_test(constraints_that_contradict_each_other_are_errors),
        cmocka_unit_test(prompts_stay_whole_where_that_is_asked_for),
        cmocka_unit_test(what_gains_less_than_the_margin_is_not_taken),
        cmocka_unit_test(a_few_percent_are_not_enough),
        cmocka_unit_test(devices_with_one_cache_move_nothing),
        cmocka_unit_test(measurements_correct_predictions),
        cmocka_unit_test(answers_are_sound_for_any_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
