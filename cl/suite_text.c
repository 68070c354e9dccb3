/* What an owner's report says of a device: the facts, what they were made of, and the kernels' text. */
#include "cl/suite.h"

#include "cl/tuned.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    void (*line)(void *user, const char *text);
    void *user;
} writer;

static void put_text(const writer *w, const char *name, const char *value) {
    char text[CRUMB_CL_TEXT + 64];
    snprintf(text, sizeof text, "%s: %s", name, value);
    w->line(w->user, text);
}

static void put_number(const writer *w, const char *name, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    put_text(w, name, text);
}

static void put_facts(const writer *w, const crumb_cl_facts *f) {
#define PUT_TEXT(member)   put_text(w, #member, f->member);
#define PUT_NUMBER(member) put_number(w, #member, f->member);
    CRUMB_CL_TEXTS(PUT_TEXT)
    CRUMB_CL_NUMBERS(PUT_NUMBER)
#undef PUT_TEXT
#undef PUT_NUMBER
}

/* A list of words in lines of some 100 characters. */
static void put_words(const writer *w, const char *name, const char *words) {
    char text[CRUMB_CL_TEXT] = "", clean[CRUMB_CL_TEXT];
    for (const char *p = words + strspn(words, " "); *p; p += strspn(p, " ")) {
        const size_t n = strcspn(p, " "), used = strlen(text);
        if (used && used + n > 100) {
            put_text(w, name, text);
            *text = 0;
        }
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.*s", *text ? " " : "", (int)n, p);
        p += n;
    }
    crumb_cl_clean_text(text, clean);
    put_text(w, name, clean);
}

static void put_query(const writer *w, const crumb_device *d, cl_device_info what, const char *name) {
    size_t n_bytes = 0;
    if (clGetDeviceInfo(d->id, what, 0, NULL, &n_bytes) != CL_SUCCESS || n_bytes == 0 || n_bytes > 1u << 20) return;
    char *text = calloc(1, n_bytes + 1);
    if (text && clGetDeviceInfo(d->id, what, n_bytes, text, NULL) == CL_SUCCESS) put_words(w, name, text);
    free(text);
}

static void put_numbers(const writer *w, const crumb_device *d) {
    static const struct {
        cl_device_info what;
        const char *name;
    } queries[] = {{CRUMB_CL_NUM_SLICES, "slices"},
                   {CRUMB_CL_SUB_SLICES, "sub_slices_per_slice"},
                   {CRUMB_CL_EUS_PER_SUB_SLICE, "eus_per_sub_slice"},
                   {CRUMB_CL_THREADS_PER_EU, "threads_per_eu"},
                   {CRUMB_CL_FEATURES, "feature_bits"},
                   {CL_DEVICE_MAX_COMPUTE_UNITS, "compute_units"},
                   {CL_DEVICE_PROFILING_TIMER_RESOLUTION, "timer_resolution_ns"}};
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        uint64_t value = 0;
        size_t n_bytes = 0;
        if (clGetDeviceInfo(d->id, queries[i].what, sizeof value, &value, &n_bytes) == CL_SUCCESS && n_bytes <= 8)
            put_number(w, queries[i].name, value);
    }
    cl_ulong cache = 0;
    if (clGetDeviceInfo(d->id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, sizeof cache, &cache, NULL) == CL_SUCCESS)
        put_number(w, "cache_bytes", cache);
}

void crumb_cl_suite_describe(const crumb_kernel_machine *m, void (*line)(void *user, const char *text), void *user) {
    const writer w = {line, user};
    char device[96], target[32], source[20];
    if (!m) return;
    crumb_cl_tuned_identify(m->d, device, target, source);
    put_facts(&w, &m->d->facts);
    put_numbers(&w, m->d);
    put_query(&w, m->d, CL_DEVICE_OPENCL_C_VERSION, "opencl_c");
    put_query(&w, m->d, CL_DEVICE_EXTENSIONS, "extensions");
    put_text(&w, "rung_of_plans", target);
    put_text(&w, "highest_rung", crumb_cl_rung_name(m->most.rung));
    put_number(&w, "matrix_sub_group", m->most.sub_group);
    put_number(&w, "uses_usm", m->d->has_usm);
    put_text(&w, "kernels_text", source);
}
