/* KL divergence against a baseline: a file with what another model predicted for the same tokens, in llama-perplexity's
 * form, so that either program reads what the other has written.
 *
 * The file, little endian: "_logits_", u32 n_ctx, i32 n_vocab, i32 n_chunks, i32 tokens[n_chunks][n_ctx]; then for each
 * scored token of each chunk (those at n_ctx / 2 up to n_ctx - 2) a row of u16: f32 scale, f32 lowest, n_vocab values,
 * and one more where n_vocab is odd; a logarithm of a probability is scale * value + lowest.
 */
#ifndef CRUMB_TOOLS_KLD_H
#define CRUMB_TOOLS_KLD_H

#include "host/base/file.h"
#include "host/base/file_out.h"
#include "tools/crumb/cli.h"

/* ---- writing a baseline ---- */

typedef struct kld_writer {
    const char *path;
    crumb_file_out file; /* PATH.partial, until it is whole */
    uint32_t n_vocab;
    uint16_t *row;
    uint64_t at;
} kld_writer;

crumb_status kld_write_open(const char *path, uint32_t n_ctx, uint32_t n_vocab, size_t n_chunks, const int32_t *tokens,
                            kld_writer *out, crumb_error *err);
crumb_status kld_write_row(kld_writer *w, const float *logits, crumb_error *err);
crumb_status kld_write_finish(kld_writer *w, crumb_error *err);
void kld_write_close(
    kld_writer *w); /* also of one that was never opened and is all zero; removes what is not finished */

/* ---- reading one ---- */

typedef struct kld_base {
    const char *path;
    crumb_file_map map;
    uint32_t n_ctx, n_vocab;
    size_t n_chunks;
    int32_t *tokens;    /* [n_chunks * n_ctx] */
    uint64_t n_rows;    /* a chunk */
    uint16_t *row;      /* the one that was read last */
    uint64_t row_bytes; /* of one */
} kld_base;

/* Checks that the file is whole, for a model of n_vocab tokens. FORMAT, IO. */
crumb_status kld_open(const char *path, uint32_t n_vocab, kld_base *out, crumb_error *err);
void kld_close(kld_base *b);

/* ---- comparing ---- */

typedef struct kld_sums {
    uint64_t n, n_same_top;
    double nll, nll2, base, base2, nll_base; /* of -log(probability) of the token that came: the model's, the base's */
    double kld, kld2, p, p2, p4;             /* p: differences of that token's probability */
    float *klds, *ps;                        /* [capacity] */
    size_t capacity;
} kld_sums;

crumb_status kld_sums_open(size_t capacity, kld_sums *out, crumb_error *err);
void kld_sums_close(kld_sums *s);
/* Row `row` of chunk `chunk`, for which the model says `logits` and the text `token`. */
crumb_status kld_add(kld_base *b, size_t chunk, uint64_t row, const float *logits, int32_t token, kld_sums *sums,
                     crumb_error *err);
/* llama-perplexity's lines: the heading, one for the chunks so far, and all statistics (which sorts the lists). */
void kld_print_heading(void);
void kld_print_chunk(const kld_sums *s, size_t n_chunks);
void kld_print_result(kld_sums *s);
/* The statistics as an object. */
crumb_status kld_print_json(kld_sums *s, const char *model, const char *base, crumb_error *err);

#endif
