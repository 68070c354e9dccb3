/* One call of a matrix builtin by one sub-group: -D NAME=builtin -D A=type -D B=type -D D=type -D SUB_GROUP=16|8.
 * Component r of a, c and d stands at [r * SUB_GROUP + item], as registers hold it; likewise the dwords of b. */
D __attribute__((overloadable)) NAME(A a, B b, D c);

__attribute__((intel_reqd_sub_group_size(SUB_GROUP))) kernel void
call(global const A_LANE *a, global const uint *b, global const int *c, global int *d) {
    uint item = get_sub_group_local_id();
    A rows;
    B columns;
    D sums;
    for (uint r = 0; r < sizeof(A) / sizeof(A_LANE); r++) ((A_LANE *)&rows)[r] = a[r * SUB_GROUP + item];
    for (uint r = 0; r < sizeof(B) / 4; r++) ((uint *)&columns)[r] = b[r * SUB_GROUP + item];
    for (uint r = 0; r < sizeof(D) / 4; r++) ((int *)&sums)[r] = c[r * SUB_GROUP + item];
    sums = NAME(rows, columns, sums);
    for (uint r = 0; r < sizeof(D) / 4; r++) d[r * SUB_GROUP + item] = ((const int *)&sums)[r];
}
