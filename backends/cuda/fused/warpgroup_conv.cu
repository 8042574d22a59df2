// A convolution of stride 1 by products of warpgroups, for few channels, in bfloat16: what
// tensor_conv.cu computes, compiled for the same geometry.
//
// Pictures lie side by side, PITCH columns each with zeros between them, and a warpgroup goes down the
// rows at 64 of these columns. The 64 rows of a product are pixels of one row of x; the window's columns
// and the channels are its depth; its columns are BLOCK_OCTETS times eight filters for each row of the
// window, which belong to as many rows of y. So a row of x is read once and can be forgotten, and one
// row of y is ready with it. Where a row of y has its sums in registers goes round: filters lie almost
// twice in shared memory, for any of these places to be the first.
//
// A block has WARPGROUPS, each with DEPTH pairs of rows of x at once, all but one of which are on their
// way (rows_ahead.cuh). RESIDENT blocks run on a processor. The rows of y, or pairs of them, are shared
// out evenly; what a warp has of them goes through shared memory, to be written in pieces of 16 bytes.
// BIAS: there is one.

#define TAPS (KERNEL_H * KERNEL_W)
#define THREADS (128 * WARPGROUPS)
#define BLOCK_FILTERS (8 * BLOCK_OCTETS)
// Products of a row, each of two chunks of one or two taps.
#define STEPS parts(KERNEL_W * CHUNKS, 2)
#define OCTETS (KERNEL_H * BLOCK_OCTETS)
// After so many rows sums are where they were, and pairs of rows of y begin.
#define PERIOD (POOL && KERNEL_H % 2 ? 2 * KERNEL_H : KERNEL_H)

// In bytes: of a pixel of y on its way out, so that eight of them begin in different banks; the same of
// its places.
#define OUT_PITCH ((BLOCK_OCTETS | 1) * 16)
#define PLACES_PITCH ((parts(BLOCK_OCTETS, 2) | 1) * 16)
// Shared memory: filters by half steps, biases and a zero, rows of x, what a warp writes.
#define HALF_ROWS ((2 * KERNEL_H - 1) * BLOCK_FILTERS)
#define HALF_BYTES (HALF_ROWS * 16)
#define BIAS_AT (2 * STEPS * HALF_BYTES)
#define LINES_AT (BIAS_AT + BLOCK_FILTERS * 4 + 16)
#define OUT_AT (LINES_AT + WARPGROUPS * DEPTH * 2 * LINE_BYTES)
#define OUT_BYTES (16 * OUT_PITCH)
#define SHARED_BYTES (OUT_AT + 4 * WARPGROUPS * OUT_BYTES)

static_assert(BFLOAT && CHANNELS % CHUNK == 0 && FILTERS % 8 == 0 && OCTETS <= 32 && DEPTH > 1);
static_assert(KERNEL_W * CHUNKS > 1 && UNITS > 0 && BLOCK_OCTETS <= 16);

// Half of a step: a chunk of a tap in the window's row. An odd one is alone, behind another whose
// filters are zeros then.
struct Half {
    int tap, chunk;
    bool real;
    __host__ __device__ constexpr int at() const { return chunk * plane() + tap * 16; }
};
__host__ __device__ constexpr Half half_of(int step, int which) {
    const int pairs = CHUNKS / 2, whole = KERNEL_W * pairs, tap = 2 * (step - whole);
    if (step < whole) return {step / most(1, pairs), step % most(1, pairs) * 2 + which, true};
    if (tap + 1 < KERNEL_W) return {tap + which, CHUNKS - 1, true};
    if (KERNEL_W > 1) return {tap - 1 + which, CHUNKS - 1, which == 1};
    return {0, CHUNKS - 2 + which, which == 1};
}

INLINE void fetch_filters(u32 to, const T* w, int first) {
    OF_BLOCK(i, 2 * STEPS * HALF_ROWS) {
        const Half half = half_of(i / HALF_ROWS / 2, i / HALF_ROWS % 2);
        const int block = i % HALF_ROWS / BLOCK_FILTERS, j = i % BLOCK_FILTERS;
        const int row = (2 * KERNEL_H - 1 - block) % KERNEL_H, tap = row * KERNEL_W + half.tap;
#if DATA
        // Eight filters of a channel.
        const int filter = first + j / 8 * 8, channel = half.chunk * CHUNK + j % 8;
        const i64 from = ((i64)channel * TAPS + TAPS - 1 - tap) * FILTERS + filter;
#else
        const int filter = first + j;
        const i64 from = ((i64)filter * TAPS + tap) * CHANNELS + half.chunk * CHUNK;
#endif
        const bool exists = half.real && filter < FILTERS;
        fetch(to + i * 16, exists ? w + from : w, exists);
    }
}

// A row of x, at `line`: products with filters that begin with those of one row of the window.
INLINE void add_line(float (&sums)[4 * OCTETS], u32 line, u32 filters) {
    const u64 b = DATA ? by_columns(filters, HALF_BYTES, 128) : by_rows(filters, HALF_BYTES, 128);
    held(sums);
    begin_products();
    UNROLLED(q, STEPS) {
        const int at = half_of(q, 0).at(), deep = half_of(q, 1).at() - at;
        const u64 a = behind(by_rows(line, deep, 128), at);
        Products<OCTETS>::template by_memory<true, false, DATA>(sums, a, behind(b, 2 * q * HALF_BYTES));
    }
    end_products();
}

// Of an octet the sums at columns l / 4 + 8 h, with the biases of both filters.
INLINE float2 biased(const float* sums, u32 biases, int o, int h) {
    float2 v = make_float2(sums[4 * o + 2 * h], sums[4 * o + 2 * h + 1]);
    if (BIAS) {
        const float2 bias = shared_pair(biases + (8 * o + thread_of_warpgroup() % 4 * 2) * 4);
        v.x += bias.x, v.y += bias.y;
    }
    return v;
}

// So many matrices, `apart` bytes one from the next; `at`: the row of a lane in the first of them.
template <int count>
INLINE void many_to_shared(u32 at, int apart, const u32* r) {
    const u32 matrix = thread_of_warpgroup() % 32 / 8;
    UNROLLED(k, count / 4) rows_to_shared<4>(at + (4 * k + matrix) * apart, r + 4 * k);
    if (count % 4 > 1) rows_to_shared<2>(at + (count / 4 * 4 + matrix % 2) * apart, r + count / 4 * 4);
    if (count % 2) rows_to_shared<1>(at + (count - 1) * apart, r + count - 1);
}

#if POOL
// The most that divides it, of what can be written at once.
__host__ __device__ constexpr int piece(int bytes) {
    int found = 16;
    while (bytes % found) found /= 2;
    return found;
}

// Rows of `stored` numbers of `item` bytes at the pooled pixels that a warp has, from shared memory.
template <int item>
INLINE void write_out(u8* to, u32 at, int pitch, int window, int row, int first_filter, int n) {
    constexpr int size = piece(most(1, POOLED) * item % 16 ? POOLED * item : 8 * BLOCK_OCTETS * item);
    constexpr int each = 8 * BLOCK_OCTETS * item / size;
    const u32 thread = thread_of_warpgroup(), lane = thread % 32;
    UNROLLED(k, parts(8 * each, 32)) {
        const u32 i = lane + 32 * k, pixel = i / each, part = i % each * size;
        const u32 place = window * 64 + thread / 32 * 16 + 2 * pixel;
        const u32 picture = place / PITCH, column = place % PITCH / 2;
        const bool exists = i < 8 * each && picture < n && column < COLUMNS / 2 &&
                            first_filter * item + part < POOLED * item;
        const u32 line = (picture * (ROWS / 2) + (row >> 1)) * (COLUMNS / 2) + column;
        if (exists)
            out_of_shared<size>(to + (u64)line * (POOLED * item) + (first_filter * item + part),
                                at + pixel * pitch + part);
    }
}

// A row of y in pairs of filters: 2 o + h of octet o, of columns l / 4 + 8 h.
struct Pairs {
    u32 v[2 * BLOCK_OCTETS];

    INLINE void take(const float* sums, u32 biases) {
        UNROLLED(i, 2 * BLOCK_OCTETS) {
            const float2 both = biased(sums, biases, i / 2, i % 2);
            v[i] = to_bf16_pair(both.x, both.y);
        }
    }
};

// Maxima of two rows of y: first of both rows, then of neighbouring columns, which neighbouring lanes
// have, each of which finishes one group of columns. Of equal ones the first place is taken.
INLINE void finish(const Pairs& upper, const float* sums, u32 biases, u32 out, int window, int row,
                   int first_filter, T* y, u8* places, int n, float alpha) {
    constexpr int words = parts(BLOCK_OCTETS, 8);
    const u32 thread = thread_of_warpgroup(), lane = thread % 32;
    const bool odd = lane / 4 % 2;
    // Two bits for each octet and filter of a pair: whether the lower row's is larger.
    u32 lower[words][2], best[BLOCK_OCTETS], taps[words];
    Pairs found;
    found.take(sums, biases);
    UNROLLED(k, words) lower[k][0] = lower[k][1] = 0;
    UNROLLED(o, BLOCK_OCTETS)
        UNROLLED(h, 2) {
            const u32 top = upper.v[2 * o + h], low = found.v[2 * o + h];
            lower[o / 8][h] |= pair_above(low, top) & 0x10001 << o % 8 * 2;
            found.v[2 * o + h] = pair_max(top, low);
        }
    UNROLLED(k, words) {
        const u32 own = odd ? lower[k][1] : lower[k][0];
        const u32 other = __shfl_xor_sync(~0u, odd ? lower[k][0] : lower[k][1], 4);
        const u32 left_lower = odd ? other : own, right_lower = odd ? own : other;
        u32 above = 0, equal = 0;
#pragma unroll
        for (int o = 8 * k; o < least(8 * k + 8, BLOCK_OCTETS); ++o) {
            const u32 mine = odd ? found.v[2 * o + 1] : found.v[2 * o];
            const u32 given = __shfl_xor_sync(~0u, odd ? found.v[2 * o] : found.v[2 * o + 1], 4);
            const u32 left = odd ? given : mine, right = odd ? mine : given;
            above |= pair_above(right, left) & 0x10001 << o % 8 * 2;
            equal |= pair_equal(right, left) & 0x10001 << o % 8 * 2;
            best[o] = pair_max(left, right);
            if (ACTIVATION == RELU) best[o] = pair_max(best[o], 0);
            if (ACTIVATION > RELU)
                best[o] = to_bf16_pair(activate(ACTIVATION, get((bfloat)best[o]), alpha),
                                       activate(ACTIVATION, get((bfloat)(best[o] >> 16)), alpha));
        }
        const u32 second = above | (equal & left_lower & ~right_lower);
        taps[k] = ((second & right_lower) | (~second & left_lower)) * 2 | second;
    }
    // Pixels as they lie: lanes of even columns have the first four, of odd ones the others.
    const u32 k = lane % 8, pixel = lane / 8 + 4 * odd;
    __syncwarp();
    many_to_shared<BLOCK_OCTETS>(out + (k % 2 * 4 + k / 2) * OUT_PITCH, 16, best);
    const u32 beside = out + 8 * OUT_PITCH;
    UNROLLED(o, BLOCK_OCTETS) {
        const u32 both = taps[o / 8] >> o % 8 * 2 & 0x30003;
        half_to_shared(beside + pixel * PLACES_PITCH + o * 8 + lane % 4 * 2, both | both >> 8);
    }
    __syncwarp();
    write_out<2>((u8*)y, out, OUT_PITCH, window, row, first_filter, n);
    write_out<1>(places, beside, PLACES_PITCH, window, row, first_filter, n);
}
#else
// A row of y.
INLINE void finish(const float* sums, u32 biases, u32 out, int window, int row, int first_filter, T* y,
                   int n, float alpha) {
    const u32 thread = thread_of_warpgroup(), lane = thread % 32;
    u32 v[2][BLOCK_OCTETS];
    UNROLLED(o, BLOCK_OCTETS)
        UNROLLED(h, 2) {
            float2 both = biased(sums, biases, o, h);
            if (ACTIVATION >= 0) {
                both.x = activate(ACTIVATION, both.x, alpha);
                both.y = activate(ACTIVATION, both.y, alpha);
            }
            v[h][o] = to_bf16_pair(both.x, both.y);
        }
    __syncwarp();
    UNROLLED(h, 2) many_to_shared<BLOCK_OCTETS>(out + (8 * h + lane % 8) * OUT_PITCH, 16, v[h]);
    __syncwarp();
    UNROLLED(k, parts(16 * BLOCK_OCTETS, 32)) {
        const u32 i = lane + 32 * k, pixel = i / BLOCK_OCTETS, part = i % BLOCK_OCTETS;
        const u32 place = window * 64 + thread / 32 * 16 + pixel, filter = first_filter + part * 8;
        const u32 picture = place / PITCH, column = place % PITCH;
        const u32 line = (picture * ROWS + row) * COLUMNS + column;
        if (i < 16 * BLOCK_OCTETS && picture < n && column < COLUMNS && filter < FILTERS)
            out_of_shared<16>(y + (u64)line * FILTERS + filter, out + pixel * OUT_PITCH + part * 16);
    }
}
#endif

// Grid: (blocks that share the rows of y, groups of filters).
KERNEL __launch_bounds__(THREADS, RESIDENT)
    warpgroup_conv(const T* x, const u8* from, const T* mask, const T* w, const float* bias, T* y,
                   u8* places, int n, float alpha) {
    enter();
    const u32 base = shared_begin(), biases = base + BIAS_AT;
    // The same in all lanes, as the compiler can see.
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int first_filter = blockIdx.y * BLOCK_FILTERS;
    const u32 lines = base + LINES_AT + warpgroup * DEPTH * 2 * LINE_BYTES;
    const u32 out = base + OUT_AT + threadIdx.x / 32 * OUT_BYTES;
    const i64 units = (i64)parts((n - 1) * PITCH + COLUMNS, 64) * UNITS;
    const int workers = gridDim.x * WARPGROUPS, worker = blockIdx.x * WARPGROUPS + warpgroup;
    const int first = units * worker / workers, end = units * (worker + 1) / workers;
    fetch_filters(base, w, first_filter);
    OF_BLOCK(i, BLOCK_FILTERS) {
        const float v = bias && first_filter + i < FILTERS ? bias[first_filter + i] : 0.0f;
        word_to_shared(biases + i * 4, __float_as_uint(v));
    }
    if (threadIdx.x == 0) word_to_shared(biases + BLOCK_FILTERS * 4, 0);
    Ahead ahead(first, end, lines);
    Walk now(first, end);
    UNROLLED(i, DEPTH - 1) ahead.bring(x, from, mask, end, n);
    arrived();
    show_products();
    __syncthreads();
    // A zero that no compiler knows takes one instruction to copy, not two.
    const float zero = __uint_as_float(shared_word(biases + BLOCK_FILTERS * 4));
    float sums[4 * OCTETS];
#if POOL
    Pairs upper;
#endif
    int slot = 0;
    u32 line = lines;
    while (now.left) {
        UNROLLED(i, 4 * OCTETS) sums[i] = zero;
        const int rows = now.left, window = now.window, row = now.row + TOP - (KERNEL_H - 1);
#pragma unroll 1
        for (int start = 0; start < rows; start += PERIOD) {
            UNROLLED(k, PERIOD) {
                const int t = start + k;
                if (t >= rows) break;
                if (t == 0 || now.row % 2 == 0) {
                    arrived_but<DEPTH - 2>();
                    show_products();
                    meet(warpgroup);
                    // To where the pair before was, of which no warp needs anything any more.
                    ahead.bring(x, from, mask, end, n);
                    line = lines + slot * (2 * LINE_BYTES);
                    slot = slot + 1 == DEPTH ? 0 : slot + 1;
                }
                if (now.real()) {
                    // Sums of a row of y begin with the first row of the window.
                    const u32 turned = (KERNEL_H - 1 - k % KERNEL_H) * BLOCK_FILTERS * 16;
                    add_line(sums, line + (now.row & 1) * LINE_BYTES, base + turned);
                    products_left<0>();
                    held(sums);
                }
                float* done = sums + (k + 1) % KERNEL_H * 4 * BLOCK_OCTETS;
                if (t >= KERNEL_H - 1) {
#if POOL
                    if ((k + KERNEL_H - 1) % 2 == 0) upper.take(done, biases);
                    else finish(upper, done, biases, out, window, row + t, first_filter, y, places, n,
                                alpha);
#else
                    finish(done, biases, out, window, row + t, first_filter, y, n, alpha);
#endif
                }
                UNROLLED(i, 4 * BLOCK_OCTETS) done[i] = zero;
                now.next(end);
            }
        }
    }
    arrived();
}
