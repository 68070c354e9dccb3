/* What earlier runs have found out about devices' kernels, one small file each: its key, a line, its content. */
#include "host/engine/verify.h"

#include "cpu/suite.h"
#include "host/base/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_SIZE = 512, MAX_FILE = 2048 };

static uint64_t hash_u32(uint64_t hash, uint32_t value) {
    return crumb_hash(hash, &value, sizeof value);
}

static uint64_t hash_matrix(uint64_t hash, const crumb_matrix *w) {
    const uint32_t facts[] = {w->type, w->bits, w->m, w->k, w->group, w->super_group, w->scales_f32, w->mins != NULL};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) hash = hash_u32(hash, facts[i]);
    return hash;
}

uint64_t crumb_engine_layer_kind(const crumb_network *net, uint32_t layer) {
    uint64_t hash = hash_u32(CRUMB_HASH_SEED, layer == 0); /* which has the embedding */
    if (layer == net->hparams.num_hidden_layers) return hash_matrix(hash, &net->head.matrix);
    const crumb_layer *l = &net->layers[layer];
    const crumb_weight *weights[] = {&l->attn_q,   &l->attn_k, &l->attn_v,  &l->attn_output,
                                     &l->ffn_gate, &l->ffn_up, &l->ffn_down};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        hash = hash_u32(hash_matrix(hash, &weights[i]->matrix), weights[i]->order != NULL);
    return hash;
}

/* Of what decides which kernels a model runs. */
static uint64_t hash_network(const crumb_network *net) {
    const crumb_hparams *h = &net->hparams;
    const uint32_t facts[] = {h->num_attention_heads, h->num_key_value_heads, h->head_dim, h->rope_dims, h->hidden_act};
    uint64_t hash = crumb_hash(CRUMB_HASH_SEED, net->arch->name, strlen(net->arch->name));
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) hash = hash_u32(hash, facts[i]);
    hash = hash_matrix(hash, &net->embedding);
    for (uint32_t i = 0; i <= h->num_hidden_layers; i++) {
        const uint64_t kind = crumb_engine_layer_kind(net, i);
        hash = crumb_hash(hash, &kind, sizeof kind);
    }
    return hash;
}

/* What has been tuned since is other kernels, which nothing has checked in this model. */
static uint64_t tuned(const crumb_model *m) {
    char processor[96], target[32], source[20];
    if (!m->tuning) return 0;
    crumb_kernel_suite_cpu.identify(NULL, processor, target, source);
    return crumb_tuning_digest(m->tuning, processor);
}

static void model_key(const crumb_model *m, crumb_kv_type kv_type, char key[KEY_SIZE]) {
    const crumb_device_info *d = &m->units[0].info;
    snprintf(key, KEY_SIZE, "crumb-verified 3\n%s\n%s\n%s\n%s\n%016" PRIx64 " %016" PRIx64 "\n%s",
             m->units[0].backend->name, d->detail, d->kernels, d->target, hash_network(&m->net), tuned(m),
             kv_type == CRUMB_KV_Q8 ? "cache q8\n" : "");
}

static void device_key(const char *backend, const char *detail, const char *kernels, char key[KEY_SIZE]) {
    snprintf(key, KEY_SIZE, "crumb-target 2\n%s\n%s\n%s\n", backend, detail, kernels);
}

static bool file_of(const char *key, char *path, size_t size) {
    char name[64];
    snprintf(name, sizeof name, "verified/%016" PRIx64, crumb_hash(CRUMB_HASH_SEED, key, strlen(key)));
    return crumb_cache_path(name, path, size);
}

static bool recall(const char *key, char *out, size_t size) {
    char path[1024];
    void *bytes;
    size_t n, n_key = strlen(key);
    if (!file_of(key, path, sizeof path) || crumb_cache_read(path, MAX_FILE, &bytes, &n, NULL) != CRUMB_OK)
        return false;
    const bool known = n >= n_key && n - n_key < size && memcmp(bytes, key, n_key) == 0;
    if (known) snprintf(out, size, "%.*s", (int)(n - n_key), (const char *)bytes + n_key);
    free(bytes);
    return known;
}

/* Where nothing can be kept, the next run finds out again. */
static void remember(const char *key, const char *content) {
    char path[1024], text[MAX_FILE];
    if (!file_of(key, path, sizeof path)) return;
    snprintf(text, sizeof text, "%s%s", key, content);
    crumb_cache_write(path, text, strlen(text), NULL);
}

static crumb_status check(crumb_model *m, crumb_kv_type kv_type, crumb_error *err) {
    char key[KEY_SIZE], content[32];
    const bool once = m->checks.asked == CRUMB_VERIFY_AUTO, q8 = kv_type == CRUMB_KV_Q8;
    if (m->checks.right[q8]) return CRUMB_OK;
    model_key(m, kv_type, key);
    if (!once || !recall(key, content, sizeof content) || strcmp(content, "right") != 0) {
        crumb_engine_log(m, CRUMB_LOG_INFO, "checking the kernels of %s (%s) against the CPU's, %s cache: %s",
                         m->units[0].info.name, m->units[0].info.detail, q8 ? "q8" : "f16",
                         once ? "once for this driver and kind of model" : "as asked");
        CRUMB_TRY(crumb_engine_verify(m, kv_type, err));
        remember(key, "right");
    }
    m->checks.right[q8] = true;
    return CRUMB_OK;
}

crumb_status crumb_engine_check_kernels(crumb_model *m, crumb_kv_type kv_type, crumb_error *err) {
    if (!*m->units[0].info.kernels || m->checks.asked == CRUMB_VERIFY_NEVER) return CRUMB_OK;
    crumb_lock_take(m->checks.lock);
    const crumb_status status = check(m, kv_type, err);
    crumb_lock_release(m->checks.lock);
    return status;
}

/* A line with the target, then what was wrong. */
bool crumb_engine_recall_target(const char *backend, const char *detail, const char *kernels,
                                crumb_engine_lowered *out) {
    char key[KEY_SIZE], content[sizeof *out];
    *out = (crumb_engine_lowered){0};
    device_key(backend, detail, kernels, key);
    if (!recall(key, content, sizeof content)) return false;
    const size_t n = strcspn(content, "\n");
    if (n == 0 || n >= sizeof out->target || !content[n]) return false;
    memcpy(out->target, content, n);
    snprintf(out->why, sizeof out->why, "%s", content + n + 1);
    for (char *c = out->why; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' '; /* a driver's words may be among them */
    return true;
}

void crumb_engine_remember_target(const char *backend, const char *detail, const char *kernels,
                                  const crumb_engine_lowered *found) {
    char key[KEY_SIZE], content[sizeof *found];
    device_key(backend, detail, kernels, key);
    snprintf(content, sizeof content, "%s\n%.*s", found->target, (int)sizeof found->why - 8, found->why);
    remember(key, content);
}
