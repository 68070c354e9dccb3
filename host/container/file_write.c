#include "host/container/file_write.h"

#include "host/base/checked.h"
#include "host/base/file_out.h"
#include "host/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PATH.partial.done: what it is about, then one checksum for each whole tensor. */
typedef struct done_head {
    char magic[8];
    uint64_t header, identity;
} done_head;

static const char done_magic[8] = "crumbp1";

enum { PIECE_BYTES = 1 << 20 };

struct crumb_file_writer {
    crumb_file_plan plan;
    char *path, *partial_path, *done_path;
    crumb_file_out partial, done;
    uint64_t n_done;
    uint64_t at;     /* in the file */
    uint64_t within; /* bytes of the next tensor that are written */
    uint64_t sum;    /* of these */
    bool finished;
};

static const uint64_t sum_start = 0xcbf29ce484222325u;

/* Eight bytes a step; the pieces that a tensor comes in do not matter only where they are whole words, as all but the
 * last one are here (see crumb_file_writer_append). */
static uint64_t add_sum(uint64_t sum, const uint8_t *p, uint64_t n) {
    uint64_t word, i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, p + i, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 32;
    }
    for (; i < n; i++) sum = (sum ^ p[i]) * 0x100000001b3u;
    return sum;
}

static char *join(const char *path, const char *end) {
    const size_t n = strlen(path) + strlen(end) + 1;
    char *joined = malloc(n);
    if (joined) snprintf(joined, n, "%s%s", path, end);
    return joined;
}

static done_head head_of(const crumb_file_writer *w, uint64_t identity) {
    done_head head = {.header = add_sum(sum_start, w->plan.head, w->plan.head_bytes), .identity = identity};
    memcpy(head.magic, done_magic, sizeof head.magic);
    return head;
}

/* The sum of a tensor's bytes in the file. */
static crumb_status sum_written(const crumb_file_writer *w, uint64_t at, uint64_t n_bytes, uint64_t *sum,
                                crumb_error *err) {
    uint8_t *piece;
    crumb_status status = crumb_calloc(PIECE_BYTES, 1, "a piece of a file", (void **)&piece, err);
    *sum = sum_start;
    for (uint64_t done = 0; status == CRUMB_OK && done < n_bytes;) {
        const uint64_t n = n_bytes - done < PIECE_BYTES ? n_bytes - done : PIECE_BYTES;
        status = crumb_file_out_read(&w->partial, at + done, piece, n, err);
        if (status == CRUMB_OK) *sum = add_sum(*sum, piece, n);
        done += n;
    }
    free(piece);
    return status;
}

/* Counts the tensors of an earlier run that are still whole. What cannot be read is not. */
static void take_up(crumb_file_writer *w, const done_head *head) {
    done_head found;
    uint64_t noted, sum;
    if (w->done.size < sizeof found || crumb_file_out_read(&w->done, 0, &found, sizeof found, NULL) != CRUMB_OK ||
        memcmp(&found, head, sizeof found) != 0)
        return;
    while (w->n_done < w->plan.n_tensors) {
        const uint64_t n_bytes = w->plan.tensor_bytes[w->n_done];
        if (crumb_file_out_read(&w->done, sizeof found + 8 * w->n_done, &noted, 8, NULL) != CRUMB_OK ||
            sum_written(w, w->at, n_bytes, &sum, NULL) != CRUMB_OK || sum != noted)
            return;
        w->at += crumb_round_up(n_bytes, w->plan.alignment);
        w->n_done++;
    }
}

static crumb_status begin(crumb_file_writer *w, uint64_t identity, crumb_error *err) {
    const done_head head = head_of(w, identity);
    CRUMB_TRY(crumb_file_out_open(w->partial_path, &w->partial, err));
    CRUMB_TRY(crumb_file_out_open(w->done_path, &w->done, err));
    w->at = crumb_round_up(w->plan.head_bytes, w->plan.alignment);
    take_up(w, &head);
    CRUMB_TRY(crumb_file_out_truncate(&w->done, w->n_done ? sizeof head + 8 * w->n_done : 0, err));
    CRUMB_TRY(crumb_file_out_truncate(&w->partial, w->n_done ? w->at : 0, err));
    CRUMB_TRY(crumb_file_out_write(&w->partial, 0, w->plan.head, w->plan.head_bytes, err));
    CRUMB_TRY(crumb_file_out_truncate(&w->partial, w->at, err)); /* zeros up to the first tensor */
    return crumb_file_out_write(&w->done, 0, &head, sizeof head, err);
}

crumb_status crumb_file_writer_open(const char *path, const crumb_file_plan *plan, uint64_t identity,
                                    crumb_file_writer **out, crumb_error *err) {
    crumb_file_writer *w;
    *out = NULL;
    CRUMB_TRY(crumb_calloc(1, sizeof *w, "a file's writer", (void **)&w, err));
    w->plan = *plan;
    w->sum = sum_start;
    w->path = join(path, "");
    w->partial_path = join(path, ".partial");
    w->done_path = join(path, ".partial.done");
    crumb_status status = CRUMB_OK;
    if (!w->path || !w->partial_path || !w->done_path)
        status = crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for a path");
    if (status == CRUMB_OK) status = begin(w, identity, err);
    if (status != CRUMB_OK) {
        crumb_file_writer_close(w, true); /* it may be another process's */
        return status;
    }
    *out = w;
    return CRUMB_OK;
}

uint64_t crumb_file_writer_n_done(const crumb_file_writer *w) {
    return w->n_done;
}

crumb_status crumb_file_writer_read(const crumb_file_writer *w, uint64_t tensor, void *out, crumb_error *err) {
    uint64_t at = crumb_round_up(w->plan.head_bytes, w->plan.alignment);
    if (tensor >= w->n_done)
        return crumb_fail(err, CRUMB_ERR_INTERNAL, "%s: a tensor is read before it is written", w->path);
    for (uint64_t i = 0; i < tensor; i++) at += crumb_round_up(w->plan.tensor_bytes[i], w->plan.alignment);
    return crumb_file_out_read(&w->partial, at, out, w->plan.tensor_bytes[tensor], err);
}

/* The tensor is whole: pads it and notes its sum. */
static crumb_status end_tensor(crumb_file_writer *w, crumb_error *err) {
    w->at = crumb_round_up(w->at, w->plan.alignment);
    CRUMB_TRY(crumb_file_out_truncate(&w->partial, w->at, err));
    CRUMB_TRY(crumb_file_out_write(&w->done, sizeof(done_head) + 8 * w->n_done, &w->sum, sizeof w->sum, err));
    w->n_done++;
    w->within = 0;
    w->sum = sum_start;
    return CRUMB_OK;
}

crumb_status crumb_file_writer_append(crumb_file_writer *w, const void *bytes, uint64_t n_bytes, crumb_error *err) {
    const bool room = w->n_done < w->plan.n_tensors;
    const uint64_t left = room ? w->plan.tensor_bytes[w->n_done] - w->within : 0;
    if (n_bytes > left || (n_bytes < left && n_bytes % 8 != 0))
        return crumb_fail(err, CRUMB_ERR_INTERNAL, "%s: a part of a tensor that does not fit the plan", w->path);
    CRUMB_TRY(crumb_file_out_write(&w->partial, w->at, bytes, n_bytes, err));
    w->sum = add_sum(w->sum, bytes, n_bytes);
    w->at += n_bytes;
    w->within += n_bytes;
    return n_bytes == left ? end_tensor(w, err) : CRUMB_OK;
}

crumb_status crumb_file_writer_finish(crumb_file_writer *w, crumb_error *err) {
    if (w->n_done != w->plan.n_tensors)
        return crumb_fail(err, CRUMB_ERR_INTERNAL, "%s: not all tensors have been written", w->path);
    CRUMB_TRY(crumb_file_out_publish(&w->partial, w->path, err));
    crumb_file_remove(w->done_path);
    w->finished = true;
    return CRUMB_OK;
}

void crumb_file_writer_close(crumb_file_writer *w, bool keep) {
    if (!w) return;
    if (!w->finished && !keep) {
        crumb_file_remove(w->partial_path);
        crumb_file_remove(w->done_path);
    }
    crumb_file_out_close(&w->partial);
    crumb_file_out_close(&w->done);
    free(w->path);
    free(w->partial_path);
    free(w->done_path);
    free(w);
}
