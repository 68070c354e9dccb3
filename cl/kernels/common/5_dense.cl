/* common.cl: the dense matrices that one launch multiplies with, which of them is a work-group's, and the end of the
 * sequence.
 * -D DENSE_PARTS=1|2|3   matrices of one type and width, whose work-groups follow each other
 * -D GATED=0|1|2         1: y of part 0 = silu(part 0) * part 1; 2: relu(part 0)^2 * part 1; nothing is added then */
#ifdef DENSE_PARTS
typedef struct {
    global const uchar *weights;
    global const float *bias;
    global crumb_result *y;
    uint row0, row1, width;
    float out_scale;
} dense_part;

#define DENSE_ARGS(i)                                                                                                  \
    global const uchar *weights##i, global const float *bias##i, global crumb_result *y##i, uint row0_##i,             \
        uint row1_##i, uint width##i, float out_scale##i
#define DENSE_PART(i) {weights##i, bias##i, y##i, row0_##i, row1_##i, width##i, out_scale##i}
#if DENSE_PARTS == 1
#define DENSE_ARGS_LIST DENSE_ARGS(0)
#define DENSE_LIST      DENSE_PART(0)
#elif DENSE_PARTS == 2
#define DENSE_ARGS_LIST DENSE_ARGS(0), DENSE_ARGS(1)
#define DENSE_LIST      DENSE_PART(0), DENSE_PART(1)
#else
#define DENSE_ARGS_LIST DENSE_ARGS(0), DENSE_ARGS(1), DENSE_ARGS(2)
#define DENSE_LIST      DENSE_PART(0), DENSE_PART(1), DENSE_PART(2)
#endif

/* The part that this work-group computes `rows` rows of, and the first of them. */
static dense_part dense_part_of_group(private const dense_part *parts, uint rows, private uint *first) {
    dense_part w = parts[0];
    uint group = WEIGHTS_BLOCK;
#if !GATED && DENSE_PARTS > 1
    if (group >= DIV_UP(w.row1 - w.row0, rows)) {
        group -= DIV_UP(w.row1 - w.row0, rows);
        w = parts[1];
#if DENSE_PARTS > 2
        if (group >= DIV_UP(w.row1 - w.row0, rows)) {
            group -= DIV_UP(w.row1 - w.row0, rows);
            w = parts[2];
        }
#endif
    }
#endif
    *first = w.row0 + group * rows;
    return w;
}

/* The last steps of the sequence, but for `add`; `row` is one of the part's. */
static float dense_finish(private const dense_part *w, uint row, float sum) {
    float result = sum * w->out_scale;
    return w->bias ? result + w->bias[row] : result;
}
#endif
