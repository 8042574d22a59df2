// Pooling of channels-last pictures whose windows neither overlap nor reach into padding: averages,
// and of windows of one pixel also maxima, which are the same.
//
// Compiled for a geometry, so that no index is divided by an unknown number: pictures of HEIGHT x
// WIDTH and CHANNELS, stored ones, EACH to a thread; ROWS x COLUMNS windows. Strides are at least
// the kernel, also of a picture that is one window. SPLIT threads add up a window, a power of two
// that its size alone decides: a picture's average does not depend on how many lie beside it.
constexpr unsigned AREA = KERNEL_H * KERNEL_W, GROUPS = CHANNELS / EACH, LINES = 256 / SPLIT;
// What a thread adds up, and how many loads it has in flight.
constexpr unsigned TAPS = (AREA + SPLIT - 1) / SPLIT, AT_ONCE = TAPS <= 16 ? TAPS : 8;

// Taps `part`, part + SPLIT and so on of the window at `corner`, in this order.
INLINE void add_taps(const T* corner, unsigned part, float* sum) {
    for (unsigned first = 0; first < TAPS; first += AT_ONCE) {
        Group found[AT_ONCE];
        UNROLLED(k, AT_ONCE) {
            const unsigned tap = part + (first + k) * SPLIT, h = tap / KERNEL_W;
            const unsigned at = (h * WIDTH + tap - h * KERNEL_W) * GROUPS;
            if (tap < AREA) found[k] = *(const Group*)(corner + (i64)at * EACH);
            else found[k] = {};
        }
        UNROLLED(k, AT_ONCE) {
            float v[EACH];
            load(found[k], v);
            UNROLLED(e, EACH) sum[e] += v[e];
        }
    }
}

// size: the groups of y.
KERNEL disjoint_pool(const T* x, T* y, unsigned size) {
    enter();
    __shared__ float4 shared[256];
    const unsigned part = threadIdx.x / LINES, line = threadIdx.x % LINES;
    for (unsigned first = blockIdx.x * LINES; first < size; first += gridDim.x * LINES) {
        const unsigned i = first + line, out = i / GROUPS, group = i % GROUPS;
        const unsigned above = out / COLUMNS, column = out % COLUMNS;
        const unsigned sample = above / ROWS, row = above % ROWS;
        const unsigned pixel = (sample * HEIGHT + row * STRIDE_H) * WIDTH + column * STRIDE_W;
        float sum[EACH];
        // Unlike 0, -0 leaves -0 as it is.
        UNROLLED(e, EACH) sum[e] = -0.0f;
        if (i < size) add_taps(x + ((i64)pixel * GROUPS + group) * EACH, part, sum);
        if constexpr (SPLIT > 1)
            for (int e = 0; e < EACH; e += 4)
                unpack(column_sum(pack(sum + e), LINES, SPLIT, shared), sum + e);
        if (part || i >= size) continue;
        UNROLLED(e, EACH) sum[e] /= AREA;
        store(y + (i64)i * EACH, sum);
    }
}

// size: the groups of dx, which a thread writes one at a time, in the order of memory: also those
// between windows and beyond the last, which none covers.
KERNEL disjoint_pool_backward(const T* dy, T* dx, unsigned size) {
    enter();
    SHORT_LINEAR(unsigned, i, size) {
        const unsigned pixel = i / GROUPS, group = i % GROUPS;
        const unsigned above = pixel / WIDTH, w = pixel % WIDTH;
        const unsigned sample = above / HEIGHT, h = above % HEIGHT;
        const unsigned row = h / STRIDE_H, column = w / STRIDE_W;
        const bool across = column < COLUMNS && w % STRIDE_W < KERNEL_W;
        float share[EACH] = {};
        if (across && row < ROWS && h % STRIDE_H < KERNEL_H) {
            const unsigned out = (sample * ROWS + row) * COLUMNS + column;
            load(dy + ((i64)out * GROUPS + group) * EACH, share);
            UNROLLED(e, EACH) share[e] /= AREA;
        }
        store(dx + (i64)i * EACH, share);
    }
}
