/* scheduler/history: what sessions measure corrects a profile, slowly, within bounds, and never because of one. */
#include "scheduler/history.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const crumb_profile machine = {.n_devices = 2, .device = {{.name = "cpu"}, {.name = "gpu0"}}};

static double factor(const crumb_history *h, size_t device, crumb_phase phase) {
    crumb_correction c;
    crumb_history_correct(h, &c);
    assert_true(c.factor[device][phase][CRUMB_SPAN_LAYERS] == c.factor[device][phase][CRUMB_SPAN_HEAD]);
    return crumb_correction_factor(&c, device, phase, CRUMB_SPAN_LAYERS);
}

static void nothing_is_corrected_at_first(void **state) {
    (void)state;
    const crumb_history h = {0};
    assert_true(factor(&h, 0, CRUMB_PHASE_DECODE) == 1);
}

static void what_several_sessions_find_is_believed(void **state) {
    (void)state;
    crumb_history h = {0};
    crumb_history_note(&h, 1, CRUMB_PHASE_DECODE, 1.5);
    assert_true(factor(&h, 1, CRUMB_PHASE_DECODE) == 1);
    crumb_history_note(&h, 1, CRUMB_PHASE_DECODE, 1.5); /* two of three */
    assert_true(fabs(factor(&h, 1, CRUMB_PHASE_DECODE) - (0.3 + 0.7 * 1.5)) < 1e-12);
    for (int i = 0; i < 8; i++) crumb_history_note(&h, 1, CRUMB_PHASE_DECODE, 1.5);
    assert_true(fabs(factor(&h, 1, CRUMB_PHASE_DECODE) - 1.5) < 1e-4);
    assert_true(factor(&h, 1, CRUMB_PHASE_PREFILL) == 1); /* nobody has measured the others */
    assert_true(factor(&h, 0, CRUMB_PHASE_DECODE) == 1);
}

/* The part of split layers has numbers of its own. */
static void together_is_apart(void **state) {
    (void)state;
    crumb_history h = {0};
    crumb_correction c;
    for (int i = 0; i < 8; i++) crumb_history_note(&h, 1, CRUMB_HISTORY_TOGETHER, 2);
    crumb_history_correct(&h, &c);
    assert_true(fabs(c.together[1] - 2) < 1e-3 && c.together[0] == 0);
    assert_true(factor(&h, 1, CRUMB_PHASE_DECODE) == 1 && factor(&h, 1, CRUMB_PHASE_PREFILL) == 1);
}

static void one_odd_session_changes_nothing(void **state) {
    (void)state;
    static const double odd[] = {0.001, 0.5, 3, 1000, INFINITY, NAN, -1, 0};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (uint32_t when = 0; when < 5; when++) {
            crumb_history h = {0};
            for (uint32_t n = 0; n < 6; n++)
                crumb_history_note(&h, 0, CRUMB_PHASE_DECODE, n == when ? odd[i] : 1 + 0.01 * (n % 2));
            assert_true(factor(&h, 0, CRUMB_PHASE_DECODE) >= 1 && factor(&h, 0, CRUMB_PHASE_DECODE) <= 1.01);
        }
}

static void factors_stay_within_bounds(void **state) {
    (void)state;
    crumb_history h = {0};
    for (int i = 0; i < 100; i++) {
        crumb_history_note(&h, 0, CRUMB_PHASE_DECODE, 1e9);
        crumb_history_note(&h, 0, CRUMB_PHASE_PREFILL, 1e-9);
    }
    assert_true(factor(&h, 0, CRUMB_PHASE_DECODE) <= 4);
    assert_true(factor(&h, 0, CRUMB_PHASE_PREFILL) >= 0.25);
}

static void the_text_says_all_of_it(void **state) {
    (void)state;
    crumb_history h = {0}, again;
    crumb_error err = {0};
    for (int i = 0; i < 7; i++) crumb_history_note(&h, 1, CRUMB_PHASE_PREFILL, 1 + 0.1 * i);
    crumb_history_note(&h, 0, CRUMB_PHASE_DECODE, 0.7);
    crumb_history_note(&h, 0, CRUMB_HISTORY_TOGETHER, 1.3);
    char *text = crumb_history_print(&h, &machine, 42);
    assert_non_null(text);
    assert_int_equal(crumb_history_parse(text, strlen(text), &machine, 42, &again, &err), CRUMB_OK);
    for (size_t d = 0; d < 2; d++)
        for (int kind = 0; kind < CRUMB_HISTORY_KINDS; kind++) {
            const crumb_history_entry *a = &h.entry[d][kind], *b = &again.entry[d][kind];
            assert_int_equal(a->n, b->n);
            assert_true(fabs(a->factor - b->factor) < 1e-12); /* the text has 15 digits */
            for (int i = 0; i < CRUMB_HISTORY_SESSIONS; i++) assert_true(fabs(a->last[i] - b->last[i]) < 1e-12);
        }
    assert_int_equal(crumb_history_parse(text, strlen(text), &machine, 43, &again, &err),
                     CRUMB_OK); /* another profile */
    assert_true(factor(&again, 1, CRUMB_PHASE_PREFILL) == 1);
    for (size_t n = 0; n < strlen(text); n++) { /* cut off anywhere: an error, and nothing is believed */
        assert_int_equal(crumb_history_parse(text, n, &machine, 42, &again, &err), CRUMB_ERR_FORMAT);
        assert_true(factor(&again, 1, CRUMB_PHASE_PREFILL) == 1);
    }
    free(text);
}

static void texts_that_are_wrong_are_refused(void **state) {
    (void)state;
    static const char *const entries[] = {"{}",
                                          "[]",
                                          "7",
                                          "{\"factor\":9,\"sessions\":1,\"last\":[1]}",
                                          "{\"factor\":1,\"sessions\":0,\"last\":[]}",
                                          "{\"factor\":1,\"sessions\":1e99,\"last\":[1,1,1]}",
                                          "{\"factor\":1,\"sessions\":2,\"last\":[1]}",
                                          "{\"factor\":1,\"sessions\":1,\"last\":[1e300]}",
                                          "{\"factor\":1,\"sessions\":1,\"last\":[\"1\"]}",
                                          "{\"factor\":\"1\",\"sessions\":1,\"last\":[1]}",
                                          "{\"factor\":1,\"sessions\":1,\"last\":[1,1]}"};
    char text[256];
    crumb_history h;
    crumb_error err = {0};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        snprintf(text, sizeof text,
                 "{\"schema_version\":1,\"profile\":\"000000000000002a\",\"devices\":{\"cpu\":{\"decode\":%s}}}",
                 entries[i]);
        assert_int_equal(crumb_history_parse(text, strlen(text), &machine, 42, &h, &err), CRUMB_ERR_FORMAT);
    }
    static const char *const documents[] = {"", "{}", "[]", "{\"schema_version\":2,\"profile\":\"000000000000002a\"}",
                                            "{\"schema_version\":1,\"profile\":7}"};
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        assert_int_equal(crumb_history_parse(documents[i], strlen(documents[i]), &machine, 42, &h, &err),
                         CRUMB_ERR_FORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_corrected_at_first),
        cmocka_unit_test(what_several_sessions_find_is_believed),
        cmocka_unit_test(one_odd_session_changes_nothing),
        cmocka_unit_test(factors_stay_within_bounds),
        cmocka_unit_test(together_is_apart),
        cmocka_unit_test(the_text_says_all_of_it),
        cmocka_unit_test(texts_that_are_wrong_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
