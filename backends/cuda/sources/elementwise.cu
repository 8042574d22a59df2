// Gathering a batch, changing layouts, biases, activations.
//
// Channels-last tensors are rows of `stored` channels, of which the first `channels` count and the
// rest stay zero. Four neighbouring channels are one float4; `groups` is stored / 4. Structures of
// geometry lie on the device.

struct Cast {  // sizes in the order of the target's memory, slowest first
    unsigned n1, n2, n3;
    int from0, from1, from2, from3, to0, to1, to2, to3;
};

// cast null: both lie alike and without gaps, at multiples of 16 bytes; then `size` counts eights.
template <typename A, typename B>
__device__ void convert(const A* x, B* y, i64 size, const Cast* cast) {
    if (!cast) {
        SHORT_LINEAR(unsigned, i, (unsigned)size) {
            float v[8];
            get8(x + i * 8ull, v);
            put8(y + i * 8ull, v);
        }
        return;
    }
    const Cast c = *cast;
    SHORT_LINEAR(unsigned, i, (unsigned)size) {
        const unsigned above = i / c.n3, higher = above / c.n2;
        const int i3 = i - above * c.n3, i2 = above - higher * c.n2;
        const i64 i0 = higher / c.n1;
        const int i1 = higher - (unsigned)i0 * c.n1;
        put(y + i0 * c.to0 + (i64)i1 * c.to1 + (i64)i2 * c.to2 + (i64)i3 * c.to3,
            get(x[i0 * c.from0 + (i64)i1 * c.from1 + (i64)i2 * c.from2 + (i64)i3 * c.from3]));
    }
}

KERNEL convert_same(const T* x, T* y, i64 size, const Cast* c) { enter(); convert(x, y, size, c); }
KERNEL convert_from_bf16(const T* x, float* y, i64 size, const Cast* c) { enter(); convert(x, y, size, c); }
KERNEL convert_to_bf16(const float* x, T* y, i64 size, const Cast* c) { enter(); convert(x, y, size, c); }

// x[i] = images[row] * scale + shift, target[i] = labels[row], of so many words; row -1 gives zeros and
// words of -1. One block a sample, or several: no division of long numbers. The step after this one is
// left in `next`, which may be `step` itself.
template <typename P>
INLINE void gather(const P* images, const int* labels, const int* order, const i64* step, T* x,
                   int* target, const float* scale, const float* shift, int n, const Place* place,
                   i64* next, unsigned* come_count, int words) {
    wait();
    const Place p = *place;
    const i64 now = step[0];
    const unsigned turn = come(come_count);
    tell();
    const int sample = blockIdx.x, row = order[(now % p.steps) * n + sample];
    if (blockIdx.y == 0)
        OF_BLOCK(w, words)
            target[(i64)sample * words + w] = row < 0 ? -1 : labels[(i64)row * words + w];
    gather_row(images, row, x + (i64)sample * p.sample, scale, shift, p,
               blockIdx.y * blockDim.x + threadIdx.x, gridDim.y * blockDim.x);
    leave(come_count, turn, next, now + 1);
}

KERNEL gather_batch(const u8* images, const int* labels, const int* order, const i64* step, T* x,
                    int* target, const float* scale, const float* shift, int n, const Place* place,
                    i64* next, unsigned* come_count) {
    gather(images, labels, order, step, x, target, scale, shift, n, place, next, come_count, 1);
}

KERNEL gather_wide(const u8* images, const int* labels, const int* order, const i64* step, T* x,
                   int* target, const float* scale, const float* shift, int n, const Place* place,
                   i64* next, unsigned* come_count, int words) {
    gather(images, labels, order, step, x, target, scale, shift, n, place, next, come_count, words);
}

KERNEL gather_floats(const float* images, const int* labels, const int* order, const i64* step, T* x,
                     int* target, const float* scale, const float* shift, int n, const Place* place,
                     i64* next, unsigned* come_count, int words) {
    gather(images, labels, order, step, x, target, scale, shift, n, place, next, come_count, words);
}

// out[i][h][w][o] = filters[o][last - h][last - w][i], all channels-last: of each tap a matrix is
// transposed. A block takes TURNED by TURNED numbers of tap blockIdx.z.
constexpr int TURNED = 32;
KERNEL rotate_filters(const T* filters, T* out, int outer, int inner, int height,
                      int width) {
    enter();
    __shared__ T tile[TURNED][TURNED + 1];
    const int taps = height * width, tap = blockIdx.z;
    const int first_o = blockIdx.x * TURNED, first_i = blockIdx.y * TURNED;
    const int first_row = threadIdx.x / TURNED, lane = threadIdx.x % TURNED;
    for (int r = first_row; r < TURNED; r += blockDim.x / TURNED) {
        const int o = first_o + r, i = first_i + lane;
        if (o < outer && i < inner)
            tile[r][lane] = filters[((i64)o * taps + taps - 1 - tap) * inner + i];
    }
    __syncthreads();
    for (int r = first_row; r < TURNED; r += blockDim.x / TURNED) {
        const int i = first_i + r, o = first_o + lane;
        if (o < outer && i < inner) out[((i64)i * taps + tap) * outer + o] = tile[lane][r];
    }
}

// x and y lie alike; the channel of element i is (i / inner) % stored.
KERNEL bias_add(const T* x, const float* b, T* y, i64 size, int channels, int stored,
                int inner) {
    enter();
    LINEAR(i, size) {
        int channel = i / inner % stored;
        put(y + i, channel < channels ? get(x[i]) + b[channel] : 0.0f);
    }
}

// One block per channel of an NCHW tensor.
KERNEL bias_grad_nchw(const T* dy, float* db, int n, int channels, int pixels) {
    enter();
    extern __shared__ double partial[];
    int channel = blockIdx.x;
    double sum = long_sum(threadIdx.x, (i64)n * pixels, blockDim.x, [&](i64 i) {
        return get(dy[((i / pixels) * channels + channel) * pixels + i % pixels]);
    });
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) db[channel] = sum;
}

// Sums over the rows of a matrix in slices: slices[block][column]. blockDim is (32, 8).
KERNEL column_sums(const T* a, float* slices, int rows, int columns, int stride) {
    enter();
    __shared__ double part[8][32];
    int column = blockIdx.y * 32 + threadIdx.x;
    double sum = long_sum(blockIdx.x * 8 + threadIdx.y, column < columns ? rows : 0, gridDim.x * 8,
                          [&](i64 r) { return get(a[r * stride + column]); });
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
        sum = 0.0;
        for (int r = 0; r < 8; ++r) sum += part[r][threadIdx.x];
        slices[(i64)blockIdx.x * columns + column] = sum;
    }
}

// A block for neighbours of one segment: where[block] = (segment, first element).
KERNEL __launch_bounds__(SUM_THREADS) sum_slices(const Segment* segments, const int2* where) {
    __shared__ __align__(16) float part[SUM_PARTS];
    // Written by no kernel.
    const int2 here = where[blockIdx.x];
    const Segment s = segments[here.x];
    enter();
    const float sum = slice_sum(s, here.y, part);
    const int element = here.y + threadIdx.x;
    if (threadIdx.x < s.wide() && element < s.size) s.out[element] = sum;
}

// The tail of a dense layer or convolution in place: y = f(y + b) over the columns that count; kind
// -1 is no activation, b null no bias.
KERNEL bias_activation(T* y, const float* b, i64 size, int columns, int stored, int inner,
                       int kind, float alpha) {
    enter();
    LINEAR(i, size) {
        int column = i / inner % stored;
        float value = get(y[i]) + (b && column < columns ? b[column] : 0.0f);
        if (kind >= 0) value = activate(kind, value, alpha);
        put(y + i, column < columns ? value : 0.0f);
    }
}

// The same from x to y without a bias.
KERNEL activation_forward(const T* x, T* y, i64 size, int columns, int stored, int inner,
                          int kind, float alpha) {
    enter();
    LINEAR(i, size) {
        float value = activate(kind, get(x[i]), alpha);
        put(y + i, i / inner % stored < columns ? value : 0.0f);
    }
}

KERNEL activation_backward(const T* value, const T* dy, T* dx, i64 size, int kind,
                           float alpha) {
    enter();
    LINEAR(i, size) put(dx + i, get(dy[i]) * slope(kind, get(value[i]), alpha));
}
