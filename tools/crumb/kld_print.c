/* What llama-perplexity --kl-divergence prints, in its form. */
#include "tools/crumb/json_util.h"
#include "tools/crumb/kld.h"

#include <math.h>
#include <stdlib.h>

typedef struct estimate {
    double value, uncertainty;
} estimate;

/* Mean of n values, and its standard error. */
static estimate mean_of(double sum, double sum2, uint64_t n) {
    const double mean = sum / (double)n, variance = sum2 / (double)n - mean * mean;
    return (estimate){mean, variance > 0 && n > 1 ? sqrt(variance / (double)(n - 1)) : 0};
}

/* Covariance of two means. */
static double covariance(double a, double b, double ab, uint64_t n) {
    return n < 10 ? 0 : (ab / (double)n - a / (double)n * (b / (double)n)) / (double)(n - 1);
}

typedef struct statistics {
    estimate log_ppl, log_base, log_ratio; /* of perplexities */
    double log_covariance;
    estimate ppl, base, ratio, difference;
    estimate kld, p, p_rms, same_top;
} statistics;

static double root(double x) {
    return x > 0 ? sqrt(x) : 0;
}

static statistics compute(const kld_sums *s) {
    statistics r = {.log_ppl = mean_of(s->nll, s->nll2, s->n), .log_base = mean_of(s->base, s->base2, s->n)};
    r.log_covariance = covariance(s->nll, s->base, s->nll_base, s->n);
    const double a = r.log_ppl.uncertainty, b = r.log_base.uncertainty;
    r.log_ratio = (estimate){r.log_ppl.value - r.log_base.value, root(a * a + b * b - 2 * r.log_covariance)};
    r.ppl = (estimate){exp(r.log_ppl.value), exp(r.log_ppl.value) * a};
    r.base = (estimate){exp(r.log_base.value), exp(r.log_base.value) * b};
    r.ratio = (estimate){exp(r.log_ratio.value), exp(r.log_ratio.value) * r.log_ratio.uncertainty};
    const double both = 2 * r.ppl.value * r.base.value * r.log_covariance;
    r.difference = (estimate){r.ppl.value - r.base.value, root(r.ppl.uncertainty * r.ppl.uncertainty +
                                                               r.base.uncertainty * r.base.uncertainty - both)};
    r.kld = mean_of(s->kld, s->kld2, s->n);
    r.p = mean_of(s->p, s->p2, s->n);
    const estimate square = mean_of(s->p2, s->p4, s->n);
    const double rms = sqrt(square.value);
    r.p_rms = (estimate){rms, rms > 0 ? 0.5 / rms * square.uncertainty : 0};
    const double top = (double)s->n_same_top / (double)s->n;
    r.same_top = (estimate){top, s->n > 1 ? sqrt(top * (1 - top) / (double)(s->n - 1)) : 0};
    return r;
}

void kld_print_heading(void) {
    cli_print("\nchunk             PPL               ln(PPL(Q)/PPL(base))          KL Divergence              "
              "\u0394p RMS            Same top p\n");
}

void kld_print_chunk(const kld_sums *s, size_t n_chunks) {
    const statistics r = compute(s);
    cli_print(
        "%4zu    %10.4f \u00b1 %10.4f    %10.5f \u00b1 %10.5f    %10.5f \u00b1 %10.5f    %6.3f \u00b1 %6.3f %%    "
        "%6.3f \u00b1 %6.3f %%\n",
        n_chunks, r.ppl.value, r.ppl.uncertainty, r.log_ratio.value, r.log_ratio.uncertainty, r.kld.value,
        r.kld.uncertainty, 100 * r.p_rms.value, 100 * r.p_rms.uncertainty, 100 * r.same_top.value,
        100 * r.same_top.uncertainty);
}

static int compare_floats(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Between neighbours in proportion. */
static double percentile(const float *sorted, uint64_t n, double fraction) {
    const double at = fraction * (double)(n - 1), below = floor(at);
    const uint64_t i = (uint64_t)below, next = i + 1 < n ? i + 1 : i;
    return (1 - (at - below)) * (double)sorted[i] + (at - below) * (double)sorted[next];
}

static void print_ppl(const statistics *r) {
    const double spread = r->log_ppl.uncertainty * r->log_base.uncertainty;
    cli_print("\n====== Perplexity statistics ======\n");
    cli_print("Mean PPL(Q)                   : %10.6f \u00b1 %10.6f\n", r->ppl.value, r->ppl.uncertainty);
    cli_print("Mean PPL(base)                : %10.6f \u00b1 %10.6f\n", r->base.value, r->base.uncertainty);
    cli_print("Cor(ln(PPL(Q)), ln(PPL(base))): %6.2f%%\n", spread > 0 ? 100 * r->log_covariance / spread : 0);
    cli_print("Mean ln(PPL(Q)/PPL(base))     : %10.6f \u00b1 %10.6f\n", r->log_ratio.value, r->log_ratio.uncertainty);
    cli_print("Mean PPL(Q)/PPL(base)         : %10.6f \u00b1 %10.6f\n", r->ratio.value, r->ratio.uncertainty);
    cli_print("Mean PPL(Q)-PPL(base)         : %10.6f \u00b1 %10.6f\n", r->difference.value, r->difference.uncertainty);
}

static const struct {
    const char *name;
    double fraction;
    bool of_p; /* for differences of probabilities alone */
} points[] = {{"Maximum", 1, false},   {"99.9%  ", 0.999, false}, {"99.0%  ", 0.99, false}, {"95.0%  ", 0.95, false},
              {"90.0%  ", 0.9, false}, {"75.0%  ", 0.75, true},   {"Median ", 0.5, false},  {"25.0%  ", 0.25, true},
              {"10.0%  ", 0.1, false}, {" 5.0%  ", 0.05, false},  {" 1.0%  ", 0.01, false}, {" 0.1%  ", 0.001, false},
              {"Minimum", 0, false}};

static void sort(kld_sums *s) {
    qsort(s->klds, s->n, sizeof *s->klds, compare_floats);
    qsort(s->ps, s->n, sizeof *s->ps, compare_floats);
}

void kld_print_result(kld_sums *s) {
    const statistics r = compute(s);
    sort(s);
    print_ppl(&r);
    cli_print("\n====== KL divergence statistics ======\nMean    KLD: %10.6f \u00b1 %10.6f\n", r.kld.value,
              r.kld.uncertainty);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        if (!points[i].of_p)
            cli_print("%s KLD: %10.6f\n", points[i].name, percentile(s->klds, s->n, points[i].fraction));
    cli_print("\n====== Token probability statistics ======\nMean    \u0394p: %6.3f \u00b1 %5.3f %%\n", 100 * r.p.value,
              100 * r.p.uncertainty);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++)
        cli_print("%s \u0394p: %6.3f%%\n", points[i].name, 100 * percentile(s->ps, s->n, points[i].fraction));
    cli_print("RMS \u0394p    : %6.3f \u00b1 %5.3f %%\n", 100 * r.p_rms.value, 100 * r.p_rms.uncertainty);
    cli_print("Same top p: %6.3f \u00b1 %5.3f %%\n", 100 * r.same_top.value, 100 * r.same_top.uncertainty);
}

crumb_status kld_print_json(kld_sums *s, const char *model, const char *base, crumb_error *err) {
    const statistics r = compute(s);
    cJSON *o = json_document();
    sort(s);
    json_add_text(o, "model_filename", model);
    json_add_text(o, "base_filename", base);
    json_add_u64(o, "n_scored", s->n);
    json_add_real(o, "perplexity", r.ppl.value);
    json_add_real(o, "uncertainty", r.ppl.uncertainty);
    json_add_real(o, "perplexity_base", r.base.value);
    json_add_real(o, "kl_divergence", r.kld.value);
    json_add_real(o, "kl_divergence_uncertainty", r.kld.uncertainty);
    json_add_real(o, "kl_divergence_median", percentile(s->klds, s->n, 0.5));
    json_add_real(o, "kl_divergence_99", percentile(s->klds, s->n, 0.99));
    json_add_real(o, "p_difference_rms", r.p_rms.value);
    json_add_real(o, "same_top", r.same_top.value);
    return json_print(o, false, "\n", err);
}
