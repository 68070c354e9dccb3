/* Checkpoints: folders as Hugging Face's transformers writes them, with config.json, safetensors (plain, packed as
 * BitNet, GPTQ and AWQ do, or trained on few levels as ParetoQ does) and tokenizer.json.
 * One becomes what a GGUF file of the same model would say, so that nothing behind this knows the difference. */
#ifndef CRUMB_CHECKPOINT_CHECKPOINT_H
#define CRUMB_CHECKPOINT_CHECKPOINT_H

#include "host/container/gguf.h"

/* Opens a checkpoint as a GGUF file that lies nowhere: tensors are converted when they are held. Refuses what would run
 * wrongly; messages name the file and its key, or the tensor. */
crumb_status crumb_checkpoint_open(const char *folder, crumb_gguf **out, crumb_error *err);

/* A checkpoint where `path` is a folder, else a GGUF file. */
crumb_status crumb_checkpoint_open_any(const char *path, crumb_gguf **out, crumb_error *err);

/* The path of a folder's safetensors: model.safetensors.index.json, model.safetensors, or by another name the only
 * index there is, else the only file (AutoGPTQ's have names like gptq_model-4bit-128g). `size`: bytes of `path`. */
crumb_status crumb_checkpoint_find_weights(const char *folder, char *path, size_t size, crumb_error *err);

#endif
