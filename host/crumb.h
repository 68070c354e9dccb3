/* crumb: large language models with 1 to 8-bit weights on CPUs and Intel Arc GPUs.
 *
 * This is the only public header. Objects are opaque, there are no globals, the library never exits and never
 * prints. Every function that can fail returns a crumb_status and, when `err` is not NULL, writes a message that
 * names the file, tensor, key or device and what to do about it.
 *
 * Threads: a model may be shared by several sessions and threads; a session belongs to one thread at a time.
 * Strings are UTF-8. Parameter structs are filled by their _default function, then changed; their first member
 * lets a newer library accept a struct of an older header.
 */
#ifndef CRUMB_H
#define CRUMB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define CRUMB_API
#else
#define CRUMB_API __attribute__((visibility("default")))
#endif

#define CRUMB_VERSION_MAJOR 0
#define CRUMB_VERSION_MINOR 1
#define CRUMB_VERSION_PATCH 0

/* ---- status and errors ------------------------------------------------------------------------------------- */

typedef enum crumb_status {
    CRUMB_OK = 0,
    CRUMB_ERR_ARGUMENT,    /* the caller passed something that can never work */
    CRUMB_ERR_IO,          /* a file could not be opened, read or written */
    CRUMB_ERR_FORMAT,      /* a file is damaged or is not what it claims to be */
    CRUMB_ERR_UNSUPPORTED, /* a sound file that crumb would run wrongly, and therefore refuses */
    CRUMB_ERR_MEMORY,      /* not enough memory for weights, context or batch */
    CRUMB_ERR_CONTEXT,     /* the session's context is full */
    CRUMB_ERR_DEVICE,      /* a device is missing or failed */
    CRUMB_ERR_VERIFY,      /* a result differs from the reference */
    CRUMB_ERR_INTERRUPTED, /* a callback asked to stop */
    CRUMB_ERR_INTERNAL,    /* a bug in crumb */
    CRUMB_STATUS_COUNT
} crumb_status;

typedef struct crumb_error {
    crumb_status status;
    char message[1024]; /* one line, no newline at its end */
} crumb_error;

CRUMB_API const char *crumb_version(void);                           /* "0.1.0" */
CRUMB_API const char *crumb_status_name(crumb_status status);        /* "format" */
CRUMB_API const char *crumb_status_description(crumb_status status); /* one sentence */
CRUMB_API int crumb_status_exit_code(crumb_status status);           /* what the command exits with */

typedef enum crumb_log_level { CRUMB_LOG_ERROR, CRUMB_LOG_WARN, CRUMB_LOG_INFO, CRUMB_LOG_DEBUG } crumb_log_level;

/* One line without a newline; may be called from the thread that called into the library only. */
typedef void (*crumb_log_fn)(void *user, crumb_log_level level, const char *line);

/* ---- models ------------------------------------------------------------------------------------------------ */

typedef struct crumb_model crumb_model;

/* Called while weights are packed, with a fraction in 0..1; return true to go on, false to give up loading
 * (CRUMB_ERR_INTERRUPTED). */
typedef bool (*crumb_progress_fn)(void *user, float fraction);

/* Whether a GPU's kernels are checked against the CPU's, layer by layer, when a model is opened. */
typedef enum crumb_verify {
    CRUMB_VERIFY_AUTO = 0, /* once for each driver, kernels and kind of model; where they differ, simpler kernels run */
    CRUMB_VERIFY_ALWAYS,   /* each time; opening fails where they differ and no simpler ones agree */
    CRUMB_VERIFY_NEVER,
} crumb_verify;

typedef enum crumb_kv_type {
    CRUMB_KV_F16 = 0,
    CRUMB_KV_Q8, /* int8 with one f16 scale per 32 values: half the memory */
} crumb_kv_type;

typedef struct crumb_model_params {
    size_t struct_size;
    const char *device; /* "auto": what is predicted to be fastest, where the machine has been measured (`profile`);
                         * else an Intel GPU that can run the model, or the CPU; "cpu", "gpu0" (as `crumb devices` lists
                         * them), "cpu+gpu0"; NULL: CRUMB_DEVICE from the environment, else "auto". A GPU that fails
                         * while text is made, or does not answer for CRUMB_PATIENCE_MS (of the environment, 120000;
                         * 0: for ever), has its place taken by the CPU */
    const char *target; /* kernel tier such as "cpu:avx2"; NULL: CRUMB_TARGET from the environment, else the best */
    int n_threads;      /* most threads any session of this model will use; 0: one per physical core */
    crumb_progress_fn progress;
    void *progress_user;
    crumb_log_fn log;
    void *log_user;
    const char *tuning; /* database of `crumb tune`; NULL: CRUMB_TUNING from the environment, else the user's; "none" */
    const char *backend;  /* "auto", "cpu", "cl" (OpenCL), "ze" (Level Zero); NULL: CRUMB_BACKEND from the environment,
                           * else "auto" */
    crumb_verify verify;  /* CRUMB_VERIFY_AUTO: CRUMB_VERIFY from the environment ("on", "off"), else itself */
    int32_t n_gpu_layers; /* so many of the last layers, the output matrix being one, run on the GPU and the others on
                           * the CPU; -1: as many as fit into its memory */
    double split; /* with a GPU and the CPU ("cpu+gpu0"): so much of each layer is the GPU's while tokens are generated
                   * one by one, 0 to 1; -1: as predicted, or half of it, then as the devices' times ask for, for as
                   * long as that is faster than one alone */
    const char *cpu_kind; /* the CPU's cores to run on: "auto" (all but low-power ones), "p", "e", "all"; NULL:
                           * CRUMB_CPU_KIND from the environment, else "auto" */
    const char *balance;  /* how the CPU divides a layer among its threads: "auto" (measured), "split", "chunks"; NULL:
                           * CRUMB_BALANCE from the environment, else "auto" */
    const char *profile;  /* what the machine's devices can do, by which layers are placed: "this" (as `crumb devices
                           * --measure` has stored it), "none", a machine that crumb knows ("lnl") or a file; NULL:
                           * CRUMB_PROFILE from the environment, else "this" */
    uint32_t n_ctx, n_prompt, n_generate; /* what placement is chosen for: tokens that the context is to hold, of the
                                           * prompt, and after it; 0: min(n_ctx_train, 4096), 512, 128 */
    bool explain;                         /* times are predicted also where there is no choice between devices */
    uint32_t n_batch;                     /* what placement is chosen for, too: most tokens evaluated at once; 0: 512 */
    crumb_kv_type kv_type;                /* and how the context's keys and values will be kept: `verify` checks a
                                           * device's kernels with that here, so that simpler ones can take their place,
                                           * and with the other when the first session asks for it */
} crumb_model_params;

CRUMB_API crumb_model_params crumb_model_params_default(void);

/* Opens a GGUF file (the first part of a split file; the others are found beside it). */
CRUMB_API crumb_status crumb_model_open(const char *path, const crumb_model_params *params, crumb_model **out,
                                        crumb_error *err);
/* The small model that is part of the library. */
CRUMB_API crumb_status crumb_model_open_embedded(const crumb_model_params *params, crumb_model **out, crumb_error *err);
/* Random weights at the shapes of a known model, for measuring speed without a download: "SHAPE:TYPE[:HEAD]" with
 * SHAPE falcon3-1b, mobilellm-1.5b, llama3-8b, bitnet-2b4t; TYPE bf16, i8, mxfp4, u4, u3, u2, ternary, u1; HEAD f16,
 * i8. */
CRUMB_API crumb_status crumb_model_open_synthetic(const char *spec, const crumb_model_params *params, crumb_model **out,
                                                  crumb_error *err);
CRUMB_API void crumb_model_close(crumb_model *model); /* after its sessions; NULL is allowed */

typedef struct crumb_model_info {
    const char *name;         /* general.name, or the file's name; owned by the model */
    const char *architecture; /* "llama", "bitnet" */
    const char *type;         /* weight type as llama.cpp prints it: "Q4_1", "TQ2_0" */
    uint64_t n_params;
    uint64_t file_bytes;   /* tensor data on disk */
    uint64_t weight_bytes; /* packed weights in memory */
    uint64_t decode_bytes; /* weight bytes that one decoded token reads */
    uint32_t n_vocab, n_ctx_train, hidden_size, n_layers;
    int32_t bos_token, eos_token; /* -1: none */
    const char *device;           /* what runs it: "cpu", "gpu0" */
    const char *target;           /* kernel tier in use: "avx2" */
    const char *head_type;        /* type of the output matrix */
    double load_ms;
    const char *backend;       /* which implementation drives the device: "cpu", "cl", "ze" */
    const char *device_detail; /* the processor's or card's own name */
    const char *why_cpu;       /* why no GPU is used; empty where one is */
    const char *placement;     /* which layers run where; empty where one device runs all */
} crumb_model_info;

CRUMB_API void crumb_model_get_info(const crumb_model *model, crumb_model_info *out);

/* ---- text -------------------------------------------------------------------------------------------------- */

enum {
    CRUMB_TOKENIZE_ADD_SPECIAL = 1,   /* add BOS/EOS where the model asks for them */
    CRUMB_TOKENIZE_PARSE_SPECIAL = 2, /* text such as <|im_start|> becomes the special token */
};

/* Writes up to `capacity` ids and always sets *n_tokens to the number needed; more than capacity is
 * CRUMB_ERR_ARGUMENT, and the call can be repeated with that capacity. */
CRUMB_API crumb_status crumb_model_tokenize(const crumb_model *model, const char *text, size_t n_bytes, unsigned flags,
                                            int32_t *tokens, size_t capacity, size_t *n_tokens, crumb_error *err);
/* A message of a conversation. Roles are "system", "user", "assistant", "tool", as far as the template knows them.
 * Texts that a message does not have are NULL, and absent for the template. */
typedef struct crumb_message {
    const char *role, *content;
    const char *tool_calls; /* of an assistant, which calls tools: a JSON list of {"type": "function", "function":
                             * {"name": ..., "arguments": {...}}}; an "id" too where the template wants one */
    const char *name, *tool_call_id; /* of a tool, whose answer `content` is: what it is called, the call's "id" */
} crumb_message;
/* What a chat template is applied to. */
typedef struct crumb_chat {
    size_t struct_size;
    const char *source; /* the template's text, or "chatml"; NULL: the model's own */
    const crumb_message *messages;
    size_t n_messages;
    const char *tools;       /* that the model may call: a JSON list of {"type": "function", "function": {"name": ...,
                              * "description": ..., "parameters": a JSON schema}}, as transformers takes it; NULL: none */
    bool answer;             /* the tokens end where the assistant's answer begins; true by default */
    const char *source_name; /* the file that source is from, for messages; NULL: none */
} crumb_chat;

CRUMB_API crumb_chat crumb_chat_default(void);
/* The Jinja template that the model's file has; owned by the model; NULL: none. */
CRUMB_API const char *crumb_model_chat_template(const crumb_model *model);
/* The tokens of a conversation, as crumb_model_tokenize gives them. Control tokens come from the template only: text of
 * a message or tool that looks like one stays text. Fails with UNSUPPORTED where the template needs what crumb does not
 * have, with FORMAT where it goes wrong or JSON is damaged, with ARGUMENT where it refuses the messages or there is no
 * template. */
CRUMB_API crumb_status crumb_model_tokenize_chat(const crumb_model *model, const crumb_chat *chat, int32_t *tokens,
                                                 size_t capacity, size_t *n_tokens, crumb_error *err);
/* The bytes of one token, not NUL-terminated and not always whole UTF-8 characters; owned by the model.
 * Special tokens have no bytes unless `special`. */
CRUMB_API const char *crumb_model_token_bytes(const crumb_model *model, int32_t token, bool special, size_t *n_bytes);
CRUMB_API bool crumb_model_token_ends(const crumb_model *model, int32_t token); /* an end-of-generation token */

/* Joins tokens into text that never splits a UTF-8 character. Give it each token's bytes; it returns how many bytes of
 * whole characters it has written to `out`. Malformed bytes come out as U+FFFD (3 bytes), so that a capacity of
 * 3 * n_bytes + 3 is always enough; characters that do not fit are dropped. n_bytes = 0 ends the text: a character that
 * is still incomplete comes out as U+FFFD. Starts zeroed: crumb_utf8_stream s = {0}. */
typedef struct crumb_utf8_stream {
    unsigned char pending[4];
    unsigned n_pending;
} crumb_utf8_stream;
CRUMB_API size_t crumb_utf8_stream_push(crumb_utf8_stream *s, const char *bytes, size_t n_bytes, char *out,
                                        size_t capacity);

/* ---- sessions ---------------------------------------------------------------------------------------------- */

typedef struct crumb_session crumb_session;

typedef enum crumb_activation {
    CRUMB_ACTIVATION_AUTO = 0, /* what the file's type was trained or tested for */
    CRUMB_ACTIVATION_FLOAT,    /* no activation quantization: slow, for comparing with float references */
    CRUMB_ACTIVATION_ROW,      /* int8, one scale per token */
    CRUMB_ACTIVATION_GROUP,    /* int8, one scale per weight group */
} crumb_activation;

typedef struct crumb_session_params {
    size_t struct_size;
    uint32_t n_ctx;      /* tokens the KV cache holds; 0: min(n_ctx_train, 4096) */
    uint32_t n_batch;    /* most tokens evaluated at once in prefill; 0: 512 */
    int n_threads;       /* decode; 0: as many as the model has */
    int n_threads_batch; /* prefill; 0: n_threads */
    crumb_activation activation;
    /* sampling */
    float temperature;      /* 0: greedy */
    int32_t top_k;          /* 0: all */
    float top_p;            /* 1: off */
    float min_p;            /* 0: off */
    float repeat_penalty;   /* 1: off */
    uint32_t repeat_last_n; /* window of the penalty */
    uint64_t seed;          /* same seed, same text, for any number of threads */
    bool ignore_eos;
    /* Asked between batches and layers' ends; return true to stop with CRUMB_ERR_INTERRUPTED. */
    bool (*should_stop)(void *user);
    void *should_stop_user;
    crumb_kv_type kv_type; /* how the context's keys and values are kept */
} crumb_session_params;

CRUMB_API crumb_session_params crumb_session_params_default(void);
CRUMB_API crumb_status crumb_session_create(crumb_model *model, const crumb_session_params *params, crumb_session **out,
                                            crumb_error *err);
CRUMB_API void crumb_session_destroy(crumb_session *session);

/* Evaluates tokens after those already in the context. Afterwards the logits are those of the last one. */
CRUMB_API crumb_status crumb_session_feed(crumb_session *session, const int32_t *tokens, size_t n_tokens,
                                          crumb_error *err);
/* As feed, and calls `fn` with the logits (n_vocab floats) of each token from index `first` on, in order. */
typedef crumb_status (*crumb_logits_fn)(void *user, size_t index, const float *logits);
CRUMB_API crumb_status crumb_session_score(crumb_session *session, const int32_t *tokens, size_t n_tokens, size_t first,
                                           crumb_logits_fn fn, void *user, crumb_error *err);
/* n_vocab floats of the last token fed; NULL before the first, and where a device can no longer be read. Valid until
 * the next call on the session. */
CRUMB_API const float *crumb_session_logits(crumb_session *session);
/* Picks the next token from the logits; does not feed it. */
CRUMB_API crumb_status crumb_session_sample(crumb_session *session, int32_t *token, crumb_error *err);
/* sample, then feed the token unless it ends the generation. */
CRUMB_API crumb_status crumb_session_step(crumb_session *session, int32_t *token, bool *ended, crumb_error *err);
/* Forgets all tokens after the first `n_keep`. */
CRUMB_API crumb_status crumb_session_rewind(crumb_session *session, size_t n_keep, crumb_error *err);
CRUMB_API size_t crumb_session_length(const crumb_session *session);   /* tokens in the context */
CRUMB_API size_t crumb_session_capacity(const crumb_session *session); /* n_ctx */

typedef struct crumb_session_stats {
    uint64_t n_prompt, n_decode; /* tokens evaluated in prefill and one at a time */
    double prompt_ms, decode_ms, sample_ms;
    uint64_t kv_bytes, scratch_bytes;
} crumb_session_stats;
CRUMB_API void crumb_session_get_stats(const crumb_session *session, crumb_session_stats *out);

#ifdef __cplusplus
}
#endif
#endif
