/* The suite's rows, as a Markdown table or in the other formats of crumb bench. */
#include "tools/crumb/suite.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- markdown ---------------------------------------------------------------------------------------------------- */

static const char *number(double value, const char *unit, char out[48]) {
    snprintf(out, 48, "%.*f %s", value < 10 ? 3 : value < 100 ? 2 : 0, value, unit);
    return out;
}

static const char *ratio_text(double ratio, bool factor, char out[32]) {
    snprintf(out, 32, factor ? "%.2f x" : "%.1f%%", factor ? ratio : 100 * ratio);
    return out;
}

static void append(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append(char *out, size_t size, const char *format, ...) {
    size_t used = strlen(out);
    va_list args;
    if (used && used + 2 < size) used += (size_t)snprintf(out + used, size - used, ", ");
    va_start(args, format);
    vsnprintf(out + used, size - used, format, args);
    va_end(args);
}

/* What the ratio stands on: bytes counted, the head's format, what the probes said, whether its cores ran other threads
 * and what it is in the rounds without, if they are not too few to say anything; the note. */
enum { BASIS_BYTES = 512, FEWEST_ALONE = 5 };
static const char *basis(const suite_row *r, char out[BASIS_BYTES]) {
    char alone[32];
    out[0] = 0;
    if (r->n_bytes) append(out, BASIS_BYTES, "%.1f MB", (double)r->n_bytes * 1e-6);
    if (r->head) append(out, BASIS_BYTES, "head %s", r->head);
    if (r->read_gb_s > 0) append(out, BASIS_BYTES, "read %.1f GB/s", r->read_gb_s);
    if (r->peak_gops > 0) append(out, BASIS_BYTES, "int8 peak %.0f GOPS", r->peak_gops);
    if (r->n_alone < r->n_rounds)
        append(out, BASIS_BYTES, "another thread on its cores in %zu of %zu rounds", r->n_rounds - r->n_alone,
               r->n_rounds);
    if (r->n_alone < r->n_rounds && r->n_alone >= FEWEST_ALONE)
        append(out, BASIS_BYTES, "%s without", ratio_text(r->alone_ratio, r->factor, alone));
    if (r->note[0]) append(out, BASIS_BYTES, "%s", r->note);
    return out;
}

static void print_markdown(const suite_row *r) {
    char measured[48] = "-", baseline[160] = "-", ratio[32] = "-", wanted[32] = "-", value[48], text[BASIS_BYTES];
    if (!r->skipped) {
        number(r->measured, r->unit, measured);
        if (r->baseline > 0)
            snprintf(baseline, sizeof baseline, "%s %s", number(r->baseline, r->unit, value), r->baseline_name);
        ratio_text(r->ratio, r->factor, ratio);
    }
    if (r->wanted > 0) ratio_text(r->wanted, r->factor, wanted);
    cli_print("| %-7s | %-64s | %16s | %-36s | %7s | %7s | %-4s | %s |\n", r->section, r->what, measured, baseline,
              ratio, wanted,
              r->skipped || r->wanted <= 0 ? "-"
              : suite_met(r)               ? "yes"
                                           : "no",
              basis(r, text));
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static void add_real_or_null(cJSON *o, const char *key, double value) {
    cJSON_AddItemToObject(o, key, value > 0 ? json_real(value, 6) : cJSON_CreateNull());
}

static cJSON *row_object(const suite_state *s, const suite_row *r) {
    cJSON *o = cJSON_CreateObject();
    if (!o) return NULL;
    const bool judged = !r->skipped && r->wanted > 0;
    json_add_text(o, "section", r->section);
    json_add_text(o, "what", r->what);
    cJSON_AddItemToObject(o, "measured", r->skipped ? cJSON_CreateNull() : json_real(r->measured, 6));
    json_add_text(o, "unit", r->unit);
    json_add_text(o, "baseline_name", r->skipped ? NULL : r->baseline_name);
    add_real_or_null(o, "baseline", r->baseline);
    cJSON_AddItemToObject(o, "ratio", r->skipped ? cJSON_CreateNull() : json_real(r->ratio, 6));
    add_real_or_null(o, "wanted", r->wanted);
    cJSON_AddItemToObject(o, "met", judged ? cJSON_CreateBool(suite_met(r)) : cJSON_CreateNull());
    cJSON_AddItemToObject(o, "bytes", r->n_bytes ? json_u64(r->n_bytes) : cJSON_CreateNull());
    json_add_text(o, "head_type", r->head);
    add_real_or_null(o, "read_gb_s", r->read_gb_s);
    add_real_or_null(o, "peak_gops", r->peak_gops);
    add_real_or_null(o, "alone_ratio", r->n_alone ? r->alone_ratio : 0);
    cJSON_AddItemToObject(o, "alone_rounds", r->n_rounds ? json_u64(r->n_alone) : cJSON_CreateNull());
    json_add_text(o, "tuning", r->tuning);
    json_add_text(o, "note", r->note);
    cJSON_AddItemToObject(o, "n_threads", json_i64(s->n_threads));
    json_add_u64(o, "rounds", s->rounds);
    json_add_text(o, "cpu_info", cli_cpu_name());
    return o;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

void suite_print_begin(const suite_state *s) {
    if (s->format != BENCH_MD) {
        bench_open_list(s->format);
        return;
    }
    cli_print("%s, %d threads, medians of %zu rounds\n", cli_cpu_name(), s->n_threads, s->rounds);
    cli_print("Single kernels run as by default; whole models (layer, model, paper, depth) are %s.\n\n", s->tuning);
    cli_print("| %-7s | %-64s | %16s | %-36s | %7s | %7s | %-4s | %s |\n", "section", "what", "measured", "of", "ratio",
              "wanted", "met", "basis");
    cli_print("| ------- | ---------------------------------------------------------------- | ---------------: | "
              "------------------------------------ | ------: | ------: | ---- | ----- |\n");
    cli_flush();
}

crumb_status suite_print_row(const suite_state *s, const suite_row *row, crumb_error *err) {
    if (s->format == BENCH_MD) return print_markdown(row), CRUMB_OK;
    return bench_print_object(s->format, row_object(s, row), s->n_rows == 0, err);
}

void suite_print_end(const suite_state *s) {
    bench_close_list(s->format, s->n_rows > 0);
    if (s->format != BENCH_MD) return;
    cli_print("\n%zu of %zu targets met, %zu not measured. build: %s\n", s->n_met, s->n_met + s->n_missed, s->n_skipped,
              crumb_version());
    double load[3];
    if (getloadavg(load, 3) == 3)
        cli_print("Load average at the end: %.1f, %.1f, %.1f; ratios mean little where other programs run meanwhile.\n",
                  load[0], load[1], load[2]);
    cli_print("Other programs on the same files, in turns with crumb: tools/compare-peers.py\n");
}
