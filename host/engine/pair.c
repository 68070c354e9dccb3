#include "host/engine/pair.h"

#include "host/base/memory.h"
#include "host/base/thread.h"
#include "host/engine/shares.h"
#include "host/kernel/kv.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST, SECOND, MAX_SIZES = 8 };

typedef struct side {
    const crumb_engine_unit *unit;
    crumb_kv_cache *kv;
    crumb_kv_params kv_params;
    uint32_t head0;              /* of the model's key heads, the first that it has */
    uint64_t busy_ns, waited_ns; /* in all */
    crumb_status status;
    crumb_error err;
} side;

/* Plans of one size. Flags count their replays, so that each size has its own; and values of its own. */
typedef struct plans {
    crumb_pair_size size;
    crumb_share_memory memory;
    uint64_t memory_bytes;
    crumb_share_part part[2];
    crumb_plan *plan[2];
} plans;

struct crumb_pair {
    crumb_model *model;
    crumb_graph whole;
    crumb_value logits;
    crumb_share_plan share; /* of each size, but for its rows */
    side sides[2];
    plans sizes[MAX_SIZES];
    size_t n_sizes;
    crumb_kv_pages pages; /* borrowed */
    plans *now;           /* of the run under way, or the last */
    const crumb_row *rows;
    uint32_t n_rows;
    crumb_thread *thread; /* drives the first device */
    uint32_t asked, done; /* runs; atomic, and what threads sleep on */
    uint32_t stop;
    uint32_t given_up; /* one side of the run has failed; atomic */
    crumb_pair_stats stats;
};

/* ---- the first device's thread --------------------------------------------------------------------------------- */

static void replay(crumb_pair *p, int which) {
    side *s = &p->sides[which];
    const uint64_t start = crumb_now_ns(), waited = s->waited_ns;
    s->status = s->unit->backend->plan.replay(p->now->plan[which], p->rows, p->n_rows, &s->err);
    if (s->status != CRUMB_OK) __atomic_store_n(&p->given_up, 1, __ATOMIC_RELEASE);
    s->busy_ns += crumb_now_ns() - start - (s->waited_ns - waited);
}

/* A token follows soon, or not at all: spins for a while before it sleeps. */
static void wait_for(uint32_t *word, uint32_t known) {
    enum { SPINS = 20000 };
    for (int i = 0; i < SPINS && __atomic_load_n(word, __ATOMIC_ACQUIRE) == known; i++) crumb_spin_pause();
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == known) crumb_wait_u32(word, known);
}

static void announce(uint32_t *word) {
    __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
    crumb_wake_all_u32(word);
}

static void drive(void *arg) {
    crumb_pair *p = arg;
    for (uint32_t n = 0;; n++) {
        wait_for(&p->asked, n);
        if (__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) return;
        replay(p, FIRST);
        announce(&p->done);
    }
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static crumb_status build_whole(crumb_pair *p, const crumb_session_params *params, crumb_error *err) {
    const crumb_network *net = &p->model->net;
    crumb_graph_init(&p->whole, params->activation, err);
    p->logits = crumb_network_span(net, &p->whole, 0, net->hparams.num_hidden_layers + 1);
    p->whole.err = NULL;
    return p->whole.status;
}

static crumb_status make_memory(crumb_pair *p, const crumb_share_plan *plan, plans *of, crumb_error *err) {
    const crumb_engine_unit *first = p->sides[FIRST].unit;
    crumb_share_part sizes;
    void *memory;
    CRUMB_TRY(crumb_share_make(plan, FIRST, NULL, &sizes, err));
    const uint64_t flag_bytes = sizes.n_exchanges * 2 * CRUMB_SHARE_FLAG_BYTES;
    of->memory_bytes = sizes.n_floats * sizeof(float);
    p->stats.n_exchanges = sizes.n_exchanges;
    crumb_share_free(&sizes);
    CRUMB_TRY(crumb_calloc(1, flag_bytes, "the devices' flags", (void **)&of->memory.flags, err));
    CRUMB_TRY(first->backend->device.shared_create(first->device, of->memory_bytes, &memory, err));
    of->memory.values = memory;
    of->memory.given_up = &p->given_up;
    p->stats.scratch_bytes += of->memory_bytes;
    for (int i = FIRST; i <= SECOND; i++) of->memory.waited[i] = &p->sides[i].waited_ns;
    return CRUMB_OK;
}

static crumb_status record(crumb_pair *p, int which, const crumb_share_plan *plan, plans *of, crumb_error *err) {
    const side *s = &p->sides[which];
    const crumb_backend *backend = s->unit->backend;
    crumb_share_part *part = &of->part[which];
    CRUMB_TRY(crumb_share_make(plan, which, &of->memory, part, err));
    const crumb_plan_desc desc = {.ops = part->ops,
                                  .n_ops = part->n_ops,
                                  .values = part->values,
                                  .n_values = part->n_values,
                                  .max_rows = of->size.max_rows,
                                  .max_outputs = of->size.max_outputs,
                                  .n_threads = of->size.n_threads,
                                  .kv = s->kv};
    CRUMB_TRY(backend->plan.record(s->unit->device, &desc, &of->plan[which], err));
    p->stats.scratch_bytes += backend->plan.scratch_bytes(of->plan[which]);
    return CRUMB_OK;
}

static crumb_status make_plans(crumb_pair *p, plans *of, crumb_error *err) {
    crumb_share_plan plan = p->share;
    plan.max_rows = of->size.max_rows;
    plan.max_outputs = of->size.max_outputs;
    CRUMB_TRY(make_memory(p, &plan, of, err));
    for (int i = FIRST; i <= SECOND; i++) CRUMB_TRY(record(p, i, &plan, of, err));
    return CRUMB_OK;
}

static void free_plans(const crumb_pair *p, plans *of) {
    const crumb_engine_unit *first = p->sides[FIRST].unit;
    for (int i = FIRST; i <= SECOND; i++) {
        if (of->plan[i]) p->sides[i].unit->backend->plan.destroy(of->plan[i]);
        crumb_share_free(&of->part[i]);
    }
    if (of->memory.values) first->backend->device.shared_destroy(first->device, of->memory.values, of->memory_bytes);
    free(of->memory.flags);
    *of = (plans){.memory_bytes = 0};
}

static crumb_status get_plans(crumb_pair *p, const crumb_pair_size *size, plans **out, crumb_error *err) {
    for (size_t i = 0; i < p->n_sizes; i++) {
        *out = &p->sizes[i];
        if ((*out)->size.max_rows == size->max_rows && (*out)->size.max_outputs == size->max_outputs) return CRUMB_OK;
    }
    if (p->n_sizes == MAX_SIZES)
        return crumb_fail(err, CRUMB_ERR_INTERNAL, "divided layers: too many sizes of batches");
    *out = &p->sizes[p->n_sizes];
    (*out)->size = *size;
    const crumb_status status = make_plans(p, *out, err);
    if (status == CRUMB_OK)
        p->n_sizes++;
    else
        free_plans(p, *out);
    return status;
}

crumb_status crumb_pair_prepare(crumb_pair *p, const crumb_pair_size *size, crumb_error *err) {
    plans *unused;
    return get_plans(p, size, &unused, err);
}

static crumb_status make_cache(crumb_pair *p, int which, const crumb_session_params *params, crumb_error *err) {
    const crumb_hparams *h = &p->model->net.hparams;
    const uint32_t heads = p->share.heads;
    side *s = &p->sides[which];
    uint64_t n_bytes;
    const bool own_keys = h->num_key_value_heads > 1; /* else both have the one */
    s->head0 = which == SECOND && own_keys ? heads : 0;
    s->kv_params = (crumb_kv_params){.n_layers = h->num_hidden_layers,
                                     .n_sequences = 1,
                                     .n_ctx = params->n_ctx,
                                     .n_head_kv = !own_keys        ? 1
                                                  : which == FIRST ? heads
                                                                   : h->num_key_value_heads - heads,
                                     .head_dim = h->head_dim,
                                     .type = params->kv_type};
    CRUMB_TRY(crumb_kv_pages_cache(&p->pages, s->unit, &s->kv_params, NULL, s->head0, &s->kv, &n_bytes, err));
    p->stats.kv_bytes += n_bytes;
    return CRUMB_OK;
}

static crumb_status set_up(crumb_pair *p, const crumb_session_params *params, double share, crumb_error *err) {
    const crumb_pair_size one = {1, 1, params->n_threads};
    CRUMB_TRY(build_whole(p, params, err));
    p->share = (crumb_share_plan){.whole = &p->whole,
                                  .result = p->logits,
                                  .heads = crumb_share_heads(&p->model->net.hparams, share),
                                  .share = share,
                                  .second_embeds = p->model->divided};
    p->stats.share = share;
    p->stats.heads = p->share.heads;
    for (int i = FIRST; i <= SECOND; i++) CRUMB_TRY(make_cache(p, i, params, err));
    CRUMB_TRY(crumb_pair_prepare(p, &one, err));
    return crumb_thread_start(drive, p, &p->thread, err);
}

crumb_status crumb_pair_create(crumb_model *model, const crumb_session_params *params, double share,
                               const crumb_kv_pages *pages, crumb_pair **out, crumb_error *err) {
    crumb_pair *p;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *p, "the two devices' plans", (void **)&p, err));
    p->model = model;
    if (model->net.hparams.num_key_value_heads > 1) p->pages = *pages; /* one head's they would both write */
    for (int i = FIRST; i <= SECOND; i++) p->sides[i].unit = &model->units[i];
    const crumb_status status = set_up(p, params, share, err);
    if (status == CRUMB_OK)
        *out = p;
    else
        crumb_pair_destroy(p);
    return status;
}

void crumb_pair_destroy(crumb_pair *p) {
    if (!p) return;
    if (p->thread) {
        __atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
        announce(&p->asked);
        crumb_thread_join(p->thread);
    }
    for (size_t i = 0; i < p->n_sizes; i++) free_plans(p, &p->sizes[i]);
    for (int i = FIRST; i <= SECOND; i++) {
        const side *s = &p->sides[i];
        if (s->kv) s->unit->backend->device.kv_destroy(s->unit->device, s->kv);
    }
    crumb_graph_free(&p->whole);
    free(p);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static crumb_status run_both(crumb_pair *p, crumb_error *err) {
    const uint32_t n = __atomic_load_n(&p->done, __ATOMIC_ACQUIRE);
    const side *first = &p->sides[FIRST], *second = &p->sides[SECOND];
    __atomic_store_n(&p->given_up, 0, __ATOMIC_RELAXED);
    announce(&p->asked);
    replay(p, SECOND);
    wait_for(&p->done, n);
    /* the CPU fails when the other has, or when it has waited for it for too long, too */
    const side *bad = first->status != CRUMB_OK ? first : second->status != CRUMB_OK ? second : NULL;
    if (!bad) return CRUMB_OK;
    if (err) *err = bad->err;
    return bad->status;
}

crumb_status crumb_pair_run(crumb_pair *p, const crumb_pair_size *size, const crumb_row *rows, uint32_t n_rows,
                            const crumb_engine_unit **failed, crumb_error *err) {
    *failed = p->sides[FIRST].unit;
    CRUMB_TRY(get_plans(p, size, &p->now, err));
    p->rows = rows;
    p->n_rows = n_rows;
    CRUMB_TRY(run_both(p, err));
    *failed = NULL;
    return CRUMB_OK;
}

crumb_status crumb_pair_logits(crumb_pair *p, const float **out, uint32_t *n, crumb_error *err) {
    return p->sides[SECOND].unit->backend->plan.read(p->now->plan[SECOND], p->now->part[SECOND].result, out, n, err);
}

/* ---- keys and values ------------------------------------------------------------------------------------------- */

static crumb_status move_side(crumb_pair *p, side *s, const crumb_engine_unit *unit, crumb_kv_cache *all,
                              const crumb_kv_params *params, uint32_t from, uint32_t to, bool out, crumb_error *err) {
    const uint32_t page = from / CRUMB_KV_PAGE * CRUMB_KV_PAGE;
    crumb_kv_range whole = {
        .n_layers = 1, .head = s->head0, .n_heads = s->kv_params.n_head_kv, .position = page, .n_positions = to - page};
    const uint64_t n_bytes = crumb_kv_range_bytes(params, &whole);
    void *pages;
    CRUMB_TRY(crumb_calloc(1, n_bytes, "keys and values that move", &pages, err));
    crumb_status status = CRUMB_OK;
    for (uint32_t i = 0; i < s->kv_params.n_layers && status == CRUMB_OK; i++) {
        crumb_kv_range own = whole;
        whole.layer = own.layer = i;
        own.head = 0;
        if (out) {
            status = s->unit->backend->device.kv_read(s->unit->device, s->kv, &own, pages, err);
            if (status == CRUMB_OK) status = unit->backend->device.kv_write(unit->device, all, &whole, pages, err);
        } else {
            status = unit->backend->device.kv_read(unit->device, all, &whole, pages, err);
            if (status == CRUMB_OK)
                status = s->unit->backend->device.kv_write(s->unit->device, s->kv, &own, pages, err);
        }
        p->stats.moved_bytes += n_bytes;
    }
    free(pages);
    return status;
}

crumb_status crumb_pair_move_kv(crumb_pair *p, const crumb_engine_unit *unit, crumb_kv_cache *all,
                                const crumb_kv_params *params, uint32_t from, uint32_t to, bool out, crumb_error *err) {
    for (int i = FIRST; i <= SECOND; i++) CRUMB_TRY(move_side(p, &p->sides[i], unit, all, params, from, to, out, err));
    return CRUMB_OK;
}

bool crumb_pair_shares_kv(const crumb_pair *p) {
    return p->pages.at != NULL;
}

crumb_pair_stats crumb_pair_get_stats(const crumb_pair *p) {
    crumb_pair_stats stats = p->stats;
    for (int i = FIRST; i <= SECOND; i++) stats.busy_ns[i] = p->sides[i].busy_ns;
    return stats;
}
