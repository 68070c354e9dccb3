/* crumb tune import: measurements of elsewhere, which have to be shown right here, and are believed when they have been
 * measured here. */
#include "tools/crumb/tune.h"

#include <stdlib.h>
#include <string.h>

/* Whether a record is of this device, this tier and these kernels, so that plans here look it up. */
static bool is_of_here(const kernels_choice *c, const crumb_tuning_key *key) {
    char device[96], target[32], source[20];
    c->suite->identify(c->machine, device, target, source);
    return !strcmp(key->device, device) && !strcmp(key->target, target) && !strcmp(key->source, source);
}

/* Whether the record's weights are of that format, in the kernel's layout. */
static bool is_for(const crumb_tuning_key *key, const crumb_kernel_info *info, const crumb_kernel_format *format) {
    char weights[sizeof key->weights];
    crumb_kernel_weights_name(format->bits, format->codebook, strcmp(info->layout, "index") == 0, weights);
    return strcmp(weights, key->weights) == 0;
}

/* The kernel takes the record's weights and computes the right thing with its knobs. */
static crumb_status verify_kernel(const kernels_choice *c, const crumb_tuning_record *r, size_t kernel, bool *ok,
                                  crumb_error *err) {
    /* A group as long as the record's own rows is one scale per row, whatever the length of the rows asked here. */
    const uint32_t k = 512, group = r->key.group && r->key.group < r->key.k && k % r->key.group == 0 ? r->key.group : 0;
    const uint32_t n = r->key.n > 0 && r->key.n < TUNE_CHECK_N ? r->key.n : TUNE_CHECK_N;
    const crumb_kernel_info info = kernels_info(c, kernel);
    bool checked = false;
    *ok = !c->suite->setting_known || c->suite->setting_known(kernel, r->knobs);
    for (size_t f = 0; f < crumb_n_kernel_formats && *ok; f++) {
        crumb_kernel_problem p = {.format = &crumb_kernel_formats[f],
                                  .m = 160, /* several chunks */
                                  .k = k,
                                  .n = n,
                                  .group = group,
                                  .act = (crumb_act_quant)r->key.act};
        kernels_check check;
        if (!is_for(&r->key, &info, p.format) || !kernels_takes(c, kernel, &p)) continue;
        const unsigned scales = kernels_check_scales(c, kernel, &p, f);
        CRUMB_TRY(kernels_check_run(c, kernel, r->knobs, &p, scales, f, false, &check, err));
        *ok = check.ok;
        checked = true;
    }
    *ok = *ok && checked;
    return CRUMB_OK;
}

/* The kernel of that name, if it is here; one of here has to be. Kernels of other devices and targets cannot be asked,
 * and are never looked up here either. */
static crumb_status verify(const kernels_choice *c, const crumb_tuning_record *r, bool *ok, crumb_error *err) {
    for (size_t i = 0; i < c->suite->n_kernels(); i++) {
        const crumb_kernel_info info = kernels_info(c, i);
        if (strcmp(info.name, r->kernel) == 0 && info.available) return verify_kernel(c, r, i, ok, err);
    }
    *ok = !is_of_here(c, &r->key);
    return CRUMB_OK;
}

static crumb_status import_lines(const kernels_choice *c, crumb_tuning *db, char *text, const char *path, size_t *n,
                                 crumb_error *err) {
    size_t number = 0;
    for (char *line = text, *end; *line; line = end) {
        crumb_tuning_record r;
        bool ok;
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        number++;
        if (!*line) continue;
        crumb_status status = crumb_tuning_parse(line, &r, err);
        if (status != CRUMB_OK) return crumb_fail_prefix(err, status, "%s:%zu", path, number);
        CRUMB_TRY(verify(c, &r, &ok, err));
        if (!ok) {
            cli_error("%s:%zu: %s with '%s' cannot be shown to compute right results here; left out", path, number,
                      r.kernel, r.knobs);
            continue;
        }
        r.rounds = 0;
        CRUMB_TRY(crumb_tuning_put(db, &r, err));
        ++*n;
    }
    return CRUMB_OK;
}

crumb_status tune_import(const cli_options *options, crumb_error *err) {
    const char *path = options->plain.value[1];
    char *text;
    size_t n_bytes, n = 0;
    crumb_tuning *db = NULL;
    kernels_choice choice;
    CRUMB_TRY(cli_read_file(path, &text, &n_bytes, err));
    crumb_status status = kernels_choose(options, (int)options->n_threads, NULL, 0, NULL, 0, &choice, err);
    if (status == CRUMB_OK) status = tune_open_database(options, true, &db, err);
    if (status == CRUMB_OK) status = import_lines(&choice, db, text, path, &n, err);
    crumb_tuning_close(db);
    kernels_release(&choice);
    free(text);
    if (status == CRUMB_OK) cli_print("%zu measurements imported\n", n);
    if (status == CRUMB_OK && n) cli_note("plans take them when 'crumb tune' has measured here that they are better");
    return status;
}
