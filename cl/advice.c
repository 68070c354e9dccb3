/* "Did it use my Arc?" When no driver offers a GPU, the system knows most of the reasons. */
#include "cl/discover.h"
#include "host/base/file.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PCI = 256, MAX_NODES = 64 };
static const char pci_folder[] = "/sys/bus/pci/devices";

static unsigned read_hex(const char *device, const char *name) {
    char path[300];
    unsigned value = 0;
    snprintf(path, sizeof path, "%s/%s/%s", pci_folder, device, name);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fscanf(f, "%x", &value) != 1) value = 0;
    fclose(f);
    return value;
}

/* The first display controller made by Intel: its PCI address. */
static bool find_intel_gpu(char *address, size_t size) {
    crumb_folder_entry devices[MAX_PCI];
    size_t n = crumb_folder_list(pci_folder, "", devices, MAX_PCI);
    for (size_t i = 0; i < n; i++)
        if (read_hex(devices[i].name, "vendor") == 0x8086 && read_hex(devices[i].name, "class") >> 16 == 3) {
            snprintf(address, size, "%s", devices[i].name);
            return true;
        }
    return false;
}

static bool is_bound(const char *address) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s/driver", pci_folder, address);
    return crumb_file_exists(path);
}

/* A render node that this user may not open. */
static bool find_closed_node(char *path, size_t size, size_t *n_nodes) {
    crumb_folder_entry nodes[MAX_NODES];
    size_t n = crumb_folder_list("/dev/dri", "", nodes, MAX_NODES);
    bool closed = false;
    *n_nodes = 0;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(nodes[i].name, "renderD", 7) != 0) continue;
        ++*n_nodes;
        char node[192];
        snprintf(node, sizeof node, "/dev/dri/%.127s", nodes[i].name);
        if (crumb_file_writable(node)) continue;
        snprintf(path, size, "%.150s", node);
        closed = true;
    }
    return closed;
}

void crumb_cl_advise(size_t n_icds, char *out, size_t size) {
    char address[130], node[192], group[64];
    size_t n_nodes;
    bool has_gpu = find_intel_gpu(address, sizeof address), closed = find_closed_node(node, sizeof node, &n_nodes);
    if (!has_gpu && n_nodes == 0) {
        snprintf(out, size, "%s",
                 n_icds ? "no OpenCL driver offers a GPU, and the system shows none"
                        : "the system shows no GPU, and no OpenCL driver is installed");
    } else if (has_gpu && !is_bound(address)) {
        snprintf(out, size,
                 "no kernel driver is bound to the Intel GPU at %s: it needs i915 or xe, from a newer kernel, and its "
                 "firmware (Debian: firmware-misc-nonfree)",
                 address);
    } else if (closed) {
        crumb_file_group(node, group, sizeof group);
        snprintf(out, size,
                 "%s may not be opened: it belongs to the group %s (sudo usermod -aG %s $USER, then log in "
                 "again)",
                 node, group, group);
    } else if (n_icds == 0) {
        snprintf(out, size,
                 "no OpenCL driver is installed; for an Intel GPU: intel-opencl-icd (Debian, Ubuntu), "
                 "intel-compute-runtime (Fedora)");
    } else if (has_gpu) {
        snprintf(out, size,
                 "no OpenCL driver offers the Intel GPU at %s: intel-opencl-icd is missing, or too old for this GPU",
                 address);
    } else {
        snprintf(out, size, "no OpenCL driver offers a GPU");
    }
}

/* ---- a device that is there ------------------------------------------------------------------------------------ */

/* The largest of a PCI device's memory regions; 0: not known. */
static uint64_t largest_region(const char *pci) {
    char path[300];
    unsigned long long begin, end, flags;
    uint64_t largest = 0;
    snprintf(path, sizeof path, "%s/%.100s/resource", pci_folder, pci);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    while (fscanf(f, "%llx %llx %llx", &begin, &end, &flags) == 3)
        if (end > begin && end - begin + 1 > largest) largest = end - begin + 1;
    fclose(f);
    return largest;
}

/* Intel numbers its drivers by year and week. Those of 2022 know no 2-bit matrix instructions. */
static bool is_old(const char *driver) {
    unsigned year, week;
    return sscanf(driver, "%u.%u.", &year, &week) == 2 && year >= 18 && year < 23;
}

void crumb_cl_advise_device(const crumb_cl_facts *f, char *out, size_t size) {
    *out = 0;
    if (f->vendor_id != 0x8086 || !f->is_gpu) return;
    const uint64_t region = f->unified || !*f->pci ? 0 : largest_region(f->pci);
    if (is_old(f->driver))
        snprintf(out, size,
                 "driver %.40s is too old for 2-bit matrix instructions: install a newer intel-opencl-icd (Debian 13, "
                 "Ubuntu 24.04, or the packages of github.com/intel/compute-runtime)",
                 f->driver);
    else if (region && region < f->memory_bytes / 2)
        snprintf(
            out, size,
            "resizable BAR is off: the processor reaches %llu MB of its memory at a time, which makes loading slow; "
            "turn on Resizable BAR and Above 4G Decoding in the firmware's settings",
            (unsigned long long)(region >> 20));
}
