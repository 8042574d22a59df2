// What ranks do together, beside what NCCL does for them.

KERNEL copy_floats(const float* from, float* to, int count) {
    enter();
    SHORT_LINEAR(int, i, count) to[i] = from[i];
}

KERNEL scale_floats(const float* from, float* to, int count, float scale) {
    enter();
    SHORT_LINEAR(int, i, count) to[i] = scale * from[i];
}

KERNEL fill_floats(float* to, int count, float value) {
    enter();
    SHORT_LINEAR(int, i, count) to[i] = value;
}

// Some rows of every plane, from "from_first" of "from_rows" on, to "to_first" of "to_rows"; "add":
// to what is there.
KERNEL move_rows(const float* from, float* to, int planes, int rows, int width, int from_rows,
                 int from_first, int to_rows, int to_first, int add) {
    enter();
    LINEAR(i, (i64)planes * rows * width) {
        const i64 column = i % width, line = i / width, row = line % rows, plane = line / rows;
        float* place = to + (plane * to_rows + to_first + row) * width + column;
        const float value = from[(plane * from_rows + from_first + row) * width + column];
        *place = add ? __fadd_rn(*place, value) : value;
    }
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

// from: (rows, columns, each), to: (columns, rows, each).
KERNEL swap_axes(const float* from, float* to, int rows, int columns, int each) {
    enter();
    LINEAR(i, (i64)rows * columns * each) {
        const i64 k = i % each, place = i / each;
        to[(place % columns * rows + place / columns) * each + k] = from[i];
    }
}

// The norm of what all ranks have alike, unless there is nothing, and of what each has alone.
KERNEL join_norms(const float* norms, int ranks, const float* own, int is_there, float* norm) {
    enter();
    double squares = is_there ? (double)own[0] * own[0] : 0.0;
    for (int rank = 0; rank < ranks; ++rank) squares += (double)norms[rank] * norms[rank];
    norm[0] = (float)sqrt(squares);
}
