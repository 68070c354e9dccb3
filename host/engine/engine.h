/* The engine's own objects: where model, tokenizer and device come together. */
#ifndef CRUMB_ENGINE_ENGINE_H
#define CRUMB_ENGINE_ENGINE_H

#include "host/base/thread.h"
#include "host/engine/advice.h"
#include "host/kernel/tuning.h"
#include "host/model/network.h"
#include "host/sample/sampler.h"
#include "host/text/tokenizer.h"
#include "scheduler/cost.h"

/* A device that computes for a model. */
typedef struct crumb_engine_unit {
    const crumb_backend *backend;
    crumb_device *device;
    crumb_device_info info;
    crumb_buffer *buffer; /* the weights that lie in its memory; NULL: none */
} crumb_engine_unit;

/* Who computes a layer, in each phase, and in whose memory its weights lie; the head is the layer behind the last.
 * Where the first device's memory is the machine's, both devices read weights there, once for both. */
typedef struct crumb_engine_place {
    uint8_t memory, unit[CRUMB_PHASE_COUNT]; /* indices of crumb_model.units */
} crumb_engine_place;

enum { CRUMB_ENGINE_MAX_UNITS = 2 };

struct crumb_model {
    crumb_network net;
    crumb_tokenizer *tokenizer; /* NULL: a synthetic model */
    char *chat_template;        /* NULL: none */
    crumb_engine_unit
        units[CRUMB_ENGINE_MAX_UNITS]; /* the device that was chosen, then the CPU where it works as well */
    size_t n_units;
    crumb_engine_place *places; /* [num_hidden_layers + 1] */
    double split; /* above 0: single rows may run on both units at once, the first computing so much of each layer */
    bool split_always; /* they do, and not only where that is faster */
    bool divided;      /* each unit's memory has the weights of its part only: all rows run on both, always so split */
    char placement[256]; /* the same for people; empty where one device runs all layers */
    crumb_engine_advice *advice;
    crumb_engine_choice choice; /* the device as it was listed, and why no GPU is used */
    crumb_tuning *tuning;       /* NULL: none */
    crumb_core_speeds cores;    /* of crumb_device_params */
    char name[256];
    char type[16];
    uint64_t n_params, file_bytes, weight_bytes;
    double load_ms;
    crumb_log_fn log;
    void *log_user;
    struct {
        char *path, *spec;
        char *cpu_kind, *balance, *tuning;
        int n_threads;
    } origin; /* substitute.h */
    struct {
        crumb_verify asked;
        bool right[2]; /* with an f16 cache, a q8 one */
        crumb_lock *lock;
    } checks;                /* of the device's kernels: crumb_engine_check_kernels */
    crumb_model *substitute; /* NULL: no device has failed */
    crumb_lock *substitute_lock;
};

/* Opens the device `name` (NULL: the backend's first) of u->backend with what params say, and gets its info. */
crumb_status crumb_engine_open_unit(const crumb_model *m, crumb_engine_unit *u, const char *name, const char *target,
                                    const crumb_model_params *params, crumb_error *err);
/* What a model comes from: a file, a spec. */
typedef struct crumb_engine_source_kind {
    /* Puts weights and names into a model whose device is open. */
    crumb_status (*load)(crumb_model *m, const void *source, const crumb_model_params *params, crumb_error *err);
    crumb_engine_outline_fn *outline;
} crumb_engine_source_kind;
/* Opens the device that params ask for, or that is predicted to be the fastest, and loads a model on it. Where nobody
 * named a device and the GPU that was chosen cannot take this model, the CPU does, and the model says why. */
crumb_status crumb_engine_model_open(const crumb_model_params *params, const crumb_engine_source_kind *kind,
                                     const void *source, crumb_model **out, crumb_error *err);
/* Notes when opening began and what from, by which params (substitute.h); closes it and sets NULL where that fails. */
crumb_status crumb_engine_finish_open(crumb_model **m, const char *path, const char *spec,
                                      const crumb_model_params *params, uint64_t start_ns, crumb_error *err);
/* Params with defaults where the caller's struct is older, NULL or zero. */
crumb_model_params crumb_engine_model_params(const crumb_model_params *params);
/* The embedded model's bytes as a file; the caller closes it. */
crumb_status crumb_engine_open_embedded_file(crumb_gguf **out, crumb_error *err);
/* Bytes that reading the whole output matrix takes: part of crumb_model_info.decode_bytes. */
uint64_t crumb_engine_head_bytes(const crumb_model *m);
/* Multiplications that one row takes in the layers' matrices. */
uint64_t crumb_engine_layer_macs(const crumb_model *m);
/* Adds where the time of tokens fed one by one goes to *times from now on; NULL: no more. */
void crumb_engine_session_measure(crumb_session *s, crumb_plan_times *times);
/* What a synthetic model of this spec (crumb_model_open_synthetic) would be, and how large, without making it. */
crumb_status crumb_engine_synthetic_size(const char *spec, crumb_hparams *hparams, uint64_t *n_bytes, crumb_error *err);
/* The same as a network with shapes and types, but no weights; free(out->layers) when it is done with. */
crumb_status crumb_engine_synthetic_outline(const char *spec, crumb_network *out, crumb_error *err);
/* Sets name and type once the weights are there. */
void crumb_engine_model_describe(crumb_model *m, const char *name);

void crumb_engine_log(const crumb_model *m, crumb_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
