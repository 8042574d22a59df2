// The end of a classifier in two passes: behind the matrix product of the last hidden layer, its
// bias and activation, the output layer, softmax, cross-entropy, and the gradients back to that
// product; then the gradients of the output layer and of both biases, the loss and the metrics.
//
// Compiled for one geometry: that of tail_gradients.cuh, and ROWS of a block of the first pass.

#define THREADS 128
// Neighbouring columns that a thread of the first pass takes at once, and how often it does.
#define WIDE (STRIDE % 4 ? 1 : 4)
#define EACH ((STRIDE + THREADS * WIDE - 1) / (THREADS * WIDE))
static_assert(ROWS <= THREADS / 32);

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

// The smallest power of two that holds all classes.
#define SUMS (CLASSES <= 2 ? 2 : CLASSES <= 4 ? 4 : CLASSES <= 8 ? 8 : CLASSES <= 16 ? 16 : 32)
// Numbers of a row of scores in shared memory, and targets that a thread counts at once.
#define PITCH ((CLASSES + 3) / 4 * 4)
#define TARGETS 4

// What every thread makes of a row: softmax, loss and slopes need no more rounds between threads then.
struct Softmax {
    float scores[CLASSES], powers[CLASSES], slopes[CLASSES], largest, total;

    // part: of each warp, `apart` numbers from the next.
    INLINE void take(const float* biases, const float* part, int apart) {
        UNROLLED(k, CLASSES) scores[k] = biases[k];
        UNROLLED(w, THREADS / 32) {
            float v[PITCH];
            UNROLLED(four, PITCH / 4) unpack(get4(part + w * apart + 4 * four), v + 4 * four);
            UNROLLED(k, CLASSES) scores[k] += v[k];
        }
        largest = scores[0], total = 0.0f;
        UNROLLED(k, CLASSES) largest = fmaxf(largest, scores[k]);
        UNROLLED(k, CLASSES) powers[k] = expf(scores[k] - largest), total += powers[k];
    }

    // What softmax should give for a class.
    INLINE float wanted(int k, int target, float smoothing) const {
        return (k == target ? 1.0f - smoothing : 0.0f) + smoothing / CLASSES;
    }

    INLINE void go_back(int target, float smoothing, float factor) {
        const float inverse = __fdividef(1.0f, total);
        float rest = 0.0f;
        UNROLLED(k, CLASSES) rest += k == target ? 0.0f : powers[k];
        // p - q of the target is what the others lack: of a sure answer p - 1 would lose its digits.
        UNROLLED(k, CLASSES) {
            const float q = wanted(k, target, smoothing);
            const float away = k == target ? (1.0f - q) - rest * inverse : powers[k] * inverse - q;
            slopes[k] = target < 0 ? 0.0f : away * factor;
        }
    }

    INLINE float loss(int target, float smoothing) const {
        const float norm = logf(total);
        float sum = 0.0f;
        UNROLLED(k, CLASSES) {
            const float q = wanted(k, target, smoothing);
            if (q != 0.0f) sum -= q * (scores[k] - largest - norm);
        }
        return target < 0 ? 0.0f : sum;
    }

    // The first of the largest, or the first NaN.
    INLINE int top() const {
        float best = scores[0];
        int found = 0;
        for (int k = 1; k < CLASSES; ++k)
            if (scores[k] > best || (isnan(scores[k]) && !isnan(best))) best = scores[k], found = k;
        return found;
    }
};

#ifndef EARLY
#define EARLY 0
#endif

// One block for ROWS samples. pre: (N, STRIDE) the hidden layer's product; b1: (STRIDE); scores,
// dscores: (N, CLASSES); dpre: (N, STRIDE); row_sums: (N) of (loss, whether the first largest score is
// the target: 1 or 0, -1 without a target).
KERNEL __launch_bounds__(THREADS)
    dense_tail(const float* pre, const float* b1, const float* w2, const float* b2,
               const int* target, float* scores, float* dscores, T* dpre, float2* row_sums, int n,
               float smoothing, int mean) {
    __shared__ __align__(16) float part[THREADS / 32][ROWS][PITCH];
    __shared__ int counts[THREADS / 32];
    const int first = blockIdx.x * ROWS, t = threadIdx.x, lane = t % 32, warp = t / 32;
    float hidden[ROWS][EACH][WIDE], biases[EACH][WIDE] = {}, weights[EACH][CLASSES][WIDE];
    // Everything is asked for before anything is used. With EARLY the kernel in front tells after it has
    // waited: what others wrote before it is there, and only its own result must be waited for.
    if (!EARLY) wait();
    UNROLLED(i, EACH) {
        const int j = (t + THREADS * i) * WIDE;
        if (j >= STRIDE) continue;
        if (b1) load(b1 + j, biases[i]);
        UNROLLED(k, CLASSES) load(w2 + k * STRIDE + j, weights[i][k]);
    }
    float last[CLASSES] = {};
    if (b2) load_classes(b2, last);
    int own[ROWS], others[TARGETS], count = 0;
    UNROLLED(r, ROWS) own[r] = target[min(first + r, n - 1)];
    UNROLLED(i, TARGETS) others[i] = mean && t + i * THREADS < n ? target[t + i * THREADS] : -1;
    UNROLLED(i, TARGETS) count += others[i] >= 0;
    if (mean)
        for (int i = t + TARGETS * THREADS; i < n; i += THREADS) count += target[i] >= 0;
    if (EARLY) wait();
    UNROLLED(i, EACH) {
        const int j = (t + THREADS * i) * WIDE;
        if (j < STRIDE)
            UNROLLED(r, ROWS) load(pre + (i64)min(first + r, n - 1) * STRIDE + j, hidden[r][i]);
    }
    UNROLLED(r, ROWS) {
        float sums[SUMS];
        UNROLLED(k, SUMS) sums[k] = 0.0f;
        UNROLLED(i, EACH)
            UNROLLED(v, WIDE) {
                const bool real = (t + THREADS * i) * WIDE + v < HIDDEN;
                float& h = hidden[r][i][v];
                h = real ? activate(KIND, h + biases[i][v], 0.0f) : 0.0f;
                UNROLLED(k, CLASSES) {
                    if (!real) weights[i][k][v] = 0.0f;
                    sums[k] = fmaf(h, weights[i][k][v], sums[k]);
                }
            }
        fold<SUMS / 2>(sums);
        // Lanes that differ in the bits above SUMS hold the same class: they add up too.
#pragma unroll
        for (int o = 16; o >= SUMS; o /= 2) sums[0] += __shfl_xor_sync(~0u, sums[0], o);
        if (lane < CLASSES) part[warp][r][lane] = sums[0];
    }
    count = warp_sum(count);
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    tell();
    int seen = 0;
    UNROLLED(w, THREADS / 32) seen += counts[w];
    const float factor = mean ? 1.0f / max(seen, 1) : 1.0f;
    Softmax rows[ROWS];
    UNROLLED(r, ROWS) {
        rows[r].take(last, part[0][r], ROWS * PITCH);
        rows[r].go_back(own[r], smoothing, factor);
    }
    UNROLLED(r, ROWS)
        UNROLLED(i, EACH) {
            const int j = (t + THREADS * i) * WIDE;
            float gradients[WIDE] = {};
            UNROLLED(v, WIDE) {
                UNROLLED(k, CLASSES)
                    gradients[v] = fmaf(rows[r].slopes[k], weights[i][k][v], gradients[v]);
                gradients[v] = j + v < HIDDEN ? gradients[v] * slope(KIND, hidden[r][i][v], 0.0f) : 0.0f;
            }
            if (j < STRIDE && first + r < n) store(dpre + (i64)(first + r) * STRIDE + j, gradients);
        }
    // A warp for each row.
    UNROLLED(r, ROWS) {
        const i64 row = first + r;
        if (warp != r || row >= n) continue;
        UNROLLED(k, CLASSES)
            if (lane == k) {
                scores[row * CLASSES + k] = rows[r].scores[k];
                dscores[row * CLASSES + k] = rows[r].slopes[k];
            }
        const float loss = rows[r].loss(own[r], smoothing);
        const float right = own[r] < 0 ? -1.0f : rows[r].top() == own[r] ? 1.0f : 0.0f;
        if (lane == 0) row_sums[row] = make_float2(loss, right);
    }
}

// dw2 (CLASSES, STRIDE), db1 (STRIDE), db2 (CLASSES); db1 and db2 may be null.
KERNEL __launch_bounds__(SPAN * LINES)
    dense_tail_gradients(const float* pre, const float* b1, const float* dscores, const T* dpre,
                         const float2* row_sums, float* dw2, float* db1, float* db2, int n,
                         float* loss, double* sums, int mean) {
    wait();
    const Stored gradients[3] = {{dw2}, {db1}, {db2}};
    tail_gradients(blockIdx.x, pre, b1, dscores, dpre, row_sums, gradients, n, loss, sums, mean);
}
