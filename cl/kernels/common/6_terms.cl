/* common.cl: activations as sums of 16-bit floats, for dense layers on matrix instructions: in a launch of its own
 * (split.cl), or in the layer's (dense_matrix.cl, OWN=1). A row is made down * (term 0 + term 1), each term the rest of
 * those before it rounded to nearest.
 * -D TERMS=1|2, -D TYPE=16|17 (f16, bf16), -D X_GROUP=0, -D INPUT=0|1 as 2_quantize.cl has it */
#if defined(TERMS) && defined(X_GROUP)
static ushort to_16(float x) {
#if TYPE == 16
    ushort bits;
    vstore_half_rte(x, 0, (private half *)&bits);
    return bits;
#else
    return to_bf16(x);
#endif
}

static float from_16(ushort x) {
#if TYPE == 16
    return vload_half(0, (private const half *)&x);
#else
    return from_bf16(x);
#endif
}

/* The next term of what is left, which it is taken off. */
static ushort next_term(private float *rest) {
    ushort term = to_16(*rest);
    *rest -= from_16(term);
    return term;
}

/* Every item of the work-group gets the largest |x| of the row, as bits; they order like the floats. */
static int largest_of_row(global const crumb_value *x, global const crumb_aux *aux, float r, uint k, local int *largest) {
    float most = 0;
    if (get_local_id(0) == 0) *largest = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_local_id(0); i < k; i += get_local_size(0)) most = fmax(most, fabs(input_value(x, aux, r, i)));
    atomic_max(largest, as_int(most));
    barrier(CLK_LOCAL_MEM_FENCE);
    return *largest;
}

/* What a row is multiplied with before it becomes terms, for all items of the work-group; *down is 1 / that. In f16 the
 * largest becomes 128 to 256; the exponent is held where both factors are normal numbers. */
static float up_of_row(global const crumb_value *x, global const crumb_aux *aux, float r, uint k, local int *largest,
                       private float *down) {
#if TYPE == 16
    int exponent = max(largest_of_row(x, aux, r, k, largest) >> 23, 32);
    *down = as_float((exponent - 7) << 23);
    return as_float((261 - exponent) << 23);
#else
    *down = 1;
    return 1;
#endif
}
#endif
