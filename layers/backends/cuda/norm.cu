// Batch norm of channels-last tensors: rows of `stored` channels, of which `channels` count; four
// neighbouring channels are one float4, a group. A block covers `width` groups of so many rows as
// there is room for, and blockIdx.y the next `width` groups.

struct Lines {
    int rows, groups, channels, width;
};

// Where a thread works: its row in the block, and the group; `count` rows a block.
struct Spot {
    int count, row, group;
    bool inside;
};

__device__ __forceinline__ Spot spot(const Lines& l) {
    Spot s;
    s.count = blockDim.x / l.width;
    s.row = threadIdx.x / l.width;
    s.group = blockIdx.y * l.width + threadIdx.x - s.row * l.width;
    s.inside = s.row < s.count && s.group < l.groups;
    return s;
}

// Four numbers of channels from 4 * group on: `other` for all where p is null, 0 beyond the last.
__device__ float4 four(const float* p, int group, int channels, float other) {
    float v[4];
    for (int k = 0; k < 4; ++k)
        v[k] = group * 4 + k < channels ? (p ? p[group * 4 + k] : other) : 0.0f;
    return make_float4(v[0], v[1], v[2], v[3]);
}

__device__ __forceinline__ float passed(float g, float y) { return y > 0.0f ? g : 0.0f; }

__device__ __forceinline__ float4 rectified(float4 g, float4 y) {
    return make_float4(passed(g.x, y.x), passed(g.y, y.y), passed(g.z, y.z), passed(g.w, y.w));
}

// Rows that block b of `blocks` sees when blocks take `count` at a time in turn.
__device__ __forceinline__ int rows_of(int b, int blocks, int count, int rows) {
    int rest = rows % (blocks * count) - b * count;
    return rows / (blocks * count) * count + min(max(rest, 0), count);
}

// The sum of a double over a block of (32, 32) for each threadIdx.x, known to all of its threads.
__device__ double over_y(double mine, double (*part)[33]) {
    part[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    double sum = part[threadIdx.x][threadIdx.y];
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    __syncthreads();
    if (threadIdx.x == 0) part[0][threadIdx.y] = sum;
    __syncthreads();
    sum = part[0][threadIdx.x];
    __syncthreads();
    return sum;
}

// Sums over the rows of a block, pairwise, into row 0.
__device__ void over_rows(double (*part)[256], int rows, int width, int row) {
    __syncthreads();
    for (int n = rows, half; n > 1; n = half) {
        half = (n + 1) / 2;
        if (row < n - half)
            for (int k = 0; k < 4; ++k)
                part[k][threadIdx.x] += part[k][threadIdx.x + half * width];
        __syncthreads();
    }
}

extern "C" {

// slices[block][0 and 1][channel]: the sum, and the sum of squared deviations from their own mean,
// of the rows of a block. Every thread counts from its own first value, so that a large mean costs
// no digits; what threads found is united in double, so that whole numbers have an exact mean.
__global__ void moments(const T* __restrict__ x, double* __restrict__ slices, const Lines* lines) {
    __shared__ double part[4][256];
    const Lines l = *lines;
    const Spot s = spot(l);
    const int first = blockIdx.x * s.count + s.row, steps = gridDim.x * s.count;
    const int n = s.inside && first < l.rows ? (l.rows - first - 1) / steps + 1 : 0;
    float4 origin = make_float4(0, 0, 0, 0), sum = origin, square = origin;
    if (n) {
        origin = get4(x + ((i64)first * l.groups + s.group) * 4);
#pragma unroll 4
        for (int r = first; r < l.rows; r += steps) {
            float4 v = get4(x + ((i64)r * l.groups + s.group) * 4);
            v.x -= origin.x, v.y -= origin.y, v.z -= origin.z, v.w -= origin.w;
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            square.x += v.x * v.x, square.y += v.y * v.y;
            square.z += v.z * v.z, square.w += v.w * v.w;
        }
    }
    const double own[4] = {(double)n * origin.x + sum.x, (double)n * origin.y + sum.y,
                           (double)n * origin.z + sum.z, (double)n * origin.w + sum.w};
    const float apart[4] = {square.x - (n ? sum.x * sum.x / n : 0.0f),
                            square.y - (n ? sum.y * sum.y / n : 0.0f),
                            square.z - (n ? sum.z * sum.z / n : 0.0f),
                            square.w - (n ? sum.w * sum.w / n : 0.0f)};
    for (int k = 0; k < 4; ++k) part[k][threadIdx.x] = own[k];
    over_rows(part, s.count, l.width, s.row);
    const int total = rows_of(blockIdx.x, gridDim.x, s.count, l.rows);
    double whole[4];
    for (int k = 0; k < 4; ++k) whole[k] = part[k][threadIdx.x - s.row * l.width];
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
        double gap = n ? own[k] / n - whole[k] / total : 0.0;
        part[k][threadIdx.x] = n ? fmaxf(apart[k], 0.0f) + n * gap * gap : 0.0;
    }
    over_rows(part, s.count, l.width, s.row);
    if (s.row || !s.inside) return;
    double* out = slices + ((i64)blockIdx.x * 2 * l.groups + s.group) * 4;
    for (int k = 0; k < 4; ++k) {
        out[k] = whole[k];
        out[l.groups * 4 + k] = part[k][threadIdx.x];
    }
}

// The moments of all blocks united; blocks of (32, 32) for 32 channels.
__global__ void statistics(const double* slices, int blocks, int count, const Lines* lines,
                           float eps, float momentum, float* mean, float* inverse_std,
                           float* running_mean, float* running_var) {
    __shared__ double part[32][33];
    const Lines l = *lines;
    const int channel = blockIdx.x * 32 + threadIdx.x, stored = l.groups * 4;
    const bool counts = channel < l.channels;
    double sum = 0.0, squares = 0.0;
    if (counts)
#pragma unroll 4
        for (int b = threadIdx.y; b < blocks; b += 32) {
            const double* at = slices + (i64)b * 2 * stored + channel;
            sum += at[0];
            squares += at[stored] + at[0] * at[0] / rows_of(b, blocks, count, l.rows);
        }
    sum = over_y(sum, part);
    squares = over_y(squares, part);
    if (!counts || threadIdx.y) return;
    const double middle = sum / l.rows, apart = fmax(squares - sum * middle, 0.0);
    const double var = apart / l.rows, unbiased = apart / (l.rows - 1);
    mean[channel] = middle;
    inverse_std[channel] = 1.0 / sqrt(var + eps);
    running_mean[channel] = (1.0 - momentum) * running_mean[channel] + momentum * middle;
    running_var[channel] = (1.0 - momentum) * running_var[channel] + momentum * unbiased;
}

// y = weight (x - mean) factor + bias, max(., 0) with relu; factor is `spread`, or 1 / sqrt(spread
// + eps) where eps is not negative.
__global__ void normalize(const T* __restrict__ x, T* __restrict__ y, const Lines* lines,
                          const float* mean, const float* spread, const float* weight,
                          const float* bias, float eps, int relu) {
    const Lines l = *lines;
    const Spot s = spot(l);
    if (!s.inside) return;
    const float4 m = four(mean, s.group, l.channels, 0.0f);
    const float4 shift = bias ? four(bias, s.group, l.channels, 0.0f) : make_float4(0, 0, 0, 0);
    float4 a = four(spread, s.group, l.channels, 0.0f), w = four(weight, s.group, l.channels, 1.0f);
    if (eps >= 0.0f) {
        a.x = 1.0f / sqrtf(a.x + eps), a.y = 1.0f / sqrtf(a.y + eps);
        a.z = 1.0f / sqrtf(a.z + eps), a.w = 1.0f / sqrtf(a.w + eps);
    }
    // Of a channel that does not count the weight is 0, and its factor may be infinite.
    a.x = w.x ? a.x * w.x : 0.0f, a.y = w.y ? a.y * w.y : 0.0f;
    a.z = w.z ? a.z * w.z : 0.0f, a.w = w.w ? a.w * w.w : 0.0f;
#pragma unroll 4
    for (int r = blockIdx.x * s.count + s.row; r < l.rows; r += gridDim.x * s.count) {
        i64 at = ((i64)r * l.groups + s.group) * 4;
        float4 v = get4(x + at);
        v.x = (v.x - m.x) * a.x + shift.x, v.y = (v.y - m.y) * a.y + shift.y;
        v.z = (v.z - m.z) * a.z + shift.z, v.w = (v.w - m.w) * a.w + shift.w;
        if (relu) {  // NaN stays
            v.x = v.x < 0.0f ? 0.0f : v.x, v.y = v.y < 0.0f ? 0.0f : v.y;
            v.z = v.z < 0.0f ? 0.0f : v.z, v.w = v.w < 0.0f ? 0.0f : v.w;
        }
        put4(y + at, v);
    }
}

// slices[block][0 and 1][channel]: sums of g and of g h over the rows of a block; y null: no ReLU.
__global__ void gradient_sums(const T* __restrict__ x, const T* __restrict__ dy,
                              const T* __restrict__ y, float* __restrict__ slices,
                              const Lines* lines, const float* mean, const float* inverse_std) {
    __shared__ float4 shared[256];
    const Lines l = *lines;
    const Spot s = spot(l);
    float4 total = make_float4(0, 0, 0, 0), product = total;
    if (s.inside) {
        const float4 m = four(mean, s.group, l.channels, 0.0f);
        const float4 a = four(inverse_std, s.group, l.channels, 0.0f);
#pragma unroll 4
        for (int r = blockIdx.x * s.count + s.row; r < l.rows; r += gridDim.x * s.count) {
            i64 at = ((i64)r * l.groups + s.group) * 4;
            float4 v = get4(x + at), g = get4(dy + at);
            if (y) g = rectified(g, get4(y + at));
            total.x += g.x, total.y += g.y, total.z += g.z, total.w += g.w;
            product.x += g.x * ((v.x - m.x) * a.x), product.y += g.y * ((v.y - m.y) * a.y);
            product.z += g.z * ((v.z - m.z) * a.z), product.w += g.w * ((v.w - m.w) * a.w);
        }
    }
    total = column_sum(total, l.width, s.count, shared);
    __syncthreads();
    product = column_sum(product, l.width, s.count, shared);
    if (s.row || !s.inside) return;
    float4* out = (float4*)slices + (i64)blockIdx.x * 2 * l.groups + s.group;
    out[0] = total;
    out[l.groups] = product;
}

// The sums of all blocks: db and dw, where asked for, and the means of g and g h.
__global__ void gradient_means(const float* slices, int blocks, const Lines* lines, float* db,
                               float* dw, float* means) {
    __shared__ double part[32][33];
    const Lines l = *lines;
    const int channel = blockIdx.x * 32 + threadIdx.x, stored = l.groups * 4;
    const bool counts = channel < l.channels;
    double total = 0.0, product = 0.0;
    if (counts)
        for (int b = threadIdx.y; b < blocks; b += 32) {
            const float* at = slices + (i64)b * 2 * stored + channel;
            total += at[0];
            product += at[stored];
        }
    total = over_y(total, part);
    product = over_y(product, part);
    if (!counts || threadIdx.y) return;
    if (db) db[channel] = total;
    if (dw) dw[channel] = product;
    means[channel] = total / l.rows;
    means[stored + channel] = product / l.rows;
}

// dx = weight inverse_std (g - mean of g - h mean of g h).
__global__ void normalize_backward(const T* __restrict__ x, const T* __restrict__ dy,
                                   const T* __restrict__ y, T* __restrict__ dx, const Lines* lines,
                                   const float* mean, const float* inverse_std,
                                   const float* weight, const float* means) {
    const Lines l = *lines;
    const Spot s = spot(l);
    if (!s.inside) return;
    const float4 m = four(mean, s.group, l.channels, 0.0f);
    const float4 a = four(inverse_std, s.group, l.channels, 0.0f);
    const float4 t = four(means, s.group, l.channels, 0.0f);
    const float4 p = four(means + l.groups * 4, s.group, l.channels, 0.0f);
    float4 w = four(weight, s.group, l.channels, 1.0f);
    w.x *= a.x, w.y *= a.y, w.z *= a.z, w.w *= a.w;
#pragma unroll 4
    for (int r = blockIdx.x * s.count + s.row; r < l.rows; r += gridDim.x * s.count) {
        i64 at = ((i64)r * l.groups + s.group) * 4;
        float4 v = get4(x + at), g = get4(dy + at);
        if (y) g = rectified(g, get4(y + at));
        g.x = w.x * (g.x - t.x - (v.x - m.x) * a.x * p.x);
        g.y = w.y * (g.y - t.y - (v.y - m.y) * a.y * p.y);
        g.z = w.z * (g.z - t.z - (v.z - m.z) * a.z * p.z);
        g.w = w.w * (g.w - t.w - (v.w - m.w) * a.w * p.w);
        put4(dx + at, g);
    }
}

}  // extern "C"
