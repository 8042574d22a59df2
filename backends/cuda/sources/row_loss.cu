// A loss of rows, always float: value(row), slope(row, k) and common(row) are those of a formula.

// One thread a row: losses[row], 0 for a masked row.
KERNEL row_loss(const float* x, const int* target, float* losses, int n, int classes) {
    enter();
    LINEAR(i, n) {
        Row row = row_of(x, target, i, classes);
        float loss = 0.0f;
        if (counted(target, i)) {
            row.common = common(row);
            loss = value(row);
        }
        losses[i] = loss;
    }
}

// One warp a row: dx, the gradient. Every block counts the rows that are not masked.
KERNEL row_loss_backward(const float* x, const int* target, float* dx, int n, int classes,
                         int mean) {
    enter();
    extern __shared__ double totals[];
    const float weight = row_weight(target, n, mean, totals);
    const int warps = blockDim.x / 32;
    for (i64 i = blockIdx.x * warps + threadIdx.x / 32; i < n; i += gridDim.x * warps) {
        Row row = row_of(x, target, i, classes);
        const bool counts = counted(target, i);
        if (counts) row.common = common(row);
        for (int k = threadIdx.x % 32; k < classes; k += 32)
            dx[i * classes + k] = counts ? slope(row, k) * weight : 0.0f;
    }
}
