/* "Did it use my Arc?" Why no driver offers a GPU, or not all that it can do, and what to do about it. */
#ifndef CRUMB_CL_ADVICE_H
#define CRUMB_CL_ADVICE_H

#include "cl/facts.h"

/* What the system shows, whatever drivers say. */
typedef struct crumb_cl_machine {
    size_t n_drivers;       /* OpenCL's, that are installed */
    size_t n_nodes;         /* render nodes in /dev/dri */
    char gpu[128];          /* the PCI address of the first display controller made by Intel; empty: there is none */
    char closed[192];       /* a render node that this user may not open; empty: none */
    char group[64];         /* the group that it belongs to */
    bool has_kernel_driver; /* one is bound to `gpu` */
    bool is_wsl;            /* Windows' GPU is passed on, without PCI and render nodes */
} crumb_cl_machine;

/* Of the system whose folders /sys and /dev lie under `root`: "" for this one. */
void crumb_cl_machine_look(const char *root, size_t n_drivers, crumb_cl_machine *out);

/* Why there is no GPU, and what to do. */
void crumb_cl_advise(const crumb_cl_machine *m, char *out, size_t size);

/* The largest memory region of a PCI device, which the processor reaches at a time; 0: not known. */
uint64_t crumb_cl_pci_region(const char *root, const char *pci);

/* What keeps a device that is there from its best: its driver's age, resizable BAR; `region` is its
 * crumb_cl_pci_region. Empty: nothing to say. */
void crumb_cl_advise_device(const crumb_cl_facts *f, uint64_t region, char *out, size_t size);

/* Of attention without matrix instructions, `width` (all heads' dimensions) wide, of `rows` that are the last of
 * `keys`: that the kernel driver may end such a kernel, and how many rows it would not. Empty: nothing to say. */
void crumb_cl_advise_attention(const crumb_cl_facts *f, uint32_t width, uint32_t rows, uint32_t keys, char *out,
                               size_t size);

#endif
