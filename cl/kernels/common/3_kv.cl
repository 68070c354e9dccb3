/* common.cl: how the KV cache lies: as on the CPU (cpu/attention.h), so that layers can move between devices with a copy.
 * Per layer, sequence and key head there are blocks of 16 positions, of keys in one buffer and of values in the other.
 *     KV=16  keys f16 [HEAD_DIM][16], values f16 [16][HEAD_DIM]
 *     KV=8   f16 scales [group of 32 dimensions][16], then int8 codes: keys [HEAD_DIM/2][16][2],
 *            values [group][16/2][the group's dimensions][2]; HEAD_DIM padded to a multiple of 8
 *
 * -D HEAD_DIM=n   even
 * -D KV=16|8
 * Arguments: keys, values: the buffers of the whole cache; layer_offset: bytes in each before the layer;
 * head_blocks: blocks per sequence and head, ceil(n_ctx / 16). A buffer has layers * sequences * heads * head_blocks *
 * KV_BLOCK_BYTES bytes. */
#ifdef HEAD_DIM
#define KEY_BLOCK       16
#define KV_CHUNK        128 /* keys whose softmax is made together */
#define KV_GROUP        32
#define KV_GROUPS       DIV_UP(HEAD_DIM, KV_GROUP)
#define KV_STORED_DIMS  ROUND_UP(HEAD_DIM, 8)
#define KV_CODES_OFFSET (KV == 8 ? KV_GROUPS * KEY_BLOCK * 2 : 0)
#define KV_BLOCK_BYTES  (KV == 8 ? KV_CODES_OFFSET + KEY_BLOCK * KV_STORED_DIMS : KEY_BLOCK * HEAD_DIM * 2)

/* Where a head's blocks begin. */
static size_t kv_head_offset(ulong layer_offset, uint sequence, uint n_head_kv, uint head, uint head_blocks) {
    return layer_offset + ((size_t)sequence * n_head_kv + head) * head_blocks * KV_BLOCK_BYTES;
}

/* Dimensions of group g: of the head, and as they are stored. */
static uint kv_group_dims(uint g) {
    return min((uint)KV_GROUP, HEAD_DIM - g * KV_GROUP);
}
static uint kv_group_width(uint g) {
    return min((uint)KV_GROUP, KV_STORED_DIMS - g * KV_GROUP);
}

static float kv_within(float x, float most) {
    x = x > -most ? x : -most;
    return x < most ? x : most;
}

/* One step of multiplying each group of n_vectors heads by a Hadamard matrix. */
static void kv_turn_step(local float *x, uint n_vectors, uint distance) {
    for (uint i = get_local_id(0); i < n_vectors * (HEAD_DIM / 2); i += get_local_size(0)) {
        uint pair = i % (HEAD_DIM / 2), g = pair / (KV_GROUP / 2), n = kv_group_dims(g), at = pair % (KV_GROUP / 2);
        if (distance < (n & -n)) {
            local float *a = x + i / (HEAD_DIM / 2) * HEAD_DIM + g * KV_GROUP;
            a += at / distance * 2 * distance + at % distance;
            float low = a[0], high = a[distance];
            a[0] = low + high;
            a[distance] = low - high;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The matrix's order is the largest power of 2 that divides a group's length, up to 32. With all items of the
 * work-group, after a barrier. */
static void kv_turn(local float *x, uint n_vectors) {
    kv_turn_step(x, n_vectors, 1);
    kv_turn_step(x, n_vectors, 2);
    kv_turn_step(x, n_vectors, 4);
    kv_turn_step(x, n_vectors, 8);
    kv_turn_step(x, n_vectors, 16);
}
#endif
