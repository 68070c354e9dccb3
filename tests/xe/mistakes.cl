/* Kernels with mistakes, for Oclgrind to find. `out` has one uint per item of one work-group. */
kernel void race(global uint *out) {
    local uint shared[16];
    shared[get_local_id(0)] = out[get_local_id(0)];
    out[get_local_id(0)] = shared[(get_local_id(0) + 1) % 16]; /* no barrier before */
}

kernel void bounds(global uint *out) {
    out[get_local_id(0) + 1] = 0;
}
