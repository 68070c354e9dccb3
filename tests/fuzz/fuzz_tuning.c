/* Import of tuning records: a JSON object of anyone's, whose names of kernels and knobs end up in plans. */
#include "cpu/knobs.h"
#include "host/kernel/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    abort();
}

static bool ends(const char *text, size_t size) {
    return memchr(text, 0, size) != NULL;
}

/* Whatever the text says, a knob has one of its listed values. */
static void check_knobs(crumb_cpu_op op, const char *text) {
    char printed[128], again[128];
    crumb_cpu_knobs knobs = crumb_cpu_knobs_parse(op, text);
    crumb_cpu_knobs_print(op, &knobs, printed, sizeof printed);
    knobs = crumb_cpu_knobs_parse(op, printed);
    crumb_cpu_knobs_print(op, &knobs, again, sizeof again);
    require(strcmp(printed, again) == 0, "knobs read as they print");
    bool known = false;
    for (size_t i = 0; i < crumb_cpu_knobs_count(op) && !known; i++) {
        const crumb_cpu_knobs candidate = crumb_cpu_knobs_candidate(op, i);
        known = memcmp(&candidate, &knobs, sizeof knobs) == 0;
    }
    require(known, "knobs are a candidate of the tuner");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    crumb_tuning_record r;
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = 0;
    if (crumb_tuning_parse(text, &r, NULL) == CRUMB_OK) {
        require(ends(r.key.device, sizeof r.key.device) && ends(r.key.target, sizeof r.key.target) &&
                    ends(r.key.source, sizeof r.key.source) && ends(r.key.weights, sizeof r.key.weights) &&
                    ends(r.kernel, sizeof r.kernel) && ends(r.knobs, sizeof r.knobs),
                "texts end");
        require(r.key.m && r.key.k && r.key.n && r.ratio > 0 && r.ns > 0, "sizes and times are above 0");
        check_knobs(CRUMB_CPU_GEMV, r.knobs);
        check_knobs(CRUMB_CPU_GEMM, r.knobs);
    }
    free(text);
    return 0;
}
