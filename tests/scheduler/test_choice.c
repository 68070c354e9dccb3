/* Which way an op is divided, on the simulator's virtual clock: the choice ends at the better of both ways, on steady
 * cores and on restless ones, soon, and costs next to nothing where it does not matter. */
#include "scheduler/simulator.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { OPS_PER_ROUND = 16, OPS = 4000, SEEDS = 4 };

static const crumb_sim_op small = {.n_units = 128, .unit_work = 1, .unit_bytes = 16384};

/* What all ops of a run took, in microseconds. */
typedef struct ways {
    double equal, split, chunks, chosen;
} ways;

static ways compare_ways(const crumb_sim *start, crumb_choice *choice) {
    crumb_sim a = *start, b = *start, c = *start, d = *start;
    crumb_balance split, chosen;
    crumb_balance_init(&split, start->n_cores);
    crumb_balance_init(&chosen, start->n_cores);
    crumb_choice_init(choice, CRUMB_WAY_MEASURED);
    ways w = {0};
    for (int i = 0; i < OPS; i++) {
        if (i % OPS_PER_ROUND == 0) crumb_choice_round(choice);
        w.equal += crumb_sim_equal(&a, &small);
        w.split += crumb_sim_split(&b, &small, &split);
        w.chunks += crumb_sim_chunks(&c, &small);
        w.chosen += crumb_sim_chosen(&d, &small, &chosen, choice);
    }
    return w;
}

/* Runs of several seeds on a machine where one way is the better one by some percent: each run ends with it, and takes
 * at most 3% more than it from the first op on. */
static void ends_with(const char *what, const crumb_sim *machine, crumb_way better) {
    ways sum = {0};
    double worst = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        crumb_sim sim = *machine;
        crumb_choice choice;
        sim.seed = seed;
        const ways w = compare_ways(&sim, &choice);
        const double best = better == CRUMB_WAY_SPLIT ? w.split : w.chunks;
        assert_true(best < (better == CRUMB_WAY_SPLIT ? w.chunks : w.split));
        assert_int_equal(choice.way, better);
        assert_true(w.chosen < 1.03 * best);
        worst = fmax(worst, w.chosen / best);
        sum.equal += w.equal;
        sum.split += w.split;
        sum.chunks += w.chunks;
        sum.chosen += w.chosen;
    }
    print_message("  %s: split %.3f, chunks %.3f, chosen %.3f of equal parts; at worst %.3f of the better way\n", what,
                  sum.split / sum.equal, sum.chunks / sum.equal, sum.chosen / sum.equal, worst);
}

/* Now and then a core is away for some ops' time: interrupts, other programs' short work. */
static void add_bursts(crumb_sim *sim) {
    for (int i = 0; i < sim->n_cores; i++) {
        sim->cores[i].slower_from_us = 0;
        sim->cores[i].left_over = 0.95;
        sim->cores[i].slice_us = 2500 + 300 * i;
    }
}

/* Steady cores and chunks that cost something: the split wins, and is found. */
static void steady_cores_split(void **state) {
    (void)state;
    crumb_sim sim;
    crumb_sim_init(&sim, 4, 3, 8, 1, 9);
    sim.noise = 0.02;
    sim.chunk_us = 0.3;
    ends_with("4P+8E, small ops", &sim, CRUMB_WAY_SPLIT);
}

/* One of two cores has a third of the speed, in little noise, in much, and with bursts. */
static void a_slow_core_is_split_for(void **state) {
    (void)state;
    crumb_sim sim;
    crumb_sim_init(&sim, 1, 3, 1, 1, 0);
    sim.op_us = 1;
    sim.chunk_us = 0.3;
    sim.noise = 0.02;
    ends_with("3:1, noise 2%", &sim, CRUMB_WAY_SPLIT);
    sim.noise = 0.1;
    ends_with("3:1, noise 10%", &sim, CRUMB_WAY_SPLIT);
    sim.noise = 0.05;
    add_bursts(&sim);
    ends_with("3:1, noise 5% and bursts", &sim, CRUMB_WAY_SPLIT);
}

/* A neighbour who has a whole core for 40 of 120 microseconds, some ops' time: nobody can know when, and chunks win. */
static void restless_cores_take_chunks(void **state) {
    (void)state;
    crumb_sim sim;
    crumb_sim_init(&sim, 4, 1, 0, 0, 0);
    sim.noise = 0.02;
    sim.chunk_us = 0.05;
    sim.cores[3].slower_from_us = 0;
    sim.cores[3].left_over = 2.0 / 3;
    sim.cores[3].slice_us = 80;
    ends_with("a core that comes and goes", &sim, CRUMB_WAY_CHUNKS);
}

/* No core keeps its pace from one op to the next. */
static void a_noisy_machine_takes_chunks(void **state) {
    (void)state;
    crumb_sim sim;
    crumb_sim_init(&sim, 4, 1, 0, 0, 0);
    sim.noise = 0.15;
    sim.op_us = 1;
    sim.chunk_us = 0.3;
    ends_with("noise 15%", &sim, CRUMB_WAY_CHUNKS);
}

/* Equal cores: nothing can be gained, and trials of the worse way lose less than 2% of equal parts' time. */
static void equal_cores_lose_nothing(void **state) {
    (void)state;
    const double chunk_us[] = {0, 0.3, 2}, noises[] = {0, 0.02, 0.05};
    double worst = 0;
    for (int n = 2; n <= 16; n *= 2)
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < 3; i++) {
                crumb_sim sim;
                crumb_choice choice;
                crumb_sim_init(&sim, n, 1, 0, 0, (uint64_t)n);
                sim.op_us = 1;
                sim.chunk_us = chunk_us[c];
                sim.noise = noises[i];
                const ways w = compare_ways(&sim, &choice);
                worst = fmax(worst, w.chosen / w.equal);
                assert_true(w.chosen < 1.02 * w.equal);
            }
    print_message("  equal cores: at worst %.3f of equal parts\n", worst);
}

/* Rounds until the choice has changed to a way. */
static int rounds_until(crumb_sim *sim, crumb_balance *balance, crumb_choice *choice, crumb_way way) {
    int n = 0;
    for (; choice->way != way && n < 2000; n++) {
        crumb_choice_round(choice);
        for (int i = 0; i < OPS_PER_ROUND; i++) crumb_sim_chosen(sim, &small, balance, choice);
    }
    return n;
}

/* Such a neighbour comes when the split has long been taken, and goes again: each time the next trial finds
 * it. */
static void follows_a_neighbour(void **state) {
    (void)state;
    enum { LONGEST_PERIOD = 512 };
    int most = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        crumb_sim sim;
        crumb_balance balance;
        crumb_choice choice;
        crumb_sim_init(&sim, 4, 1, 0, 0, seed);
        crumb_balance_init(&balance, 4);
        crumb_choice_init(&choice, CRUMB_WAY_MEASURED);
        sim.noise = 0.02;
        sim.chunk_us = 0.3;
        sim.cores[3].left_over = 2.0 / 3;
        sim.cores[3].slice_us = 80;
        for (int i = 0; i < 700; i++) {
            crumb_choice_round(&choice);
            for (int op = 0; op < OPS_PER_ROUND; op++) crumb_sim_chosen(&sim, &small, &balance, &choice);
        }
        assert_int_equal(choice.way, CRUMB_WAY_SPLIT);
        sim.cores[3].slower_from_us = sim.clock_us;
        const int came = rounds_until(&sim, &balance, &choice, CRUMB_WAY_CHUNKS);
        sim.cores[3].slower_until_us = sim.clock_us;
        const int went = rounds_until(&sim, &balance, &choice, CRUMB_WAY_SPLIT);
        assert_in_range(came, 1, LONGEST_PERIOD + 40);
        assert_in_range(went, 1, LONGEST_PERIOD + 40);
        most = came > most ? came : most;
        most = went > most ? went : most;
    }
    print_message("  a neighbour comes and goes: found within %d rounds\n", most);
}

/* A trial of ops that take what `chunks` and `split` say, of which a few of the split are held up. */
static crumb_way decide(double chunks, double split, uint32_t n_held_up) {
    crumb_choice c;
    crumb_choice_init(&c, CRUMB_WAY_MEASURED);
    while (!c.trying) crumb_choice_round(&c);
    uint32_t n = 0;
    for (; c.trying && n < 10000; n++) {
        const crumb_way way = crumb_choice_next(&c);
        const bool held_up = way == CRUMB_WAY_SPLIT && n > 16 && n_held_up > 0;
        n_held_up -= held_up;
        crumb_choice_measured(&c, way, held_up ? 1000 : way == CRUMB_WAY_SPLIT ? split : chunks);
    }
    assert_false(c.trying);
    return c.way;
}

static void an_interrupt_decides_nothing(void **state) {
    (void)state;
    for (uint32_t n = 0; n <= 4; n++) assert_int_equal(decide(100, 92, n), CRUMB_WAY_SPLIT);
    assert_int_equal(decide(99.5, 100, 0), CRUMB_WAY_SPLIT); /* less than is worth a change */
    assert_int_equal(decide(100, 108, 0), CRUMB_WAY_CHUNKS);
}

static void a_way_can_be_forced(void **state) {
    (void)state;
    crumb_choice c;
    crumb_way_wanted wanted;
    assert_true(crumb_way_wanted_parse("split", &wanted));
    crumb_choice_init(&c, wanted);
    for (int i = 0; i < 1000; i++) {
        crumb_choice_round(&c);
        assert_int_equal(crumb_choice_next(&c), CRUMB_WAY_SPLIT);
    }
    assert_true(crumb_way_wanted_parse("chunks", &wanted));
    assert_int_equal(wanted, CRUMB_WAY_ONLY_CHUNKS);
    assert_true(crumb_way_wanted_parse(NULL, &wanted));
    assert_int_equal(wanted, CRUMB_WAY_MEASURED);
    assert_false(crumb_way_wanted_parse("halves", &wanted));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steady_cores_split),           cmocka_unit_test(a_slow_core_is_split_for),
        cmocka_unit_test(restless_cores_take_chunks),   cmocka_unit_test(a_noisy_machine_takes_chunks),
        cmocka_unit_test(equal_cores_lose_nothing),     cmocka_unit_test(follows_a_neighbour),
        cmocka_unit_test(an_interrupt_decides_nothing), cmocka_unit_test(a_way_can_be_forced),
    };
    return cmocka_run_group_tests_name("choice", tests, NULL, NULL);
}
