/* crumb quantize: a model's weights in another type, rounded to its nearest codes. */
#include "host/checkpoint/gptq_write.h"
#include "host/lowbit/encode.h"
#include "tools/crumb/rewrite.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What can be written, as a list for messages. */
static void list_types(char *out, size_t size) {
    size_t used = 0;
    out[0] = 0;
    for (int t = 0; t < CRUMB_TYPE_GGUF_COUNT && used < size; t++)
        if (crumb_type_can_encode((crumb_type)t))
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     crumb_type_get_info((crumb_type)t)->name);
}

static crumb_status find_type(const char *name, crumb_type *out, crumb_error *err) {
    char types[256];
    for (int t = 0; t < CRUMB_TYPE_GGUF_COUNT; t++)
        if (crumb_type_can_encode((crumb_type)t) && strcasecmp(crumb_type_get_info((crumb_type)t)->name, name) == 0)
            return *out = (crumb_type)t, CRUMB_OK;
    list_types(types, sizeof types);
    return crumb_fail(err, CRUMB_ERR_ARGUMENT, "type '%s': choose one of %s, GPTQ2, GPTQ3, GPTQ4", name, types);
}

typedef struct choice {
    crumb_type type, embedding, output;
} choice;

/* Embedding and output matrix lose more than layers do: below 8 bits they get 8 unless told otherwise. */
static crumb_status read_choice(const cli_options *o, choice *c, crumb_error *err) {
    CRUMB_TRY(find_type(o->plain.value[1], &c->type, err));
    const uint8_t bits = crumb_type_get_info(c->type)->bits;
    c->embedding = c->output = bits && bits < 8 && !o->pure ? CRUMB_TYPE_Q8_0 : c->type;
    if (o->embedding_type) CRUMB_TRY(find_type(o->embedding_type, &c->embedding, err));
    if (o->output_type) CRUMB_TRY(find_type(o->output_type, &c->output, err));
    return CRUMB_OK;
}

/* The nearest type whose blocks a row is whole ones of. */
static crumb_type fitting(crumb_type wanted, uint64_t k) {
    if (k % crumb_type_get_info(wanted)->block == 0) return wanted;
    return k % crumb_type_get_info(CRUMB_TYPE_Q8_0)->block == 0 ? CRUMB_TYPE_Q8_0 : CRUMB_TYPE_F16;
}

static bool is_matrix(const crumb_gguf_tensor *t) {
    const size_t n = strlen(t->name);
    return t->n_dims == 2 && n > 7 && strcmp(t->name + n - 7, ".weight") == 0;
}

static void choose_types(rewriting *r, const choice *c) {
    size_t n_other = 0;
    for (size_t i = 0; i < crumb_gguf_n_tensors(r->from); i++) {
        const crumb_gguf_tensor *t = crumb_gguf_tensor_at(r->from, i);
        crumb_type wanted = c->type;
        if (!is_matrix(t)) continue;
        if (strcmp(t->name, "token_embd.weight") == 0) wanted = c->embedding;
        if (strcmp(t->name, "output.weight") == 0) wanted = c->output;
        r->types[i] = fitting(wanted, t->dims[0]);
        n_other += r->types[i] != wanted;
    }
    if (n_other) cli_note("%zu tensors, whose rows are not whole blocks of the type, become Q8_0 or F16", n_other);
}

/* ---- GPTQ's form: a folder ---- */

/* 2, 3 or 4 for GPTQ2, GPTQ3, GPTQ4; 0: another type. */
static uint32_t gptq_bits(const char *type) {
    const bool known = strncasecmp(type, "GPTQ", 4) == 0 && type[4] >= '2' && type[4] <= '4' && !type[5];
    return known ? (uint32_t)(type[4] - '0') : 0;
}

static crumb_status write_gptq(const cli_options *o, uint32_t bits, crumb_error *err) {
    uint64_t n_kept;
    const crumb_gptq_write w = {.from = o->model,
                                .to = o->plain.value[0],
                                .bits = bits,
                                .group = o->group_size == -1 ? 0 : (uint32_t)o->group_size,
                                .identity = rewriting_identity(o->model),
                                .n_threads = rewriting_threads(o),
                                .progress = cli_progress,
                                .progress_user = (void *)"quantizing"};
    if (o->group_size != -1 && (o->group_size < 16 || o->group_size % 16 != 0))
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "--group-size %d: -1 or a multiple of 16", (int)o->group_size);
    cli_catch_interrupt();
    const crumb_status status = crumb_gptq_write_run(&w, &n_kept, err);
    cli_progress_clear();
    if (status == CRUMB_ERR_INTERRUPTED)
        cli_note("interrupted: what is done stays in %s, and the same command goes on from there", w.to);
    CRUMB_TRY(status);
    if (n_kept) cli_note("%" PRIu64 " tensors were there from an earlier run", n_kept);
    cli_note("%s: a folder with weights of %u bits as GPTQ packs them", w.to, bits);
    return CRUMB_OK;
}

int cli_quantize(const cli_options *options) {
    crumb_error err = {0};
    rewriting r = {.options = options, .verb = "quantizing"};
    choice c;
    crumb_status status = CRUMB_OK;
    if (!options->model || options->plain.n != 2)
        status = crumb_fail(&err, CRUMB_ERR_ARGUMENT,
                            "quantize wants a model, a file to write and a type: crumb quantize IN OUT Q4_0");
    const uint32_t bits = status == CRUMB_OK ? gptq_bits(options->plain.value[1]) : 0;
    if (bits) {
        status = write_gptq(options, bits, &err);
        return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
    }
    if (status == CRUMB_OK) status = read_choice(options, &c, &err);
    if (status == CRUMB_OK) status = rewriting_open(&r, options->plain.value[0], &err);
    if (status == CRUMB_OK) choose_types(&r, &c);
    if (status == CRUMB_OK) status = rewriting_run(&r, &err);
    rewriting_close(&r);
    return status == CRUMB_OK ? CLI_EXIT_OK : cli_fail(&err);
}
