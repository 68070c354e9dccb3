/* What an owner's report says of a device: the facts, what they were made of, and the kernels' text. */
#include "cl/suite.h"

#include "cl/lines.h"
#include "cl/tuned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_facts(const crumb_cl_lines *w, const crumb_cl_facts *f) {
#define PUT_TEXT(member)   crumb_cl_put_text(w, #member, f->member);
#define PUT_NUMBER(member) crumb_cl_put_number(w, #member, f->member);
    CRUMB_CL_TEXTS(PUT_TEXT)
    CRUMB_CL_NUMBERS(PUT_NUMBER)
#undef PUT_TEXT
#undef PUT_NUMBER
}

void crumb_cl_suite_describe(const crumb_kernel_machine *m, void (*line)(void *user, const char *text), void *user) {
    const crumb_cl_lines w = {line, user};
    char device[96], target[32], source[20];
    if (!m) return;
    crumb_cl_tuned_identify(m->d, device, target, source);
    put_facts(&w, &m->d->facts);
    crumb_cl_driver_describe(m->d, line, user);
    crumb_cl_put_text(&w, "rung_of_plans", target);
    crumb_cl_put_text(&w, "highest_rung", crumb_cl_rung_name(m->most.rung));
    crumb_cl_put_number(&w, "matrix_sub_group", m->most.sub_group);
    crumb_cl_put_number(&w, "uses_usm", m->d->has_usm);
    crumb_cl_put_text(&w, "kernels_text", source);
}
