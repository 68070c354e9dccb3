/* Results of crumb bench as llama-bench prints them: its fields in its order, then crumb's own. Fields of llama-bench
 * that have no meaning here (cpu_mask, tensor_split ...) are left out. */
#include "tools/crumb/bench.h"

#include "host/engine/devices.h"

#include "host/base/error.h"

#include <string.h>

double bench_bandwidth(const bench_result *r) {
    return r->gen_ns > 0 ? (double)r->info.decode_bytes * (double)r->n_gen / r->gen_ns : 0;
}

double bench_watts(const bench_result *r) {
    return r->energy.seconds > 0 ? r->energy.joules / r->energy.seconds : 0;
}

/* ---- markdown ---------------------------------------------------------------------------------------------- */

/* "pp512", "tg128", "pp512+tg128", with " @ d4096" behind a filled context. */
static void test_name(const bench_result *r, char out[64]) {
    int used = 0;
    if (r->n_prompt) used += snprintf(out, 64, "pp%lld", (long long)r->n_prompt);
    if (r->n_gen)
        used += snprintf(out + used, (size_t)(64 - used), "%stg%lld", r->n_prompt ? "+" : "", (long long)r->n_gen);
    if (r->n_depth) snprintf(out + used, (size_t)(64 - used), " @ d%lld", (long long)r->n_depth);
}

/* As llama-bench names them. */
static const char *backend_name(const bench_result *r) {
    return strcmp(r->info.backend, "cpu") == 0 ? "CPU" : crumb_engine_backend_name(r->info.backend);
}

static void print_energy_cells(const bench_result *r) {
    const crumb_engine_energy *e = &r->energy;
    const double tokens = (double)(r->n_prompt + r->n_gen) * (double)r->n_samples;
    char joules[32] = "?", watts[32] = "?", clock[32] = "?";
    if (e->joules > 0) snprintf(joules, sizeof joules, "%.4g", e->joules / tokens);
    if (e->joules > 0) snprintf(watts, sizeof watts, "%.1f", bench_watts(r));
    if (e->clock_mhz > 0) snprintf(clock, sizeof clock, "%.0f", e->clock_mhz);
    cli_print(" %10s | %7s | %6s | %-20s |\n", joules, watts, clock,
              !e->knows_throttling ? "?"
              : *e->throttling     ? e->throttling
                                   : "no");
}

static void print_markdown(const bench_result *r) {
    char test[64], size[32], params[32], rate[64];
    double mib = (double)r->info.file_bytes / (1 << 20);
    if (mib >= 1024)
        snprintf(size, sizeof size, "%.2f GiB", mib / 1024);
    else
        snprintf(size, sizeof size, "%.2f MiB", mib);
    test_name(r, test);
    /* the sign of two bytes shifts the column by one */
    snprintf(rate, sizeof rate, "%.2f \u00b1 %.2f", r->avg_ts, r->stddev_ts);
    cli_print("| %-30s | %10s | %10s | %-10s | %7d | %15s | %21s |%s", r->model_label, size,
              cli_count_label(r->info.n_params, params), backend_name(r), r->n_threads, test, rate,
              r->with_energy ? "" : "\n");
    if (r->with_energy) print_energy_cells(r);
}

/* ---- fields ------------------------------------------------------------------------------------------------ */

static cJSON *text_item(const char *text) {
    return json_text(text, strlen(text));
}

static cJSON *real_or_null(double value) {
    return value > 0 ? json_real(value, 6) : cJSON_CreateNull();
}

static void add_settings(cJSON *o, const bench_result *r) {
    cJSON_AddItemToObject(o, "build_commit", text_item(crumb_version()));
    cJSON_AddItemToObject(o, "build_number",
                          json_i64(CRUMB_VERSION_MAJOR * 10000 + CRUMB_VERSION_MINOR * 100 + CRUMB_VERSION_PATCH));
    cJSON_AddItemToObject(o, "cpu_info", text_item(cli_cpu_name()));
    bool on_gpu = strcmp(r->info.backend, "cpu") != 0;
    cJSON_AddItemToObject(o, "gpu_info", text_item(on_gpu ? r->info.device_detail : ""));
    cJSON_AddItemToObject(o, "backends", text_item(backend_name(r)));
    cJSON_AddItemToObject(o, "model_filename", text_item(r->model_filename));
    cJSON_AddItemToObject(o, "model_type", text_item(r->model_label));
    cJSON_AddItemToObject(o, "model_size", json_u64(r->info.file_bytes));
    cJSON_AddItemToObject(o, "model_n_params", json_u64(r->info.n_params));
    cJSON_AddItemToObject(o, "n_batch", json_i64(r->n_batch));
    cJSON_AddItemToObject(o, "n_ubatch", json_i64(r->n_ubatch));
    cJSON_AddItemToObject(o, "n_threads", json_i64(r->n_threads));
    const char *kv_type = r->kv_type == CRUMB_KV_Q8 ? "q8_0" : "f16";
    cJSON_AddItemToObject(o, "type_k", text_item(kv_type));
    cJSON_AddItemToObject(o, "type_v", text_item(kv_type));
    cJSON_AddItemToObject(o, "n_gpu_layers", json_i64(on_gpu ? -1 : 0));
    cJSON_AddItemToObject(o, "devices", text_item(r->info.device));
    cJSON_AddItemToObject(o, "n_prompt", json_i64(r->n_prompt));
    cJSON_AddItemToObject(o, "n_gen", json_i64(r->n_gen));
    cJSON_AddItemToObject(o, "n_depth", json_i64(r->n_depth));
}

static void add_samples(cJSON *o, const bench_result *r) {
    cJSON *ns = cJSON_AddArrayToObject(o, "samples_ns"), *ts = cJSON_AddArrayToObject(o, "samples_ts");
    double tokens = (double)(r->n_prompt + r->n_gen);
    for (size_t i = 0; i < r->n_samples; i++) {
        cJSON_AddItemToArray(ns, json_u64(r->samples_ns[i]));
        cJSON_AddItemToArray(ts, json_real(1e9 * tokens / (double)r->samples_ns[i], 6));
    }
}

static void add_measurements(cJSON *o, const bench_result *r, bool samples) {
    char when[32] = "";
    struct tm utc;
    if (gmtime_r(&r->test_time, &utc)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cJSON_AddItemToObject(o, "test_time", text_item(when));
    cJSON_AddItemToObject(o, "avg_ns", json_u64((uint64_t)r->avg_ns));
    cJSON_AddItemToObject(o, "stddev_ns", json_u64((uint64_t)r->stddev_ns));
    cJSON_AddItemToObject(o, "avg_ts", json_real(r->avg_ts, 9));
    cJSON_AddItemToObject(o, "stddev_ts", json_real(r->stddev_ts, 9));
    if (samples) add_samples(o, r);
}

/* Of all samples. Without a counter energy is null: an estimate would be worse than nothing. */
static void add_energy(cJSON *o, const bench_result *r) {
    const crumb_engine_energy *e = &r->energy;
    const double tokens = (double)(r->n_prompt + r->n_gen), n = (double)r->n_samples;
    cJSON_AddItemToObject(o, "energy_j", real_or_null(e->joules / n));
    cJSON_AddItemToObject(o, "j_per_token", real_or_null(e->joules / n / tokens));
    cJSON_AddItemToObject(o, "energy_source", *e->source ? text_item(e->source) : cJSON_CreateNull());
    cJSON_AddItemToObject(o, "energy_missing", *e->missing ? text_item(e->missing) : cJSON_CreateNull());
    cJSON_AddItemToObject(o, "power_w", real_or_null(bench_watts(r)));
    cJSON_AddItemToObject(o, "clock_mhz", real_or_null(e->clock_mhz));
    cJSON_AddItemToObject(o, "throttling", e->knows_throttling ? text_item(e->throttling) : cJSON_CreateNull());
}

static void add_own(cJSON *o, const bench_result *r) {
    double rate = bench_bandwidth(r);
    cJSON_AddItemToObject(o, "bandwidth_gb_s", real_or_null(rate));
    cJSON_AddItemToObject(o, "roofline_pct",
                          r->roof_gb_s > 0 ? real_or_null(100 * rate / r->roof_gb_s) : real_or_null(0));
    cJSON_AddItemToObject(o, "ttft_ms", real_or_null(r->prompt_ns / 1e6));
    cJSON_AddItemToObject(o, "tpot_ms", real_or_null(r->n_gen ? r->gen_ns / 1e6 / (double)r->n_gen : 0));
    add_energy(o, r);
    cJSON_AddItemToObject(o, "target", text_item(r->info.target));
    cJSON_AddItemToObject(o, "head_type", text_item(r->info.head_type));
    cJSON_AddItemToObject(o, "bytes_per_token", json_u64(r->info.decode_bytes));
    cJSON_AddItemToObject(o, "read_gb_s", real_or_null(r->roof_gb_s));
}

static cJSON *result_object(const bench_result *r, bool samples) {
    cJSON *o = cJSON_CreateObject();
    if (!o) return NULL;
    add_settings(o, r);
    add_measurements(o, r, samples);
    add_own(o, r);
    return o;
}

/* ---- csv --------------------------------------------------------------------------------------------------- */

/* As llama-bench: every field in quotes, no samples; null is empty. */
static void print_csv_field(const char *text, bool last) {
    cli_write("\"", 1);
    for (const char *p = text; *p; p++) cli_write(*p == '"' ? "\"\"" : p, *p == '"' ? 2 : 1);
    cli_print("\"%s", last ? "\n" : ",");
}

static void print_csv_value(const cJSON *f) {
    const char *text = cJSON_IsNull(f) ? "" : cJSON_IsBool(f) ? cJSON_IsTrue(f) ? "true" : "false" : f->valuestring;
    print_csv_field(text, f->next == NULL);
}

static void print_csv(const cJSON *o, bool header) {
    for (const cJSON *f = o->child; f && header; f = f->next) cli_print("%s%s", f->string, f->next ? "," : "\n");
    for (const cJSON *f = o->child; f; f = f->next) print_csv_value(f);
}

/* ---- all formats ------------------------------------------------------------------------------------------- */

bench_format bench_choose_format(const cli_options *o) {
    static const char *const names[] = {"md", "csv", "json", "jsonl"};
    for (int i = 0; i < 4 && !o->json; i++)
        if (strcmp(o->output, names[i]) == 0) return (bench_format)i;
    return BENCH_DOCUMENT;
}

void bench_open_list(bench_format format) {
    if (format == BENCH_JSON) cli_print("[\n");
    if (format == BENCH_DOCUMENT) cli_print("{\"schema_version\": %d, \"results\": [\n", CLI_SCHEMA_VERSION);
    cli_flush();
}

crumb_status bench_print_object(bench_format format, cJSON *o, bool first, crumb_error *err) {
    const bool in_array = format != BENCH_JSONL;
    if (!o) return crumb_fail(err, CRUMB_ERR_MEMORY, "no memory for the results");
    if (format == BENCH_CSV) {
        print_csv(o, first);
        cJSON_Delete(o);
        return CRUMB_OK;
    }
    if (in_array && !first) cli_print(",\n");
    return json_print(o, true, in_array ? "" : "\n", err);
}

void bench_close_list(bench_format format, bool any) {
    if (format == BENCH_JSON) cli_print(any ? "\n]\n" : "]\n");
    if (format == BENCH_DOCUMENT) cli_print(any ? "\n]}\n" : "]}\n");
}

void bench_print_begin(bench_format format, bool with_energy) {
    if (format == BENCH_MD) {
        cli_print(
            "| model                          |       size |     params | backend    | threads |            test |"
            "                  t/s |%s\n",
            with_energy ? "    J/token |       W |    MHz | throttled by         |" : "");
        cli_print(
            "| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: |"
            " -------------------: |%s\n",
            with_energy ? " ---------: | ------: | -----: | :------------------- |" : "");
    }
    bench_open_list(format);
}

crumb_status bench_print_result(bench_format format, const bench_result *r, bool first, crumb_error *err) {
    if (format == BENCH_MD) return print_markdown(r), CRUMB_OK;
    return bench_print_object(format, result_object(r, format != BENCH_CSV), first, err);
}

void bench_print_end(bench_format format, bool any) {
    if (format == BENCH_MD && any) cli_print("\nbuild: %s\n", crumb_version());
    bench_close_list(format, any);
}
