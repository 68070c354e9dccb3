#include "host/kernel/energy.h"

#include "host/base/file.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FOLDERS = 64 };

void crumb_sensors_miss(crumb_device_sensors *out, const char *format, ...) {
    const size_t used = strlen(out->missing);
    const size_t before = used ? (size_t)snprintf(out->missing + used, sizeof out->missing - used, "; ") : 0;
    va_list args;
    if (used + before >= sizeof out->missing) return;
    va_start(args, format);
    vsnprintf(out->missing + used + before, sizeof out->missing - used - before, format, args);
    va_end(args);
}

/* The first line of a file; false: it cannot be read. */
static bool read_line(const char *folder, const char *name, char *out, size_t size) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    const bool got = f && fgets(out, (int)size, f);
    if (f) fclose(f);
    if (!got) return false;
    out[strcspn(out, "\n")] = 0;
    return true;
}

static bool read_number(const char *folder, const char *name, uint64_t *out) {
    char line[32], *end;
    if (!read_line(folder, name, line, sizeof line)) return false;
    *out = strtoull(line, &end, 10);
    return end != line && !*end;
}

/* ---- processors ------------------------------------------------------------------------------------------------ */

/* Adds a package's counter. Where several wrap at the same number their sum may be taken modulo that. */
static void add_package(const char *folder, crumb_device_sensors *out, size_t *n) {
    uint64_t energy, wrap;
    if (!read_number(folder, "energy_uj", &energy) || !read_number(folder, "max_energy_range_uj", &wrap) || !wrap ||
        (*n && wrap != out->energy_wrap_uj))
        return;
    out->energy_wrap_uj = wrap;
    out->energy_uj = (out->energy_uj + energy % wrap) % wrap;
    ++*n;
}

void crumb_energy_read_rapl(const char *root, crumb_device_sensors *out) {
    crumb_folder_entry zones[MAX_FOLDERS];
    char folder[600], name[32];
    size_t n_packages = 0, n_read = 0;
    snprintf(folder, sizeof folder, "%.300s/sys/class/powercap", root);
    const size_t n = crumb_folder_list(folder, "", zones, MAX_FOLDERS);
    for (size_t i = 0; i < n; i++) {
        char zone[600];
        snprintf(zone, sizeof zone, "%.400s/%.127s", folder, zones[i].name);
        if (strncmp(zones[i].name, "intel-rapl:", strlen("intel-rapl:")) != 0 ||
            !read_line(zone, "name", name, sizeof name) || strncmp(name, "package-", strlen("package-")) != 0)
            continue;
        n_packages++;
        add_package(zone, out, &n_read);
    }
    if (n_packages && n_read == n_packages) {
        snprintf(out->energy_source, sizeof out->energy_source, "RAPL, %zu processor package%s", n_read,
                 n_read > 1 ? "s" : "");
        return;
    }
    out->energy_uj = out->energy_wrap_uj = 0;
    if (n_packages)
        crumb_sensors_miss(out, "the processor's energy counter may not be read: run as root, or let this user read "
                                "/sys/class/powercap/intel-rapl:*/energy_uj");
    else
        crumb_sensors_miss(out, "the system shows no energy counter of the processor (/sys/class/powercap)");
}

/* ---- cards ----------------------------------------------------------------------------------------------------- */

bool crumb_energy_read_hwmon(const char *root, const char *pci, crumb_device_sensors *out) {
    crumb_folder_entry monitors[MAX_FOLDERS];
    char folder[600];
    if (!*pci) return false;
    snprintf(folder, sizeof folder, "%.300s/sys/bus/pci/devices/%.23s/hwmon", root, pci);
    const size_t n = crumb_folder_list(folder, "", monitors, MAX_FOLDERS);
    for (size_t i = 0; i < n; i++) {
        char monitor[800];
        uint64_t energy;
        snprintf(monitor, sizeof monitor, "%s/%.127s", folder, monitors[i].name);
        if (!read_number(monitor, "energy1_input", &energy)) continue;
        out->energy_uj = energy;
        out->energy_wrap_uj = 0;
        snprintf(out->energy_source, sizeof out->energy_source, "hwmon, card %.23s", pci);
        return true;
    }
    return false;
}

bool crumb_energy_between(const crumb_device_sensors *before, const crumb_device_sensors *after, uint64_t *out) {
    const uint64_t wrap = after->energy_wrap_uj;
    *out = 0;
    if (!*before->energy_source || strcmp(before->energy_source, after->energy_source) != 0 ||
        before->energy_wrap_uj != wrap || (!wrap && after->energy_uj < before->energy_uj))
        return false;
    *out = after->energy_uj >= before->energy_uj ? after->energy_uj - before->energy_uj
                                                 : after->energy_uj + (wrap - before->energy_uj);
    return true;
}
