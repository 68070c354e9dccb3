#include "host/engine/verify_compare.h"

#include <math.h>

typedef struct sums {
    double error, power, added;
} sums;

static sums sums_of_column(const float *got, const float *expected, const float *given, uint32_t n_rows, uint32_t width,
                           uint32_t column) {
    sums s = {0, 0, 0};
    for (size_t row = 0; row < n_rows; row++) {
        const size_t at = row * width + column;
        const double e = (double)expected[at], d = (double)got[at] - e, added = given ? e - (double)given[at] : e;
        s.error += d * d;
        s.power += e * e;
        s.added += added * added;
    }
    return s;
}

crumb_verify_error crumb_verify_compare(const float *got, const float *expected, const float *given, uint32_t n_rows,
                                        uint32_t width) {
    crumb_verify_error e = {INFINITY, INFINITY, 0};
    sums all = {0, 0, 0};
    for (uint32_t i = 0; i < width; i++) {
        const sums s = sums_of_column(got, expected, given, n_rows, width, i);
        all.error += s.error;
        all.power += s.power;
        all.added += s.added;
    }
    if (!isfinite(all.error) || !(all.power > 0)) return e;
    e.whole = all.error / all.power;
    e.output = 0;
    for (uint32_t i = 0; i < width; i++) {
        const sums s = sums_of_column(got, expected, given, n_rows, width, i);
        const double output = s.error > 0 ? s.error / (s.added + all.added / width) : 0;
        if (output > e.output) e.output = output, e.column = i;
    }
    return e;
}
