/* A decoded token allocates nothing: crumb's own calls of malloc and its kin are counted, by the program or module that
 * the call returns to, in all threads, while tokens are fed and sampled, also where the context outgrows 128 positions
 * and 256 (attention takes more chunks of keys) and pages. What a driver allocates for itself is printed beside it, and
 * on the CPU, where there is none, wanted to be nothing as well. (What libc allocates for crumb, as in fopen, counts as
 * a driver's.)
 *
 * usage: test_allocations TARGET   cpu, or as in --target: cl:RUNG, ze:RUNG */
#include "tests/cl/model_pair.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- counting: the program's own definitions serve all modules -------------------------------------------------- */

void *__libc_malloc(size_t n);             // NOLINT(bugprone-reserved-identifier)
void *__libc_calloc(size_t n, size_t m);   // NOLINT(bugprone-reserved-identifier)
void *__libc_realloc(void *p, size_t n);   // NOLINT(bugprone-reserved-identifier)
void *__libc_memalign(size_t a, size_t n); // NOLINT(bugprone-reserved-identifier)

static atomic_bool is_counting;
static atomic_size_t n_own, n_foreign;
static char first_own[256]; /* who called, for the message */

static void count(const void *caller) {
    Dl_info in;
    if (!is_counting) return;
    const char *file = dladdr(caller, &in) && in.dli_fname ? in.dli_fname : "";
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
    if (!strstr(base, "crumb") && !strstr(base, "test_allocations")) {
        atomic_fetch_add(&n_foreign, 1);
        return;
    }
    if (atomic_fetch_add(&n_own, 1) == 0)
        snprintf(first_own, sizeof first_own, "%.100s+0x%tx (%.100s)", base,
                 (const char *)caller - (const char *)in.dli_fbase, in.dli_sname ? in.dli_sname : "?");
}

#define SEEN __attribute__((visibility("default"))) /* by modules */

SEEN void *malloc(size_t n) {
    count(__builtin_return_address(0));
    return __libc_malloc(n);
}

SEEN void *calloc(size_t n, size_t size) {
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

SEEN void *realloc(void *p, size_t n) {
    count(__builtin_return_address(0));
    return __libc_realloc(p, n);
}

SEEN void *aligned_alloc(size_t alignment, size_t n) {
    count(__builtin_return_address(0));
    return __libc_memalign(alignment, n);
}

SEEN int posix_memalign(void **out, size_t alignment, size_t n) {
    count(__builtin_return_address(0));
    *out = __libc_memalign(alignment, n);
    return *out ? 0 : ENOMEM;
}

static void begin(void) {
    n_own = n_foreign = 0;
    is_counting = true;
}

static void end(void) {
    is_counting = false;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

enum { PROMPT = 40, WARM = 3, TOKENS = 300 };

static const char *device;

static void decode(crumb_session *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int32_t token;
        bool ended;
        PAIR_OK(crumb_session_step(s, &token, &ended, &pair_err));
    }
}

static void check(const char *model, crumb_kv_type kv, float temperature) {
    assert_ptr_equal(dlsym(RTLD_DEFAULT, "malloc"), malloc); /* which modules call */
    crumb_model *m = pair_open(model, device);
    crumb_model_info info;
    int32_t prompt[PROMPT];
    crumb_model_get_info(m, &info);
    crumb_session_params params = crumb_session_params_default();
    crumb_session *s = NULL;
    params.kv_type = kv;
    params.n_ctx = PROMPT + WARM + TOKENS + 1;
    params.temperature = temperature;
    params.ignore_eos = true;
    begin();
    PAIR_OK(crumb_session_create(m, &params, &s, &pair_err));
    end();
    assert_true(n_own > 0); /* of the program, or there is nothing that could be found below */
    for (size_t i = 0; i < PROMPT; i++) prompt[i] = (int32_t)((i * 7919 + 13) % info.n_vocab);
    PAIR_OK(crumb_session_feed(s, prompt, PROMPT, &pair_err));
    decode(s, WARM); /* the first replay of a plan may make what later ones use */
    begin();
    decode(s, TOKENS);
    end();
    printf("%s, %s, temperature %g: %zu allocations of crumb's, %zu of others' in %d tokens\n",
           model ? model : "embedded", kv == CRUMB_KV_Q8 ? "q8" : "f16", (double)temperature, (size_t)n_own,
           (size_t)n_foreign, (int)TOKENS);
    if (n_own) fail_msg("the first is called from %s", first_own);
    if (strcmp(device, "cpu") == 0) assert_int_equal(n_foreign, 0);
    crumb_session_destroy(s);
    crumb_model_close(m);
}

static void tokens_allocate_nothing(void **state) {
    (void)state;
    for (int kv = CRUMB_KV_F16; kv <= CRUMB_KV_Q8; kv++)
        for (int t = 0; t < 2; t++) check(NULL, (crumb_kv_type)kv, (float)t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_allocate_nothing)};
    if (argc != 2) {
        fprintf(stderr, "usage: test_allocations TARGET\n");
        return 2;
    }
    device = strcmp(argv[1], "cpu") == 0 ? "cpu" : "gpu0";
    pair_set_target(argv[1]);
    if (strcmp(device, "cpu") != 0 && !pair_find_device()) return 1;
    return cmocka_run_group_tests_name("allocations", tests, NULL, NULL);
}
