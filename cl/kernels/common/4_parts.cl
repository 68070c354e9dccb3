/* common.cl: the matrices that one launch of a linear layer multiplies with, which of them is a work-group's, and the
 * end of the sequence.
 * -D PARTS=1|2|3, -D GATED=0|1|2: see linear.cl */
#ifdef PARTS
typedef struct {
    global const uint *codes;
    global const uchar *scales, *mins;
    global const half *supers, *super_mins;
    global const float *bias;
    global crumb_result *y;
    uint tile0, n_tiles, m, width;
    float out_scale;
} part;

#define PART_ARGS(i)                                                                                                   \
    global const uint *codes##i, global const uchar *scales##i, global const uchar *mins##i,                           \
        global const half *supers##i, global const half *super_mins##i, global const float *bias##i,                   \
        global crumb_result *y##i, uint tile0_##i, uint n_tiles##i, uint m##i, uint width##i, float out_scale##i
#define PART(i)                                                                                                        \
    {                                                                                                                  \
        codes##i, scales##i, mins##i, supers##i, super_mins##i, bias##i, y##i, tile0_##i, n_tiles##i, m##i, width##i,  \
            out_scale##i                                                                                               \
    }
#if PARTS == 1
#define PART_ARGS_LIST PART_ARGS(0)
#define PART_LIST      PART(0)
#elif PARTS == 2
#define PART_ARGS_LIST PART_ARGS(0), PART_ARGS(1)
#define PART_LIST      PART(0), PART(1)
#else
#define PART_ARGS_LIST PART_ARGS(0), PART_ARGS(1), PART_ARGS(2)
#define PART_LIST      PART(0), PART(1), PART(2)
#endif

/* The part that this work-group computes, and the number of the group within it; each has `tiles` tile-rows. */
static part part_of_group(private const part *parts, uint tiles, private uint *group) {
    part w = parts[0];
    *group = WEIGHTS_BLOCK;
#if !GATED && PARTS > 1
    if (*group >= DIV_UP(w.n_tiles, tiles)) {
        *group -= DIV_UP(w.n_tiles, tiles);
        w = parts[1];
#if PARTS > 2
        if (*group >= DIV_UP(w.n_tiles, tiles)) {
            *group -= DIV_UP(w.n_tiles, tiles);
            w = parts[2];
        }
#endif
    }
#endif
    return w;
}

/* run(part, number of the group within it), once: for the part that this work-group computes, as part_of_group has it. Where
 * GPUs have no instructions for 64 bits, as those with sub-groups of 8 or dp4a alone, the code is there once for each part:
 * in a loop for all Intel's compiler selects between their addresses at every load, and has those in 64 bits. */
#if (SUB_GROUP == 8 || DOT) && PARTS > 1 && !GATED
#define RUN_PART_OF_GROUP(parts, tiles, run)                                                                           \
    do {                                                                                                               \
        uint behind_0 = DIV_UP((parts)[0].n_tiles, tiles), behind_1 = behind_0 + DIV_UP((parts)[1].n_tiles, tiles);    \
        if (WEIGHTS_BLOCK < behind_0)                                                                                  \
            run(&(parts)[0], WEIGHTS_BLOCK);                                                                           \
        else if (PARTS == 2 || WEIGHTS_BLOCK < behind_1)                                                               \
            run(&(parts)[1], WEIGHTS_BLOCK - behind_0);                                                                \
        else                                                                                                           \
            run(&(parts)[PARTS - 1], WEIGHTS_BLOCK - behind_1);                                                        \
    } while (0)
#else
#define RUN_PART_OF_GROUP(parts, tiles, run)                                                                           \
    do {                                                                                                               \
        uint group_of_part;                                                                                            \
        part own_part = part_of_group(parts, tiles, &group_of_part);                                                   \
        run(&own_part, group_of_part);                                                                                 \
    } while (0)
#endif

/* The last steps of the sequence, but for `add`. */
static float finish(private const part *w, uint row, float result) {
    result = result * w->out_scale;
    return w->bias && row < w->m ? result + w->bias[row] : result;
}
#endif
