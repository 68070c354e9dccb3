/* Opens the embedded model on gpu0 for an f16 cache, then sessions: two with a q8 cache, two with an f16 one. Prints
 * what the library logs, and what becomes of each. */
#include "host/crumb.h"

#include <stdio.h>

static void print_line(void *user, crumb_log_level level, const char *line) {
    (void)user;
    (void)level;
    puts(line);
}

int main(void) {
    static const crumb_kv_type types[] = {CRUMB_KV_Q8, CRUMB_KV_Q8, CRUMB_KV_F16, CRUMB_KV_F16};
    crumb_model_params params = crumb_model_params_default();
    crumb_model *model;
    crumb_error err = {0};
    params.device = "gpu0";
    params.log = print_line;
    crumb_status status = crumb_model_open_embedded(&params, &model, &err);
    if (status != CRUMB_OK) return printf("no model: %s\n", err.message), 1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        crumb_session_params of = crumb_session_params_default();
        crumb_session *session = NULL;
        of.n_ctx = 64;
        of.kv_type = types[i];
        status = crumb_session_create(model, &of, &session, &err);
        printf("session %zu: %s\n", i, status == CRUMB_OK ? "ok" : err.message);
        crumb_session_destroy(session);
    }
    crumb_model_close(model);
    return 0;
}
