#include "tests/xe/ops.h"

#include "cpu/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

crumb_xe_device crumb_xe_tested;

uint32_t crumb_xe_below(uint32_t n) {
    return (uint32_t)(crumb_random_u64(&crumb_xe_seed) % n);
}

cl_mem crumb_xe_upload(const void *data, size_t n_bytes) {
    return crumb_xe_buffer(&crumb_xe_tested, data, n_bytes);
}

cl_mem crumb_xe_batch_of(const uint32_t *tokens, const uint32_t *outputs, uint32_t n_outputs) {
    uint32_t batch[4 + 4 * CRUMB_XE_ROWS] = {CRUMB_XE_ROWS, n_outputs, 1, 1};
    for (uint32_t n = 0; n < CRUMB_XE_ROWS; n++) {
        batch[4 + 4 * n] = tokens ? tokens[n] : 0;
        batch[4 + 4 * n + 3] = outputs ? outputs[n] : ~0u;
    }
    return crumb_xe_upload(batch, sizeof batch);
}

static void assert_same_floats(const float *got, const float *want, size_t n, const char *what) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: value %zu is %a, not %a", what, i, (double)got[i], (double)want[i]);
}

void crumb_xe_check_buffer(cl_mem buffer, const float *want, size_t n, const char *what) {
    float *got = malloc(n * sizeof *got);
    assert_non_null(got);
    crumb_xe_read(&crumb_xe_tested, buffer, got, n * sizeof *got);
    assert_same_floats(got, want, n, what);
    free(got);
    clReleaseMemObject(buffer);
}

cl_kernel crumb_xe_kernel_for(crumb_cl_op op, bool bf16, const char *more) {
    char options[CRUMB_CL_OPTIONS_MAX];
    const crumb_cl_kernel *kernel = crumb_cl_kernel_of(op, bf16);
    snprintf(options, sizeof options, "%s %s", kernel->options, more);
    return crumb_xe_kernel(&crumb_xe_tested, kernel->file, options, false, kernel->entry);
}

cl_kernel crumb_xe_kernel_of(crumb_cl_op op, const char *more) {
    return crumb_xe_kernel_for(op, false, more);
}
