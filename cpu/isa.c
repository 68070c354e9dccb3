/* Instruction-set tiers: what the processor has and the system saves. */
#include "cpu/kernels.h"

#include <cpuid.h>
#include <stdatomic.h>
#include <string.h>

static const char *const names[CRUMB_ISA_COUNT] = {"scalar",    "avx2",       "avxvnni",   "avxvnniint8",
                                                   "avx512ymm", "avx512vnni", "avx512vbmi"};

const char *crumb_isa_name(crumb_isa isa) {
    return names[isa];
}

bool crumb_isa_parse(const char *name, crumb_isa *out) {
    for (int i = 0; i < CRUMB_ISA_COUNT; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (crumb_isa)i;
        return true;
    }
    return false;
}

bool crumb_isa_includes(crumb_isa tier, crumb_isa code) {
    if (tier == CRUMB_ISA_AVXVNNIINT8 && code == CRUMB_ISA_AVXVNNI) return true;
    if (tier >= CRUMB_ISA_AVX512VNNI && code >= CRUMB_ISA_AVX512YMM && code < tier) return true;
    return code == tier || (code <= CRUMB_ISA_AVX2 && code < tier);
}

/* Register state that the operating system saves (XCR0). */
static uint32_t saved_state(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has_all(uint32_t value, uint32_t bits) {
    return (value & bits) == bits;
}

static bool detect(crumb_isa isa) {
    if (isa == CRUMB_ISA_SCALAR) return true;
    const uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28, f16c = 1u << 29; /* leaf 1, ecx */
    uint32_t a, b, c, d, c7, b7, a71 = 0, d71 = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, fma | osxsave | avx | f16c)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d)) return false;
    if (a >= 1) __get_cpuid_count(7, 1, &a71, &b, &c, &d71);

    const uint32_t avx2 = 1u << 5, bmi2 = 1u << 8;                                /* leaf 7, ebx */
    const uint32_t avx512_f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* leaf 7, ebx */
    const uint32_t avx512_vbmi = 1u << 1, avx512_vnni = 1u << 11;                 /* leaf 7, ecx */
    const uint32_t avx_vnni = 1u << 4, avx_vnni_int8 = 1u << 4;                   /* leaf 7.1, eax; edx */
    const uint32_t ymm_state = 6, zmm_state = 0xe6;
    bool has_avx2 = has_all(b7, avx2 | bmi2) && has_all(saved_state(), ymm_state);
    /* More than 16 registers and masks are saved with the zmm registers. */
    const bool has_avx512 =
        has_avx2 && has_all(b7, avx512_f_dq_bw_vl) && has_all(c7, avx512_vnni) && has_all(saved_state(), zmm_state);
    switch (isa) {
    case CRUMB_ISA_AVX2: return has_avx2;
#ifdef CRUMB_AVXVNNI_EVEX
    case CRUMB_ISA_AVXVNNI: return has_avx512;
#else
    case CRUMB_ISA_AVXVNNI: return has_avx2 && has_all(a71, avx_vnni);
#endif
    case CRUMB_ISA_AVXVNNIINT8: return has_avx2 && has_all(a71, avx_vnni) && has_all(d71, avx_vnni_int8);
    case CRUMB_ISA_AVX512YMM:
    case CRUMB_ISA_AVX512VNNI: return has_avx512;
    case CRUMB_ISA_AVX512VBMI: return has_avx512 && has_all(c7, avx512_vbmi);
    default: return false;
    }
}

/* Asked once: a hypervisor takes microseconds over each CPUID. Threads that ask at the same time find the same. */
bool crumb_isa_available(crumb_isa isa) {
    enum { UNKNOWN, NO, YES };
    static _Atomic unsigned char known[CRUMB_ISA_COUNT];
    unsigned char answer = atomic_load_explicit(&known[isa], memory_order_relaxed);
    if (answer == UNKNOWN) {
        answer = detect(isa) ? YES : NO;
        atomic_store_explicit(&known[isa], answer, memory_order_relaxed);
    }
    return answer == YES;
}

bool crumb_core_is_intel(void) {
    enum { UNKNOWN, NO, YES };
    static _Atomic unsigned char known;
    unsigned char answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        uint32_t most, b, c, d;
        answer = __get_cpuid(0, &most, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
                         d == signature_INTEL_edx
                     ? YES
                     : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}

crumb_isa crumb_isa_best(void) {
    int isa = CRUMB_ISA_COUNT - 1;
    while (!crumb_isa_available((crumb_isa)isa)) isa--;
    return (crumb_isa)isa;
}
