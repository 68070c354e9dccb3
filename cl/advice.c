#include "cl/advice.h"

#include "host/base/file.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PCI = 256, MAX_NODES = 64, PATH_SIZE = 700, INTEL = 0x8086, DISPLAY_CONTROLLER = 3 };

/* ---- looking -------------------------------------------------------------------------------------------------- */

static void pci_path(const char *root, const char *device, const char *name, char out[PATH_SIZE]) {
    snprintf(out, PATH_SIZE, "%.400s/sys/bus/pci/devices/%.128s/%s", root, device, name);
}

static unsigned read_hex(const char *root, const char *device, const char *name) {
    char path[PATH_SIZE];
    unsigned value = 0;
    pci_path(root, device, name, path);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%x", &value) != 1) value = 0;
    fclose(f);
    return value;
}

static void find_intel_gpu(const char *root, crumb_cl_machine *out) {
    crumb_folder_entry devices[MAX_PCI];
    char path[PATH_SIZE];
    pci_path(root, "", "", path);
    const size_t n = crumb_folder_list(path, "", devices, MAX_PCI);
    for (size_t i = 0; i < n && !*out->gpu; i++) {
        const char *name = devices[i].name;
        if (read_hex(root, name, "vendor") != INTEL || read_hex(root, name, "class") >> 16 != DISPLAY_CONTROLLER)
            continue;
        snprintf(out->gpu, sizeof out->gpu, "%.127s", name);
        pci_path(root, name, "driver", path);
        out->has_kernel_driver = crumb_file_exists(path);
    }
}

static void look_at_nodes(const char *root, crumb_cl_machine *out) {
    crumb_folder_entry nodes[MAX_NODES];
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%.400s/dev/dri", root);
    const size_t n = crumb_folder_list(path, "", nodes, MAX_NODES);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(nodes[i].name, "renderD", 7) != 0) continue;
        out->n_nodes++;
        snprintf(path, sizeof path, "%.400s/dev/dri/%.128s", root, nodes[i].name);
        if (*out->closed || crumb_file_writable(path)) continue;
        snprintf(out->closed, sizeof out->closed, "/dev/dri/%.128s", nodes[i].name);
        crumb_file_group(path, out->group, sizeof out->group);
    }
}

void crumb_cl_machine_look(const char *root, size_t n_drivers, crumb_cl_machine *out) {
    char path[PATH_SIZE];
    *out = (crumb_cl_machine){.n_drivers = n_drivers};
    find_intel_gpu(root, out);
    look_at_nodes(root, out);
    snprintf(path, sizeof path, "%.400s/dev/dxg", root);
    out->is_wsl = crumb_file_exists(path);
}

uint64_t crumb_cl_pci_region(const char *root, const char *pci) {
    char path[PATH_SIZE];
    unsigned long long begin, end, flags;
    uint64_t largest = 0;
    if (!*pci) return 0;
    pci_path(root, pci, "resource", path);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    while (fscanf(f, "%llx %llx %llx", &begin, &end, &flags) == 3)
        if (end > begin && end - begin + 1 > largest) largest = end - begin + 1;
    fclose(f);
    return largest;
}

/* ---- what follows from it ------------------------------------------------------------------------------------- */

/* Where drivers come from that are newer than a system's. */
static const char newer_ones[] = "(Ubuntu 24.04 and later, or the packages of github.com/intel/compute-runtime)";

/* Where there is nothing that drivers could find. */
static void advise_without_gpu(const crumb_cl_machine *m, char *out, size_t size) {
    if (m->is_wsl)
        snprintf(out, size, "%s",
                 m->n_drivers
                     ? "no OpenCL driver offers the GPU that Windows passes on: intel-opencl-icd is missing or too "
                       "old, or Windows' own graphics driver is"
                     : "Windows passes a GPU on (/dev/dxg), and no OpenCL driver is installed; for an Intel GPU: "
                       "intel-opencl-icd");
    else
        snprintf(out, size, "%s",
                 m->n_drivers ? "no OpenCL driver offers a GPU, and the system shows none"
                              : "the system shows no GPU, and no OpenCL driver is installed");
}

void crumb_cl_advise(const crumb_cl_machine *m, char *out, size_t size) {
    if (!*m->gpu && m->n_nodes == 0)
        advise_without_gpu(m, out, size);
    else if (*m->gpu && !m->has_kernel_driver)
        snprintf(out, size,
                 "no kernel driver is bound to the Intel GPU at %s: it needs i915 or xe, from a newer kernel, and its "
                 "firmware (Debian: firmware-misc-nonfree)",
                 m->gpu);
    else if (*m->closed)
        snprintf(out, size,
                 "%s may not be opened: it belongs to the group %s (sudo usermod -aG %s $USER, then log in "
                 "again)",
                 m->closed, m->group, m->group);
    else if (m->n_drivers == 0)
        snprintf(out, size,
                 "no OpenCL driver is installed; for an Intel GPU: intel-opencl-icd (Debian, Ubuntu), "
                 "intel-compute-runtime (Fedora)");
    else if (*m->gpu)
        snprintf(out, size,
                 "no OpenCL driver offers the Intel GPU at %s: intel-opencl-icd is missing, or too old for this GPU "
                 "(Alchemist and Meteor Lake need 23.30, Battlemage, Lunar Lake and Arrow Lake-H 24.48, Panther Lake "
                 "26.05); install a newer one %s",
                 m->gpu, newer_ones);
    else
        snprintf(out, size, "no OpenCL driver offers a GPU");
}

/* Intel numbers its drivers by year and week. Those of 2022 know no 2-bit matrix instructions, which README.md expects
 * of 23.30. */
static bool is_old(const char *driver) {
    unsigned year, week;
    return sscanf(driver, "%u.%u.", &year, &week) == 2 && year >= 18 && (year < 23 || (year == 23 && week < 30));
}

/* The generations without matrix instructions, up to Meteor Lake: 12.0 to 12.49, 12.70 and 12.71. Drivers too old to
 * say which one it is have names for them. */
static bool has_no_matrix(const crumb_cl_facts *f) {
    const uint64_t architecture = f->ip_version >> 22, release = f->ip_version >> 14 & 0xff;
    if (f->ip_version == 0) return strstr(f->name, "Iris") || strstr(f->name, "UHD");
    return architecture < 12 || (architecture == 12 && (release < 50 || release == 70 || release == 71));
}

void crumb_cl_advise_device(const crumb_cl_facts *f, uint64_t region, char *out, size_t size) {
    *out = 0;
    if (f->vendor_id != INTEL || !f->is_gpu) return;
    if (is_old(f->driver) && !has_no_matrix(f))
        snprintf(out, size,
                 "driver %.40s is too old for 2-bit matrix instructions: install intel-opencl-icd 23.30 or newer %s",
                 f->driver, newer_ones);
    else if (!f->unified && region && region < f->memory_bytes / 2)
        snprintf(
            out, size,
            "resizable BAR is off: the processor reaches %llu MB of its memory at a time, which makes loading slow; "
            "turn on Resizable BAR and Above 4G Decoding in the firmware's settings",
            (unsigned long long)(region >> 20));
}

void crumb_cl_advise_attention(const crumb_cl_facts *f, uint32_t width, uint32_t rows, uint32_t keys, char *out,
                               size_t size) {
    enum { IRIS_XE_CORES = 6, ITS_WIDTH = 4096 };
    const double its_seconds = 2.3 / (512.0 * 131072), limit = 5; /* of a row and a key (cl/README.md, Time limits) */
    *out = 0;
    if (!f->is_gpu || f->xe_cores == 0) return;
    const double of_row = its_seconds * keys * width / ITS_WIDTH * IRIS_XE_CORES / (double)f->xe_cores;
    if (of_row * rows <= limit) return;
    const unsigned most = of_row < limit ? (unsigned)(limit / of_row) : 1;
    snprintf(
        out, size,
        "attention of a prompt's last %u of %u positions may take %.0f s in one kernel, and the kernel driver ends "
        "those of more than some %.0f: -ub %u is safe, as is a smaller context",
        rows, keys, of_row * rows, limit, most);
}
