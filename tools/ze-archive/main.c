/* ze-archive LIST OUT: compiles the programs that LIST names with Intel's offline compiler (libocloc.so), for the
 * archive that is installed beside the Level Zero module (spirv/archive.h). A line of LIST is the kernels' file, the
 * GPUs that use it by Intel's names, and the options, with tabs between. What the compiler does not compile (an old one
 * knows neither new GPUs nor 2-bit matrix instructions) is said and left out: the driver compiles it when it is used.
 */
#include "spirv/archive.h"

#include "cl/program.h"
#include "host/base/cache.h"
#include "spirv/ocloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct program {
    const char *file, *devices, *options;
} program;

static char *join(const char *common, const char *own) {
    const size_t n = strlen(common) + strlen(own) + 2;
    char *text = malloc(n);
    if (text) snprintf(text, n, "%s\n%s", common, own);
    return text;
}

/* NULL, or why it is left out. */
static const char *put(FILE *f, const program *p) {
    static char log[1 << 16];
    const char *common = crumb_cl_text("common.cl"), *own = crumb_cl_text(p->file);
    size_t n_native = 0, n_spirv = 0;
    char *text = common && own ? join(common, own) : NULL;
    if (!text) return "there are no such kernels";
    uint8_t *native = crumb_ze_ocloc_compile_for(p->devices, true, text, p->options, &n_native, log, sizeof log);
    uint8_t *spirv =
        native ? crumb_ze_ocloc_compile_for(p->devices, false, text, p->options, &n_spirv, log, sizeof log) : NULL;
    uint8_t *both = spirv ? realloc(native, n_native + n_spirv) : NULL;
    if (both) {
        native = both;
        memcpy(native + n_native, spirv, n_spirv);
        const crumb_ze_archive_head head = {.text = crumb_hash(CRUMB_HASH_SEED, text, strlen(text)),
                                            .options = crumb_hash(CRUMB_HASH_SEED, p->options, strlen(p->options)),
                                            .n_native_bytes = n_native,
                                            .n_spirv_bytes = n_spirv,
                                            .bytes = crumb_hash(CRUMB_HASH_SEED, native, n_native + n_spirv)};
        fwrite(&head, sizeof head, 1, f);
        fwrite(native, 1, n_native + n_spirv, f);
    }
    free(native);
    free(spirv);
    free(text);
    return both ? NULL : log;
}

/* False at a line that is none. */
static bool parse(char *line, program *out) {
    line[strcspn(line, "\n")] = 0;
    char *devices = strchr(line, '\t'), *options = devices ? strchr(devices + 1, '\t') : NULL;
    if (!options) return false;
    *devices = *options = 0;
    *out = (program){line, devices + 1, options + 1};
    return true;
}

static bool put_all(FILE *list, FILE *out) {
    static char line[4096];
    size_t n = 0;
    if (fputs(CRUMB_ZE_ARCHIVE_MARK, out) < 0) return false;
    while (fgets(line, sizeof line, list)) {
        program p;
        if (*line == '#') continue;
        if (!parse(line, &p))
            return fprintf(stderr, "ze-archive: '%s' is no program: FILE, GPUS, OPTIONS\n", line), false;
        const char *wrong = put(out, &p);
        if (wrong)
            fprintf(stderr, "ze-archive: left out: %s for %s with %s: %s\n", p.file, p.devices, p.options, wrong);
        n += !wrong;
        if (ferror(out)) return perror("ze-archive"), false;
    }
    printf("%zu programs\n", n);
    return true;
}

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: ze-archive LIST OUT\n"), 2;
    FILE *list = fopen(argv[1], "r");
    if (!list) return perror(argv[1]), 1;
    FILE *out = fopen(argv[2], "wb");
    bool good = out && put_all(list, out);
    if (out) good = fclose(out) == 0 && good;
    fclose(list);
    if (!good) remove(argv[2]);
    return good ? 0 : 1;
}
