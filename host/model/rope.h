/* Rotary positions: what a file's keys ask for, and the angles that follow. */
#ifndef CRUMB_MODEL_ROPE_H
#define CRUMB_MODEL_ROPE_H

#include "host/model/hparams.h"

/* Reads rope.scaling.* of h->architecture; YaRN's original context is h->max_position_embeddings unless the file says
 * otherwise. Senseless values are FORMAT, other kinds of scaling UNSUPPORTED. */
crumb_status crumb_rope_scaling_read(const crumb_gguf *g, const crumb_hparams *h, crumb_rope_scaling *out,
                                     crumb_error *err);

/* Angles per position of each rotated pair, [rope_dims / 2], all scaling applied; divisors (Llama 3's scaling) may be
 * NULL. */
void crumb_rope_inv_freq(const crumb_hparams *h, const float *divisors, float *out);

/* Factor on cosines and sines. */
float crumb_rope_magnitude(const crumb_hparams *h);

#endif
