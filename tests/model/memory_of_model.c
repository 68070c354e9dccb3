/* memory_of_model MODEL: opens a model and a session as shipped, evaluates a prompt and a few tokens, and prints in one
 * line of JSON what that took at its peak, and what it may take: packed weights + KV cache + scratch + one tensor (the
 * largest, whose bytes of the file are in memory while it is packed). Exit status 1: it took more. */
#include "host/container/gguf.h"
#include "host/crumb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Code, libraries, thread stacks, vocabulary and merges, which the sum above does not count. */
static const uint64_t allowance_bytes = 24u << 20;

enum { N_PROMPT = 64, N_DECODE = 4 };

static uint64_t peak_resident_bytes(void) {
    char line[256];
    unsigned long long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "VmHWM: %llu kB", &kb) == 1) break;
    }
    if (f) fclose(f);
    return kb << 10;
}

static crumb_status largest_tensor(const char *path, uint64_t *n_bytes, crumb_error *err) {
    crumb_gguf *g = NULL;
    crumb_status status = crumb_gguf_open(path, &g, err);
    *n_bytes = 0;
    for (size_t i = 0; status == CRUMB_OK && i < crumb_gguf_n_tensors(g); i++) {
        uint64_t n = crumb_gguf_tensor_at(g, i)->n_bytes;
        if (n > *n_bytes) *n_bytes = n;
    }
    crumb_gguf_close(g);
    return status;
}

static crumb_status use(crumb_session *session, crumb_error *err) {
    int32_t tokens[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++) tokens[i] = 1 + i % 200;
    crumb_status status = crumb_session_feed(session, tokens, N_PROMPT, err);
    for (int i = 0; status == CRUMB_OK && i < N_DECODE; i++) status = crumb_session_feed(session, tokens, 1, err);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: memory_of_model MODEL\n");
        return 2;
    }
    crumb_model_params model_params = crumb_model_params_default();
    crumb_session_params params = crumb_session_params_default();
    params.n_ctx = 1024;
    crumb_model *model = NULL;
    crumb_session *session = NULL;
    crumb_error err = {0};
    uint64_t tensor_bytes = 0;
    crumb_status status = largest_tensor(argv[1], &tensor_bytes, &err);
    if (status == CRUMB_OK) status = crumb_model_open(argv[1], &model_params, &model, &err);
    uint64_t loading_bytes = peak_resident_bytes();
    if (status == CRUMB_OK) status = crumb_session_create(model, &params, &session, &err);
    if (status == CRUMB_OK) status = use(session, &err);
    bool good = status == CRUMB_OK;
    if (good) {
        crumb_model_info info;
        crumb_session_stats stats;
        crumb_model_get_info(model, &info);
        crumb_session_get_stats(session, &stats);
        uint64_t peak = peak_resident_bytes();
        uint64_t may = info.weight_bytes + stats.kv_bytes + stats.scratch_bytes + tensor_bytes + allowance_bytes;
        good = peak <= may;
        printf("{\"peak_loading_bytes\": %llu, \"peak_bytes\": %llu, \"weight_bytes\": %llu, \"kv_bytes\": %llu, "
               "\"scratch_bytes\": %llu, \"largest_tensor_bytes\": %llu, \"allowance_bytes\": %llu, \"within\": %s}\n",
               (unsigned long long)loading_bytes, (unsigned long long)peak, (unsigned long long)info.weight_bytes,
               (unsigned long long)stats.kv_bytes, (unsigned long long)stats.scratch_bytes,
               (unsigned long long)tensor_bytes, (unsigned long long)allowance_bytes, good ? "true" : "false");
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    crumb_session_destroy(session);
    crumb_model_close(model);
    return good ? 0 : 1;
}
