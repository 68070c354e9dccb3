/* crumb quantize: a model's weights in another type, rounded to its codes by a method. */
#include "host/lowbit/encode.h"
#include "tools/crumb/quantize_gptq.h"
#include "tools/crumb/rewrite.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const method_names[] = {
    [CRUMB_ENCODE_RTN] = "rtn", [CRUMB_ENCODE_SEQ] = "seq", [CRUMB_ENCODE_ABSMEAN] = "absmean"};

static crumb_encode_method find_method(const char *name) {
    for (int m = CRUMB_ENCODE_RTN; m <= CRUMB_ENCODE_ABSMEAN; m++)
        if (strcmp(method_names[m], name) == 0) return (crumb_encode_method)m;
    return CRUMB_ENCODE_RTN; /* the options allow no others */
}

/* What a method writes, as a list for messages. */
static void list_types(crumb_encode_method method, char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (int t = 0; t < CRUMB_TYPE_GGUF_COUNT && used < size; t++)
        if (crumb_type_can_encode((crumb_type)t, method))
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     crumb_type_get_info((crumb_type)t)->name);
    if (method == CRUMB_ENCODE_RTN && used < size) snprintf(out + used, size - used, ", GPTQ2, GPTQ3, GPTQ4");
}

static crumb_status find_type(const char *name, crumb_encode_method method, crumb_type *out, crumb_error *err) {
    char types[256];
    for (int t = 0; t < CRUMB_TYPE_GGUF_COUNT; t++)
        if (crumb_type_can_encode((crumb_type)t, method) &&
            strcasecmp(crumb_type_get_info((crumb_type)t)->name, name) == 0)
            return *out = (crumb_type)t, CRUMB_OK;
    list_types(method, types, sizeof types);
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "type '%s' is none that --method %s writes: choose one of %s", name,
                      method_names[method], types);
}

typedef struct choice {
    crumb_type type, embedding, output;
    crumb_encode_method method, of_the_ends; /* of layers; of embedding and output matrix */
} choice;

/* Embedding and output matrix lose more than layers do: below 8 bits they get 8 unless told otherwise. */
static crumb_status read_choice(const cli_options *o, choice *c, crumb_error *err) {
    c->method = find_method(o->quantize_method);
    c->of_the_ends = o->pure ? c->method : CRUMB_ENCODE_RTN;
    CRUMB_TRY(find_type(o->plain.value[1], c->method, &c->type, err));
    const uint8_t bits = crumb_type_get_info(c->type)->bits;
    c->embedding = c->output = bits && bits < 8 && !o->pure ? CRUMB_TYPE_Q8_0 : c->type;
    if (o->embedding_type) CRUMB_TRY(find_type(o->embedding_type, c->of_the_ends, &c->embedding, err));
    if (o->output_type) CRUMB_TRY(find_type(o->output_type, c->of_the_ends, &c->output, err));
    return CRUMB_OK;
}

static bool is_fitting(crumb_type type, uint64_t k) {
    return k % crumb_type_get_info(type)->block == 0;
}

/* The nearest type whose blocks a row is whole ones of; *method becomes one that writes it. */
static crumb_type fitting(crumb_type wanted, uint64_t k, crumb_encode_method *method) {
    if (is_fitting(wanted, k)) return wanted;
    if (*method == CRUMB_ENCODE_SEQ && is_fitting(CRUMB_TYPE_Q4_0, k)) return CRUMB_TYPE_Q4_0;
    *method = CRUMB_ENCODE_RTN;
    return is_fitting(CRUMB_TYPE_Q8_0, k) ? CRUMB_TYPE_Q8_0 : CRUMB_TYPE_F16;
}

static bool is_matrix(const crumb_gguf_tensor *t) {
    const size_t n = strlen(t->name);
    return t->n_dims == 2 && n > 7 && strcmp(t->name + n - 7, ".weight") == 0;
}

static void choose_types(rewriting *r, const choice *c) {
    size_t n_other = 0;
    for (size_t i = 0; i < crumb_gguf_n_tensors(r->from); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(r->from, i);
        const bool embeds = strcmp(t->name, "token_embd.weight") == 0, puts_out = strcmp(t->name, "output.weight") == 0;
        const crumb_type wanted = embeds ? c->embedding : puts_out ? c->output : c->type;
        if (!is_matrix(t)) continue;
        r->methods[i] = embeds || puts_out ? c->of_the_ends : c->method;
        r->types[i] = fitting(wanted, t->dims[0], &r->methods[i]);
        n_other += r->types[i] != wanted;
    }
    if (n_other)
        cli_note("%zu tensors, whose rows are not whole blocks of the type, become %sQ8_0 or F16", n_other,
                 c->method == CRUMB_ENCODE_SEQ ? "Q4_0 by the same method, " : "");
}

int cli_quantize(const cli_options *options) {
    crumb_error err = {0};
    rewriting r = {.options = options, .verb = "quantizing"};
    choice c;
    crumb_status status = CRUMB_OK;
    if (!options->model || options->plain.n != 2)
        status = crumb_fail(&err, CRUMB_ERR_ARGUMENT,
                            "quantize wants a model, a file to write and a type: crumb quantize IN OUT Q4_0");
    const unsigned bits = status == CRUMB_OK ? quantize_gptq_bits(options->plain.value[1]) : 0;
    if (bits) {
        status = quantize_gptq(options, bits, &err);
        return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
    }
    if (status == CRUMB_OK && strcmp(options->quantize_method, "gptq") == 0)
        status = crumb_fail(&err, CRUMB_ERR_ARGUMENT, "type '%s': --method gptq writes GPTQ2, GPTQ3 and GPTQ4",
                            options->plain.value[1]);
    if (status == CRUMB_OK) status = read_choice(options, &c, &err);
    if (status == CRUMB_OK) status = rewriting_open(&r, options->plain.value[0], &err);
    if (status == CRUMB_OK) choose_types(&r, &c);
    if (status == CRUMB_OK) status = rewriting_run(&r, &err);
    rewriting_close(&r);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
