// Kernels for what no vendor library has as one call, or has slower. All sums run in a fixed order:
// no float atomics, so that two runs give the same bits.
//
// A picture tensor is NCHW or NHWC. The channel of element i is (i / inner) % channels, where inner
// is height * width for NCHW and 1 for NHWC and for rows.

typedef unsigned char u8;
typedef long long i64;

#define INF __int_as_float(0x7f800000)
#define LINEAR(i, n) \
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)

template <typename T>
__device__ T block_sum(T value, T* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    T total = shared[0];
    __syncthreads();
    return total;
}

extern "C" {

// x[i] = images[row] * scale + shift, target[i] = labels[row]; row -1 gives zeros and target -1.
__global__ void gather_batch(const u8* images, const int* labels, const int* order, const i64* step,
                             float* x, int* target, const float* scale, const float* shift, int n,
                             int steps, int channels, int pixels, int nhwc) {
    const int each = channels * pixels;
    const int* rows = order + (step[0] % steps) * n;
    LINEAR(i, (i64)n * each) {
        int sample = i / each, rest = i % each;
        int channel = nhwc ? rest % channels : rest / pixels;
        int pixel = nhwc ? rest / channels : rest % pixels;
        int row = rows[sample];
        float value = 0.0f;
        if (row >= 0)
            value = fmaf(images[(i64)row * each + channel * pixels + pixel], scale[channel],
                         shift[channel]);
        x[i] = value;
        if (rest == 0) target[sample] = row < 0 ? -1 : labels[row];
    }
}

__global__ void nchw_to_nhwc(const float* x, float* y, i64 size, int channels, int pixels) {
    LINEAR(i, size) {
        i64 sample = i / (channels * pixels);
        int rest = i % (channels * pixels);
        int channel = rest % channels, pixel = rest / channels;
        y[i] = x[(sample * channels + channel) * pixels + pixel];
    }
}

__global__ void nhwc_to_nchw(const float* x, float* y, i64 size, int channels, int pixels) {
    LINEAR(i, size) {
        i64 sample = i / (channels * pixels);
        int rest = i % (channels * pixels);
        int channel = rest / pixels, pixel = rest % pixels;
        y[i] = x[(sample * pixels + pixel) * channels + channel];
    }
}

__global__ void bias_add(const float* x, const float* b, float* y, i64 size, int channels,
                         int inner) {
    LINEAR(i, size) y[i] = x[i] + b[(i / inner) % channels];
}

// One block a channel of an NCHW tensor.
__global__ void bias_grad_nchw(const float* dy, float* db, int n, int channels, int pixels) {
    extern __shared__ float partial[];
    int channel = blockIdx.x;
    float sum = 0.0f;
    for (i64 i = threadIdx.x; i < (i64)n * pixels; i += blockDim.x)
        sum += dy[((i / pixels) * channels + channel) * pixels + i % pixels];
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) db[channel] = sum;
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

enum Kind { RELU, LEAKY_RELU, SIGMOID, TANH, ELU, SOFTPLUS, SILU, GELU, GELU_TANH };

__device__ float activate(int kind, float x, float alpha) {
    switch (kind) {
        case RELU: return x > 0.0f ? x : (isnan(x) ? x : 0.0f);
        case LEAKY_RELU: return x > 0.0f ? x : alpha * x;
        case SIGMOID: return sigmoid(x);
        case TANH: return tanhf(x);
        case ELU: return x > 0.0f ? x : alpha * expm1f(x);
        case SOFTPLUS: return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
        case SILU: return x * sigmoid(x);
        case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
        default: {
            float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
            return 0.5f * x * (1.0f + tanhf(inner));
        }
    }
}

// The tail of a dense layer in place: y = f(y + b); kind -1 is no activation.
__global__ void bias_activation(float* y, const float* b, i64 size, int units, int kind,
                                float alpha) {
    LINEAR(i, size) {
        float value = y[i] + b[i % units];
        y[i] = kind < 0 ? value : activate(kind, value, alpha);
    }
}

// v is forward's output for the first five kinds, its input for the others.
__device__ float slope(int kind, float v, float alpha) {
    switch (kind) {
        case RELU: return v > 0.0f ? 1.0f : 0.0f;
        case LEAKY_RELU: return v > 0.0f ? 1.0f : alpha;
        case SIGMOID: return v * (1.0f - v);
        case TANH: return 1.0f - v * v;
        case ELU: return v > 0.0f ? 1.0f : v + alpha;
        case SOFTPLUS: return sigmoid(v);
        case SILU: {
            float s = sigmoid(v);
            return s * (1.0f + v * (1.0f - s));
        }
        case GELU: {
            float density = 0.39894228040143268f * expf(-0.5f * v * v);
            return 0.5f * (1.0f + erff(v * 0.70710678118654752f)) + v * density;
        }
        default: {
            float t = tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v));
            float inner = 0.79788456080286536f * (1.0f + 3.0f * 0.044715f * v * v);
            return 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * inner;
        }
    }
}

__global__ void activation(const float* x, float* y, i64 size, int kind, float alpha) {
    LINEAR(i, size) y[i] = activate(kind, x[i], alpha);
}

__global__ void activation_backward(const float* value, const float* dy, float* dx, i64 size,
                                    int kind, float alpha) {
    LINEAR(i, size) dx[i] = dy[i] * slope(kind, value[i], alpha);
}

struct Pool {
    int channels, height, width, rows, columns;
    int kernel_h, kernel_w, stride_h, stride_w, top, left, nhwc, average;
};

__device__ i64 at(const Pool& p, i64 sample, int channel, int y, int x, int height, int width) {
    return p.nhwc ? ((sample * height + y) * width + x) * p.channels + channel
                  : ((sample * p.channels + channel) * height + y) * width + x;
}

__device__ void place(const Pool& p, i64 i, int height, int width, i64& sample, int& channel,
                      int& y, int& x) {
    if (p.nhwc) {
        channel = i % p.channels;
        x = i / p.channels % width;
        y = i / ((i64)p.channels * width) % height;
    } else {
        x = i % width;
        y = i / width % height;
        channel = i / ((i64)width * height) % p.channels;
    }
    sample = i / ((i64)p.channels * height * width);
}

__global__ void pool_forward(const float* x, float* y, i64 size, const Pool* pool) {
    const Pool p = *pool;
    LINEAR(i, size) {
        i64 sample;
        int channel, row, column;
        place(p, i, p.rows, p.columns, sample, channel, row, column);
        int top = row * p.stride_h - p.top, left = column * p.stride_w - p.left;
        float best = -INF, sum = 0.0f;
        int count = 0;
        for (int h = max(top, 0); h < min(top + p.kernel_h, p.height); ++h)
            for (int w = max(left, 0); w < min(left + p.kernel_w, p.width); ++w) {
                float value = x[at(p, sample, channel, h, w, p.height, p.width)];
                if (value > best || isnan(value)) best = value;
                sum += value;
                ++count;
            }
        y[i] = p.average ? sum / count : best;
    }
}

// A thread gathers for one input pixel: every window that covers it, in order.
__global__ void pool_backward(const float* x, const float* y, const float* dy, float* dx, i64 size,
                              const Pool* pool) {
    const Pool p = *pool;
    LINEAR(i, size) {
        i64 sample;
        int channel, h, w;
        place(p, i, p.height, p.width, sample, channel, h, w);
        int first_row = max(0, (h + p.top - p.kernel_h + p.stride_h) / p.stride_h);
        int last_row = min(p.rows - 1, (h + p.top) / p.stride_h);
        int first_column = max(0, (w + p.left - p.kernel_w + p.stride_w) / p.stride_w);
        int last_column = min(p.columns - 1, (w + p.left) / p.stride_w);
        float sum = 0.0f;
        for (int row = first_row; row <= last_row; ++row)
            for (int column = first_column; column <= last_column; ++column) {
                int top = row * p.stride_h - p.top, left = column * p.stride_w - p.left;
                int bottom = min(top + p.kernel_h, p.height);
                int right = min(left + p.kernel_w, p.width);
                i64 out = at(p, sample, channel, row, column, p.rows, p.columns);
                if (p.average) {
                    sum += dy[out] / ((bottom - max(top, 0)) * (right - max(left, 0)));
                    continue;
                }
                float largest = y[out];
                if (x[i] != largest) continue;
                bool first = true;
                for (int a = max(top, 0); first && a <= h; ++a)
                    for (int b = max(left, 0); b < (a == h ? w : right); ++b)
                        if (x[at(p, sample, channel, a, b, p.height, p.width)] == largest) {
                            first = false;
                            break;
                        }
                if (first) sum += dy[out];
            }
        dx[i] = sum;
    }
}

// The same where windows neither overlap nor reach into padding: a thread owns one window, and the
// last of a row or column also clears the pixels that no window covers.
__global__ void pool_backward_disjoint(const float* x, const float* dy, float* dx, i64 size,
                                       const Pool* pool) {
    const Pool p = *pool;
    LINEAR(i, size) {
        i64 sample;
        int channel, row, column;
        place(p, i, p.rows, p.columns, sample, channel, row, column);
        int top = row * p.stride_h, left = column * p.stride_w;
        int bottom = row == p.rows - 1 ? p.height : top + p.stride_h;
        int right = column == p.columns - 1 ? p.width : left + p.stride_w;
        int pixel = p.nhwc ? p.channels : 1, line = pixel * p.width;
        i64 corner = at(p, sample, channel, top, left, p.height, p.width);
        int chosen_h = 0, chosen_w = 0;
        if (!p.average) {
            float best = x[corner];
            for (int h = 0; h < p.kernel_h; ++h)
                for (int w = 0; w < p.kernel_w; ++w) {
                    float value = x[corner + h * line + w * pixel];
                    if (value > best) {
                        best = value;
                        chosen_h = h;
                        chosen_w = w;
                    }
                }
        }
        float gradient = dy[i], share = gradient / (p.kernel_h * p.kernel_w);
        for (int h = 0; h < bottom - top; ++h)
            for (int w = 0; w < right - left; ++w) {
                bool inside = h < p.kernel_h && w < p.kernel_w;
                float value = p.average ? share : (h == chosen_h && w == chosen_w ? gradient : 0.0f);
                dx[corner + h * line + w * pixel] = inside ? value : 0.0f;
            }
    }
}

// The wanted probability of class k: one-hot, smoothed (Szegedy et al. 2016, eq. 7).
__device__ float wanted(int k, int target, int classes, float smoothing) {
    return (k == target ? 1.0f - smoothing : 0.0f) + smoothing / classes;
}

// One warp a row: log_p = x - logsumexp(x), losses[row] = -sum of q log_p, 0 for a masked row.
__global__ void log_softmax_loss(const float* x, const int* target, float* log_p, float* losses,
                                 int n, int classes, float smoothing) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    const float* in = x + (i64)row * classes;
    float largest = -INF;
    for (int k = lane; k < classes; k += 32) largest = fmaxf(largest, in[k]);
    for (int o = 16; o; o /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, o));
    float sum = 0.0f;
    for (int k = lane; k < classes; k += 32) sum += expf(in[k] - largest);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    float norm = largest + logf(sum), loss = 0.0f;
    for (int k = lane; k < classes; k += 32) {
        float value = in[k] - norm;
        log_p[(i64)row * classes + k] = value;
        loss -= wanted(k, target[row], classes, smoothing) * value;
    }
    for (int o = 16; o; o /= 2) loss += __shfl_xor_sync(~0u, loss, o);
    if (lane == 0) losses[row] = target[row] < 0 ? 0.0f : loss;
}

// losses[row] for the plain cross-entropy of probabilities (kind 0) and for squared error (kind 1).
__global__ void row_losses(const float* x, const int* target, float* losses, int n, int classes,
                           float smoothing, int kind) {
    LINEAR(row, n) {
        float loss = 0.0f;
        for (int k = 0; k < classes; ++k) {
            float value = x[row * classes + k];
            if (kind == 0) {
                float q = wanted(k, target[row], classes, smoothing);
                if (q != 0.0f) loss -= q * logf(fmaxf(value, 1.17549435e-38f));
            } else {
                float gap = value - (k == target[row] ? 1.0f : 0.0f);
                loss += gap * gap / classes;
            }
        }
        losses[row] = target[row] < 0 ? 0.0f : loss;
    }
}

// One block: loss = sum of losses, divided by the number of rows that count where mean is asked.
__global__ void reduce_loss(const float* losses, const int* target, float* loss, int n, int mean) {
    extern __shared__ double totals[];
    double sum = 0.0, count = 0.0;
    for (int row = threadIdx.x; row < n; row += blockDim.x) {
        sum += losses[row];
        count += target[row] >= 0;
    }
    sum = block_sum(sum, totals);
    count = block_sum(count, totals);
    if (threadIdx.x == 0) loss[0] = mean ? sum / fmax(count, 1.0) : sum;
}

// Gradient of a loss: kind 0 softmax with cross-entropy from log_p, 1 cross-entropy from p,
// 2 squared error from x. One block: every thread needs the number of rows that count.
__global__ void loss_backward(const float* x, const int* target, float* dx, int n, int classes,
                              float smoothing, int mean, int kind) {
    extern __shared__ double totals[];
    double count = 0.0;
    for (int row = threadIdx.x; row < n; row += blockDim.x) count += target[row] >= 0;
    count = block_sum(count, totals);
    float weight = mean ? 1.0 / fmax(count, 1.0) : 1.0;
    LINEAR(i, (i64)n * classes) {
        int k = i % classes, t = target[i / classes];
        float value = x[i], q = wanted(k, t, classes, smoothing), slope;
        if (kind == 0) slope = expf(value) - q;
        else if (kind == 1) slope = -q / fmaxf(value, 1.17549435e-38f);
        else slope = 2.0f / classes * (value - (k == t ? 1.0f : 0.0f));
        dx[i] = t < 0 ? 0.0f : slope * weight;
    }
}

// One block: sums += (loss over samples, rows whose first largest score is the target, rows).
__global__ void metrics(const float* scores, const int* target, const float* loss, double* sums,
                        int n, int classes, int mean) {
    extern __shared__ double totals[];
    double right = 0.0, count = 0.0;
    for (int row = threadIdx.x; row < n; row += blockDim.x) {
        const float* in = scores + (i64)row * classes;
        int best = 0;
        for (int k = 1; k < classes; ++k)
            if (in[k] > in[best] || (isnan(in[k]) && !isnan(in[best]))) best = k;
        right += best == target[row];
        count += target[row] >= 0;
    }
    right = block_sum(right, totals);
    count = block_sum(count, totals);
    if (threadIdx.x == 0) {
        sums[0] += loss[0] * (mean ? count : 1.0);
        sums[1] += right;
        sums[2] += count;
    }
}

// PyTorch's SGD over one stretch of the arenas; v is unused without momentum.
__global__ void sgd_update(float* p, const float* g, float* v, i64 size, const float* rates,
                           const i64* step, float decay, float momentum, int nesterov) {
    float lr = rates[step[0]];
    LINEAR(i, size) {
        float gradient = fmaf(decay, p[i], g[i]);
        if (momentum != 0.0f) {
            float velocity = fmaf(momentum, v[i], gradient);
            v[i] = velocity;
            gradient = nesterov ? fmaf(momentum, velocity, gradient) : velocity;
        }
        p[i] = fmaf(-lr, gradient, p[i]);
    }
}

// out = (-lr, 1 - lr decay): the factors of cublasSaxpy and cublasSscal.
__global__ void sgd_factors(const float* rates, const i64* step, float decay, float* out) {
    float lr = rates[step[0]];
    out[0] = -lr;
    out[1] = 1.0f - lr * decay;
}

__global__ void square_sums(const float* g, i64 size, double* partial) {
    extern __shared__ double totals[];
    double sum = 0.0;
    LINEAR(i, size) sum += (double)g[i] * g[i];
    sum = block_sum(sum, totals);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void norm_of(const double* partial, int blocks, float* norm) {
    extern __shared__ double totals[];
    double sum = block_sum(threadIdx.x < blocks ? partial[threadIdx.x] : 0.0, totals);
    if (threadIdx.x == 0) norm[0] = sqrt(sum);
}

__global__ void clip_factor(const float* norm, float limit, float* factor) {
    factor[0] = norm[0] > limit ? limit / norm[0] : 1.0f;
}

__global__ void advance(i64* step) { step[0] += 1; }

}  // extern "C"
