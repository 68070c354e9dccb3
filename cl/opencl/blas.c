#include "cl/blas.h"

#include "cl/opencl/driver.h"

#include "host/base/memory.h"
#include "host/base/module.h"

#include <stdlib.h>
#include <string.h>

/* CLBlast's C interface, of which its header need not be there. */
enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112, SINGLE = 32, MAX_PARAMETERS = 32 };
typedef int (*sgemm_fn)(int layout, int a_transpose, int b_transpose, size_t m, size_t n, size_t k, float alpha,
                        cl_mem a, size_t a_offset, size_t a_stride, cl_mem b, size_t b_offset, size_t b_stride,
                        float beta, cl_mem c, size_t c_offset, size_t c_stride, cl_command_queue *queue,
                        cl_event *event);
typedef int (*override_fn)(cl_device_id device, const char *kernel, int precision, size_t n, const char **names,
                           const size_t *values);

struct crumb_cl_blas {
    sgemm_fn sgemm;
};

/* A pointer to a function and one to data are different things to C, and the same to every system with OpenCL. */
static crumb_status find(const char *name, void *out, crumb_error *err) {
    static const char *const files[] = {"libclblast.so.1", "libclblast.so"};
    const void *address = NULL;
    crumb_status status = CRUMB_ERR_DEVICE;
    for (size_t i = 0; i < sizeof files / sizeof *files && status != CRUMB_OK; i++)
        status = crumb_module_open(files[i], name, &address, err);
    if (status != CRUMB_OK)
        return crumb_fail(err, CRUMB_ERR_DEVICE,
                          "CLBlast, which the target asks for, cannot be loaded: install libclblast1");
    memcpy(out, &address, sizeof address);
    return CRUMB_OK;
}

/* ---- parameters ---------------------------------------------------------------------------------------------- */

/* "Xgemm KWG=32 ...": `text` is cut into its words. */
static crumb_status override_one(const crumb_device *d, override_fn override, char *text, crumb_error *err) {
    const char *names[MAX_PARAMETERS];
    size_t values[MAX_PARAMETERS], n = 0;
    char *rest = NULL, *kernel = strtok_r(text, " ", &rest);
    if (!kernel) return CRUMB_OK;
    for (char *word; (word = strtok_r(NULL, " ", &rest));) {
        char *equals = strchr(word, '='), *end = NULL;
        if (equals && n < MAX_PARAMETERS) {
            values[n] = strtoul(equals + 1, &end, 10);
            *equals = 0;
            names[n++] = word;
        }
        if (!end || *end || end == equals + 1)
            return crumb_fail(err, CRUMB_ERR_ARGUMENT, "CRUMB_CLBLAST_PARAMETERS: '%.60s' is not NAME=NUMBER", word);
    }
    int code = override(d->driver->id, kernel, SINGLE, n, names, values);
    if (code == 0) return CRUMB_OK;
    return crumb_fail(
        err, CRUMB_ERR_ARGUMENT,
        "CRUMB_CLBLAST_PARAMETERS: CLBlast refuses those of %.60s (%d): it wants every parameter of one of "
        "its kernels, and values that fit each other",
        kernel, code);
}

static crumb_status override_all(const crumb_device *d, crumb_error *err) {
    const char *given = getenv("CRUMB_CLBLAST_PARAMETERS");
    override_fn override;
    crumb_status status = CRUMB_OK;
    if (!given || !*given) return CRUMB_OK;
    CRUMB_TRY(find("CLBlastOverrideParameters", &override, err));
    char *text = strdup(given), *rest = NULL;
    if (!text) return crumb_fail(err, CRUMB_ERR_MEMORY, "not enough memory for CLBlast's parameters");
    for (char *part = strtok_r(text, ";", &rest); part && status == CRUMB_OK; part = strtok_r(NULL, ";", &rest))
        status = override_one(d, override, part, err);
    free(text);
    return status;
}

/* ---- use ----------------------------------------------------------------------------------------------------- */

crumb_status crumb_cl_blas_open(const crumb_device *d, crumb_cl_blas **out, crumb_error *err) {
    void *memory;
    crumb_cl_blas blas;
    *out = NULL;
    CRUMB_TRY(find("CLBlastSgemm", &blas.sgemm, err));
    CRUMB_TRY(override_all(d, err));
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "CLBlast", &memory, err));
    *out = memory;
    **out = blas;
    return CRUMB_OK;
}

void crumb_cl_blas_close(crumb_cl_blas *blas) {
    free(blas);
}

crumb_cl_code crumb_cl_blas_sgemm(const crumb_cl_blas *blas, const crumb_cl_sgemm *g, size_t n, crumb_cl_queue queue,
                                  crumb_cl_event *event) {
    cl_command_queue q = queue;
    cl_event made = NULL;
    const int code =
        blas->sgemm(ROW_MAJOR, AS_IS, TRANSPOSED, n, g->m1 - g->m0, g->k, g->scale, g->x, 0, g->k, g->w, g->m0 * g->k,
                    g->k, g->add ? 1.0f : 0.0f, g->y, g->m0, g->y_width, &q, event ? &made : NULL);
    if (event) *event = code == 0 ? made : NULL;
    return code;
}
