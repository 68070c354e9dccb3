/* The matrix instructions of Intel's GPUs as OpenCL C over sub-groups, for OpenCL devices that lack them: linked to a
 * kernel's program by the tests, never compiled into it.
 *
 * DPAS, as Intel's vISA documentation defines it, on the operands of the OpenCL builtins: D = C + A * B with A of R rows
 * (1, 2, 4 or 8) x 32 int8, B of 32 x N and D of R x N int32, N being the sub-group's size. Item n holds column n of B,
 * elements 0 to 31 from the lowest bits up, and row by row column n of C and D. Of A, item l holds of every row
 * elements 2l and 2l + 1 in a sub-group of 16, and 4l to 4l + 3 in one of 8.
 */
#define OVERLOAD __attribute__((overloadable, noinline)) /* inlined, 64 of them in a loop take minutes to compile */

/* Element k of a column: BITS of them at a time in dwords. */
#define ELEMENT_U(b, k, bits) ((int)(((const uint *)&(b))[(k) * (bits) / 32] >> ((k) * (bits) % 32) & ((1u << (bits)) - 1)))
#define ELEMENT_S(b, k)       ((int)((const char *)&(b))[k])
#define I2(b, k)              ((int)(ELEMENT_U(b, k, 2) ^ 2) - 2)
#define U2(b, k)              ELEMENT_U(b, k, 2)
#define U4(b, k)              ELEMENT_U(b, k, 4)
#define U8(b, k)              ELEMENT_U(b, k, 8)
#define I8(b, k)              ELEMENT_S(b, k)

/* One row: `a` is what each of n items holds of it, `per` bytes of type a_byte. */
#define ROW_SUM(acc, a, a_byte, items, per, element)                                                                   \
    for (uint l = 0; l < (items); l++) {                                                                               \
        int bytes = (int)sub_group_broadcast(a, l);                                                                    \
        for (uint j = 0; j < (per); j++) acc += (int)(a_byte)(bytes >> (8 * j)) * element(b, (per)*l + j);             \
    }

#define DEFINE(name, element, b_type, a_byte, a_one, a_type, d_type, rows, items, per)                                 \
    d_type OVERLOAD name(a_type a, b_type b, d_type acc) {                                                             \
        for (uint r = 0; r < (rows); r++) {                                                                            \
            a_one own = ((const a_one *)&a)[r];                                                                        \
            int sum = ((const int *)&acc)[r];                                                                          \
            ROW_SUM(sum, own, a_byte, items, per, element)                                                             \
            ((int *)&acc)[r] = sum;                                                                                    \
        }                                                                                                              \
        return acc;                                                                                                    \
    }
#define DEFINE_ALL(name, element, b_type, sign, a_byte)                                                                \
    DEFINE(name, element, b_type, a_byte, sign##short, sign##short, int, 1, 16, 2)                                     \
    DEFINE(name, element, b_type, a_byte, sign##short, sign##short2, int2, 2, 16, 2)                                   \
    DEFINE(name, element, b_type, a_byte, sign##short, sign##short4, int4, 4, 16, 2)                                   \
    DEFINE(name, element, b_type, a_byte, sign##short, sign##short8, int8, 8, 16, 2)                                   \
    DEFINE(name, element, b_type, a_byte, sign##int, sign##int, int, 1, 8, 4)                                          \
    DEFINE(name, element, b_type, a_byte, sign##int, sign##int2, int2, 2, 8, 4)                                        \
    DEFINE(name, element, b_type, a_byte, sign##int, sign##int4, int4, 4, 8, 4)                                        \
    DEFINE(name, element, b_type, a_byte, sign##int, sign##int8, int8, 8, 8, 4)
DEFINE_ALL(intel_sub_group_i8_u2_matrix_mad_k32, U2, uint2, , char)
DEFINE_ALL(intel_sub_group_i8_i2_matrix_mad_k32, I2, int2, , char)
DEFINE_ALL(intel_sub_group_i8_u4_matrix_mad_k32, U4, uint4, , char)
DEFINE_ALL(intel_sub_group_i8_u8_matrix_mad_k32, U8, uint8, , char)
DEFINE_ALL(intel_sub_group_i8_i8_matrix_mad_k32, I8, int8, , char)
DEFINE_ALL(intel_sub_group_u8_i8_matrix_mad_k32, I8, int8, u, uchar)

/* The same on floats of 16 bits: K is 16, D f32, and item n holds column n of B with two elements to a dword. Products
 * are exact in f32; DPAS leaves open how their sum is rounded, which here is after each. */
static float f16_value(ushort bits) {
    return vload_half(0, (private const half *)&bits);
}
static float bf16_value(ushort bits) {
    return as_float((uint)bits << 16);
}

#define DEFINE_FLOAT(name, value, a_one, a_type, d_type, rows, items, per)                                             \
    d_type OVERLOAD name(a_type a, int8 b, d_type acc) {                                                               \
        for (uint r = 0; r < (rows); r++) {                                                                            \
            a_one own = ((const a_one *)&a)[r];                                                                        \
            float sum = ((const float *)&acc)[r];                                                                      \
            for (uint l = 0; l < (items); l++) {                                                                       \
                uint bits = (uint)sub_group_broadcast(own, l);                                                         \
                for (uint j = 0; j < (per); j++)                                                                       \
                    sum += value((ushort)(bits >> (16 * j))) * value(((const ushort *)&b)[(per)*l + j]);               \
            }                                                                                                          \
            ((float *)&acc)[r] = sum;                                                                                  \
        }                                                                                                              \
        return acc;                                                                                                    \
    }
#define DEFINE_FLOATS(name, value)                                                                                     \
    DEFINE_FLOAT(name, value, short, short, float, 1, 16, 1)                                                           \
    DEFINE_FLOAT(name, value, short, short2, float2, 2, 16, 1)                                                         \
    DEFINE_FLOAT(name, value, short, short4, float4, 4, 16, 1)                                                         \
    DEFINE_FLOAT(name, value, short, short8, float8, 8, 16, 1)                                                         \
    DEFINE_FLOAT(name, value, int, int, float, 1, 8, 2)                                                                \
    DEFINE_FLOAT(name, value, int, int2, float2, 2, 8, 2)                                                              \
    DEFINE_FLOAT(name, value, int, int4, float4, 4, 8, 2)                                                              \
    DEFINE_FLOAT(name, value, int, int8, float8, 8, 8, 2)
DEFINE_FLOATS(intel_sub_group_f16_f16_matrix_mad_k16, f16_value)
DEFINE_FLOATS(intel_sub_group_bf16_bf16_matrix_mad_k16, bf16_value)

/* What the hardware asks of a surface; it says nothing where that is broken, these loads bring WRONG: the base lies at 64
 * bytes, a row has 64 bytes or more and whole dwords, the next one is 16 n bytes on, a block begins at a dword. */
#define WRONG 0x5a5a5a5au
static bool surface_is_sound(global const void *base, int width, int height, int pitch, int x_bytes) {
    return (ulong)base % 64 == 0 && width >= 64 && width % 4 == 0 && pitch >= width && pitch % 16 == 0 && height > 0 &&
           (width | height | pitch) < 1 << 24 && x_bytes % 4 == 0;
}

/* 2D block loads: `blocks` side by side of `rows` rows x 16 items, elements of `size` bytes, zeros outside the surface.
 * Item l gets column l of a block, or columns 2l and 2l + 1 of bytes. */
#define DEFINE_READ(name, type, size, rows, blocks)                                                                    \
    void OVERLOAD intel_sub_group_2d_block_read_##name(global void *base, int width, int height, int pitch, int2 at,   \
                                                       private type *out) {                                            \
        bool sound = surface_is_sound(base, width, height, pitch, at.x * (size));                                      \
        for (int b = 0; b < (blocks); b++)                                                                             \
            for (int r = 0; r < (rows); r++) {                                                                         \
                int byte = at.x * (size) + (16 * b + (int)get_sub_group_local_id()) * (int)sizeof(type), y = at.y + r; \
                bool inside = byte >= 0 && byte < width && y >= 0 && y < height;                                       \
                out[b * (rows) + r] = !sound   ? (type)WRONG                                                           \
                                      : inside ? *(global type *)((global char *)base + (size_t)y * pitch + byte)      \
                                               : 0;                                                                    \
            }                                                                                                          \
    }                                                                                                                  \
    void OVERLOAD intel_sub_group_2d_block_prefetch_##name(global void *base, int width, int height, int pitch,        \
                                                           int2 at) {}
void OVERLOAD intel_sub_group_2d_block_read_transform_16b_16r16x1c(global void *base, int width, int height, int pitch,
                                                                   int2 at, private uint *out) {
    int byte = (at.x + (int)get_sub_group_local_id()) * 2;
    bool sound = surface_is_sound(base, width, height, pitch, at.x * 2);
    for (int r = 0; r < 8; r++) {
        global const char *row = (global const char *)base + (size_t)(at.y + 2 * r) * pitch + byte;
        out[r] = sound ? *(global const ushort *)row | (uint)*(global const ushort *)(row + pitch) << 16 : WRONG;
    }
}
DEFINE_READ(8b_8r32x1c, ushort, 1, 8, 1)
DEFINE_READ(8b_16r32x1c, ushort, 1, 16, 1)
DEFINE_READ(8b_32r32x1c, ushort, 1, 32, 1)
DEFINE_READ(8b_2r32x2c, ushort, 1, 2, 2)
DEFINE_READ(8b_4r32x2c, ushort, 1, 4, 2)
DEFINE_READ(8b_8r32x2c, ushort, 1, 8, 2)
DEFINE_READ(16b_2r16x2c, ushort, 2, 2, 2)
DEFINE_READ(16b_4r16x2c, ushort, 2, 4, 2)
DEFINE_READ(16b_8r16x2c, ushort, 2, 8, 2)
DEFINE_READ(16b_16r16x2c, ushort, 2, 16, 2)
DEFINE_READ(16b_1r16x1c, ushort, 2, 1, 1)
DEFINE_READ(16b_2r16x1c, ushort, 2, 2, 1)
DEFINE_READ(16b_4r16x1c, ushort, 2, 4, 1)
DEFINE_READ(16b_8r16x1c, ushort, 2, 8, 1)
DEFINE_READ(16b_16r16x1c, ushort, 2, 16, 1)
DEFINE_READ(32b_1r16x1c, uint, 4, 1, 1)
DEFINE_READ(32b_2r16x1c, uint, 4, 2, 1)
DEFINE_READ(32b_4r16x1c, uint, 4, 4, 1)
DEFINE_READ(32b_8r16x1c, uint, 4, 8, 1)
DEFINE_READ(32b_16r16x1c, uint, 4, 16, 1)
DEFINE_READ(32b_32r16x1c, uint, 4, 32, 1)
