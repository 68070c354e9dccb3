/* What crumb says when there is no GPU, or one that could do more: from states of a machine, and how a machine's state
 * is read from /sys and /dev, here from a folder that has both. */
#include "cl/advice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GIB ((uint64_t)1 << 30)

static void each_state_has_its_cause_and_remedy(void **state) {
    (void)state;
    static const struct {
        crumb_cl_machine m;
        const char *says, *also;
    } cases[] = {
        {{0}, "the system shows no GPU", "no OpenCL driver is installed"},
        {{.n_drivers = 2}, "no OpenCL driver offers a GPU", "the system shows none"},
        {{.is_wsl = true}, "no OpenCL driver is installed", "intel-opencl-icd"},
        {{.is_wsl = true, .n_drivers = 1}, "the GPU that Windows passes on", "too old"},
        {{.gpu = "0000:03:00.0"},
         "no kernel driver is bound to the Intel GPU at 0000:03:00.0",
         "firmware-misc-nonfree"},
        {{.gpu = "0000:03:00.0", .n_drivers = 1, .n_nodes = 1}, "no kernel driver is bound", "i915 or xe"},
        {{.gpu = "0000:00:02.0",
          .has_kernel_driver = true,
          .n_nodes = 1,
          .closed = "/dev/dri/renderD128",
          .group = "render"},
         "/dev/dri/renderD128 may not be opened",
         "usermod -aG render $USER"},
        {{.n_nodes = 2, .closed = "/dev/dri/renderD129", .group = "video", .n_drivers = 1},
         "/dev/dri/renderD129 may not be opened",
         "usermod -aG video $USER"},
        {{.gpu = "0000:00:02.0", .has_kernel_driver = true, .n_nodes = 1},
         "no OpenCL driver is installed",
         "intel-compute-runtime (Fedora)"},
        {{.n_nodes = 1}, "no OpenCL driver is installed", "intel-opencl-icd (Debian, Ubuntu)"},
        {{.gpu = "0000:00:02.0", .has_kernel_driver = true, .n_nodes = 1, .n_drivers = 1},
         "no OpenCL driver offers the Intel GPU at 0000:00:02.0",
         "too old for this GPU (Alchemist and Meteor Lake need 23.30"},
        {{.gpu = "0000:00:02.0", .has_kernel_driver = true, .n_nodes = 1, .n_drivers = 1},
         "install a newer one",
         "github.com/intel/compute-runtime)"},
        {{.n_nodes = 1, .n_drivers = 3}, "no OpenCL driver offers a GPU", "GPU"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        crumb_cl_advise(&cases[i].m, text, sizeof text);
        if (!strstr(text, cases[i].says) || !strstr(text, cases[i].also)) fail_msg("state %zu: %s", i, text);
        assert_true(strlen(text) < sizeof text - 1);
    }
}

static void a_device_is_told_what_it_lacks(void **state) {
    (void)state;
    static const struct {
        const char *driver;
        uint64_t vendor_id, is_gpu, unified, memory_bytes, region;
        const char *says; /* NULL: nothing */
    } cases[] = {
        {"22.43.24595", 0x8086, 1, 0, 16 * GIB, 16 * GIB,
         "driver 22.43.24595 is too old for 2-bit matrix instructions"},
        {"18.01.1", 0x8086, 1, 1, 16 * GIB, 0, "too old"},
        {"23.05.25593", 0x8086, 1, 0, 16 * GIB, 16 * GIB, "install intel-opencl-icd 23.30 or newer"},
        {"23.30.26918", 0x8086, 1, 0, 16 * GIB, 16 * GIB, NULL},
        {"23.30.26918", 0x8086, 1, 0, 12 * GIB, 256 << 20, "the processor reaches 256 MB of its memory at a time"},
        {"26.05.1", 0x8086, 1, 0, 12 * GIB, 16 * GIB, NULL},
        {"26.05.1", 0x8086, 1, 0, 12 * GIB, 0, NULL},
        {"26.05.1", 0x8086, 1, 1, 32 * GIB, 256 << 20, NULL},
        {"22.43.24595", 0x10de, 1, 0, 12 * GIB, 256 << 20, NULL},
        {"22.43.24595", 0x8086, 0, 1, 12 * GIB, 0, NULL},
        {"3.1", 0x8086, 1, 1, 12 * GIB, 0, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_cl_facts f = {.vendor_id = cases[i].vendor_id,
                            .is_gpu = cases[i].is_gpu,
                            .unified = cases[i].unified,
                            .memory_bytes = cases[i].memory_bytes};
        char text[320] = "left over";
        snprintf(f.driver, sizeof f.driver, "%s", cases[i].driver);
        crumb_cl_advise_device(&f, cases[i].region, text, sizeof text);
        if (cases[i].says ? !strstr(text, cases[i].says) : *text) fail_msg("device %zu: '%s'", i, text);
    }
}

/* Iris Xe, of Llama 3 8B's heads: the default of 512 rows is safe with any context that it has memory for. */
static void kernels_that_the_driver_may_end_are_told(void **state) {
    (void)state;
    static const struct {
        uint64_t is_gpu, xe_cores;
        uint32_t width, rows, keys;
        const char *says; /* NULL: nothing */
    } cases[] = {
        {1, 6, 4096, 512, 131072, NULL},
        {1, 6, 4096, 1024, 131072, NULL},
        {1, 6, 4096, 4096, 131072, "may take 18 s in one kernel"},
        {1, 6, 4096, 4096, 131072, "-ub 1113 is safe"},
        {1, 6, 4096, 4096, 32768, NULL},
        {1, 6, 8192, 1024, 131072, "-ub 556 is safe"},
        {1, 24, 4096, 4096, 131072, NULL},
        {1, 6, 65536, UINT32_MAX, UINT32_MAX, "-ub 1 is safe"},
        {1, 0, 4096, 4096, 131072, NULL}, /* whose speed is not known */
        {0, 6, 4096, 4096, 131072, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const crumb_cl_facts f = {.is_gpu = cases[i].is_gpu, .xe_cores = cases[i].xe_cores};
        char text[256] = "left over";
        crumb_cl_advise_attention(&f, cases[i].width, cases[i].rows, cases[i].keys, text, sizeof text);
        if (cases[i].says ? !strstr(text, cases[i].says) : *text) fail_msg("launch %zu: '%s'", i, text);
        assert_true(strlen(text) < sizeof text - 1);
    }
}

/* An old driver is all that a GPU without matrix instructions needs. */
static void only_gpus_with_matrices_need_a_driver_for_them(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t ip_version; /* architecture, release: 22 and 14 bits up */
        bool told;
    } cases[] = {
        {"Intel(R) Arc(TM) A770 Graphics", 0, true},       {"Intel(R) Iris(R) Xe Graphics [0x9a49]", 0, false},
        {"Intel(R) UHD Graphics 770", 0, false},           {"Tiger Lake", 12u << 22, false},
        {"A770", 12u << 22 | 55u << 14 | 8, true},         {"Meteor Lake", 12u << 22 | 71u << 14, false},
        {"Arrow Lake-H", 12u << 22 | 74u << 14 | 4, true}, {"B580", 20u << 22 | 1u << 14, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        crumb_cl_facts f = {.vendor_id = 0x8086, .is_gpu = 1, .unified = 1, .ip_version = cases[i].ip_version};
        char text[320];
        snprintf(f.driver, sizeof f.driver, "22.43.24595");
        snprintf(f.name, sizeof f.name, "%s", cases[i].name);
        crumb_cl_advise_device(&f, 0, text, sizeof text);
        if (cases[i].told != (strstr(text, "2-bit matrix instructions") != NULL)) fail_msg("%s: '%s'", f.name, text);
    }
}

/* ---- reading a system ------------------------------------------------------------------------------------------ */

typedef struct tree {
    char root[64];
} tree;

static void put(const tree *t, const char *path, const char *text) {
    char full[400];
    const int n = snprintf(full, sizeof full, "%s%s", t->root, path);
    assert_true(n > 0 && (size_t)n < sizeof full);
    for (char *p = full + strlen(t->root) + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void put_device(const tree *t, const char *address, const char *vendor, const char *class) {
    char path[200];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", address);
    put(t, path, vendor);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", address);
    put(t, path, class);
}

static int make_tree(void **state) {
    static tree t;
    strcpy(t.root, "/tmp/crumb-advice-XXXXXX");
    *state = &t;
    return mkdtemp(t.root) ? 0 : -1;
}

static int remove_tree(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", ((tree *)*state)->root);
    return system(command);
}

static void a_system_is_read_from_its_folders(void **state) {
    const tree *t = *state;
    crumb_cl_machine m;
    crumb_cl_machine_look(t->root, 3, &m);
    assert_true(m.n_drivers == 3 && m.n_nodes == 0 && !*m.gpu && !*m.closed && !m.has_kernel_driver && !m.is_wsl);

    put_device(t, "0000:00:00.0", "0x8086\n", "0x060000\n"); /* a bridge */
    put_device(t, "0000:01:00.0", "0x10de\n", "0x030000\n"); /* another's GPU */
    put(t, "/dev/dri/card0", "");
    crumb_cl_machine_look(t->root, 0, &m);
    assert_true(!*m.gpu && m.n_nodes == 0);

    put_device(t, "0000:03:00.0", "0x8086\n", "0x038000\n");
    put_device(t, "0000:04:00.0", "0x8086\n", "0x030000\n");
    put(t, "/sys/bus/pci/devices/0000:04:00.0/driver", "");
    put(t, "/dev/dri/renderD128", "");
    crumb_cl_machine_look(t->root, 0, &m);
    assert_string_equal(m.gpu, "0000:03:00.0");
    assert_false(m.has_kernel_driver); /* the other's */
    assert_true(m.n_nodes == 1 && !*m.closed);

    put(t, "/sys/bus/pci/devices/0000:03:00.0/driver", "");
    put(t, "/dev/dxg", "");
    crumb_cl_machine_look(t->root, 0, &m);
    assert_true(m.has_kernel_driver && m.is_wsl);
}

static void the_largest_region_counts(void **state) {
    const tree *t = *state;
    put(t, "/sys/bus/pci/devices/0000:03:00.0/resource",
        "0x0000000090000000 0x0000000090ffffff 0x0000000000140204\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000004000000000 0x000000400fffffff 0x000000000014220c\n");
    assert_true(crumb_cl_pci_region(t->root, "0000:03:00.0") == 256 << 20);
    assert_true(crumb_cl_pci_region(t->root, "0000:07:00.0") == 0);
    assert_true(crumb_cl_pci_region(t->root, "") == 0);
    put(t, "/sys/bus/pci/devices/0000:03:00.0/resource", "not numbers\n");
    assert_true(crumb_cl_pci_region(t->root, "0000:03:00.0") == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_state_has_its_cause_and_remedy),
        cmocka_unit_test(a_device_is_told_what_it_lacks),
        cmocka_unit_test(kernels_that_the_driver_may_end_are_told),
        cmocka_unit_test(only_gpus_with_matrices_need_a_driver_for_them),
        cmocka_unit_test_setup_teardown(a_system_is_read_from_its_folders, make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(the_largest_region_counts, make_tree, remove_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
