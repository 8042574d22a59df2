// The end of a classifier, second pass: the gradients of the output layer and of both biases, the loss
// and the metrics, from what the first pass of dense_tail.cu left.
//
// Compiled for HIDDEN units, STRIDE of their rows, CLASSES, KIND of the activation; SPAN columns and
// LINES rows of a block. Without a geometry there is nothing here.

#ifdef CLASSES
#define WARPS (SPAN * LINES / 32)
// Every number that a block leaves has a thread of its own.
static_assert(SPAN * (CLASSES + 1) <= SPAN * LINES);
// Rows that a thread asks for at once.
#ifndef TAIL_ROWS
#define TAIL_ROWS (CLASSES <= 12 ? 4 : CLASSES <= 20 ? 2 : 1)
#endif

// A gradient that is stored and no more; null: not at all. Whoever leaves number i asks first, while
// its sum is on its way.
struct Stored {
    float* to;
    int at;

    INLINE void ask(int i) { at = i; }
    INLINE void leave(float gradient) const {
        if (to) to[at] = gradient;
    }
};

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
template <typename Gradient>
INLINE void last_bias(const float* dscores, Gradient db2, int n) {
    for (int k = threadIdx.x / 32; k < CLASSES; k += WARPS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int row = threadIdx.x % 32; row < n; row += 32) sum += dscores[row * CLASSES + k];
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) db2.ask(k), db2.leave(sum);
    }
}

// gradients: of dw2 (CLASSES, STRIDE), db1 (STRIDE), db2 (CLASSES). A block sums SPAN columns over all
// samples, LINES of them at once; of two more blocks one sums up db2, the other loss and metrics.
template <typename Gradient>
INLINE void tail_gradients(int block, const float* pre, const float* b1, const float* dscores,
                           const T* dpre, const float2* row_sums, const Gradient* gradients, int n,
                           float* loss, double* sums, int mean) {
    constexpr int COLUMN_BLOCKS = (STRIDE + SPAN - 1) / SPAN;
    __shared__ union {
        double totals[WARPS][3];
        float part[WARPS][SPAN][CLASSES + 1];
    } shared;
    if (block == COLUMN_BLOCKS) {
        last_bias(dscores, gradients[2], n);
        return;
    }
    if (block > COLUMN_BLOCKS) {
        double total[3] = {0.0, 0.0, 0.0};  // loss, right answers, samples that count
        double before[3] = {0.0, 0.0, 0.0};
        if (threadIdx.x == 0 && sums) UNROLLED(i, 3) before[i] = sums[i];
        for (int i = threadIdx.x; i < n; i += SPAN * LINES) {
            const float2 one = row_sums[i];
            total[0] += one.x, total[1] += one.y > 0.0f, total[2] += one.y >= 0.0f;
        }
        three_sums(total, shared.totals);
        if (threadIdx.x == 0) {
            loss[0] = mean ? total[0] / fmax(total[2], 1.0) : total[0];
            if (sums) {
                sums[0] = before[0] + loss[0] * (mean ? total[2] : 1.0);
                sums[1] = before[1] + total[1];
                sums[2] = before[2] + total[2];
            }
        }
        return;
    }
    const int column = threadIdx.x % SPAN, line = threadIdx.x / SPAN;
    const int j = block * SPAN + column;
    // Thread (line, column) leaves what belongs to a class, or behind the classes to the bias.
    const bool leaves = line <= CLASSES && j < STRIDE;
    Gradient mine = line < CLASSES ? gradients[0] : gradients[1];
    if (leaves) mine.ask(line < CLASSES ? line * STRIDE + j : j);
    float sum[CLASSES + 1];
#pragma unroll
    for (int k = 0; k <= CLASSES; ++k) sum[k] = 0.0f;
    if (j < HIDDEN) {
        float bias = b1 ? b1[j] : 0.0f;
        for (int row = line; row < n; row += TAIL_ROWS * LINES) {
            float slopes[TAIL_ROWS][CLASSES], hidden[TAIL_ROWS], steep[TAIL_ROWS];
            UNROLLED(i, TAIL_ROWS) {
                const int at = min(row + i * LINES, n - 1);
                load_classes(dscores + at * CLASSES, slopes[i]);
                hidden[i] = pre[(i64)at * STRIDE + j], steep[i] = get(dpre[(i64)at * STRIDE + j]);
            }
            // Without it the compiler would save registers, and wait for each of them by itself.
            __threadfence_block();
            UNROLLED(i, TAIL_ROWS) {
                if (row + i * LINES >= n) break;
                hidden[i] = activate(KIND, hidden[i] + bias, 0.0f);
                sum[CLASSES] += steep[i];
                UNROLLED(k, CLASSES) sum[k] = fmaf(hidden[i], slopes[i][k], sum[k]);
            }
        }
    }
    tell();
    // The lines of a warp first, then the warps in order.
#pragma unroll
    for (int k = 0; k <= CLASSES; ++k) {
#pragma unroll
        for (int o = SPAN; o < 32; o *= 2) sum[k] += __shfl_xor_sync(~0u, sum[k], o);
        if (threadIdx.x % 32 < SPAN) shared.part[threadIdx.x / 32][column][k] = sum[k];
    }
    __syncthreads();
    if (!leaves) return;
    float total = 0.0f;
    UNROLLED(w, WARPS) total += shared.part[w][column][line];
    mine.leave(total);
}
#endif
