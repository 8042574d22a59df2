// What ranks do together, beside what NCCL does for them.

KERNEL copy_floats(const float* from, float* to, int count) {
    enter();
    SHORT_LINEAR(int, i, count) to[i] = from[i];
}

// rows: (ranks, each). Neighbours are added first, then their sums; the first row has the result.
KERNEL add_in_pairs(float* rows, int each, int ranks) {
    enter();
    SHORT_LINEAR(int, i, each) {
        for (int stride = 1; stride < ranks; stride *= 2)
            for (int rank = 0; rank + stride < ranks; rank += 2 * stride) {
                float* sum = rows + (i64)rank * each + i;
                *sum = __fadd_rn(*sum, rows[(i64)(rank + stride) * each + i]);
            }
    }
}

KERNEL skip_parts(i64* step, int parts) { enter(); step[0] += parts; }

// kept: (parts, 3); sums: of a part alone.
KERNEL keep_metrics(const i64* step, double* sums, double* kept, int parts) {
    enter();
    const int i = threadIdx.x;
    kept[step[0] % parts * 3 + i] = sums[i];
    sums[i] = 0.0;
}

KERNEL add_metrics(const double* kept, double* sums, int parts) {
    enter();
    const int i = threadIdx.x;
    double total = sums[i];
    for (int part = 0; part < parts; ++part) total = __dadd_rn(total, kept[part * 3 + i]);
    sums[i] = total;
}
