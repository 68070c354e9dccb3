/* The widths of codes that kernels are made for, a row each: those that divide a byte, and those that a tile holds as a
 * base and an extra part (crumb_tile_base_bits in host/lowbit/tile.h). Bytes, codebooks and the index layout have
 * instances of their own. */
#ifndef CRUMB_CPU_LOWBIT_WIDTHS_H
#define CRUMB_CPU_LOWBIT_WIDTHS_H

#define LOWBIT_WHOLE_WIDTHS(X) X(1) X(2) X(4)
#define LOWBIT_SPLIT_WIDTHS(X) X(3) X(5) X(6)

#endif
