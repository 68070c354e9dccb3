/* Runs a kernel of mistakes.cl that is wrong. usage: test_xe_mistakes race|bounds */
#include "tests/xe/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const char *mistake;

static void run_it(void **state) {
    (void)state;
    enum { ITEMS = 16 };
    crumb_xe_device device;
    assert_true(crumb_xe_open(&device));
    cl_kernel kernel = crumb_xe_kernel(&device, "tests/xe/mistakes.cl", "", false, mistake);
    cl_mem out = crumb_xe_buffer(&device, NULL, ITEMS * sizeof(uint32_t));
    crumb_xe_args(kernel, 0, "b", out);
    crumb_xe_run(&device, kernel, ITEMS, 1, 1, 1);
    clReleaseMemObject(out);
    clReleaseKernel(kernel);
    crumb_xe_close(&device);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(run_it)};
    mistake = argc > 1 ? argv[1] : "race";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
