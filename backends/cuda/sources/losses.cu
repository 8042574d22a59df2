// Losses and metrics: rows of class scores, always float.

// The wanted probability of class k: one-hot, smoothed (Szegedy et al. 2016, eq. 7).
__device__ float wanted(int k, int target, int classes, float smoothing) {
    return (k == target ? 1.0f - smoothing : 0.0f) + smoothing / classes;
}

// One warp a row: log_p = x - logsumexp(x), losses[row] = -sum of q log_p, 0 for a masked row.
KERNEL log_softmax_loss(const float* x, const int* target, float* log_p, float* losses,
                        int n, int classes, float smoothing) {
    enter();
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    const float* in = x + (i64)row * classes;
    float largest = -INF;
    for (int k = lane; k < classes; k += 32) largest = fmaxf(largest, in[k]);
    for (int o = 16; o; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    float sum = 0.0f;
    for (int k = lane; k < classes; k += 32) sum += expf(in[k] - largest);
    sum = warp_sum(sum);
    // Two subtractions: the norm itself would be rounded to the size of the scores.
    float norm = logf(sum), loss = 0.0f;
    for (int k = lane; k < classes; k += 32) {
        float value = in[k] - largest - norm;
        log_p[(i64)row * classes + k] = value;
        loss -= wanted(k, target[row], classes, smoothing) * value;
    }
    loss = warp_sum(loss);
    if (lane == 0) losses[row] = target[row] < 0 ? 0.0f : loss;
}

// One block: loss = sum of losses, divided by the number of rows that count where mean is asked.
KERNEL reduce_loss(const float* losses, const int* target, float* loss, int n, int mean) {
    enter();
    extern __shared__ double totals[];
    double sum = 0.0, count = 0.0;
    OF_BLOCK(row, n) {
        sum += losses[row];
        count += counted(target, row);
    }
    sum = block_sum(sum, totals);
    count = block_sum(count, totals);
    if (threadIdx.x == 0) loss[0] = mean ? sum / fmax(count, 1.0) : sum;
}

// dx = e^log_p - q, over the number of rows that count where mean is asked; every block counts them
// then.
KERNEL loss_backward(const float* log_p, const int* target, float* dx, int n,
                             int classes, float smoothing, int mean) {
    enter();
    extern __shared__ double totals[];
    const float weight = row_weight(target, n, mean, totals);
    SHORT_LINEAR(unsigned, i, (unsigned)n * classes) {
        const unsigned row = i / classes;
        const int t = target[row];
        float value = log_p[i], q = wanted(i - row * classes, t, classes, smoothing);
        // Of a sure answer e^value - 1 keeps its digits.
        float slope = q > 0.5f ? expm1f(value) + (1.0f - q) : expf(value) - q;
        dx[i] = t < 0 ? 0.0f : slope * weight;
    }
}

// One block: sums += (loss over samples, rows whose first largest score is the target, rows).
KERNEL metrics(const float* scores, const int* target, const float* loss, double* sums,
               int n, int classes, int mean) {
    enter();
    extern __shared__ double totals[];
    // Right rows and all, in one number.
    i64 found = 0;
    OF_BLOCK(row, n) {
        const float* in = scores + (i64)row * classes;
        const int wanted = target[row];
        float largest = in[0];
        int best = 0;
#pragma unroll 8
        for (int k = 1; k < classes; ++k) {
            const float v = in[k];
            if (!(v <= largest) && !isnan(largest)) largest = v, best = k;
        }
        found += ((i64)(best == wanted) << 32) + (wanted >= 0);
    }
    found = block_sum(found, (i64*)totals);
    if (threadIdx.x == 0) {
        const double right = found >> 32, count = found & 0xffffffff;
        sums[0] += loss[0] * (mean ? count : 1.0);
        sums[1] += right;
        sums[2] += count;
    }
}

#if WIDE
__device__ int first_largest(const float* in) {
    int best = 0;
    for (int k = 1; k < WIDE; ++k)
        if (!(in[k] <= in[best]) && !isnan(in[best])) best = k;
    return best;
}

// The same of targets that are rows of numbers. Answer 0: the largest is right, 1: what is above the
// threshold, 2: squared errors are added up.
KERNEL metrics_wide(const float* scores, const int* target, const float* loss, double* sums, int n,
                    int mean, int answer, float threshold) {
    enter();
    extern __shared__ double totals[];
    double second = 0.0, count = 0.0;
    OF_BLOCK(row, n) {
        if (!counted(target, row)) continue;
        const float* in = scores + (i64)row * WIDE;
        const float* wanted = (const float*)target + (i64)row * WIDE;
        count += 1.0;
        if (answer == 0) {
            second += first_largest(in) == first_largest(wanted);
            continue;
        }
        double sum = 0.0;
        for (int k = 0; k < WIDE; ++k) {
            const double gap = (double)in[k] - wanted[k];
            sum += answer == 2 ? gap * gap : (in[k] > threshold) == (wanted[k] > 0.5f);
        }
        second += sum / WIDE;
    }
    second = block_sum(second, totals);
    count = block_sum(count, totals);
    if (threadIdx.x == 0) {
        sums[0] += loss[0] * (mean ? count : 1.0);
        sums[1] += second;
        sums[2] += count;
    }
}
#endif
