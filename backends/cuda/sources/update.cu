// The update of the parameters, the global norm, the step.

// PyTorch's SGD over the arenas, four neighbours a thread: the 32 neighbours of a tile belong to one
// parameter, and rules[tile] is its (factor of the learning rate, weight decay); the factor 0 leaves it
// alone. v is unused without momentum; copy, if given, gets p rounded to bfloat16. With `come_count`
// the step is advanced too.
KERNEL sgd_update(float* p, const float* g, float* v, bfloat* copy, int fours,
                  const float2* rules, const float* rates, i64* step,
                  unsigned* come_count, float momentum, int nesterov) {
    // Written by no kernel.
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float2 rule = i < fours ? rules[i / 8] : make_float2(0.0f, 0.0f);
    enter();
    const i64 now = step[0];
    // All at once, while the step and then its rate are on their way.
    float ps[4], gs[4], vs[4] = {};
    if (rule.x != 0.0f) {
        unpack(get4(p + 4 * i), ps), unpack(get4(g + 4 * i), gs);
        if (momentum != 0.0f) unpack(get4(v + 4 * i), vs);
    }
    const float lr = rates[now] * rule.x;
    const unsigned turn = come_count ? come(come_count) : 0;
    if (rule.x != 0.0f) {
        UNROLLED(k, 4) {
            float gradient = fmaf(rule.y, ps[k], gs[k]);
            if (momentum != 0.0f) {
                vs[k] = fmaf(momentum, vs[k], gradient);
                gradient = nesterov ? fmaf(momentum, vs[k], gradient) : vs[k];
            }
            ps[k] = fmaf(-lr, gradient, ps[k]);
        }
        put4(p + 4 * i, pack(ps));
        if (momentum != 0.0f) put4(v + 4 * i, pack(vs));
        if (copy) put4(copy + 4 * i, pack(ps));
    }
    if (come_count) leave(come_count, turn, step, now + 1);
}

// out = (-lr, 1 - lr decay): the factors of cublasSaxpy and cublasSscal.
KERNEL sgd_factors(const float* rates, const i64* step, float decay, float* out) {
    enter();
    float lr = rates[step[0]];
    out[0] = -lr;
    out[1] = 1.0f - lr * decay;
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
