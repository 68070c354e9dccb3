/* Tensors on disk with random codes and finite scales, for tests. */
#ifndef CRUMB_TESTS_RANDOM_TENSOR_H
#define CRUMB_TESTS_RANDOM_TENSOR_H

#include "host/lowbit/types.h"

/* splitmix64: the same sequence everywhere. */
uint64_t crumb_test_random(uint64_t *state);

/* A tensor of m x k weights (k whole blocks), every code value that the type allows about equally likely; free(). */
uint8_t *crumb_test_random_tensor(crumb_type type, uint64_t m, uint64_t k, uint64_t seed);

#endif
