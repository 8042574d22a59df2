// The end of a classifier in two passes: behind the matrix product of the last hidden layer, its
// bias and activation, the output layer, softmax, cross-entropy, and the gradients back to that
// product; then the gradients of the output layer and of both biases, the loss and the metrics.
//
// Compiled for one geometry: HIDDEN units, STRIDE of their rows, CLASSES, KIND of the activation;
// SPAN columns and LINES rows of a block of the second pass.

#define THREADS 128
// Neighbouring columns that a thread of the first pass takes at once, and how often it does.
#define WIDE (STRIDE % 4 ? 1 : 4)
#define EACH ((STRIDE + THREADS * WIDE - 1) / (THREADS * WIDE))
#define WARPS (SPAN * LINES / 32)

INLINE void load(const float* p, float* v) {
    if constexpr (WIDE == 4) {
        unpack(get4(p), v);
    } else {
        v[0] = p[0];
    }
}

template <typename S>
INLINE void store(S* p, const float* v) {
    if constexpr (WIDE == 4)
        put4(p, pack(v));
    else
        put(p, v[0]);
}

// The CLASSES numbers of a row, two at a time where a row begins at an even place.
INLINE void load_classes(const float* p, float* v) {
    if constexpr (CLASSES % 2 == 0) {
#pragma unroll
        for (int k = 0; k < CLASSES; k += 2) {
            float2 two = *(const float2*)(p + k);
            v[k] = two.x, v[k + 1] = two.y;
        }
    } else {
        UNROLLED(k, CLASSES) v[k] = p[k];
    }
}

// The smallest power of two that holds all classes.
#define SUMS (CLASSES <= 2 ? 2 : CLASSES <= 4 ? 4 : CLASSES <= 8 ? 8 : CLASSES <= 16 ? 16 : 32)

// One block a sample. pre: (N, STRIDE) the hidden layer's product; b1: (STRIDE); scores, dscores:
// (N, CLASSES); dpre: (N, STRIDE); row_sums: (N) of (loss, 1 where the first largest score is the target).
KERNEL __launch_bounds__(THREADS)
    dense_tail(const float* pre, const float* b1, const float* w2, const float* b2,
               const int* target, float* scores, float* dscores, T* dpre, float2* row_sums, int n,
               float smoothing, int mean) {
    enter();
    __shared__ float part[THREADS / 32][CLASSES];
    __shared__ int counts[THREADS / 32];
    __shared__ float slopes[CLASSES];
    int row = blockIdx.x, t = threadIdx.x, lane = t % 32, warp = t / 32;
    float hidden[EACH][WIDE], weights[EACH][CLASSES][WIDE], sums[SUMS];
    UNROLLED(k, SUMS) sums[k] = 0.0f;
    UNROLLED(i, EACH) {
        const int j = (t + THREADS * i) * WIDE;
        float biases[WIDE] = {};
        if (j < STRIDE) {
            load(pre + (i64)row * STRIDE + j, hidden[i]);
            if (b1) load(b1 + j, biases);
            UNROLLED(k, CLASSES) load(w2 + k * STRIDE + j, weights[i][k]);
        }
        UNROLLED(v, WIDE) {
            const bool real = j + v < HIDDEN;
            hidden[i][v] = real ? activate(KIND, hidden[i][v] + biases[v], 0.0f) : 0.0f;
            UNROLLED(k, CLASSES) {
                if (!real) weights[i][k][v] = 0.0f;
                sums[k] = fmaf(hidden[i][v], weights[i][k][v], sums[k]);
            }
        }
    }
    int count = 0;
    if (mean)
        for (int i = t; i < n; i += THREADS) count += target[i] >= 0;
    count = warp_sum(count);
    if (lane == 0) counts[warp] = count;
    fold<SUMS / 2>(sums);
    // Lanes that differ in the bits above SUMS hold the same class: they add up too.
#pragma unroll
    for (int o = 16; o >= SUMS; o /= 2) sums[0] += __shfl_xor_sync(~0u, sums[0], o);
    if (lane < CLASSES) part[warp][lane] = sums[0];
    __syncthreads();
    if (warp == 0) {
        int wanted = target[row];
        bool real = lane < CLASSES;
        float score = -INF;
        if (real) {
            score = b2 ? b2[lane] : 0.0f;
            for (int w = 0; w < THREADS / 32; ++w) score += part[w][lane];
        }
        float largest = score;
        for (int o = 16; o; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
        float power = real ? expf(score - largest) : 0.0f;
        float total = warp_sum(power), norm = logf(total);
        float q = real ? (lane == wanted ? 1.0f - smoothing : 0.0f) + smoothing / CLASSES : 0.0f;
        float loss = warp_sum(q != 0.0f ? -q * (score - largest - norm) : 0.0f);
        float seen = 0.0f;
        for (int w = 0; w < THREADS / 32; ++w) seen += counts[w];
        // p - q of the target is what the others lack: of a sure answer p - 1 would lose its digits.
        float rest = warp_sum(lane == wanted ? 0.0f : power) / total;
        float away = lane == wanted ? (1.0f - q) - rest : power / total - q;
        float slope = wanted < 0 ? 0.0f : away / (mean ? fmaxf(seen, 1.0f) : 1.0f);
        unsigned nan = __ballot_sync(~0u, real && isnan(score));
        unsigned top = nan ? nan : __ballot_sync(~0u, real && score == largest);
        if (real) {
            scores[row * CLASSES + lane] = score;
            dscores[row * CLASSES + lane] = slope;
            slopes[lane] = slope;
        }
        if (lane == 0)
            row_sums[row] =
                make_float2(wanted < 0 ? 0.0f : loss, __ffs(top) - 1 == wanted ? 1.0f : 0.0f);
    }
    __syncthreads();
    UNROLLED(i, EACH) {
        const int j = (t + THREADS * i) * WIDE;
        if (j >= STRIDE) continue;
        float gradients[WIDE] = {};
        UNROLLED(v, WIDE) {
            UNROLLED(k, CLASSES)
                gradients[v] = fmaf(slopes[k], weights[i][k][v], gradients[v]);
            gradients[v] = j + v < HIDDEN ? gradients[v] * slope(KIND, hidden[i][v], 0.0f) : 0.0f;
        }
        store(dpre + (i64)row * STRIDE + j, gradients);
    }
}

// The sums of three numbers over a block, known to thread 0.
INLINE void three_sums(double* v, double (*shared)[3]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    UNROLLED(i, 3) {
        v[i] = warp_sum(v[i]);
        if (lane == 0) shared[warp][i] = v[i];
    }
    __syncthreads();
    if (warp) return;
    UNROLLED(i, 3) {
        v[i] = warp_sum(lane < WARPS ? shared[lane][i] : 0.0);
    }
}

// db2: a warp a class, whose lanes share the samples.
INLINE void last_bias(const float* dscores, float* db2, int n) {
    for (int k = threadIdx.x / 32; k < CLASSES; k += WARPS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int row = threadIdx.x % 32; row < n; row += 32) sum += dscores[row * CLASSES + k];
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) db2[k] = sum;
    }
}

// dw2 (CLASSES, STRIDE), db1 (STRIDE), db2 (CLASSES); db1 and db2 may be null. A block sums SPAN
// columns over all samples, LINES of them at once; of the last two blocks one sums up db2, the
// other loss and metrics.
KERNEL __launch_bounds__(SPAN * LINES)
    dense_tail_gradients(const float* pre, const float* b1, const float* dscores, const T* dpre,
                         const float2* row_sums, const int* target, float* dw2, float* db1,
                         float* db2, int n, float* loss, double* sums, int mean) {
    enter();
    __shared__ union {
        double totals[WARPS][3];
        float part[WARPS][SPAN][CLASSES + 1];
    } shared;
    if (blockIdx.x == gridDim.x - 2) {
        if (db2) last_bias(dscores, db2, n);
        return;
    }
    if (blockIdx.x == gridDim.x - 1) {
        double total[3] = {0.0, 0.0, 0.0};  // loss, right answers, samples that count
        for (int i = threadIdx.x; i < n; i += SPAN * LINES) {
            const float2 one = row_sums[i];
            total[0] += one.x, total[1] += one.y, total[2] += target[i] >= 0;
        }
        three_sums(total, shared.totals);
        if (threadIdx.x == 0) {
            loss[0] = mean ? total[0] / fmax(total[2], 1.0) : total[0];
            if (sums) {
                sums[0] += loss[0] * (mean ? total[2] : 1.0);
                sums[1] += total[1];
                sums[2] += total[2];
            }
        }
        return;
    }
    const int column = threadIdx.x % SPAN, line = threadIdx.x / SPAN;
    const int j = blockIdx.x * SPAN + column;
    float sum[CLASSES + 1];
#pragma unroll
    for (int k = 0; k <= CLASSES; ++k) sum[k] = 0.0f;
    if (j < HIDDEN) {
        float bias = b1 ? b1[j] : 0.0f;
#pragma unroll 4
        for (int row = line; row < n; row += LINES) {
            float slopes[CLASSES];
            load_classes(dscores + row * CLASSES, slopes);
            float hidden = activate(KIND, pre[(i64)row * STRIDE + j] + bias, 0.0f);
            sum[CLASSES] += get(dpre[(i64)row * STRIDE + j]);
            UNROLLED(k, CLASSES) sum[k] = fmaf(hidden, slopes[k], sum[k]);
        }
    }
    // The lines of a warp first, then the warps in order.
#pragma unroll
    for (int k = 0; k <= CLASSES; ++k) {
#pragma unroll
        for (int o = SPAN; o < 32; o *= 2) sum[k] += __shfl_xor_sync(~0u, sum[k], o);
        if (threadIdx.x % 32 < SPAN) shared.part[threadIdx.x / 32][column][k] = sum[k];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SPAN * (CLASSES + 1); i += SPAN * LINES) {
        int k = i / SPAN, at = blockIdx.x * SPAN + i % SPAN;
        if (at >= STRIDE) continue;
        float total = 0.0f;
        UNROLLED(w, WARPS) total += shared.part[w][i % SPAN][k];
        if (k < CLASSES) dw2[k * STRIDE + at] = total;
        else if (db1) db1[at] = total;
    }
}
