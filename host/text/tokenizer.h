/* Tokenizers: text <-> ids, built from a GGUF file's tokenizer.ggml.* keys. Immutable once open; any number of threads.
 */
#ifndef CRUMB_TEXT_TOKENIZER_H
#define CRUMB_TEXT_TOKENIZER_H

#include "host/container/gguf.h"

/* A key of our own, for what a folder of transformers lists and GGUF has no key for: ids of tokens that end a
 * generation beside EOS and those that are known by name. */
#define CRUMB_KEY_ENDS "tokenizer.crumb.end_tokens"

typedef struct crumb_tokenizer crumb_tokenizer;

/* Fails with UNSUPPORTED for a tokenizer.ggml.model or .pre that crumb does not implement (named), with FORMAT for a
 * damaged vocabulary; messages name the key, and the caller puts the file's name before them. Copies what it needs: the
 * file may be closed afterwards. */
crumb_status crumb_tokenizer_open(const crumb_gguf *g, crumb_tokenizer **out, crumb_error *err);
void crumb_tokenizer_close(crumb_tokenizer *t);

uint32_t crumb_tokenizer_n_vocab(const crumb_tokenizer *t);
int32_t crumb_tokenizer_bos(const crumb_tokenizer *t); /* -1: none */
int32_t crumb_tokenizer_eos(const crumb_tokenizer *t);
bool crumb_tokenizer_adds_bos(const crumb_tokenizer *t);
/* End-of-generation: EOS, EOT and the well-known end tokens by name, as llama.cpp decides it, and CRUMB_KEY_ENDS. */
bool crumb_tokenizer_ends(const crumb_tokenizer *t, int32_t token);

/* As crumb_model_tokenize in crumb.h. */
crumb_status crumb_tokenizer_encode(const crumb_tokenizer *t, const char *text, size_t n_bytes, unsigned flags,
                                    int32_t *tokens, size_t capacity, size_t *n_tokens, crumb_error *err);
/* A chat template's text, where is_plain[i] marks bytes (NULL: none) that no control token may be made of. Begins with
 * BOS where the model asks for it and the text does not. */
crumb_status crumb_tokenizer_encode_chat(const crumb_tokenizer *t, const char *text, const char *is_plain,
                                         size_t n_bytes, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                         crumb_error *err);
/* As crumb_model_token_bytes in crumb.h: raw bytes of a token (byte tokens give their byte; SentencePiece's U+2581 is a
 * space). */
const char *crumb_tokenizer_token_bytes(const crumb_tokenizer *t, int32_t token, bool special, size_t *n_bytes);

#endif
