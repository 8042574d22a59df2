// What plain calls need for an update, the global norm, the step.

// out = -lr: the factor of cublasSaxpy.
KERNEL sgd_factor(const float* rates, const i64* step, float* out) {
    enter();
    out[0] = -rates[step[0]];
}

// meant, if given: whether a tile of 32 counts.
KERNEL square_sums(const float* g, const u8* meant, i64 size, double* partial) {
    enter();
    extern __shared__ double totals[];
    double sum = 0.0;
    LINEAR(i, size)
        if (!meant || meant[i / 32]) sum += (double)g[i] * g[i];
    sum = block_sum(sum, totals);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

KERNEL norm_of(const double* partial, int blocks, float* norm) {
    enter();
    extern __shared__ double totals[];
    double sum = block_sum(threadIdx.x < blocks ? partial[threadIdx.x] : 0.0, totals);
    if (threadIdx.x == 0) norm[0] = sqrt(sum);
}

KERNEL clip_factor(const float* norm, float limit, float* factor) {
    enter();
    factor[0] = norm[0] > limit ? limit / norm[0] : 1.0f;
}

KERNEL advance(i64* step) { enter(); step[0] += 1; }
