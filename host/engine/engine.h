/* The engine's own objects: where model, tokenizer and device come together. */
#ifndef CRUMB_ENGINE_ENGINE_H
#define CRUMB_ENGINE_ENGINE_H

#include "host/engine/devices.h"
#include "host/kernel/tuning.h"
#include "host/model/network.h"
#include "host/sample/sampler.h"
#include "host/text/tokenizer.h"

struct crumb_model {
    crumb_network net;
    crumb_tokenizer *tokenizer; /* NULL: a synthetic model */
    const crumb_backend *backend;
    crumb_device *device;
    crumb_device_info device_info;
    crumb_engine_choice choice; /* the device as it was listed, and why no GPU is used */
    crumb_tuning *tuning;       /* NULL: none */
    crumb_buffer *buffer;       /* all weights */
    char name[256];
    char type[16];
    uint64_t n_params, file_bytes, weight_bytes;
    double load_ms;
    crumb_log_fn log;
    void *log_user;
};

/* What puts weights and names into a model whose device is open. */
typedef crumb_status crumb_engine_load_fn(crumb_model *m, const void *source, const crumb_model_params *params,
                                          crumb_error *err);
/* Opens the device that params ask for and loads a model on it. Where nobody named a device and the GPU that was chosen
 * cannot take this model, the CPU does, and the model says why. */
crumb_status crumb_engine_model_open(const crumb_model_params *params, crumb_engine_load_fn *load, const void *source,
                                     crumb_model **out, crumb_error *err);
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
/* Sets name and type once the weights are there. */
void crumb_engine_model_describe(crumb_model *m, const char *name);

void crumb_engine_log(const crumb_model *m, crumb_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
