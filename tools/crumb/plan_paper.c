/* crumb plan --kernels paper: the results that Georganas et al., "Pushing the Envelope of LLM Inference on AI-PC and
 * Intel GPUs" (2025), have published for whole models, beside what the paper's own measurements of components predict:
 * bandwidths, cycles, launch costs, throughputs, and the shares alpha of Amdahl's law. No figure is fitted to a result.
 */
#include "tools/crumb/json_util.h"
#include "tools/crumb/pages.h"
#include "tools/crumb/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_PAST = 96, MAX_LAYERS = 65, N_ROWS = 25, LINE_COLUMNS = 100 };

typedef struct paper_model {
    const char *name;
    uint64_t hidden, ff, kv, vocab;
    uint32_t n_layers;
    bool no_attention;
} paper_model;

/* The models' published configurations; that of the 2B model is not at hand. */
static const paper_model llama_8b = {"Llama3-8B", 4096, 14336, 1024, 128256, 32, false};
static const paper_model model_2b = {"2B", 2048, 8192, 512, 128256, 24, false};
static const paper_model falcon_1b = {"Falcon3-1B", 2048, 8192, 1024, 131072, 18, false};
static const paper_model mobile_15b = {"MobileLLM-1.5B", 1600, 4352, 320, 32000, 54, false};

typedef enum row_kind {
    ROW_TOKENS,  /* tokens a second */
    ROW_RATIO,   /* CPU's time / GPU's, end to end */
    ROW_NARROW,  /* over 2 bits, in tokens a second */
    ROW_SPEEDUP, /* over 16 bits, by Amdahl's law; alpha 0: not published */
} row_kind;

typedef struct paper_row {
    row_kind kind;
    const char *machine, *device;
    const paper_model *model;
    crumb_work body;
    double published, alpha;
    const char *note;
} paper_row;

#define NO_ALPHA "the share of GEMVs in the 16-bit run on this platform is not published"
#define SHAPE_2B "assumes the 2B model's shape"

static const paper_row rows[N_ROWS] = {
    {ROW_TOKENS, "bmg", "gpu0", &llama_8b, CRUMB_WORK_U2, 135, 0, ""},
    {ROW_TOKENS, "lnl", "gpu0", &llama_8b, CRUMB_WORK_U2, 29.2, 0, ""},
    {ROW_TOKENS, "lnl", "cpu", &llama_8b, CRUMB_WORK_U2, 28, 0, ""},
    {ROW_TOKENS, "bmg", "gpu0", &model_2b, CRUMB_WORK_U2, 365, 0, SHAPE_2B},
    {ROW_TOKENS, "arl", "cpu", &model_2b, CRUMB_WORK_U2, 110, 0, SHAPE_2B},
    {ROW_TOKENS, "arlh", "cpu", &model_2b, CRUMB_WORK_U2, 82, 0, SHAPE_2B},
    {ROW_TOKENS, "lnl", "cpu", &model_2b, CRUMB_WORK_U2, 88, 0, SHAPE_2B},
    {ROW_RATIO, "lnl", "gpu0", &llama_8b, CRUMB_WORK_U2, 26, 0, ""},
    {ROW_NARROW, "lnl", "cpu", &llama_8b, CRUMB_WORK_U1, 1, 0, "published as no further speedup"},
    {ROW_SPEEDUP, "arl", "cpu", &falcon_1b, CRUMB_WORK_U2, 4.1, 0.87, ""},
    {ROW_SPEEDUP, "arl", "cpu", &falcon_1b, CRUMB_WORK_U1, 4.8, 0.87, ""},
    {ROW_SPEEDUP, "arl", "cpu", &llama_8b, CRUMB_WORK_U2, 5.8, 0.96, ""},
    {ROW_SPEEDUP, "arl", "cpu", &llama_8b, CRUMB_WORK_U1, 8.3, 0.96, ""},
    {ROW_SPEEDUP, "arl", "cpu", &mobile_15b, CRUMB_WORK_U2, 3.9, 0, NO_ALPHA},
    {ROW_SPEEDUP, "arl", "cpu", &mobile_15b, CRUMB_WORK_U1, 4.4, 0, NO_ALPHA},
    {ROW_SPEEDUP, "arlh", "cpu", &falcon_1b, CRUMB_WORK_U2, 3.8, 0, NO_ALPHA},
    {ROW_SPEEDUP, "arlh", "cpu", &mobile_15b, CRUMB_WORK_U2, 3.8, 0, NO_ALPHA},
    {ROW_SPEEDUP, "arlh", "cpu", &llama_8b, CRUMB_WORK_U2, 5.6, 0, NO_ALPHA},
    {ROW_SPEEDUP, "arlh", "cpu", &falcon_1b, CRUMB_WORK_U1, 4.2, 0, NO_ALPHA},
    {ROW_SPEEDUP, "arlh", "cpu", &mobile_15b, CRUMB_WORK_U1, 4.0, 0, NO_ALPHA},
    {ROW_SPEEDUP, "arlh", "cpu", &llama_8b, CRUMB_WORK_U1, 6.8, 0, NO_ALPHA},
    {ROW_SPEEDUP, "lnl", "cpu", &falcon_1b, CRUMB_WORK_U2, 3.8, 0, NO_ALPHA},
    {ROW_SPEEDUP, "lnl", "cpu", &mobile_15b, CRUMB_WORK_U2, 3.5, 0, NO_ALPHA},
    {ROW_SPEEDUP, "lnl", "cpu", &llama_8b, CRUMB_WORK_U2, 7.0, 0,
     NO_ALPHA "; 7 is more than the limit of 6.25 that ARL's alpha sets for this model"},
    {ROW_SPEEDUP, "lnl", "gpu0", &llama_8b, CRUMB_WORK_U2, 6.3, 0, NO_ALPHA},
};

enum { N_READINGS = 4 };

/* The same figure, where the paper gives a component in two ways. */
typedef struct reading {
    double value;
    char text[128];
} reading;

typedef struct prediction {
    double value;    /* 0: the components cannot give it */
    double low_head; /* with an output matrix of the body's bits; 0: makes no difference, or is not told */
    char note[320];
    reading readings[N_READINGS]; /* text "": no more */
} prediction;

/* ---- models as costs ------------------------------------------------------------------------------------------- */

static double bits_of(crumb_work w) {
    return w == CRUMB_WORK_U1 ? 1 : w == CRUMB_WORK_U2 ? 2 : 16;
}

static uint32_t make_layers(const paper_model *m, crumb_work body, crumb_work head, crumb_cost_layer *out) {
    const uint64_t macs = m->hidden * (2 * m->hidden + 2 * m->kv + 3 * m->ff), head_macs = m->vocab * m->hidden;
    for (uint32_t i = 0; i < m->n_layers; i++) {
        out[i] = (crumb_cost_layer){.vector_bytes = 2 * m->hidden};
        if (!m->no_attention) {
            out[i].attention_macs = 2 * m->hidden;
            out[i].kv_bytes = 4 * m->kv;
        }
        out[i].macs[body] = macs;
        out[i].weight_bytes[body] = (uint64_t)((double)macs * bits_of(body) / 8);
    }
    out[m->n_layers] = (crumb_cost_layer){.head = true};
    out[m->n_layers].macs[head] = head_macs;
    out[m->n_layers].weight_bytes[head] = (uint64_t)((double)head_macs * bits_of(head) / 8);
    return m->n_layers + 1;
}

/* All on one device. */
static crumb_cost cost_on(const crumb_profile_device *d, const paper_model *m, crumb_work body, crumb_work head,
                          const crumb_cost_phase *phase) {
    crumb_cost_layer layers[MAX_LAYERS];
    crumb_cost sum = {.ns = 0}, one;
    const uint32_t n = make_layers(m, body, head, layers);
    for (uint32_t i = 0; i < n; i++) {
        crumb_cost_of_layer(d, &layers[i], phase, 1, false, &one);
        crumb_cost_add(&sum, &one);
    }
    return sum;
}

/* ---- predictions ----------------------------------------------------------------------------------------------- */

static void predict_tokens(const crumb_profile_device *d, const paper_row *row, prediction *out) {
    const crumb_cost_phase token = {.n_rows = 1, .n_past = N_PAST};
    const crumb_cost c = cost_on(d, row->model, row->body, CRUMB_WORK_F16, &token);
    out->value = 1e9 / c.ns;
    out->low_head = 1e9 / cost_on(d, row->model, row->body, row->body, &token).ns;
    snprintf(out->note, sizeof out->note, "%.2f GB a token at %.0f GB/s, launches %.2f ms%s%s", c.bytes * 1e-9,
             c.bytes / c.read_ns, c.launch_ns * 1e-6, *row->note ? "; " : "", row->note);
}

static void predict_narrow(const crumb_profile_device *d, const paper_row *row, prediction *out) {
    const crumb_cost_phase token = {.n_rows = 1, .n_past = N_PAST};
    const double two = cost_on(d, row->model, CRUMB_WORK_U2, CRUMB_WORK_F16, &token).ns;
    out->value = two / cost_on(d, row->model, row->body, CRUMB_WORK_F16, &token).ns;
    snprintf(out->note, sizeof out->note, "%s; the cores make %.0f GB/s of 1-bit weights and %.0f of 2-bit ones",
             row->note, crumb_profile_work_gb_s(d, CRUMB_WORK_U1, d->read_gb_s),
             crumb_profile_work_gb_s(d, CRUMB_WORK_U2, d->read_gb_s));
}

/* What 2048 tokens in and 16 out take on a device: GEMMs and weights alone, the paper measures no attention. */
typedef struct whole_run {
    double prefill_s, decode_s;
} whole_run;

static whole_run run_on(const crumb_profile_device *d, const paper_row *row, crumb_work head) {
    const crumb_cost_phase prompt = {.n_rows = 2048}, token = {.n_rows = 1};
    paper_model bare = *row->model;
    bare.no_attention = true;
    return (whole_run){1e-9 * cost_on(d, &bare, row->body, head, &prompt).ns,
                       1e-9 * 16 * cost_on(d, &bare, row->body, head, &token).ns};
}

static double ratio_of(whole_run cpu, whole_run gpu) {
    return (cpu.prefill_s + cpu.decode_s) / (gpu.prefill_s + gpu.decode_s);
}

/* Published tokens a second of the model on a device of the same machine. */
static double published_tokens(const paper_row *like, const char *device) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].kind == ROW_TOKENS && rows[i].model == like->model && strcmp(rows[i].machine, like->machine) == 0 &&
            strcmp(rows[i].device, device) == 0)
            return rows[i].published;
    return 0;
}

/* Prefill by the GEMMs' two figures, decoding predicted or as published: which of them makes how much of the ratio. */
static void read_ratio(const paper_row *row, whole_run cpu, whole_run gpu, prediction *out) {
    const double gap = 30; /* IV-E, of the GEMMs; IV-C's figures are 47 and 1.7 TFLOPS, the CPU's a peak */
    static const char *const texts[N_READINGS] = {
        "GEMMs at 47 and 1.7 TFLOPS (IV-C), tokens predicted as above: the row's prediction",
        "the same GEMMs, tokens as published end to end (29.2 and 28 a second)",
        "GEMMs 30 times apart (IV-E), tokens predicted as above",
        "GEMMs 30 times apart, tokens as published",
    };
    for (int i = 0; i < N_READINGS; i++) {
        whole_run c = cpu, g = gpu;
        if (i & 1) {
            c.decode_s = 16 / published_tokens(row, "cpu");
            g.decode_s = 16 / published_tokens(row, row->device);
        }
        if (i & 2) c.prefill_s = gap * g.prefill_s;
        out->readings[i].value = ratio_of(c, g);
        snprintf(out->readings[i].text, sizeof out->readings[i].text, "%s", texts[i]);
    }
}

/* The part of their peak at which the CPU's GEMMs would run for the published ratio. */
static double peak_wanted(const paper_row *row, whole_run cpu, whole_run gpu) {
    return cpu.prefill_s / (row->published * (gpu.prefill_s + gpu.decode_s) - cpu.decode_s);
}

static void predict_ratio(const crumb_profile *m, const paper_row *row, prediction *out) {
    const crumb_profile_device *c = &m->device[0], *g = &m->device[crumb_profile_find(m, row->device)];
    const whole_run cpu = run_on(c, row, CRUMB_WORK_F16), gpu = run_on(g, row, CRUMB_WORK_F16);
    const whole_run cpu_told = {cpu.prefill_s, 16 / published_tokens(row, "cpu")};
    const whole_run gpu_told = {gpu.prefill_s, 16 / published_tokens(row, row->device)};
    out->value = ratio_of(cpu, gpu);
    out->low_head = ratio_of(run_on(c, row, row->body), run_on(g, row, row->body));
    read_ratio(row, cpu, gpu, out);
    snprintf(
        out->note, sizeof out->note,
        "2048 tokens in, 16 out, GEMMs and weights alone: CPU %.1f s, GPU %.2f s, of which %.2f s are 16 tokens at the "
        "memory's speed; %.0fx would mean that the CPU's GEMMs run at %.0f%% of their peak (%.0f%% with tokens as "
        "published), and no component says so",
        cpu.prefill_s + cpu.decode_s, gpu.prefill_s + gpu.decode_s, gpu.decode_s, row->published,
        100 * peak_wanted(row, cpu, gpu), 100 * peak_wanted(row, cpu_told, gpu_told));
}

/* Amdahl's law on the published share: 1 / (1 - alpha + alpha / x), x being how much less time the GEMVs take. */
static void predict_speedup(const crumb_profile_device *d, const paper_row *row, prediction *out) {
    const crumb_cost_phase token = {.n_rows = 1};
    snprintf(out->note, sizeof out->note, "%s", row->note);
    if (row->alpha <= 0) return;
    const double wide = cost_on(d, row->model, CRUMB_WORK_F16, CRUMB_WORK_F16, &token).read_ns;
    const double narrow = cost_on(d, row->model, row->body, row->body, &token).read_ns, x = wide / narrow;
    out->value = 1 / (1 - row->alpha + row->alpha / x);
    snprintf(out->note, sizeof out->note,
             "alpha %.2f as published, GEMVs %.1f times as fast with all matrices of %.0f bits", row->alpha, x,
             bits_of(row->body));
}

static crumb_status predict(const paper_row *row, prediction *out, crumb_error *err) {
    plan_machine m;
    *out = (prediction){.value = 0};
    CRUMB_TRY(plan_machine_open(row->machine, "paper", &m, err));
    const int device = crumb_profile_find(&m.profile, row->device);
    if (device >= 0 && row->kind == ROW_TOKENS) predict_tokens(&m.profile.device[device], row, out);
    if (device >= 0 && row->kind == ROW_RATIO) predict_ratio(&m.profile, row, out);
    if (device >= 0 && row->kind == ROW_NARROW) predict_narrow(&m.profile.device[device], row, out);
    if (device >= 0 && row->kind == ROW_SPEEDUP) predict_speedup(&m.profile.device[device], row, out);
    plan_machine_close(&m);
    return CRUMB_OK;
}

/* ---- printing -------------------------------------------------------------------------------------------------- */

static const char *const assumptions[] = {
    "the output matrix has 16 bits, as the published tokens a second of the GPUs ask for (2.8 GB a token for "
    "Llama3-8B); "
    "the column beside it has one of the body's bits",
    "32 tokens of prompt before the 128 that are generated: the paper does not say; the context has 96 in the middle",
    "a kernel or a parallel region costs its launch once, and nothing overlaps",
    "each core draws an equal part of the bandwidth, as section III-F has it",
    "the 2B model (Llama3-2B-Base) is taken as 24 layers of 2048 x 8192 with 8 heads of keys and values of 64, and "
    "vocabulary 128256: 2.0 billion parameters; its configuration is not in the paper",
    "speedups are over 16 bits with alpha as published; that all matrices are narrowed, the output matrix too, is what "
    "4.1x and 5.8x need: a 16-bit one caps Llama3-8B at 4.6x with ARL's alpha. So the paper's CPU runs may have had a "
    "low-bit output matrix, unlike its GPU runs",
    "where a profile says 'estimated', nobody has measured: those figures are listed below",
};

static void label_of(const paper_row *row, char out[80]) {
    static const char *const units[] = {"tok/s", "GPU over CPU", "over 2 bits", "over 16 bits"};
    snprintf(out, 80, "%s %s, %s %.0f-bit, %s", row->machine, row->device, row->model->name, bits_of(row->body),
             units[row->kind]);
}

static void print_row(const paper_row *row, const prediction *p) {
    char label[80], low[16] = "";
    label_of(row, label);
    if (p->low_head > 0) snprintf(low, sizeof low, "%8.1f", p->low_head);
    if (p->value > 0)
        cli_print("%-50s %7.1f %9.1f %+6.0f%%%s%s\n", label, row->published, p->value,
                  100 * (p->value / row->published - 1), *low ? "  " : "", low);
    else
        cli_print("%-50s %7.1f %9s\n", label, row->published, "-");
    cli_print("    ");
    page_print_wrapped(p->note, 4, LINE_COLUMNS, true);
    for (size_t i = 0; i < N_READINGS && *p->readings[i].text; i++)
        cli_print("    %4.1fx  %s\n", p->readings[i].value, p->readings[i].text);
}

static cJSON *row_json(const paper_row *row, const prediction *p) {
    static const char *const kinds[] = {"decode_tok_s", "gpu_over_cpu", "over_2_bits", "over_16_bits"};
    cJSON *o = cJSON_CreateObject();
    json_add_text(o, "machine", row->machine);
    json_add_text(o, "device", row->device);
    json_add_text(o, "model", row->model->name);
    json_add_text(o, "weights", crumb_work_name(row->body));
    json_add_text(o, "quantity", kinds[row->kind]);
    json_add_real(o, "paper", row->published);
    json_add_real(o, "predicted", p->value > 0 ? p->value : NAN);
    json_add_real(o, "error", p->value > 0 ? p->value / row->published - 1 : NAN);
    json_add_real(o, "predicted_low_bit_head", p->low_head > 0 ? p->low_head : NAN);
    json_add_text(o, "note", p->note);
    cJSON *readings = *p->readings[0].text ? cJSON_AddArrayToObject(o, "readings") : NULL;
    for (size_t i = 0; readings && i < N_READINGS && *p->readings[i].text; i++) {
        cJSON *one = cJSON_CreateObject();
        json_add_real(one, "predicted", p->readings[i].value);
        json_add_text(one, "of", p->readings[i].text);
        cJSON_AddItemToArray(readings, one);
    }
    return o;
}

/* Figures of the machines in the table that nobody has measured. */
static crumb_status each_estimate(void (*fn)(void *user, const char *machine, const plan_figure *f), void *user,
                                  crumb_error *err) {
    static const char *const machines[] = {"arl", "arlh", "lnl", "bmg"};
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        plan_machine m;
        CRUMB_TRY(plan_machine_open(machines[i], "paper", &m, err));
        for (size_t f = 0; f < m.n_figures; f++)
            if (plan_is_estimated(&m.figures[f])) fn(user, machines[i], &m.figures[f]);
        plan_machine_close(&m);
    }
    return CRUMB_OK;
}

static void print_estimate(void *user, const char *machine, const plan_figure *f) {
    (void)user;
    cli_print("  %s.%s = %g, %s\n", machine, f->key, f->value, f->source);
}

static void add_estimate(void *user, const char *machine, const plan_figure *f) {
    cJSON *o = cJSON_CreateObject();
    json_add_text(o, "machine", machine);
    json_add_text(o, "key", f->key);
    json_add_real(o, "value", f->value);
    json_add_text(o, "source", f->source);
    cJSON_AddItemToArray(user, o);
}

static crumb_status print_text(const prediction *predictions, crumb_error *err) {
    cli_print("Georganas et al. 2025, published results beside what the paper's components predict\n\n%-50s %7s %9s "
              "%7s %9s\n",
              "", "paper", "predicted", "error", "low head");
    for (size_t i = 0; i < N_ROWS; i++) print_row(&rows[i], &predictions[i]);
    cli_print("\nassumptions\n");
    for (size_t i = 0; i < sizeof assumptions / sizeof *assumptions; i++) {
        cli_print("  - ");
        page_print_wrapped(assumptions[i], 4, LINE_COLUMNS, true);
    }
    cli_print("\nestimates among the figures\n");
    return each_estimate(print_estimate, NULL, err);
}

static crumb_status print_json(const prediction *predictions, crumb_error *err) {
    cJSON *document = json_document(), *list = cJSON_AddArrayToObject(document, "rows");
    for (size_t i = 0; i < N_ROWS; i++) cJSON_AddItemToArray(list, row_json(&rows[i], &predictions[i]));
    cJSON *texts = cJSON_AddArrayToObject(document, "assumptions");
    for (size_t i = 0; i < sizeof assumptions / sizeof *assumptions; i++)
        cJSON_AddItemToArray(texts, cJSON_CreateString(assumptions[i]));
    const crumb_status status = each_estimate(add_estimate, cJSON_AddArrayToObject(document, "estimates"), err);
    if (status == CRUMB_OK) return json_print(document, false, "\n", err);
    cJSON_Delete(document);
    return status;
}

int plan_paper(const cli_options *options) {
    crumb_error err = {0};
    prediction predictions[N_ROWS];
    crumb_status status = CRUMB_OK;
    for (size_t i = 0; i < N_ROWS && status == CRUMB_OK; i++) status = predict(&rows[i], &predictions[i], &err);
    if (status == CRUMB_OK) status = options->json ? print_json(predictions, &err) : print_text(predictions, &err);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
