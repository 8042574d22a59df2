// Batch norm of channels-last tensors: rows of `stored` channels, of which `channels` count, in
// groups of EACH. A block covers `width` groups of as many rows as there is room for, and blockIdx.y the
// next `width` groups. KIND is the activation behind the norm, -1 for none.
//
// A pass that writes begins with the rows that the one before it, which sums, has read last: these are
// still in the cache, and what it writes last is what the next operation reads first.

// TERMS: how many tensors the gradient is the sum of. WRITES: what the activation lets through of it is
// left for others, too, and rounded as it is stored. KEEPS_NAN: a NaN stays where a ReLU lets nothing
// through, as where the activation's gradient is an operation of its own. ADDS: another tensor is added
// to what is normalised, and the activation is behind that sum.

#ifndef KIND
#define KIND -1
#endif
#ifndef TERMS
#define TERMS 1
#endif
#ifndef WRITES
#define WRITES 0
#endif
#ifndef KEEPS_NAN
#define KEEPS_NAN 0
#endif
#ifndef ADDS
#define ADDS 0
#endif

// What the activation's slope follows from: its output y, or its input, the norm's value.
constexpr bool FROM_OUTPUT = KIND >= 0 && (KIND < SOFTPLUS || KIND == SCALED_TANH);
constexpr bool FROM_INPUT = KIND >= 0 && !FROM_OUTPUT;
constexpr bool ZERO_STAYS = KIND != SIGMOID && KIND != SOFTPLUS && KIND != HARDSIGMOID;

// Where a thread works: its row in the block, and the group; `count` rows a block.
struct Spot {
    int groups, channels, count, row, group;
    bool inside;

    // Where the group of row r begins.
    INLINE i64 at(int r) const { return ((i64)r * groups + group) * EACH; }
    // The numbers of the group's channels: `other` for all where p is null, 0 beyond the last.
    INLINE void numbers(const float* p, float* v, float other = 0.0f) const {
        UNROLLED(k, EACH)
            v[k] = group * EACH + k < channels ? (p ? p[group * EACH + k] : other) : 0.0f;
    }
};

INLINE Spot spot(int groups, int channels, int width) {
    const int count = blockDim.x / width, row = threadIdx.x / width;
    const int group = blockIdx.y * width + threadIdx.x - row * width;
    return {groups, channels, count, row, group, row < count && group < groups};
}

// A thread's group of some rows, asked for at once: rows r, r + step and so on below `rows`, or with
// `back` those that are as far from the end.
template <int COUNT, bool back = false>
struct Rows {
    Group groups[COUNT];

    INLINE void ask(const T* x, const Spot& s, int r, int step, int rows) {
        UNROLLED(k, COUNT)
            if (r + k * step < rows) groups[k] = *(const Group*)(x + at(s, r + k * step, rows));
    }
    static INLINE i64 at(const Spot& s, int r, int rows) { return s.at(back ? rows - 1 - r : r); }
    INLINE void get(int k, float* v) const { load(groups[k], v); }
};

// weight factor, 0 for a channel that does not count: its weight is 0, its factor may be infinite.
INLINE void scale_by(float* factor, const float* weight) {
    UNROLLED(k, EACH) factor[k] = weight[k] ? factor[k] * weight[k] : 0.0f;
}

// dy times the slope at v; behind a ReLU that let nothing through dy does not matter, unless
// a NaN is to stay.
INLINE float passed(float dy, float v, float alpha) {
    return KIND == RELU && !KEEPS_NAN ? (v > 0.0f ? dy : 0.0f) : dy * slope(KIND, v, alpha);
}

// Rows that a thread asks for at once, of one tensor or of each of several.
constexpr int ROWS = 4, PAIRS = 2, WRITTEN = ADDS && EACH == 8 ? PAIRS : ROWS;
// Blocks on a processor of a kernel that reads several.
constexpr int RESIDENT = EACH == 8 ? 3 : 4;

// Sums of a block: one for each thread, and so apart that threads which add up different ones use
// different banks.
constexpr int APART = 257;

// SUMS sums over the rows of a block, into row 0: several threads have a share of the rows of each, and
// one adds up what these have.
template <int SUMS>
__device__ void over_rows(double (&part)[SUMS][APART], int rows, int width) {
    const int shares = max(1, min(rows, 256 / (SUMS * width)));
    __syncthreads();
    OF_BLOCK(i, SUMS * width * shares) {
        double* sums = part[i / (width * shares)];
        const int first = i % (width * shares);
        double total = sums[first];
        for (int at = first + width * shares; at < rows * width; at += width * shares) total += sums[at];
        sums[first] = total;
    }
    __syncthreads();
    OF_BLOCK(i, shares > 1 ? SUMS * width : 0) {
        double* sums = part[i / width] + i % width;
        for (int k = 1; k < shares; ++k) sums[0] += sums[k * width];
    }
    __syncthreads();
}

// Blocks that unite slices: for TILE channels each, PARTS threads per channel, which ask for ROUND
// slices at once; WARPED sums of a channel are then united by as many lanes.
constexpr int TILE = 8, PARTS = 64, ROUND = 9, WARPED = PARTS / 4;

// The channel that a thread of such a block finishes, `channels` for the others.
INLINE int finished(int channels) {
    const int channel = blockIdx.x * TILE + threadIdx.x / WARPED;
    return threadIdx.x < WARPED * TILE && threadIdx.x % WARPED == 0 ? min(channel, channels) : channels;
}

// total[0 and 1] of a thread that finishes a channel: the sums of slices[block][0 and 1][channel].
__device__ void over_slices(const double* slices, int blocks, int stored, int channels, double* total) {
    __shared__ double part[2][WARPED][TILE];
    const int column = threadIdx.x % TILE, channel = blockIdx.x * TILE + column;
    double sum[2] = {0.0, 0.0};
    const int end = channel < channels ? blocks : 0;
    for (int first = threadIdx.x / TILE; first < end; first += PARTS * ROUND) {
        double found[2][ROUND];
        UNROLLED(k, ROUND) {
            const int b = first + k * PARTS;
            const double* at = slices + (i64)b * 2 * stored + channel;
            found[0][k] = b < end ? at[0] : 0.0;
            found[1][k] = b < end ? at[stored] : 0.0;
        }
        UNROLLED(k, ROUND) sum[0] += found[0][k], sum[1] += found[1][k];
    }
    for (int i = 0; i < 2; ++i) {
        for (int o = TILE; o < 32; o *= 2) sum[i] += __shfl_xor_sync(~0u, sum[i], o);
        if (threadIdx.x % 32 < TILE) part[i][threadIdx.x / 32][column] = sum[i];
    }
    __syncthreads();
    if (threadIdx.x >= WARPED * TILE) return;
    for (int i = 0; i < 2; ++i) {
        total[i] = part[i][threadIdx.x % WARPED][threadIdx.x / WARPED];
        for (int o = WARPED / 2; o; o /= 2) total[i] += __shfl_xor_sync(~0u, total[i], o);
    }
}

// slices[block][0 and 1][channel]: the sum and the sum of squares of the rows of a block. Every thread
// counts from its own first value, so that a large mean costs no digits: what is united is double.
KERNEL __launch_bounds__(256, 4)
moments(const T* x, double* __restrict__ slices, int rows, int groups, int channels, int width) {
    enter();
    __shared__ double part[2 * EACH][APART];
    const Spot s = spot(groups, channels, width);
    const int first = blockIdx.x * s.count + s.row, step = gridDim.x * s.count;
    const int end = s.inside ? rows : 0, n = first < end ? (end - first - 1) / step + 1 : 0;
    float origin[EACH] = {}, sum[EACH] = {}, square[EACH] = {};
    Rows<ROWS> x_rows;
    x_rows.ask(x, s, first, step, end);
    if (n) x_rows.get(0, origin);
    for (int r = first; r < end;) {
        UNROLLED(k, ROWS) {
            if (r + k * step >= end) break;
            float v[EACH];
            x_rows.get(k, v);
            UNROLLED(c, EACH) {
                v[c] -= origin[c];
                sum[c] += v[c];
                square[c] += v[c] * v[c];
            }
        }
        r += ROWS * step;
        x_rows.ask(x, s, r, step, end);
    }
    UNROLLED(k, EACH) {
        const double from = origin[k], more = n * from;
        part[k][threadIdx.x] = sum[k] + more;
        part[EACH + k][threadIdx.x] = square[k] + from * (2.0 * sum[k] + more);
    }
    over_rows(part, s.count, width);
    if (s.row || !s.inside) return;
    double* out = slices + ((i64)blockIdx.x * 2 * groups + s.group) * EACH;
    UNROLLED(k, EACH) {
        out[k] = part[k][threadIdx.x];
        out[groups * EACH + k] = part[EACH + k][threadIdx.x];
    }
}

// The moments of all blocks united; blocks of TILE PARTS. left: where the variance of a part of
// a batch goes, whose update moves the running statistics; null where they move here.
KERNEL __launch_bounds__(TILE * PARTS)
statistics(const double* slices, int blocks, int rows, int channels, int stored,
           float eps, float momentum, float* mean, float* inverse_std, float* running_mean,
           float* running_var, float* left) {
    enter();
    const int channel = finished(channels);
    const bool moves = channel < channels && !left;
    const float before = moves ? running_mean[channel] : 0.0f, was = moves ? running_var[channel] : 0.0f;
    const double each = 1.0 / rows, fewer = 1.0 / (rows - 1);
    double total[2];
    over_slices(slices, blocks, stored, channels, total);
    if (channel >= channels) return;
    // With one step of Newton's, so that it is that of a division.
    double middle = total[0] * each;
    middle += fma(-middle, rows, total[0]) * each;
    const double apart = fmax(total[1] - total[0] * middle, 0.0), var = apart * each;
    mean[channel] = middle;
    inverse_std[channel] = rsqrt(var + eps);
    if (left) {
        left[channel] = var;
        return;
    }
    running_mean[channel] = (1.0 - momentum) * before + momentum * middle;
    running_var[channel] = (1.0 - momentum) * was + momentum * (apart * fewer);
}

// y = f(weight (x - mean) factor + bias + other); factor is `spread`, or 1 / sqrt(spread + eps) where
// eps is not negative.
KERNEL __launch_bounds__(256, 4)
normalize(const T* x, const T* other, T* __restrict__ y, int rows, int groups, int channels, int width,
          const float* mean, const float* spread, const float* weight, const float* bias, float eps,
          float alpha) {
    enter();
    const Spot s = spot(groups, channels, width);
    if (!s.inside) return;
    typedef Rows<WRITTEN, true> Back;
    const int step = gridDim.x * s.count;
    int r = blockIdx.x * s.count + s.row;
    Back x_rows, other_rows;
    const auto ask = [&] {
        x_rows.ask(x, s, r, step, rows);
        if (ADDS) other_rows.ask(other, s, r, step, rows);
    };
    ask();
    float m[EACH], shift[EACH], a[EACH], w[EACH];
    s.numbers(mean, m), s.numbers(bias, shift), s.numbers(spread, a), s.numbers(weight, w, 1.0f);
    if (eps >= 0.0f) UNROLLED(k, EACH) a[k] = 1.0f / sqrtf(a[k] + eps);
    scale_by(a, w);
    while (r < rows) {
        UNROLLED(k, WRITTEN) {
            if (r + k * step >= rows) break;
            float v[EACH], more[EACH];
            x_rows.get(k, v);
            if (ADDS) other_rows.get(k, more);
            UNROLLED(c, EACH) {
                v[c] = (v[c] - m[c]) * a[c] + shift[c];
                if (ADDS) v[c] = rounded(v[c]) + more[c];
                if (KIND >= 0) v[c] = activate(KIND, v[c], alpha);
                if (!ZERO_STAYS && s.group * EACH + c >= channels) v[c] = 0.0f;
            }
            store(y + Back::at(s, r + k * step, rows), v);
        }
        r += WRITTEN * step;
        ask();
    }
}

// slices[block][0 and 1][channel]: sums of g and of g h over the rows of a block, h = (x - mean)
// inverse_std and g = dy times the activation's slope; the constant factor of h comes last. `other`: the
// second term of dy; `left`: where g goes. The doubles are volatile to be kept in shared memory: the
// loads need the registers.
KERNEL __launch_bounds__(256, RESIDENT)
gradient_sums(const T* x, const T* dy, const T* other, const T* y, T* __restrict__ left,
              double* __restrict__ slices, int rows, int groups, int channels, int width,
              const float* mean, const float* inverse_std, const float* weight, const float* bias,
              float alpha) {
    enter();
    __shared__ double part[2 * EACH][APART];
    const Spot s = spot(groups, channels, width);
    UNROLLED(k, 2 * EACH) part[k][threadIdx.x] = 0.0;
    if (s.inside) {
        const int step = gridDim.x * s.count;
        int r = blockIdx.x * s.count + s.row;
        typedef Rows<PAIRS> Forth;
        Forth x_rows, dy_rows, other_rows, y_rows;
        const auto ask = [&] {
            x_rows.ask(x, s, r, step, rows), dy_rows.ask(dy, s, r, step, rows);
            if (TERMS == 2) other_rows.ask(other, s, r, step, rows);
            if (FROM_OUTPUT) y_rows.ask(y, s, r, step, rows);
        };
        ask();
        float m[EACH], scale[EACH], shift[EACH], w[EACH];
        s.numbers(mean, m), s.numbers(inverse_std, scale), s.numbers(bias, shift);
        s.numbers(weight, w, 1.0f);
        scale_by(scale, w);
        while (r < rows) {
            float total[EACH] = {}, product[EACH] = {};
#pragma unroll 1
            for (int n = 0; n < SHORT && r < rows; n += PAIRS) {
                UNROLLED(k, PAIRS) {
                    if (r + k * step >= rows) break;
                    float v[EACH], g[EACH], more[EACH], value[EACH];
                    x_rows.get(k, v), dy_rows.get(k, g);
                    if (TERMS == 2) other_rows.get(k, more);
                    if (FROM_OUTPUT) y_rows.get(k, value);
                    UNROLLED(c, EACH) {
                        v[c] -= m[c];
                        if (TERMS == 2) g[c] = rounded(g[c] + more[c]);
                        if (FROM_OUTPUT) g[c] = passed(g[c], value[c], alpha);
                        if (FROM_INPUT) g[c] = passed(g[c], v[c] * scale[c] + shift[c], alpha);
                        if (WRITES) g[c] = rounded(g[c]);
                        total[c] += g[c];
                        product[c] += g[c] * v[c];
                    }
                    if (WRITES) store(left + Forth::at(s, r + k * step, rows), g);
                }
                r += PAIRS * step;
                ask();
            }
            UNROLLED(k, EACH) {
                volatile double* sum = &part[k][threadIdx.x];
                *sum = *sum + total[k];
                sum = &part[EACH + k][threadIdx.x];
                *sum = *sum + product[k];
            }
        }
    }
    over_rows(part, s.count, width);
    if (s.row || !s.inside) return;
    float a[EACH];
    s.numbers(inverse_std, a);
    double* out = slices + ((i64)blockIdx.x * 2 * groups + s.group) * EACH;
    UNROLLED(k, EACH) {
        out[k] = part[k][threadIdx.x];
        out[groups * EACH + k] = part[EACH + k][threadIdx.x] * a[k];
    }
}

// The sums of all blocks: db and dw, where asked for, and the means of g and g h.
KERNEL __launch_bounds__(TILE * PARTS)
gradient_means(const double* slices, int blocks, int rows, int channels, int stored,
               float* db, float* dw, float* means) {
    enter();
    const int channel = finished(channels);
    const double each = 1.0 / rows;
    double total[2];
    over_slices(slices, blocks, stored, channels, total);
    if (channel >= channels) return;
    if (db) db[channel] = total[0];
    if (dw) dw[channel] = total[1];
    means[channel] = total[0] * each;
    means[stored + channel] = total[1] * each;
}

// dx = weight inverse_std (g - mean of g - h mean of g h), g and h as in gradient_sums.
KERNEL __launch_bounds__(256, RESIDENT)
normalize_backward(const T* x, const T* dy, const T* y, T* __restrict__ dx, int rows, int groups,
                   int channels, int width, const float* mean, const float* inverse_std,
                   const float* weight, const float* bias, float alpha, const float* means) {
    enter();
    const Spot s = spot(groups, channels, width);
    if (!s.inside) return;
    typedef Rows<PAIRS, true> Back;
    const int step = gridDim.x * s.count;
    int r = blockIdx.x * s.count + s.row;
    Back x_rows, dy_rows, y_rows;
    const auto ask = [&] {
        x_rows.ask(x, s, r, step, rows), dy_rows.ask(dy, s, r, step, rows);
        if (FROM_OUTPUT) y_rows.ask(y, s, r, step, rows);
    };
    ask();
    float m[EACH], a[EACH], t[EACH], p[EACH], w[EACH], shift[EACH];
    s.numbers(mean, m), s.numbers(inverse_std, a), s.numbers(bias, shift);
    s.numbers(means, t), s.numbers(means + groups * EACH, p), s.numbers(weight, w, 1.0f);
    UNROLLED(k, EACH) p[k] *= a[k];
    scale_by(a, w);
    while (r < rows) {
        UNROLLED(k, PAIRS) {
            if (r + k * step >= rows) break;
            float v[EACH], g[EACH], value[EACH];
            x_rows.get(k, v), dy_rows.get(k, g);
            if (FROM_OUTPUT) y_rows.get(k, value);
            UNROLLED(c, EACH) {
                v[c] -= m[c];
                if (FROM_OUTPUT) g[c] = passed(g[c], value[c], alpha);
                if (FROM_INPUT) g[c] = passed(g[c], v[c] * a[c] + shift[c], alpha);
                v[c] = a[c] * (g[c] - t[c] - v[c] * p[c]);
            }
            store(dx + Back::at(s, r + k * step, rows), v);
        }
        r += PAIRS * step;
        ask();
    }
}
