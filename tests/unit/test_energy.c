/* Energy counters that the system shows as files, here in a folder that looks like it. */
#include "host/kernel/energy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[] = "/tmp/crumb-energy-XXXXXX";

/* With all the folders that it lies in. */
static void put(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void drop(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(remove(path), 0);
}

static crumb_device_sensors rapl(void) {
    crumb_device_sensors s = {0};
    crumb_energy_read_rapl(root, &s);
    return s;
}

static void packages_are_summed_and_wrap(void **state) {
    (void)state;
    uint64_t gained;
    assert_non_null(strstr(rapl().missing, "shows no energy counter"));
    put("sys/class/powercap/intel-rapl:0/name", "package-0\n");
    put("sys/class/powercap/intel-rapl:0/energy_uj", "900\n");
    put("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000\n");
    put("sys/class/powercap/intel-rapl:0:0/name", "core\n"); /* a part of the package */
    put("sys/class/powercap/intel-rapl:0:0/energy_uj", "800\n");
    put("sys/class/powercap/intel-rapl:0:0/max_energy_range_uj", "1000\n");
    const crumb_device_sensors one = rapl();
    assert_string_equal(one.energy_source, "RAPL, 1 processor package");
    assert_int_equal(one.energy_uj, 900);
    put("sys/class/powercap/intel-rapl:0/energy_uj", "100\n");
    const crumb_device_sensors later = rapl();
    assert_true(crumb_energy_between(&one, &later, &gained));
    assert_int_equal(gained, 200);
    put("sys/class/powercap/intel-rapl:1/name", "package-1\n");
    put("sys/class/powercap/intel-rapl:1/energy_uj", "950\n");
    put("sys/class/powercap/intel-rapl:1/max_energy_range_uj", "1000\n");
    const crumb_device_sensors two = rapl();
    assert_string_equal(two.energy_source, "RAPL, 2 processor packages");
    assert_false(crumb_energy_between(&later, &two, &gained)); /* another counter */
    put("sys/class/powercap/intel-rapl:0/energy_uj", "400\n"); /* 300 more */
    put("sys/class/powercap/intel-rapl:1/energy_uj", "50\n");  /* 100 more, around the end */
    const crumb_device_sensors both = rapl();
    assert_true(crumb_energy_between(&two, &both, &gained));
    assert_int_equal(gained, 400);
}

static void what_cannot_be_read_is_unknown(void **state) {
    (void)state;
    put("sys/class/powercap/intel-rapl:1/max_energy_range_uj",
        "2000\n"); /* unlike the other's: their sum says nothing */
    assert_string_equal(rapl().energy_source, "");
    put("sys/class/powercap/intel-rapl:1/max_energy_range_uj", "1000\n");
    drop("sys/class/powercap/intel-rapl:1/energy_uj");
    const crumb_device_sensors s = rapl();
    assert_string_equal(s.energy_source, "");
    assert_int_equal(s.energy_uj, 0);
    assert_non_null(strstr(s.missing, "may not be read: run as root"));
}

static void cards_have_counters_of_their_own(void **state) {
    (void)state;
    crumb_device_sensors before = {0}, after = {0};
    uint64_t gained;
    assert_false(crumb_energy_read_hwmon(root, "0000:03:00.0", &before));
    assert_false(crumb_energy_read_hwmon(root, "", &before));
    put("sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon3/name", "xe\n");
    put("sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon4/energy1_input", "123456789012\n");
    assert_true(crumb_energy_read_hwmon(root, "0000:03:00.0", &before));
    assert_string_equal(before.energy_source, "hwmon, card 0000:03:00.0");
    put("sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon4/energy1_input", "123456789013\n");
    assert_true(crumb_energy_read_hwmon(root, "0000:03:00.0", &after));
    assert_true(crumb_energy_between(&before, &after, &gained));
    assert_int_equal(gained, 1);
    assert_false(crumb_energy_between(&after, &before, &gained)); /* it never wraps: it has begun anew */
    put("sys/bus/pci/devices/0000:03:00.0/hwmon/hwmon4/energy1_input", "much\n");
    assert_false(crumb_energy_read_hwmon(root, "0000:03:00.0", &after));
}

static void sentences_are_joined(void **state) {
    (void)state;
    crumb_device_sensors s = {0};
    crumb_sensors_miss(&s, "%d", 1);
    crumb_sensors_miss(&s, "two");
    assert_string_equal(s.missing, "1; two");
    for (int i = 0; i < 500; i++) crumb_sensors_miss(&s, "more"); /* and cut */
    assert_true(strlen(s.missing) < sizeof s.missing);
}

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_are_summed_and_wrap),
        cmocka_unit_test(what_cannot_be_read_is_unknown),
        cmocka_unit_test(cards_have_counters_of_their_own),
        cmocka_unit_test(sentences_are_joined),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
