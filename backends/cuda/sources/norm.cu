// Batch norm of channels-last tensors: rows of `stored` channels, of which `channels` count; four
// neighbouring channels are one float4, a group. A block covers `width` groups of as many rows as
// there is room for, and blockIdx.y the next `width` groups. KIND is the activation behind the
// norm, -1 for none.

#ifndef KIND
#define KIND -1
#endif

// What the activation's slope follows from: its output y, or its input, the norm's value.
constexpr bool FROM_OUTPUT = KIND >= 0 && (KIND < SOFTPLUS || KIND == SCALED_TANH);
constexpr bool FROM_INPUT = KIND >= 0 && !FROM_OUTPUT;
constexpr bool ZERO_STAYS = KIND != SIGMOID && KIND != SOFTPLUS;

// Where a thread works: its row in the block, and the group; `count` rows a block.
struct Spot {
    int groups, channels, count, row, group;
    bool inside;

    // Where the group of row r begins.
    INLINE i64 at(int r) const { return ((i64)r * groups + group) * 4; }
    // Four numbers of the group's channels: `other` for all where p is null, 0 beyond the last.
    __device__ float4 four(const float* p, float other = 0.0f) const {
        float v[4];
        for (int k = 0; k < 4; ++k)
            v[k] = group * 4 + k < channels ? (p ? p[group * 4 + k] : other) : 0.0f;
        return pack(v);
    }
};

INLINE Spot spot(int groups, int channels, int width) {
    const int count = blockDim.x / width, row = threadIdx.x / width;
    const int group = blockIdx.y * width + threadIdx.x - row * width;
    return {groups, channels, count, row, group, row < count && group < groups};
}

// weight factor, 0 for a channel that does not count: its weight is 0, its factor may be infinite.
INLINE float4 scaled(float4 factor, float4 weight) {
    return each(factor, weight, [](float f, float w) { return w ? f * w : 0.0f; });
}

INLINE float4 normalized(float4 v, float4 mean, float4 scale, float4 shift) {
    return (v - mean) * scale + shift;
}

// dy times the slope at v; behind a ReLU that let nothing through dy does not matter.
INLINE float4 passed(float4 dy, float4 v, float alpha) {
    return each(dy, v, [&](float d, float v) {
        return KIND == RELU ? (v > 0.0f ? d : 0.0f) : d * slope(KIND, v, alpha);
    });
}

// Rows that block b of `blocks` sees when blocks take `count` at a time in turn.
INLINE int rows_of(int b, int blocks, int count, int rows) {
    int rest = rows % (blocks * count) - b * count;
    return rows / (blocks * count) * count + min(max(rest, 0), count);
}

// SUMS sums over the rows of a block, pairwise, into row 0.
template <int SUMS>
__device__ void over_rows(double (&part)[SUMS][256], int rows, int width, int row) {
    __syncthreads();
    for (int n = rows, half; n > 1; n = half) {
        half = (n + 1) / 2;
        if (row < n - half)
            for (int k = 0; k < SUMS; ++k)
                part[k][threadIdx.x] += part[k][threadIdx.x + half * width];
        __syncthreads();
    }
}

// Blocks that unite slices: for TILE channels each, PARTS threads per channel, which ask for ROUND
// slices at once.
constexpr int TILE = 8, PARTS = 64, ROUND = 9;

// total[0 and 1] of a thread with threadIdx.y == 0: the sums of slices[block][0 and 1][channel].
__device__ void over_slices(const double* slices, int blocks, int stored, int channel, double* total) {
    __shared__ double part[2][PARTS / 4][TILE];
    double sum[2] = {0.0, 0.0};
    for (int first = threadIdx.y; first < blocks; first += PARTS * ROUND) {
        double found[2][ROUND];
        UNROLLED(k, ROUND) {
            const int b = first + k * PARTS;
            const double* at = slices + (i64)b * 2 * stored + channel;
            found[0][k] = b < blocks ? at[0] : 0.0;
            found[1][k] = b < blocks ? at[stored] : 0.0;
        }
        UNROLLED(k, ROUND) sum[0] += found[0][k], sum[1] += found[1][k];
    }
    for (int i = 0; i < 2; ++i) {
        for (int o = TILE; o < 32; o *= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], o);
        if (threadIdx.y % 4 == 0) part[i][threadIdx.y / 4][threadIdx.x] = sum[i];
    }
    __syncthreads();
    if (threadIdx.y) return;
    for (int i = 0; i < 2; ++i) {
        total[i] = 0.0;
        for (int k = 0; k < PARTS / 4; ++k) total[i] += part[i][k][threadIdx.x];
    }
}

// slices[block][0 and 1][channel]: the sum and the sum of squares of the rows of a block. Every
// thread counts from its own first value, so that a large mean costs no digits; what threads found
// is united in double, the squares of deviations first, so that whole numbers have an exact mean.
KERNEL moments(const T* x, double* __restrict__ slices, int rows, int groups,
               int channels, int width) {
    enter();
    __shared__ double part[4][256];
    const Spot s = spot(groups, channels, width);
    const int first = blockIdx.x * s.count + s.row, steps = gridDim.x * s.count;
    const int n = s.inside && first < rows ? (rows - first - 1) / steps + 1 : 0;
    float4 origin = make_float4(0, 0, 0, 0), sum = origin, square = origin;
    if (n) {
        origin = get4(x + s.at(first));
#pragma unroll 4
        for (int r = first; r < rows; r += steps) {
            const float4 v = get4(x + s.at(r)) - origin;
            sum += v;
            square += v * v;
        }
    }
    const double own[4] = {(double)n * origin.x + sum.x, (double)n * origin.y + sum.y,
                           (double)n * origin.z + sum.z, (double)n * origin.w + sum.w};
    float apart[4];
    unpack(square - sum * sum * (n ? 1.0f / n : 0.0f), apart);
    for (int k = 0; k < 4; ++k) part[k][threadIdx.x] = own[k];
    over_rows(part, s.count, width, s.row);
    double whole[4], middle[4];
    if (s.row == 0) {
        const int total = rows_of(blockIdx.x, gridDim.x, s.count, rows);
        for (int k = 0; k < 4; ++k) {
            whole[k] = part[k][threadIdx.x];
            part[k][threadIdx.x] = whole[k] / total;
        }
    }
    __syncthreads();
    for (int k = 0; k < 4; ++k) middle[k] = part[k][threadIdx.x - s.row * width];
    __syncthreads();
    const double parts = n ? 1.0 / n : 0.0;
    for (int k = 0; k < 4; ++k) {
        double gap = own[k] * parts - middle[k];
        part[k][threadIdx.x] = n ? fmaxf(apart[k], 0.0f) + n * gap * gap : 0.0;
    }
    over_rows(part, s.count, width, s.row);
    if (s.row || !s.inside) return;
    double* out = slices + ((i64)blockIdx.x * 2 * groups + s.group) * 4;
    for (int k = 0; k < 4; ++k) {
        out[k] = whole[k];
        out[groups * 4 + k] = part[k][threadIdx.x] + whole[k] * middle[k];
    }
}

// The moments of all blocks united; blocks of (TILE, PARTS). left: where the variance of a part of
// a batch goes, whose update moves the running statistics; null where they move here.
KERNEL __launch_bounds__(TILE * PARTS)
statistics(const double* slices, int blocks, int rows, int channels, int stored,
           float eps, float momentum, float* mean, float* inverse_std, float* running_mean,
           float* running_var, float* left) {
    enter();
    const int channel = blockIdx.x * TILE + threadIdx.x;
    double total[2];
    over_slices(slices, channel < channels ? blocks : 0, stored, channel, total);
    if (channel >= channels || threadIdx.y) return;
    const double middle = total[0] / rows, apart = fmax(total[1] - total[0] * middle, 0.0);
    const double var = apart / rows, unbiased = apart / (rows - 1);
    mean[channel] = middle;
    inverse_std[channel] = 1.0 / sqrt(var + eps);
    if (left) {
        left[channel] = var;
        return;
    }
    running_mean[channel] = (1.0 - momentum) * running_mean[channel] + momentum * middle;
    running_var[channel] = (1.0 - momentum) * running_var[channel] + momentum * unbiased;
}

// y = f(weight (x - mean) factor + bias); factor is `spread`, or 1 / sqrt(spread + eps) where eps
// is not negative.
KERNEL normalize(const T* x, T* __restrict__ y, int rows, int groups,
                 int channels, int width, const float* mean, const float* spread,
                 const float* weight, const float* bias, float eps, float alpha) {
    enter();
    const Spot s = spot(groups, channels, width);
    if (!s.inside) return;
    const float4 m = s.four(mean);
    const float4 shift = s.four(bias);
    float4 a = s.four(spread);
    if (eps >= 0.0f) a = each(a, [&](float v) { return 1.0f / sqrtf(v + eps); });
    a = scaled(a, s.four(weight, 1.0f));
#pragma unroll 4
    for (int r = blockIdx.x * s.count + s.row; r < rows; r += gridDim.x * s.count) {
        i64 at = s.at(r);
        float4 v = normalized(get4(x + at), m, a, shift);
        if (KIND >= 0) v = each(v, [&](float e) { return activate(KIND, e, alpha); });
        if (!ZERO_STAYS) {
            const int left = channels - s.group * 4;
            v.x = left > 0 ? v.x : 0.0f, v.y = left > 1 ? v.y : 0.0f;
            v.z = left > 2 ? v.z : 0.0f, v.w = left > 3 ? v.w : 0.0f;
        }
        put4(y + at, v);
    }
}

// slices[block][0 and 1][channel]: sums of g and of g h over the rows of a block, h = (x - mean)
// inverse_std and g = dy times the activation's slope. The doubles are volatile to be kept in shared
// memory: the loads need the registers.
KERNEL __launch_bounds__(256, 4)
gradient_sums(const T* x, const T* dy, const T* y, double* __restrict__ slices, int rows,
              int groups, int channels, int width, const float* mean, const float* inverse_std,
              const float* weight, const float* bias, float alpha) {
    enter();
    __shared__ double part[8][256];
    const Spot s = spot(groups, channels, width);
    for (int k = 0; k < 8; ++k) part[k][threadIdx.x] = 0.0;
    if (s.inside) {
        const float4 m = s.four(mean);
        const float4 a = s.four(inverse_std);
        const float4 scale = scaled(a, s.four(weight, 1.0f));
        const float4 shift = s.four(bias);
        const int step = gridDim.x * s.count;
        for (int r = blockIdx.x * s.count + s.row; r < rows;) {
            const int stop = min(rows, r + SHORT * step);
            float4 total = make_float4(0, 0, 0, 0), product = total;
#pragma unroll 4
            for (; r < stop; r += step) {
                i64 at = s.at(r);
                float4 v = get4(x + at), g = get4(dy + at);
                if (FROM_OUTPUT) g = passed(g, get4(y + at), alpha);
                if (FROM_INPUT) g = passed(g, normalized(v, m, scale, shift), alpha);
                total += g;
                product += g * ((v - m) * a);
            }
            float found[8];
            unpack(total, found), unpack(product, found + 4);
            for (int k = 0; k < 8; ++k) {
                volatile double* sum = &part[k][threadIdx.x];
                *sum = *sum + found[k];
            }
        }
    }
    over_rows(part, s.count, width, s.row);
    if (s.row || !s.inside) return;
    double* out = slices + ((i64)blockIdx.x * 2 * groups + s.group) * 4;
    for (int k = 0; k < 4; ++k) {
        out[k] = part[k][threadIdx.x];
        out[groups * 4 + k] = part[4 + k][threadIdx.x];
    }
}

// The sums of all blocks: db and dw, where asked for, and the means of g and g h.
KERNEL __launch_bounds__(TILE * PARTS)
gradient_means(const double* slices, int blocks, int rows, int channels, int stored,
               float* db, float* dw, float* means) {
    enter();
    const int channel = blockIdx.x * TILE + threadIdx.x;
    double total[2];
    over_slices(slices, channel < channels ? blocks : 0, stored, channel, total);
    if (channel >= channels || threadIdx.y) return;
    if (db) db[channel] = total[0];
    if (dw) dw[channel] = total[1];
    means[channel] = total[0] / rows;
    means[stored + channel] = total[1] / rows;
}

// dx = weight inverse_std (g - mean of g - h mean of g h), g and h as in gradient_sums.
KERNEL __launch_bounds__(256, 4)
normalize_backward(const T* x, const T* dy, const T* y, T* __restrict__ dx, int rows, int groups,
                   int channels, int width, const float* mean, const float* inverse_std,
                   const float* weight, const float* bias, float alpha, const float* means) {
    enter();
    const Spot s = spot(groups, channels, width);
    if (!s.inside) return;
    const float4 m = s.four(mean);
    const float4 a = s.four(inverse_std);
    const float4 t = s.four(means);
    const float4 p = s.four(means + groups * 4);
    const float4 w = scaled(a, s.four(weight, 1.0f));
    const float4 shift = s.four(bias);
#pragma unroll 4
    for (int r = blockIdx.x * s.count + s.row; r < rows; r += gridDim.x * s.count) {
        i64 at = s.at(r);
        float4 v = get4(x + at), g = get4(dy + at);
        if (FROM_OUTPUT) g = passed(g, get4(y + at), alpha);
        if (FROM_INPUT) g = passed(g, normalized(v, m, w, shift), alpha);
        put4(dx + at, w * (g - t - (v - m) * a * p));
    }
}
