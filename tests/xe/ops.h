/* What the tests of ops share: batches of a few rows, buffers, kernels by op. */
#ifndef CRUMB_TESTS_XE_OPS_H
#define CRUMB_TESTS_XE_OPS_H

#include "cl/registry.h"
#include "tests/xe/device.h"

enum { CRUMB_XE_ROWS = 5 };

extern crumb_xe_device crumb_xe_tested; /* opened by main */

uint32_t crumb_xe_below(uint32_t n);
cl_mem crumb_xe_upload(const void *data, size_t n_bytes);
/* A batch of CRUMB_XE_ROWS rows with these tokens and outputs; NULL: token 0, no output. */
cl_mem crumb_xe_batch_of(const uint32_t *tokens, const uint32_t *outputs, uint32_t n_outputs);
/* Reads a buffer of floats, compares it bit for bit and lets it go. */
void crumb_xe_check_buffer(cl_mem buffer, const float *want, size_t n, const char *what);
/* The op's kernel for f32, or for values in bf16, with more options than its row has. */
cl_kernel crumb_xe_kernel_of(crumb_cl_op op, const char *more);
cl_kernel crumb_xe_kernel_for(crumb_cl_op op, bool bf16, const char *more);

/* The test of ops_division.c. */
void crumb_xe_rough_division_is_rounded(void **state);

/* The tests of ops_layers.c. */
void crumb_xe_rounding_to_bf16_equals_reference(void **state);
void crumb_xe_embeddings_equal_reference(void **state);
void crumb_xe_float_layers_are_near_the_reference(void **state);
void crumb_xe_dense_layers_equal_reference(void **state);

#endif
