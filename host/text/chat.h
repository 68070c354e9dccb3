/* Conversations: messages through a chat template, into tokens. */
#ifndef CRUMB_TEXT_CHAT_H
#define CRUMB_TEXT_CHAT_H

#include "host/text/tokenizer.h"

/* As crumb_model_tokenize_chat in crumb.h; chat->source is not NULL. */
crumb_status crumb_chat_tokenize(const crumb_tokenizer *t, const crumb_chat *chat, int32_t *tokens, size_t capacity,
                                 size_t *n_tokens, crumb_error *err);

#endif
