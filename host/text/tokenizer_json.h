/* Hugging Face's tokenizer.json. It becomes the keys that a converter to GGUF would write, so that there is one way
 * from keys to a tokenizer. */
#ifndef CRUMB_TEXT_TOKENIZER_JSON_H
#define CRUMB_TEXT_TOKENIZER_JSON_H

#include "host/container/gguf_build.h"
#include "host/text/tokenizer.h"

/* Adds the tokenizer.ggml.* keys that a tokenizer.json asks for: byte-level BPE, or SentencePiece's BPE as transformers
 * writes it. Fails with FORMAT for what is damaged, and with UNSUPPORTED for components, patterns and flags that crumb
 * would run wrongly; both name the field. There will be at least n_tokens tokens, as many as a model has rows for;
 * fillers stand for those that the file does not have. NFC normalization is left out, as GGUF files leave it out. */
crumb_status crumb_tokenizer_json_to_keys(const char *json, size_t n_bytes, uint32_t n_tokens, crumb_gguf_builder *to,
                                          crumb_error *err);

/* The inverse: the text of a tokenizer.json, freed by the caller, from which a tokenizer comes that does the same.
 * Fails as crumb_tokenizer_open does, and with UNSUPPORTED for pre-tokenizers that crumb_tokenizer_json_to_keys does
 * not know. */
crumb_status crumb_tokenizer_json_from_keys(const crumb_gguf *g, char **out, crumb_error *err);

/* A tokenizer from the file's text; `name` stands for its path in messages. */
crumb_status crumb_tokenizer_open_json(const char *json, size_t n_bytes, const char *name, crumb_tokenizer **out,
                                       crumb_error *err);

#endif
