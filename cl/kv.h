/* The KV cache on the device: keys and values of each layer in allocations of their own, so that none is larger than a
 * device allocates at once; blocks within them as on the CPU (cl/kernels/common/3_kv.cl). And the tables of cosines and
 * sines that its positions need. */
#ifndef CRUMB_CL_KV_H
#define CRUMB_CL_KV_H

#include "cl/memory.h"

typedef struct crumb_cl_turns {
    const float *inv_freq;
    uint32_t dims;
    float magnitude;
    crumb_cl_memory table; /* float2 [n_ctx][dims/2] */
} crumb_cl_turns;

enum { CRUMB_CL_MAX_TURNS = 4 };

struct crumb_kv_cache {
    crumb_kv_params params;
    crumb_cl_memory *keys, *values; /* [n_layers] */
    bool lent;                      /* they are crumb_kv_params.pages */
    uint32_t head_blocks;           /* pages of a sequence's head */
    crumb_cl_turns turns[CRUMB_CL_MAX_TURNS];
    uint32_t n_turns;
};

crumb_status crumb_cl_kv_create(crumb_device *d, const crumb_kv_params *params, crumb_kv_cache **out, uint64_t *n_bytes,
                                crumb_error *err);
void crumb_cl_kv_destroy(crumb_device *d, crumb_kv_cache *kv);
crumb_status crumb_cl_kv_read(crumb_device *d, const crumb_kv_cache *kv, const crumb_kv_range *range, void *to,
                              crumb_error *err);
crumb_status crumb_cl_kv_write(crumb_device *d, crumb_kv_cache *kv, const crumb_kv_range *range, const void *from,
                               crumb_error *err);
/* The table for these frequencies, made when it is first asked for. */
crumb_status crumb_cl_kv_turns(crumb_device *d, crumb_kv_cache *kv, const float *inv_freq, uint32_t dims,
                               float magnitude, const crumb_cl_memory **out, crumb_error *err);

#endif
