// A convolution of pictures with few channels, with its bias and any activation, in one pass: cuDNN
// pads such pictures, and an activation that it cannot fuse would read and write y once more.
//
// Compiled for one geometry: CHANNELS, HEIGHT, WIDTH of the pictures, KERNEL_H, KERNEL_W, STRIDE_H,
// STRIDE_W, DILATION_H, DILATION_W, TOP and LEFT (padding), ROWS, COLUMNS of y, FILTERS, STORED
// (channels of y in memory), LAST (channels run fastest in x, w and y), ACTIVATION (-1 for none),
// BLOCK threads, LINES rows of y that a block computes, EACH pixels that a thread computes at once,
// HELD: whether it keeps its filters in registers.

#define TAPS (CHANNELS * KERNEL_H * KERNEL_W)
#define PIXELS (ROWS * COLUMNS)
// Filters of a thread: 16 bytes of y.
#define VECTOR (BFLOAT ? 8 : 4)
#define GROUPS ((FILTERS + VECTOR - 1) / VECTOR)
// Pixels that a block computes at once.
#define SLOTS (BLOCK / GROUPS)
#define FILTER_PITCH (GROUPS * VECTOR + 4)
// What LINES rows of y see.
#define TILE_ROWS ((LINES - 1) * STRIDE_H + (KERNEL_H - 1) * DILATION_H + 1)
#define TILE_COLUMNS ((COLUMNS - 1) * STRIDE_W + (KERNEL_W - 1) * DILATION_W + 1)
#define TILE (CHANNELS * TILE_ROWS * TILE_COLUMNS)

// Taps lie in the order of the filters' memory, in runs of a row of the window each. Where the first
// tap of a run looks in a tile, and another of the same run relative to it.
#define RUNS (LAST ? KERNEL_H : CHANNELS * KERNEL_H)
#define RUN (TAPS / RUNS)
INLINE int run_offset(int run) {
    int row = run % KERNEL_H * DILATION_H + run / KERNEL_H * TILE_ROWS;
    return row * TILE_COLUMNS;
}
INLINE int tap_offset(int tap) {
    return LAST ? tap % CHANNELS * (TILE_ROWS * TILE_COLUMNS) + tap / CHANNELS * DILATION_W
                : tap * DILATION_W;
}

// Where a filter's tap lies: neighbouring groups 16 bytes apart, so that their reads do not collide.
INLINE int filter_offset(int tap, int filter) {
    return tap * FILTER_PITCH + filter % VECTOR / 4 * (4 * GROUPS) + filter / VECTOR * 4 + filter % 4;
}

// VECTOR neighbours in memory; the address is a multiple of 16 bytes.
INLINE void put_vector(T* p, const float* v) {
#if BFLOAT
    put8(p, v);
#else
    put4(p, pack(v));
#endif
}

// The channels of a pixel from the thread's group; the last group also zeroes those that only pad.
INLINE void put_pixel(T* y, int group, const float* v) {
    if (STORED % VECTOR == 0) {
        put_vector(y + group * VECTOR, v);
        const float zeros[VECTOR] = {};
        if (group == GROUPS - 1)
#pragma unroll
            for (int f = GROUPS * VECTOR; f < STORED; f += VECTOR) put_vector(y + f, zeros);
    } else {
        UNROLLED(k, VECTOR)
            if (group * VECTOR + k < STORED) put(y + group * VECTOR + k, v[k]);
        if (group == GROUPS - 1)
            for (int f = GROUPS * VECTOR; f < STORED; ++f) put(y + f, 0.0f);
    }
}

// Grid: (pictures, parts of LINES rows of y); bias may be 0.
KERNEL __launch_bounds__(BLOCK, 2)
    direct_conv(const T* x, const T* w, const float* bias, T* y, float alpha) {
    enter();
    __shared__ __align__(16) float filters[TAPS * FILTER_PITCH];
    __shared__ __align__(16) float tile[TILE];
    int first = blockIdx.y * LINES, top = first * STRIDE_H - TOP;
    x += (i64)blockIdx.x * (CHANNELS * HEIGHT * WIDTH);
    y += (i64)blockIdx.x * (STORED * PIXELS) + first * COLUMNS * (LAST ? STORED : 1);
#pragma unroll 8
    for (int i = threadIdx.x; i < TILE; i += BLOCK) {
        int channel = LAST ? i % CHANNELS : i / (TILE_ROWS * TILE_COLUMNS);
        int place = LAST ? i / CHANNELS : i % (TILE_ROWS * TILE_COLUMNS);
        int row = top + place / TILE_COLUMNS, column = place % TILE_COLUMNS - LEFT;
        int at = LAST ? (row * WIDTH + column) * CHANNELS + channel
                      : (channel * HEIGHT + row) * WIDTH + column;
        bool inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
        tile[LAST ? channel * (TILE_ROWS * TILE_COLUMNS) + place : i] = inside ? get(x[at]) : 0.0f;
    }
    for (int i = threadIdx.x; i < GROUPS * VECTOR * TAPS; i += BLOCK) {
        int filter = i / TAPS;
        filters[filter_offset(i % TAPS, filter)] = filter < FILTERS ? get(w[i]) : 0.0f;
    }
    __syncthreads();
    // Neighbouring lanes write neighbouring bytes.
    int group = LAST ? threadIdx.x % GROUPS : threadIdx.x / SLOTS;
    int slot = LAST ? threadIdx.x / GROUPS : threadIdx.x % SLOTS;
    if (slot >= SLOTS || group >= GROUPS) return;
    float biases[VECTOR];
    __align__(16) float held[HELD ? TAPS : 1][VECTOR];
    UNROLLED(k, VECTOR) {
        int filter = group * VECTOR + k;
        biases[k] = bias && filter < FILTERS ? bias[filter] : 0.0f;
        UNROLLED(t, (HELD ? TAPS : 1)) held[t][k] = filters[filter_offset(t, filter)];
    }
    int count = min(LINES, ROWS - first) * COLUMNS;
    for (int begin = slot; begin < count; begin += EACH * SLOTS) {
        const float* corner[EACH];
        float sums[EACH][VECTOR];
        UNROLLED(e, EACH) {
            int pixel = min(begin + e * SLOTS, count - 1);
            int row = pixel / COLUMNS, column = pixel % COLUMNS;
            corner[e] = tile + row * STRIDE_H * TILE_COLUMNS + column * STRIDE_W;
            UNROLLED(k, VECTOR) sums[e][k] = biases[k];
        }
        // Unrolled as a whole, filters from shared memory would not fit into the registers.
#pragma unroll (HELD ? RUNS : 1)
        for (int run = 0; run < RUNS; ++run) {
            UNROLLED(tap, RUN) {
                const int t = run * RUN + tap;
                float weights[VECTOR];
#pragma unroll
                for (int k = 0; k < VECTOR; k += 4) {
                    unpack(HELD ? get4(held[HELD ? t : 0] + k)
                                : get4(filters + filter_offset(t, k) + 4 * group), weights + k);
                }
                UNROLLED(e, EACH) {
                    float v = corner[e][run_offset(run) + tap_offset(tap)];
                    UNROLLED(k, VECTOR) sums[e][k] = fmaf(v, weights[k], sums[e][k]);
                }
            }
        }
        UNROLLED(e, EACH) {
            int pixel = begin + e * SLOTS;
            if (pixel >= count) break;
            UNROLLED(k, VECTOR) {
                bool padding = FILTERS % VECTOR && group * VECTOR + k >= FILTERS;
                if (ACTIVATION >= 0) sums[e][k] = activate(ACTIVATION, sums[e][k], alpha);
                if (padding) sums[e][k] = 0.0f;
            }
            if (LAST) put_pixel(y + pixel * STORED, group, sums[e]);
            UNROLLED(k, VECTOR)
                if (!LAST && group * VECTOR + k < FILTERS)
                    put(y + (group * VECTOR + k) * PIXELS + pixel, sums[e][k]);
        }
    }
}
