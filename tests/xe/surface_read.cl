/* One 2D block load of 8 rows x 16 dwords, of a surface that begins `skip` bytes into a buffer. */
void __attribute__((overloadable))
intel_sub_group_2d_block_read_32b_8r16x1c(global void *base, int width, int height, int pitch, int2 at, private uint *out);

__attribute__((intel_reqd_sub_group_size(16))) kernel void read(global char *x, uint skip, int width, int height, int pitch,
                                                                int column, global uint *out) {
    uint rows[8];
    intel_sub_group_2d_block_read_32b_8r16x1c(x + skip, width, height, pitch, (int2)(column, 0), rows);
    for (uint r = 0; r < 8; r++) out[16 * r + get_sub_group_local_id()] = rows[r];
}
