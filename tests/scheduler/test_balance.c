/* The balance of cores on the simulator's virtual clock: it finds the right parts, follows changes, is not led astray
 * by noise, and gains what was published. */
#include "scheduler/chunks.h"
#include "scheduler/simulator.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* The paper's GEMM, 1024 x 4096 x 4096: 256 tile-rows, and some milliseconds on a 125H. */
static const crumb_sim_op gemm = {.n_units = 256, .unit_work = 200, .unit_bytes = 65536};

static void is_split_of(const crumb_balance *b, int n, uint32_t n_units) {
    uint32_t bounds[CRUMB_BALANCE_MAX_CORES + 1];
    crumb_balance_split(b, n, n_units, bounds);
    assert_int_equal(bounds[0], 0);
    assert_int_equal(bounds[n], n_units);
    for (int i = 0; i < n; i++) assert_true(bounds[i] <= bounds[i + 1]);
}

/* Every unit goes to one core, whatever the ratios, and no other whole split would end earlier. */
static void splits_are_whole_and_end_early(void **state) {
    (void)state;
    crumb_balance b;
    for (int n = 1; n <= CRUMB_BALANCE_MAX_CORES; n += 3) {
        crumb_balance_init(&b, n);
        for (uint32_t n_units = 0; n_units < 200; n_units += 7) is_split_of(&b, n, n_units);
    }
    crumb_balance_init(&b, 3);
    b.ratio[0] = 0.7f, b.ratio[1] = 0.2f, b.ratio[2] = 0.1f;
    uint32_t bounds[4];
    for (uint32_t n_units = 1; n_units < 40; n_units++) {
        double end = 0, best = 1e9;
        crumb_balance_split(&b, 3, n_units, bounds);
        for (int i = 0; i < 3; i++) end = fmax(end, (bounds[i + 1] - bounds[i]) / (double)b.ratio[i]);
        for (uint32_t x = 0; x <= n_units; x++)
            for (uint32_t y = 0; x + y <= n_units; y++) {
                const double other =
                    fmax(fmax(x / (double)b.ratio[0], y / (double)b.ratio[1]), (n_units - x - y) / (double)b.ratio[2]);
                best = fmin(best, other);
            }
        assert_float_equal(end, best, 1e-5 * best);
    }
    is_split_of(&b, 2, 10); /* a plan of fewer threads */
}

/* The formula itself: one op from equal parts, cores three times apart. */
static void one_op_follows_the_formula(void **state) {
    (void)state;
    crumb_balance b;
    crumb_balance_init(&b, 2);
    crumb_balance_learn(&b, 2, (uint32_t[]){50, 50}, (uint32_t[]){1000, 3000});
    assert_float_equal((double)b.ratio[0], 0.3 * 0.5 + 0.7 * 0.75, 1e-6);
    assert_float_equal((double)b.ratio[0] + (double)b.ratio[1], 1, 1e-6);
}

static double mean_of_ops(crumb_sim *sim, const crumb_sim_op *op, crumb_balance *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += b ? crumb_sim_split(sim, op, b) : crumb_sim_equal(sim, op);
    return sum / n;
}

/* How much faster than equal parts n_first cores of speed `ratio` and n_rest of 1 are after some ops. */
static double gain(int n_first, double ratio, int n_rest, double noise, uint64_t seed) {
    crumb_sim sim;
    crumb_balance b;
    crumb_sim_init(&sim, n_first, ratio, n_rest, 1, seed);
    crumb_balance_init(&b, sim.n_cores);
    sim.noise = noise;
    sim.op_us = 1;
    const double equal = mean_of_ops(&sim, &gemm, NULL, 200);
    mean_of_ops(&sim, &gemm, &b, 20);
    return equal / mean_of_ops(&sim, &gemm, &b, 200) - 1;
}

static void published_gains(void **state) {
    (void)state;
    const double low = gain(4, 3.0, 8, 0.01, 1), high = gain(4, 3.5, 8, 0.01, 2), alder = gain(8, 2.7, 8, 0.01, 3);
    print_message(
        "  GEMM against equal parts: 125H (4P+8E) %+.0f%% at a ratio of 3.0, %+.0f%% at 3.5; published +65%%\n",
        100 * low, 100 * high);
    print_message("  12900K (8P+8E) %+.0f%% at 2.7, a ratio inferred from the gain; published +85%%\n", 100 * alder);
    assert_float_equal(low, 0.65, 0.10);
    assert_true(high > 0.65); /* the ratio that was printed for a P core lies between the two */
    assert_float_equal(alder, 0.85, 0.10);
}

static void unequal_cores_gain_a_third(void **state) {
    (void)state;
    for (int n = 1; n <= 8; n *= 2) {
        const double gained = gain(n, 3, n, 0.02, (uint64_t)n);
        print_message("  %d + %d cores, 3:1: %+.0f%%\n", n, n, 100 * gained);
        assert_true(gained >= 0.30);
    }
}

/* Within 5% of what the true speeds allow, where one unit is not more than that. */
static void comes_near_the_ideal(void **state) {
    (void)state;
    double worst = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        crumb_sim sim;
        crumb_balance b;
        const int n = 2 + (int)(seed % 7);
        crumb_sim_init(&sim, n, 1, 0, 0, seed);
        for (int i = 0; i < n; i++) sim.cores[i].speed = 1 + (double)((seed * 7 + (uint64_t)i * 5) % 11) * 0.25;
        crumb_balance_init(&b, n);
        mean_of_ops(&sim, &gemm, &b, 12);
        const double over = mean_of_ops(&sim, &gemm, &b, 50) / crumb_sim_ideal(&sim, &gemm) - 1;
        if (over > worst) worst = over;
        assert_true(over < 0.05);
    }
    print_message("  at most %.1f%% over the ideal after 12 ops\n", 100 * worst);
}

/* Equal cores: what following the measurements costs against not measuring at all, in the same noise. */
static void equal_cores_lose_nothing(void **state) {
    (void)state;
    const double noises[] = {0, 0.01, 0.03, 0.06, 0.1};
    for (int n = 2; n <= 24; n = n * 2 + n % 2)
        for (size_t i = 0; i < sizeof noises / sizeof *noises; i++) {
            crumb_sim a, c;
            crumb_balance b;
            crumb_sim_init(&a, n, 1, 0, 0, 11);
            a.noise = noises[i];
            c = a;
            crumb_balance_init(&b, n);
            const double equal = mean_of_ops(&a, &gemm, NULL, 2000), split = mean_of_ops(&c, &gemm, &b, 2000);
            if (noises[i] > 0)
                print_message("  %2d cores, noise %2.0f%%: %+.2f%%\n", n, 100 * noises[i], 100 * (split / equal - 1));
            assert_true(split < 1.02 * equal);
        }
}

/* Ops after a change until no op takes more than 5% over the ideal, noise aside, for ten in a row. */
static int ops_until_recovered(crumb_sim *sim, crumb_balance *b, const crumb_sim_op *op) {
    int good = 0, n = 0;
    for (; good < 10 && n < 1000; n++) {
        const double ideal = crumb_sim_ideal(sim, op);
        good = crumb_sim_split(sim, op, b) < 1.05 * ideal ? good + 1 : 0;
    }
    return n - good;
}

static void recovers_from_a_neighbour(void **state) {
    (void)state;
    int most = 0;
    for (int n = 2; n <= 12; n++)
        for (int victim = 0; victim < n; victim += n - 1) {
            crumb_sim sim;
            crumb_balance b;
            crumb_sim_init(&sim, n, 1, 0, 0, 5);
            crumb_balance_init(&b, n);
            sim.noise = 0.005;
            mean_of_ops(&sim, &gemm, &b, 500);
            sim.cores[victim].slower_from_us = sim.clock_us;
            sim.cores[victim].left_over = 0.5;
            const int came = ops_until_recovered(&sim, &b, &gemm);
            sim.cores[victim].slower_until_us = sim.clock_us;
            const int went = ops_until_recovered(&sim, &b, &gemm);
            if (came > most) most = came;
            if (went > most) most = went;
            assert_in_range(came, 1, 20);
            assert_in_range(went, 1, 20);
        }
    print_message("  a neighbour takes half a core, and goes: recovered within %d ops\n", most);
}

/* All P cores slow down together, as a hot processor does. */
static void follows_throttling(void **state) {
    (void)state;
    crumb_sim sim;
    crumb_balance b;
    crumb_sim_init(&sim, 4, 3, 8, 1, 6);
    crumb_balance_init(&b, sim.n_cores);
    sim.noise = 0.005;
    mean_of_ops(&sim, &gemm, &b, 100);
    for (int i = 0; i < 4; i++) {
        sim.cores[i].slower_from_us = sim.clock_us;
        sim.cores[i].left_over = 0.6;
    }
    assert_in_range(ops_until_recovered(&sim, &b, &gemm), 1, 20);
}

/* ---- cores of real machines -------------------------------------------------------------------------------------- */

/* Gate and up of Llama 3 8B: tile-rows of 16 x 4096 weights, in vectors of 32, for one row or for many. */
enum { GATE_UP_TILES = 2 * 14336 / 16, TILE_VECTORS = 16 * 4096 / 32, PROMPT_ROWS = 256 };

static crumb_profile_device processor_of(const char *name) {
    crumb_profile p;
    size_t n;
    const char *text = crumb_profile_embedded(name, &n);
    assert_non_null(text);
    assert_int_equal(crumb_profile_parse(text, n, name, "crumb", NULL, NULL, &p, NULL), CRUMB_OK);
    return p.device[0];
}

/* A core is slower from now on, by itself or because a neighbour came. */
static void slow_down(crumb_sim *sim, int core, double left_over) {
    sim->cores[core].slower_from_us = sim->clock_us;
    sim->cores[core].left_over = left_over;
}

typedef struct machine_run {
    const crumb_sim_op *op;
    int most_ops;     /* until recovered, of all changes */
    double most_over; /* the ideal, after a change; of means of 50 ops */
} machine_run;

static void after_change(crumb_sim *sim, crumb_balance *b, machine_run *r) {
    const int ops = ops_until_recovered(sim, b, r->op);
    double ideal = 0, took = 0;
    for (int i = 0; i < 50; i++) {
        ideal += crumb_sim_ideal(sim, r->op);
        took += crumb_sim_split(sim, r->op, b);
    }
    if (ops > r->most_ops) r->most_ops = ops;
    if (took / ideal - 1 > r->most_over) r->most_over = took / ideal - 1;
}

/* From equal parts; then its P cores, the first of the profile, get hot, and a neighbour comes to an E core, or, on a
 * cool machine, to a P core; and goes. */
static machine_run run_machine(const crumb_profile_device *processor, const crumb_sim_op *op, bool reads, bool hot,
                               uint64_t seed) {
    machine_run r = {.op = op};
    crumb_sim sim;
    crumb_balance b;
    assert_true(crumb_sim_from_profile(&sim, processor, CRUMB_WORK_U2, seed));
    if (!reads) sim.bandwidth = 0; /* many rows: the weights are read once for all */
    const int victim = hot ? sim.n_cores - 1 : 0;
    sim.noise = 0.005;
    sim.op_us = 1;
    crumb_balance_init(&b, sim.n_cores);
    after_change(&sim, &b, &r);
    for (uint32_t i = 0; hot && i < processor->cores[0].count; i++) slow_down(&sim, (int)i, 0.6);
    if (hot) after_change(&sim, &b, &r);
    slow_down(&sim, victim, 0.5);
    after_change(&sim, &b, &r);
    sim.cores[victim].slower_until_us = sim.clock_us;
    after_change(&sim, &b, &r);
    return r;
}

static void machines_of_profiles_are_balanced(void **state) {
    (void)state;
    static const char *const names[] = {"lnl", "arl"};
    const crumb_sim_op prompt = {GATE_UP_TILES, (double)TILE_VECTORS * PROMPT_ROWS, 16384};
    const crumb_sim_op row = {GATE_UP_TILES, TILE_VECTORS, 16384};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const crumb_profile_device processor = processor_of(names[i]);
        for (int reads = 0; reads < 2; reads++)
            for (int hot = 0; hot < 2; hot++) {
                const machine_run r = run_machine(&processor, reads ? &row : &prompt, reads, hot, 21 + i);
                print_message("  %s, %s, %s: recovered within %d ops, at most %.1f%% over the ideal\n", names[i],
                              reads ? "one row" : "a prompt",
                              hot ? "hot P cores, a neighbour on an E core" : "a neighbour on a P core", r.most_ops,
                              100 * r.most_over);
                assert_in_range(r.most_ops, 0, 20);
                assert_true(r.most_over < 0.05);
            }
    }
}

/* Kinds differ as in the profile, and what no profile says is not made up. */
static void cores_are_those_of_the_profile(void **state) {
    (void)state;
    crumb_profile_device arl = processor_of("arl");
    crumb_sim sim;
    assert_true(crumb_sim_from_profile(&sim, &arl, CRUMB_WORK_U2, 1));
    assert_int_equal(sim.n_cores, 24);
    assert_float_equal(sim.cores[7].speed, 5.4e3 / 0.78, 1e-6);
    assert_float_equal(sim.cores[8].speed, 4.5e3 / 2.05, 1e-6);
    assert_float_equal(sim.cores[23].speed, 4.5e3 / 2.05, 1e-6);
    assert_float_equal(sim.bandwidth, 98e3 / 8, 1e-6);
    assert_false(crumb_sim_from_profile(&sim, &arl, CRUMB_WORK_F16, 1));
    arl.cores[1].count = CRUMB_BALANCE_MAX_CORES;
    assert_false(crumb_sim_from_profile(&sim, &arl, CRUMB_WORK_U2, 1));
    arl.n_cores = 0;
    assert_false(crumb_sim_from_profile(&sim, &arl, CRUMB_WORK_U2, 1));
}

/* ---- noise ------------------------------------------------------------------------------------------------------- */

/* One op in which a core is held up for long moves nothing; the same twice running does. */
static void one_interrupt_moves_nothing(void **state) {
    (void)state;
    crumb_balance b;
    crumb_balance_init(&b, 2);
    const uint32_t units[] = {50, 50};
    for (int i = 0; i < 40; i++) crumb_balance_learn(&b, 2, units, (uint32_t[]){1000, 1000});
    crumb_balance_learn(&b, 2, units, (uint32_t[]){1000, 9000});
    assert_float_equal((double)b.ratio[1], 0.5, 1e-6);
    crumb_balance_learn(&b, 2, units, (uint32_t[]){1000, 1000});
    crumb_balance_learn(&b, 2, units, (uint32_t[]){1000, 9000});
    assert_float_equal((double)b.ratio[1], 0.5, 1e-6);
    crumb_balance_learn(&b, 2, units, (uint32_t[]){1000, 9000});
    assert_true(b.ratio[1] < 0.3f);
}

/* Noise changes ratios rarely, each change being paid for in all ops of the next token; a small difference that is no
 * noise is found all the same. */
static void noise_changes_little(void **state) {
    (void)state;
    for (int n = 2; n <= 24; n *= n > 2 ? 6 : 2) {
        crumb_sim sim;
        crumb_balance b;
        crumb_sim_init(&sim, n, 1, 0, 0, 12);
        crumb_balance_init(&b, n);
        sim.noise = 0.01;
        mean_of_ops(&sim, &gemm, &b, 500);
        const uint32_t before = b.version;
        mean_of_ops(&sim, &gemm, &b, 8192);
        print_message("  %2d cores: %u changes in 8192 ops\n", n, b.version - before);
        assert_true(b.version - before <= 24);
        sim.cores[0].slower_from_us = sim.clock_us;
        sim.cores[0].left_over = 0.98;
        mean_of_ops(&sim, &gemm, &b, 2048);
        const double slower = 0.98 / (n - 0.02);
        assert_float_equal((double)b.ratio[0], slower, 0.01 / n);
    }
}

/* A core so slow that it gets no unit is measured again, and comes back when it is fast. */
static void idle_cores_are_measured_again(void **state) {
    (void)state;
    crumb_sim sim;
    crumb_balance b;
    const crumb_sim_op small = {.n_units = 40, .unit_work = 1, .unit_bytes = 4096};
    crumb_sim_init(&sim, 4, 1, 0, 0, 7);
    crumb_balance_init(&b, 4);
    sim.cores[2].slower_from_us = 0;
    sim.cores[2].left_over = 0.001;
    mean_of_ops(&sim, &small, &b, 60);
    uint32_t bounds[5];
    crumb_balance_split(&b, 4, small.n_units, bounds);
    assert_int_equal(bounds[2], bounds[3]);
    sim.cores[2].slower_until_us = sim.clock_us;
    mean_of_ops(&sim, &small, &b, 600);
    assert_float_equal((double)b.ratio[2], 0.25, 0.02);
}

/* However slow a core is measured to be, its ratio stays above a 64th of an equal part: it can be divided by, and comes
 * back from there. */
static void no_ratio_falls_below_the_floor(void **state) {
    (void)state;
    crumb_balance b;
    crumb_balance_init(&b, 4);
    for (int i = 0; i < 200; i++)
        crumb_balance_learn(&b, 4, (uint32_t[]){10, 10, 10, 1}, (uint32_t[]){1000, 1000, 1000, 4000000000});
    assert_true((double)b.ratio[3] >= 0.99 / 64 / 4 && (double)b.ratio[3] < 1.1 / 64 / 4);
}

/* A core that another program has for a while gets nothing meanwhile, and is back at once when it is free again. */
static void a_core_that_was_away_comes_back(void **state) {
    (void)state;
    crumb_sim sim;
    crumb_balance b;
    const crumb_sim_op small = {.n_units = 36, .unit_work = 1, .unit_bytes = 4096};
    for (int n = 2; n <= 12; n += 5) {
        crumb_sim_init(&sim, n, 1, 0, 0, 8);
        crumb_balance_init(&b, n);
        mean_of_ops(&sim, &small, &b, 40);
        sim.cores[1].slower_from_us = sim.clock_us;
        sim.cores[1].left_over = 0.001;
        sim.cores[1].slice_us = 1e9;
        const double away = 36.0 / (n - 1);
        double most = 0;
        for (int i = 0; i < 30; i++) most = crumb_sim_split(&sim, &small, &b);
        assert_true(most < 1.5 * away + 1);
        sim.cores[1].slower_until_us = sim.clock_us;
        mean_of_ops(&sim, &small, &b, 20);
        assert_float_equal((double)b.ratio[1], 1.0 / n, 0.2 / n);
    }
}

/* Behind a memory that two of the cores can exhaust, parts still become such that all end together, and never slower
 * than equal parts. */
static void shared_bandwidth_does_no_harm(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        crumb_sim sim;
        crumb_balance b;
        crumb_sim_init(&sim, 4, 3, 4, 1, seed);
        sim.bandwidth = 8;
        sim.noise = 0.02;
        crumb_balance_init(&b, 8);
        const double equal = mean_of_ops(&sim, &gemm, NULL, 300);
        mean_of_ops(&sim, &gemm, &b, 20);
        const double split = mean_of_ops(&sim, &gemm, &b, 300);
        assert_true(split < 1.02 * equal);
        assert_true(split < 1.10 * crumb_sim_ideal(&sim, &gemm));
    }
}

/* Chunks leave nothing out, are alike within a batch, whole strips where they are large, and ever smaller; the first
 * batch is two thirds, or what share says. */
static void chunks_come_in_batches(void **state) {
    (void)state;
    enum { MOST = 512, STEP = 4 };
    uint32_t bounds[MOST + 1];
    for (int n_threads = 1; n_threads <= 9; n_threads++)
        for (uint32_t n_units = 1; n_units < 700; n_units += 13)
            for (uint32_t share = 0; share <= 3; share++) {
                const uint32_t n = crumb_chunks_cut(n_units, 8192, STEP, n_threads, share, MOST, bounds);
                assert_int_equal(bounds[0], 0);
                assert_int_equal(bounds[n], n_units);
                assert_int_equal(crumb_chunks_count(n_units, 8192, STEP, n_threads, share), n);
                assert_int_equal(crumb_chunk_begin(n + 1, n_units, 8192, STEP, n_threads, share), n_units);
                for (uint32_t i = 0; i < n; i++) {
                    const uint32_t size = bounds[i + 1] - bounds[i];
                    assert_true(size > 0);
                    if (i + 1 == n) break; /* the last takes what is left */
                    assert_true(size <= STEP || size % STEP == 0);
                    if (i % (uint32_t)n_threads) assert_int_equal(size, bounds[i] - bounds[i - 1]);
                    if (i > 0) assert_true(size <= bounds[i] - bounds[i - 1]);
                }
                if (n_threads == 1) assert_int_equal(n, 1);
            }
    crumb_chunks_cut(600, 8192, STEP, 2, 0, MOST, bounds);
    assert_int_equal(bounds[2], 400);
    assert_int_equal(crumb_chunks_cut(600, 8192, STEP, 2, 1, MOST, bounds), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_are_whole_and_end_early),
        cmocka_unit_test(one_op_follows_the_formula),
        cmocka_unit_test(published_gains),
        cmocka_unit_test(unequal_cores_gain_a_third),
        cmocka_unit_test(comes_near_the_ideal),
        cmocka_unit_test(equal_cores_lose_nothing),
        cmocka_unit_test(recovers_from_a_neighbour),
        cmocka_unit_test(follows_throttling),
        cmocka_unit_test(machines_of_profiles_are_balanced),
        cmocka_unit_test(cores_are_those_of_the_profile),
        cmocka_unit_test(one_interrupt_moves_nothing),
        cmocka_unit_test(noise_changes_little),
        cmocka_unit_test(idle_cores_are_measured_again),
        cmocka_unit_test(no_ratio_falls_below_the_floor),
        cmocka_unit_test(a_core_that_was_away_comes_back),
        cmocka_unit_test(shared_bandwidth_does_no_harm),
        cmocka_unit_test(chunks_come_in_batches),
    };
    return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
