/* The small model inside the library: bytes of tools/train/model/crumb-tiny.gguf, which tools/train/ makes. */
#include "host/engine/engine.h"

extern const unsigned char crumb_embedded_model[], crumb_embedded_model_end[];

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".hidden crumb_embedded_model\n"
        ".globl crumb_embedded_model\n"
        "crumb_embedded_model:\n"
        ".incbin \"crumb-tiny.gguf\"\n"
        ".hidden crumb_embedded_model_end\n"
        ".globl crumb_embedded_model_end\n"
        "crumb_embedded_model_end:\n"
        ".byte 0\n"
        ".previous\n");

crumb_status crumb_engine_open_embedded_file(crumb_gguf **out, crumb_error *err) {
    size_t n_bytes = (size_t)(crumb_embedded_model_end - crumb_embedded_model);
    return crumb_gguf_open_memory(crumb_embedded_model, n_bytes, "embedded model", out, err);
}
