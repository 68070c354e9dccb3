/* The parts of a KV cache that move between devices. */
#ifndef CRUMB_KERNEL_KV_H
#define CRUMB_KERNEL_KV_H

#include "host/backend.h"

/* Bytes of a page: CRUMB_KV_PAGE positions of one head's keys, or of its values. */
uint64_t crumb_kv_page_bytes(crumb_kv_type type, uint32_t head_dim);
/* Fails with ARGUMENT where the range does not lie in a cache of these parameters, or is empty. */
crumb_status crumb_kv_range_check(const crumb_kv_params *params, const crumb_kv_range *range, crumb_error *err);
/* Bytes of one head's pages of a range, of keys or of values; and of all that kv_read writes and kv_write reads. */
uint64_t crumb_kv_run_bytes(const crumb_kv_params *params, const crumb_kv_range *range);
uint64_t crumb_kv_range_bytes(const crumb_kv_params *params, const crumb_kv_range *range);

#endif
