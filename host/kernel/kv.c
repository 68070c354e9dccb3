#include "host/kernel/kv.h"

#include "host/base/checked.h"

enum { KV_GROUP = 32 };

/* As cpu/attention.h and cl/kernels/common/3_kv.cl have it. */
uint64_t crumb_kv_page_bytes(crumb_kv_type type, uint32_t head_dim) {
    if (type == CRUMB_KV_F16) return 2ull * CRUMB_KV_PAGE * head_dim;
    return CRUMB_KV_PAGE * (2 * crumb_div_up(head_dim, KV_GROUP) + crumb_round_up(head_dim, 8));
}

static bool within(uint32_t first, uint32_t n, uint32_t limit) {
    return n > 0 && n <= limit && first <= limit - n;
}

crumb_status crumb_kv_range_check(const crumb_kv_params *p, const crumb_kv_range *r, crumb_error *err) {
    if (r->position % CRUMB_KV_PAGE)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "position %u does not begin a page of %d", r->position,
                          CRUMB_KV_PAGE);
    if (within(r->layer, r->n_layers, p->n_layers) && r->sequence < p->n_sequences &&
        within(r->head, r->n_heads, p->n_head_kv) && within(r->position, r->n_positions, p->n_ctx))
        return CRUMB_OK;
    return crumb_fail(err, CRUMB_ERR_ARGUMENT,
                      "%u layers from %u, %u heads from %u and %u positions from %u of sequence %u are not in a KV "
                      "cache of %u layers, %u heads, %u positions and %u sequences",
                      r->n_layers, r->layer, r->n_heads, r->head, r->n_positions, r->position, r->sequence, p->n_layers,
                      p->n_head_kv, p->n_ctx, p->n_sequences);
}

uint64_t crumb_kv_run_bytes(const crumb_kv_params *p, const crumb_kv_range *r) {
    return crumb_div_up(r->n_positions, CRUMB_KV_PAGE) * crumb_kv_page_bytes(p->type, p->head_dim);
}

uint64_t crumb_kv_range_bytes(const crumb_kv_params *p, const crumb_kv_range *r) {
    return 2 * crumb_kv_run_bytes(p, r) * r->n_layers * r->n_heads;
}
