#include "tools/crumb/kld.h"

#include "host/base/checked.h"
#include "host/base/error.h"
#include "host/base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 20, ROW_HEAD = 4 }; /* u16 before a row's values */

static const char magic[] = "_logits_";

/* u16 of a row. */
static uint64_t row_words(uint32_t n_vocab) {
    return ROW_HEAD + crumb_round_up(n_vocab, 2);
}

/* Rows of a chunk: from its middle, and but for the last token, which predicts nothing that is there. */
static uint64_t rows_of(uint32_t n_ctx) {
    return n_ctx - 1 - n_ctx / 2;
}

typedef struct softmax {
    float largest, smallest, log_sum; /* log_sum: of exp(logit - largest) */
    uint32_t best;
} softmax;

static softmax measure(const float *logits, uint32_t n) {
    softmax s = {.largest = logits[0], .smallest = logits[0]};
    double sum = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (logits[i] > s.largest) s.largest = logits[i], s.best = i;
        if (logits[i] < s.smallest) s.smallest = logits[i];
    }
    for (uint32_t i = 0; i < n; i++) sum += (double)expf(logits[i] - s.largest);
    s.log_sum = (float)log(sum);
    return s;
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

static crumb_status write_head(kld_writer *w, uint32_t n_ctx, size_t n_chunks, const int32_t *tokens,
                               crumb_error *err) {
    const uint32_t numbers[3] = {n_ctx, w->n_vocab, (uint32_t)n_chunks};
    CRUMB_TRY(crumb_file_out_truncate(&w->file, 0, err));
    CRUMB_TRY(crumb_file_out_write(&w->file, 0, magic, 8, err));
    CRUMB_TRY(crumb_file_out_write(&w->file, 8, numbers, sizeof numbers, err));
    const uint64_t n_bytes = (uint64_t)n_chunks * n_ctx * sizeof *tokens;
    CRUMB_TRY(crumb_file_out_write(&w->file, HEAD_BYTES, tokens, n_bytes, err));
    w->at = HEAD_BYTES + n_bytes;
    return CRUMB_OK;
}

crumb_status kld_write_open(const char *path, uint32_t n_ctx, uint32_t n_vocab, size_t n_chunks, const int32_t *tokens,
                            kld_writer *out, crumb_error *err) {
    char partial[4096];
    *out = (kld_writer){.path = path, .n_vocab = n_vocab, .file = {.fd = -1}};
    if (snprintf(partial, sizeof partial, "%s.partial", path) >= (int)sizeof partial)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: the path is too long", path);
    CRUMB_TRY(crumb_calloc(row_words(n_vocab), sizeof *out->row, "a row of a baseline", (void **)&out->row, err));
    CRUMB_TRY(crumb_file_out_open(partial, &out->file, err));
    return write_head(out, n_ctx, n_chunks, tokens, err);
}

/* Logarithms of probabilities in 65535 steps, down to e^-16 of the best one's. */
crumb_status kld_write_row(kld_writer *w, const float *logits, crumb_error *err) {
    const softmax s = measure(logits, w->n_vocab);
    const float lowest = s.smallest > s.largest - 16 ? s.smallest : s.largest - 16;
    const float head[2] = {(s.largest - lowest) / 65535.0f, lowest - s.largest - s.log_sum};
    const float steps = head[0] != 0 ? 1 / head[0] : 0;
    memcpy(w->row, head, sizeof head);
    for (uint32_t i = 0; i < w->n_vocab; i++)
        w->row[ROW_HEAD + i] = logits[i] > lowest ? (uint16_t)lrintf(steps * (logits[i] - lowest)) : 0;
    const uint64_t n_bytes = row_words(w->n_vocab) * sizeof *w->row;
    CRUMB_TRY(crumb_file_out_write(&w->file, w->at, w->row, n_bytes, err));
    w->at += n_bytes;
    return CRUMB_OK;
}

crumb_status kld_write_finish(kld_writer *w, crumb_error *err) {
    CRUMB_TRY(crumb_file_out_publish(&w->file, w->path, err));
    crumb_file_out_close(&w->file);
    return CRUMB_OK;
}

void kld_write_close(kld_writer *w) {
    if (w->file.path) crumb_file_remove(w->file.path);
    crumb_file_out_close(&w->file);
    free(w->row);
    *w = (kld_writer){.file = {.fd = -1}};
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

typedef struct part_read {
    const kld_base *b;
    uint64_t at, n_bytes;
    void *to;
} part_read;

/* Runs inside crumb_file_guard. */
static crumb_status copy_part(void *ctx, crumb_error *err) {
    const part_read *r = ctx;
    (void)err;
    memcpy(r->to, r->b->map.data + r->at, r->n_bytes);
    return CRUMB_OK;
}

static crumb_status read_part(const kld_base *b, uint64_t at, uint64_t n_bytes, void *to, crumb_error *err) {
    part_read r = {b, at, n_bytes, to};
    return crumb_file_guard(b->path, copy_part, &r, err);
}

static crumb_status damaged(const kld_base *b, const char *problem, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_FORMAT, "%s: %s; make it again with --kl-divergence-base", b->path, problem);
}

/* The size that the header asks for; 0: none that can be. */
static uint64_t expected_bytes(const kld_base *b, uint64_t n_tokens) {
    uint64_t n, all;
    if (!crumb_mul_u64((uint64_t)b->n_chunks, b->n_rows, &n) || !crumb_mul_u64(n, b->row_bytes, &n) ||
        !crumb_add_u64(n, HEAD_BYTES + n_tokens * sizeof *b->tokens, &all))
        return 0;
    return all;
}

static crumb_status check_tokens(const kld_base *b, uint64_t n_tokens, crumb_error *err) {
    for (uint64_t i = 0; i < n_tokens; i++)
        if (b->tokens[i] < 0 || (uint32_t)b->tokens[i] >= b->n_vocab) return damaged(b, "a token is none", err);
    return CRUMB_OK;
}

static crumb_status read_head(kld_base *b, uint32_t n_vocab, crumb_error *err) {
    struct {
        char magic[8];
        uint32_t n_ctx;
        int32_t n_vocab, n_chunks;
    } head;
    if (b->map.size < HEAD_BYTES) return damaged(b, "too short for a baseline", err);
    CRUMB_TRY(read_part(b, 0, HEAD_BYTES, &head, err));
    if (memcmp(head.magic, magic, 8) != 0) return damaged(b, "not a baseline of logits", err);
    if (head.n_ctx < 4 || head.n_ctx > 1 << 24 || head.n_chunks < 1 || head.n_vocab < 1)
        return damaged(b, "its header is damaged", err);
    if ((uint32_t)head.n_vocab != n_vocab)
        return crumb_fail(err, CRUMB_ERR_ARGUMENT, "%s: is of a model of %d tokens, and this one has %u", b->path,
                          head.n_vocab, n_vocab);
    b->n_ctx = head.n_ctx;
    b->n_vocab = n_vocab;
    b->n_chunks = (size_t)head.n_chunks;
    b->n_rows = rows_of(b->n_ctx);
    b->row_bytes = row_words(n_vocab) * sizeof *b->row;
    const uint64_t n_tokens = (uint64_t)b->n_chunks * b->n_ctx;
    if (expected_bytes(b, n_tokens) != b->map.size) return damaged(b, "it is cut off, or has too much", err);
    CRUMB_TRY(crumb_calloc(n_tokens, sizeof *b->tokens, "a baseline's tokens", (void **)&b->tokens, err));
    CRUMB_TRY(crumb_calloc(1, b->row_bytes, "a baseline's row", (void **)&b->row, err));
    CRUMB_TRY(read_part(b, HEAD_BYTES, n_tokens * sizeof *b->tokens, b->tokens, err));
    return check_tokens(b, n_tokens, err);
}

crumb_status kld_open(const char *path, uint32_t n_vocab, kld_base *out, crumb_error *err) {
    *out = (kld_base){.path = path};
    CRUMB_TRY(crumb_file_map_open(path, &out->map, err));
    return read_head(out, n_vocab, err);
}

void kld_close(kld_base *b) {
    crumb_file_map_close(&b->map);
    free(b->tokens);
    free(b->row);
    *b = (kld_base){.path = NULL};
}

/* ---- comparing ----------------------------------------------------------------------------------------------- */

crumb_status kld_sums_open(size_t capacity, kld_sums *out, crumb_error *err) {
    *out = (kld_sums){.capacity = capacity};
    CRUMB_TRY(crumb_calloc(capacity, sizeof *out->klds, "divergences", (void **)&out->klds, err));
    return crumb_calloc(capacity, sizeof *out->ps, "differences", (void **)&out->ps, err);
}

void kld_sums_close(kld_sums *s) {
    free(s->klds);
    free(s->ps);
    *s = (kld_sums){0};
}

/* sum p_base * log(p_base / p), over tokens of at least e^-16; the base's best token. */
static double divergence(const kld_base *b, const float head[2], const float *logits, float log_total, uint32_t *best) {
    const uint16_t *values = b->row + ROW_HEAD;
    double sum = 0;
    *best = 0;
    for (uint32_t i = 0; i < b->n_vocab; i++) {
        const float log_base = head[0] * (float)values[i] + head[1];
        if (values[i] > values[*best]) *best = i;
        if (log_base > -16) sum += (double)(expf(log_base) * (log_base - logits[i] + log_total));
    }
    return sum;
}

crumb_status kld_add(kld_base *b, size_t chunk, uint64_t row, const float *logits, int32_t token, kld_sums *sums,
                     crumb_error *err) {
    const uint64_t rows_at = HEAD_BYTES + (uint64_t)b->n_chunks * b->n_ctx * sizeof *b->tokens;
    float head[2];
    uint32_t best;
    CRUMB_TRY(read_part(b, rows_at + (chunk * b->n_rows + row) * b->row_bytes, b->row_bytes, b->row, err));
    memcpy(head, b->row, sizeof head);
    if (!isfinite(head[0]) || !isfinite(head[1])) return damaged(b, "a row is not of numbers", err);
    if (sums->n == sums->capacity) return crumb_fail(err, CRUMB_ERR_INTERNAL, "%s: more rows than expected", b->path);
    const softmax s = measure(logits, b->n_vocab);
    const float log_total = s.largest + s.log_sum, nll = log_total - logits[token];
    const float base = -(head[0] * (float)b->row[ROW_HEAD + token] + head[1]);
    const double kld = divergence(b, head, logits, log_total, &best);
    const float p = expf(-nll) - expf(-base), p2 = p * p;
    sums->nll += (double)nll;
    sums->nll2 += (double)(nll * nll);
    sums->base += (double)base;
    sums->base2 += (double)(base * base);
    sums->nll_base += (double)(nll * base);
    sums->kld += kld;
    sums->kld2 += kld * kld;
    sums->p += (double)p;
    sums->p2 += (double)p2;
    sums->p4 += (double)(p2 * p2);
    sums->n_same_top += s.best == best;
    sums->klds[sums->n] = (float)kld;
    sums->ps[sums->n++] = p;
    return CRUMB_OK;
}
