/* What the files of host/checkpoint share. */
#ifndef CRUMB_CHECKPOINT_INTERNAL_H
#define CRUMB_CHECKPOINT_INTERNAL_H

#include "host/checkpoint/checkpoint.h"
#include "host/container/gguf_source.h"
#include "host/container/safetensors.h"
#include "host/lowbit/grid.h"
#include "host/model/hparams.h"

#include <cjson/cJSON.h>

/* ---- json.c: files of the folder ---------------------------------------------------------------------------- */

enum { CHECKPOINT_MAX_PATH = 4096 };

/* FOLDER/NAME; fails where that is too long. */
crumb_status checkpoint_path(const char *folder, const char *name, char out[CHECKPOINT_MAX_PATH], crumb_error *err);
/* The text of a file of the folder, with a NUL behind it; NULL where it is not there and not required. Freed by the
 * caller. */
crumb_status checkpoint_read(const char *folder, const char *name, bool required, char **text, size_t *n_bytes,
                             crumb_error *err);
/* The same parsed: a JSON object. */
crumb_status checkpoint_read_json(const char *folder, const char *name, bool required, cJSON **out, crumb_error *err);

/* ---- values.c: members of an object --------------------------------------------------------------------------- */

/* An object of a file of the folder. The readers below fail with "PATH: key 'rope_scaling.factor': ...", and leave *out
 * as it is where the member is absent or null, unless it is required. */
typedef struct checkpoint_object {
    const char *path;
    const cJSON *json; /* NULL: absent, and so are its members */
    crumb_error *err;
} checkpoint_object;

const cJSON *checkpoint_get(const cJSON *object, const char *key); /* NULL: absent, or null */
crumb_status checkpoint_refuse(const checkpoint_object *o, crumb_status status, const char *key, const char *problem);
crumb_status checkpoint_damaged(const checkpoint_object *o, const char *key, const char *problem);
crumb_status checkpoint_unsupported(const checkpoint_object *o, const char *key, const char *value);
crumb_status checkpoint_get_integer(const checkpoint_object *o, const char *key, bool required, int32_t low,
                                    int32_t high, int32_t *out);
/* A whole number from 1 on. */
crumb_status checkpoint_get_count(const checkpoint_object *o, const char *key, bool required, int32_t high,
                                  uint32_t *out);
/* A finite number above 0. */
crumb_status checkpoint_get_real(const checkpoint_object *o, const char *key, bool required, float *out);
crumb_status checkpoint_get_flag(const checkpoint_object *o, const char *key, bool *out);
crumb_status checkpoint_get_text(const checkpoint_object *o, const char *key, const char **out);
/* These set *out in any case, to nothing where the member is absent. */
crumb_status checkpoint_get_object(const checkpoint_object *o, const char *key, checkpoint_object *out);
/* A list of names, none of them empty. */
crumb_status checkpoint_get_names(const checkpoint_object *o, const char *key, const cJSON **out);

/* ---- config.c: config.json ----------------------------------------------------------------------------------- */

enum { CHECKPOINT_MAX_ROPE = CRUMB_MAX_HEAD_DIM / 2 };

typedef struct checkpoint_config {
    char path[CHECKPOINT_MAX_PATH]; /* for messages */
    const char *architecture;       /* GGUF's name */
    bool tied;
    bool attention_bias, mlp_bias; /* config.json says that there are such tensors */
    uint32_t n_layers, n_heads, n_heads_kv, head_dim, vocab_size, hidden_size, intermediate_size;
    uint32_t n_divisors;                 /* 0: none */
    float divisors[CHECKPOINT_MAX_ROPE]; /* of frequencies, by Llama 3's scaling */
    struct checkpoint_packing {
        enum checkpoint_method {
            CHECKPOINT_PLAIN,
            CHECKPOINT_BITNET,
            CHECKPOINT_GPTQ,
            CHECKPOINT_AWQ,
            CHECKPOINT_PARETOQ
        } method;
        uint8_t bits;        /* 2, 3, 4, 8; BITNET: 2; PARETOQ: 0 to 4 as config.json's w_bits, 0 being ternary */
        uint32_t group;      /* weights that share a scale where no g_idx says so; 0: a whole row */
        bool act_order;      /* GPTQ: columns of a group may stand apart, as g_idx says */
        bool zeros_less_one; /* zero points are stored less one (GPTQ's first version) */
        bool divides;        /* BITNET: by its scales, and not multiplies with them */
        bool online;         /* BITNET: weights are floats, ternary only when they are used */
    } packing;
    const cJSON *not_converted; /* config.json's list of modules whose weights stay as they are; NULL: none */
} checkpoint_config;

/* Llama 3's scaling of positions. */
typedef struct checkpoint_llama3 {
    float factor, low, high;
    uint32_t original; /* context */
} checkpoint_llama3;
/* What it divides frequencies by: [head_dim / 2]. */
void checkpoint_llama3_divisors(double theta, uint32_t head_dim, const checkpoint_llama3 *scaling, float *out);

/* Reads what config.json (`root`) says, and adds its keys. */
crumb_status checkpoint_config_read(const cJSON *root, checkpoint_config *c, crumb_gguf_builder *keys,
                                    crumb_error *err);
/* Fails where a key names a rotation of the weights. */
crumb_status checkpoint_refuse_transforms(const checkpoint_object *object);

/* ---- vocabulary.c: tokenizer.json, tokenizer_config.json, generation_config.json, chat_template.jinja ---------- */

/* Adds the tokenizer.* keys. `root`: config.json. */
crumb_status checkpoint_vocabulary_read(const char *folder, const cJSON *root, const checkpoint_config *c,
                                        crumb_gguf_builder *keys, crumb_error *err);

/* ---- a tensor ------------------------------------------------------------------------------------------------ */

/* Levels that weights were trained on, as multiples of a row's unit, by their bits (levels.c). */
enum checkpoint_levels {
    CHECKPOINT_LEVELS_SIGN,    /* -1, 1 */
    CHECKPOINT_LEVELS_TERNARY, /* -1, 0, 1 */
    CHECKPOINT_LEVELS_SEQ,     /* -3, -1, 1, 3: ParetoQ's stretched ones */
    CHECKPOINT_LEVELS_3_BITS,  /* -4 to 3 */
    CHECKPOINT_LEVELS_4_BITS,  /* -8 to 7 */
    CHECKPOINT_LEVELS_COUNT
};

/* What a tensor of the result is made from. */
typedef struct checkpoint_tensor {
    char name[112];
    enum {
        CHECKPOINT_AS_IT_IS,
        CHECKPOINT_ROWS,     /* the same with rows in another order */
        CHECKPOINT_FLOATS,   /* a vector, which becomes f32 */
        CHECKPOINT_DIVISORS, /* of RoPE's frequencies, from config.json */
        CHECKPOINT_TERNARY,  /* BitNet's bytes of four rows */
        CHECKPOINT_ABSMEAN,  /* BitNet's floats, made ternary as its layers do */
        CHECKPOINT_CODES,    /* GPTQ's and AWQ's: blocks of 32 with a scale and a min, or with one for each half */
        CHECKPOINT_HALVES,   /* the same where halves of blocks of columns do not share scales in any order: f16, as
                                transformers makes it */
        CHECKPOINT_LEVELS,   /* floats that were trained on few levels */
    } kind;
    enum checkpoint_levels levels;                     /* of CHECKPOINT_LEVELS, and its type */
    crumb_type becomes;                                /* CODES, LEVELS */
    const crumb_safetensor *from;                      /* codes where it is packed */
    const crumb_safetensor *scales, *zeros, *group_of; /* of packed ones; group_of: a group for each column, or NULL */
    const struct checkpoint_packing *packing;
    uint64_t m, k;    /* rows and columns of a packed one */
    uint32_t *order;  /* [k] of CODES with act-order: column i of the blocks is column order[i]; NULL: i. Freed with
                       * free() */
    uint32_t n_heads; /* whose rows are interleaved; 0: rows stay where they are */
} checkpoint_tensor;

/* ---- names.c: what tensors are called, and how large config.json says that they are --------------------------- */

typedef struct checkpoint_name {
    const struct checkpoint_name_pair *pair; /* NULL: crumb does not know the name */
    char gguf[96];
    const char *part; /* behind the last dot of the name that was translated */
    unsigned layer;   /* 0 of what is in none */
} checkpoint_name;

/* "model.layers.3.self_attn.q_proj.weight" is "blk.3.attn_q" and the part "weight". */
checkpoint_name checkpoint_translate(const char *name);
/* The checkpoint's name of GGUF's "blk.3.attn_q.weight"; false where there is none. *rank: where it stands among a
 * layer's tensors. */
bool checkpoint_name_of(const char *gguf, char out[128], unsigned *layer, unsigned *rank);
/* Fails where the tensor, which is to be `d`, has another shape than config.json says. */
crumb_status checkpoint_check_sizes(const checkpoint_config *c, const checkpoint_name *name, const char *tensor,
                                    const crumb_gguf_tensor *d, crumb_error *err);

/* ---- rows (tensors.c) ---------------------------------------------------------------------------------------- */

/* A value of F16, BF16 or F32. */
float checkpoint_load_float(crumb_dtype dtype, const uint8_t *p);
/* The row of the checkpoint that becomes row m of n_rows. */
uint64_t checkpoint_row_from(const checkpoint_tensor *t, uint64_t n_rows, uint64_t m);
/* Its inverse: the row that row `row` of the checkpoint becomes. */
uint64_t checkpoint_row_to(const checkpoint_tensor *t, uint64_t n_rows, uint64_t row);
/* How many heads' rows are interleaved in a tensor "blk.N.attn_q.weight" of an architecture; 0: rows stay. */
uint32_t checkpoint_heads_of(const char *architecture, uint32_t n_heads, uint32_t n_heads_kv, const char *name);

/* ---- packing.c: config.json's quantization_config, or a file of settings beside it ---------------------------- */

crumb_status checkpoint_packing_read(const checkpoint_object *quantization, struct checkpoint_packing *out);
/* What the keys "bits" and "group_size" are called there: AutoAWQ's first versions have other names. */
const char *checkpoint_bits_key(const cJSON *quantization);
const char *checkpoint_group_key(const cJSON *quantization);
/* Whether a part "qweight" or "weight" of this dtype holds packed weights, from which a tensor is made. */
bool checkpoint_is_packed(const struct checkpoint_packing *p, const char *part, crumb_dtype dtype);
/* Whether a part belongs to packed weights that stand beside it. */
bool checkpoint_is_beside(const struct checkpoint_packing *p, const char *part);

/* ---- settings.c: quantize_config.json, quant_config.json ----------------------------------------------------- */

/* Fills c->packing where config.json does not say how weights are packed, else compares. */
crumb_status checkpoint_settings_read(const char *folder, checkpoint_config *c, crumb_error *err);

/* ---- packed.c: low-bit weights ------------------------------------------------------------------------------- */

/* The tensor beside t->from whose name ends with `part`; NULL: there is none. */
const crumb_safetensor *checkpoint_beside(const crumb_safetensors *files, const checkpoint_tensor *t, const char *part);
/* 32 codes as a stream of bits, lowest first: 4 bytes a bit. */
void checkpoint_put_codes(const uint8_t codes[32], unsigned bits, uint8_t *out);
/* Finds what stands beside t->from, checks all shapes and fills the rest of t, and of d type, id, dims and order. */
crumb_status checkpoint_packed_plan(crumb_safetensors *files, checkpoint_tensor *t, crumb_gguf_tensor *d,
                                    crumb_error *err);
/* Writes all its bytes. Runs inside crumb_file_guard. */
crumb_status checkpoint_packed_make(crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                                    crumb_error *err);

/* ---- levels.c: weights trained on few levels ----------------------------------------------------------------- */

/* Whether the matrix t->from is on levels: those of t->levels where t->scales says where they lie; else whether all its
 * rows are on levels of one kind. If so (*found), fills the rest of t, and of d type, id and dims. Reads all weights of
 * a matrix that is on levels, and some rows of others. */
crumb_status checkpoint_levels_plan(crumb_safetensors *files, checkpoint_tensor *t, crumb_gguf_tensor *d, bool *found,
                                    crumb_error *err);
/* Writes all its bytes. Runs inside crumb_file_guard. */
crumb_status checkpoint_levels_make(crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                                    crumb_error *err);

/* ---- absmean.c: floats that BitNet's layers make ternary ----------------------------------------------------- */

/* *out: whether the weights of that name are such. Fails where config.json leaves it open. */
crumb_status checkpoint_is_absmean(const checkpoint_config *c, const crumb_safetensor *from, bool *out,
                                   crumb_error *err);
/* As checkpoint_packed_plan and _make. */
crumb_status checkpoint_absmean_plan(const crumb_safetensors *files, checkpoint_tensor *t, crumb_gguf_tensor *d,
                                     crumb_error *err);
crumb_status checkpoint_absmean_make(const crumb_safetensors *files, const checkpoint_tensor *t, uint8_t *out,
                                     crumb_error *err);

/* ---- tensors.c ----------------------------------------------------------------------------------------------- */

/* The folder's tensors under GGUF's names. Takes `files`, also where it fails. */
crumb_status checkpoint_tensors_open(const checkpoint_config *c, crumb_safetensors *files, crumb_gguf_source *out,
                                     crumb_error *err);

/* ---- gptq_pack.c: a matrix of codes as the tensors that stand for it ----------------------------------------- */

enum { CHECKPOINT_G_IDX, CHECKPOINT_QWEIGHT, CHECKPOINT_QZEROS, CHECKPOINT_SCALES, CHECKPOINT_GPTQ_PARTS };
typedef struct checkpoint_gptq_parts {
    uint64_t n_bytes[CHECKPOINT_GPTQ_PARTS];
    uint8_t *bytes[CHECKPOINT_GPTQ_PARTS];
} checkpoint_gptq_parts;

/* Fills n_bytes for m x k weights; m and k are multiples of 32. */
void checkpoint_gptq_layout(uint64_t m, uint64_t k, uint64_t n_groups, unsigned bits, checkpoint_gptq_parts *out);
/* Writes to->bytes, which are zeros. Rows change places as t->n_heads says. */
crumb_status checkpoint_gptq_pack(const crumb_coded *from, const checkpoint_tensor *t, int n_threads,
                                  const checkpoint_gptq_parts *to, crumb_error *err);
/* The inverse. */
void checkpoint_gptq_unpack(const checkpoint_gptq_parts *from, const checkpoint_tensor *t, crumb_coded *to);

/* ---- files_write.c: a folder's files beside the weights ------------------------------------------------------ */

/* Writes a file of a folder: under another name first. */
crumb_status checkpoint_write_text(const char *folder, const char *name, const char *text, size_t n, crumb_error *err);
/* config.json of a model that is no checkpoint, freed by the caller; UNSUPPORTED where transformers has none for it. */
crumb_status checkpoint_config_make(const crumb_gguf *g, const crumb_hparams *h, cJSON **out, crumb_error *err);
/* tokenizer.json and tokenizer_config.json of its vocabulary. */
crumb_status checkpoint_vocabulary_write(const crumb_gguf *g, const char *folder, crumb_error *err);

#endif
