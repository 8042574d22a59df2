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
// A block has WARPGROUPS, each with DEPTH rows of x at once, all but one of which are on their way.
// RESIDENT blocks run on a processor. The rows of y, or pairs of them, are shared out evenly.

#define TAPS (KERNEL_H * KERNEL_W)
#define THREADS (128 * WARPGROUPS)
#define BLOCK_FILTERS (8 * BLOCK_OCTETS)
#define CHUNKS (CHANNELS / CHUNK)
// Products of a row, each of two chunks of one or two taps.
#define STEPS parts(KERNEL_W * CHUNKS, 2)
#define OCTETS (KERNEL_H * BLOCK_OCTETS)
#define RIGHT (COLUMNS + KERNEL_W - 1 - LEFT - WIDTH)
#define EVEN (POOL || FROM_POOL ? 2 : 1)
#define PITCH (parts(WIDTH + most(LEFT, RIGHT), EVEN) * EVEN)
// Rows of x that are not zero: windows of 2 by 2 leave the last of an odd number.
#define FILLED (FROM_POOL ? HEIGHT / 2 * 2 : HEIGHT)
// Rows of y that are shared out together, and how many of these there are.
#define TOGETHER (POOL ? 2 : 1)
#define UNITS (ROWS / TOGETHER)
// After so many rows sums are where they were, and pairs begin.
#define PERIOD (POOL && KERNEL_H % 2 ? 2 * KERNEL_H : KERNEL_H)

// Pixels of a row in shared memory, chunk by chunk: so far apart, in bytes, that chunks which lie side
// by side in memory are written to different banks.
#define LINE (64 + KERNEL_W - 1)
__host__ __device__ constexpr int plane() {
    int units = LINE;
    while (units % 8 != (CHUNKS % 2 ? CHUNKS % 8 : most(1, 8 / CHUNKS))) ++units;
    return units * 16;
}
// Shared memory: filters by half steps, biases, rows of x.
#define HALF_ROWS ((2 * KERNEL_H - 1) * BLOCK_FILTERS)
#define HALF_BYTES (HALF_ROWS * 16)
#define BIAS_AT (2 * STEPS * HALF_BYTES)
#define LINES_AT (BIAS_AT + BLOCK_FILTERS * 4)
#define LINE_BYTES (CHUNKS * plane())
#define SHARED_BYTES (LINES_AT + WARPGROUPS * DEPTH * LINE_BYTES)

static_assert(BFLOAT && CHANNELS % CHUNK == 0 && FILTERS % 8 == 0 && OCTETS <= 32 && DEPTH > 1);
static_assert(KERNEL_W * CHUNKS > 1 && UNITS > 0);

// Half of a step: a chunk of a tap in the window's row. An odd one is alone, behind another whose filters
// are zeros then.
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

// A row of x at 64 columns and what the window sees beside them; all pixels but those of pictures are
// zeros.
#if FROM_POOL
INLINE void fetch_line(u32 to, const T* dy, const u8* from, const T* mask, int window, int row, int n) {
    // Pairs of pixels, the first of which is at an even column.
    constexpr int odd = LEFT % 2, pieces = parts(LINE + odd, 2) * CHUNKS, each = parts(pieces, 128);
    const int thread = thread_of_warpgroup();
    Spread spread[each];
    UNROLLED(k, each) {
        const int i = thread + k * 128;
        if (i >= pieces) continue;
        const int place = window * 64 + i / CHUNKS * 2 - odd + PITCH, picture = place / PITCH - 1;
        const int column = place % PITCH - LEFT;
        const bool exists = picture >= 0 && picture < n && column >= 0 && column < WIDTH / 2 * 2;
        const i64 pixel = ((i64)picture * (HEIGHT / 2) + row / 2) * (WIDTH / 2) + column / 2;
        spread[k] = Spread(dy, from, mask, pixel, i % CHUNKS * CHUNK, exists);
    }
    UNROLLED(k, each) {
        const int i = thread + k * 128, place = i / CHUNKS * 2 - odd;
        if (i >= pieces) continue;
        const u32 at = to + i % CHUNKS * plane() + place * 16;
        if (place >= 0) to_shared(at, spread[k].at(row % 2 * 2));
        if (place + 1 < LINE) to_shared(at + 16, spread[k].at(row % 2 * 2 + 1));
    }
}
#else
INLINE void fetch_line(u32 to, const T* x, const u8*, const T*, int window, int row, int n) {
    const int thread = thread_of_warpgroup();
    UNROLLED(k, parts(LINE * CHUNKS, 128)) {
        const int i = thread + k * 128, place = window * 64 + i / CHUNKS;
        if (i >= LINE * CHUNKS) continue;
        const int picture = place / PITCH, column = place % PITCH - LEFT;
        const bool exists = picture < n && column >= 0 && column < WIDTH;
        const i64 from = (((i64)picture * HEIGHT + row) * WIDTH + column) * CHUNKS + i % CHUNKS;
        fetch(to + i % CHUNKS * plane() + i / CHUNKS * 16, exists ? x + from * CHUNK : x, exists);
    }
}
#endif

// Rows of x, one after the other, for the units from `unit` on: t of `rows` that its window needs.
struct Walk {
    int unit, rows = 0, t = 0;

    INLINE Walk(int unit, int end) : unit(unit) { begin(end); }
    INLINE void begin(int end) {
        const int count = least(end - unit, UNITS - unit % UNITS);
        rows = count > 0 ? count * TOGETHER + KERNEL_H - 1 : 0, t = 0;
    }
    INLINE int window() const { return unit / UNITS; }
    // The first row of y, and the row of x that is next.
    INLINE int first() const { return unit % UNITS * TOGETHER; }
    INLINE int row() const { return first() - TOP + t; }
    INLINE bool real() const { return row() >= 0 && row() < FILLED; }
    INLINE void next(int end) {
        if (++t == rows) unit += (rows - (KERNEL_H - 1)) / TOGETHER, begin(end);
    }
};

// A row of x, at `line`: products with filters that begin with those of one row of the window.
INLINE void add_line(float (&sums)[4 * OCTETS], u32 line, u32 filters) {
    begin_products();
    UNROLLED(q, STEPS) {
        const int at = half_of(q, 0).at();
        const u32 half = filters + 2 * q * HALF_BYTES;
        const u64 b = DATA ? by_columns(half, HALF_BYTES, 128) : by_rows(half, HALF_BYTES, 128);
        const u64 a = by_rows(line + at, half_of(q, 1).at() - at, 128);
        Products<OCTETS>::template by_memory<true, false, DATA>(sums, a, b);
    }
    end_products();
}

INLINE float ended(float v, float bias, float alpha) {
    v += bias;
    return ACTIVATION >= 0 ? activate(ACTIVATION, v, alpha) : v;
}

#if POOL
// A NaN counts as larger than any number, and the first one wins.
INLINE void take(float value, u32 tap, float& best, u32& chosen) {
    if (!(value <= best) && best == best) best = value, chosen = tap;
}

// The larger of neighbouring columns, which neighbouring lanes have: of a thread's two groups of columns
// each lane finishes one. tap: which it was.
INLINE float across(float upper, float lower, u32& tap) {
    const bool odd = threadIdx.x / 4 % 2;
    const float own = odd ? lower : upper, other = __shfl_xor_sync(~0u, odd ? upper : lower, 4);
    float left = odd ? other : own;
    tap = 0;
    take(odd ? own : other, 1, left, tap);
    return left;
}

// Of a row of y those maxima: of filter 8 o + 2 (lane % 4) + e number 2 o + e, with two bits of `taps`.
struct Maxima {
    float best[2 * BLOCK_OCTETS];
    u32 taps[parts(BLOCK_OCTETS, 8)];

    INLINE void find(const float* sums) {
        UNROLLED(k, parts(BLOCK_OCTETS, 8)) taps[k] = 0;
        UNROLLED(o, BLOCK_OCTETS)
            UNROLLED(e, 2) {
                u32 tap;
                best[2 * o + e] = across(sums[4 * o + e], sums[4 * o + 2 + e], tap);
                taps[o / 8] |= tap << shift(o, e);
            }
    }
    INLINE u32 tap(int o, int e) const { return taps[o / 8] >> shift(o, e) & 3; }
    static INLINE int shift(int o, int e) { return o % 8 * 4 + 2 * e; }
};

// A pair of rows of y: the sums of the second, the maxima of the first.
INLINE void finish(const float* sums, const Maxima& before, int window, int row, int first_filter,
                   u32 biases, T* y, u8* places, int n, float alpha) {
    const int thread = thread_of_warpgroup(), lane = thread % 32, odd = lane / 4 % 2;
    const int place = window * 64 + thread / 32 * 16 + 8 * odd + lane / 4 - odd;
    const int picture = place / PITCH, column = place % PITCH / 2;
    const bool exists = picture < n && column < COLUMNS / 2;
    const i64 pixel = ((i64)picture * (ROWS / 2) + row / 2) * (COLUMNS / 2) + column;
    UNROLLED(o, BLOCK_OCTETS) {
        const int filter = first_filter + 8 * o + lane % 4 * 2;
        const float2 bias = shared_pair(biases + (8 * o + lane % 4 * 2) * 4);
        float v[2];
        u32 chosen[2];
        UNROLLED(e, 2) {
            u32 tap;
            const float value = across(sums[4 * o + e], sums[4 * o + 2 + e], tap);
            v[e] = before.best[2 * o + e], chosen[e] = before.tap(o, e);
            take(value, 2 + tap, v[e], chosen[e]);
            v[e] = ended(v[e], e ? bias.y : bias.x, alpha);
        }
        if (!exists || filter >= POOLED) continue;
        const i64 at = pixel * POOLED + filter;
        if (POOLED % 2 == 0) {
            put2(y + at, v[0], v[1]);
            *(unsigned short*)(places + at) = chosen[0] | chosen[1] << 8;
        } else {
            UNROLLED(e, 2)
                if (filter + e < POOLED) put(y + at + e, v[e]), places[at + e] = chosen[e];
        }
    }
}
#else
// A row of y.
INLINE void finish(const float* sums, int window, int row, int first_filter, u32 biases, T* y, int n,
                   float alpha) {
    const int thread = thread_of_warpgroup(), lane = thread % 32;
    UNROLLED(h, 2) {
        const int place = window * 64 + thread / 32 * 16 + 8 * h + lane / 4;
        const int picture = place / PITCH, column = place % PITCH;
        if (picture >= n || column >= COLUMNS) continue;
        T* to = y + (((i64)picture * ROWS + row) * COLUMNS + column) * FILTERS;
        UNROLLED(o, BLOCK_OCTETS) {
            const int filter = first_filter + 8 * o + lane % 4 * 2;
            if (filter >= FILTERS) continue;
            const float2 bias = shared_pair(biases + (8 * o + lane % 4 * 2) * 4);
            put2(to + filter, ended(sums[4 * o + 2 * h], bias.x, alpha),
                 ended(sums[4 * o + 2 * h + 1], bias.y, alpha));
        }
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
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), first_filter = blockIdx.y * BLOCK_FILTERS;
    const u32 lines = base + LINES_AT + warpgroup * DEPTH * LINE_BYTES;
    const i64 units = (i64)parts((n - 1) * PITCH + COLUMNS, 64) * UNITS;
    const int workers = gridDim.x * WARPGROUPS, worker = blockIdx.x * WARPGROUPS + warpgroup;
    const int first = units * worker / workers, end = units * (worker + 1) / workers;
    fetch_filters(base, w, first_filter);
    OF_BLOCK(i, BLOCK_FILTERS) {
        const float v = bias && first_filter + i < FILTERS ? bias[first_filter + i] : 0.0f;
        word_to_shared(biases + i * 4, __float_as_uint(v));
    }
    Walk ahead(first, end), now(first, end);
    const auto fetch_next = [&](u32 to) {
        if (ahead.rows) {
            if (ahead.real()) fetch_line(to, x, from, mask, ahead.window(), ahead.row(), n);
            ahead.next(end);
        }
        fetched();
    };
    for (int i = 0; i < DEPTH - 1; ++i) fetch_next(lines + i * LINE_BYTES);
    int slot = 0;
    arrived();
    show_products();
    __syncthreads();
    float sums[4 * OCTETS];
#if POOL
    Maxima before;
#endif
    while (now.rows) {
        UNROLLED(i, 4 * OCTETS) sums[i] = 0.0f;
        const int rows = now.rows, window = now.window(), row = now.first() - (KERNEL_H - 1);
#pragma unroll 1
        for (int start = 0; start < rows; start += PERIOD) {
            UNROLLED(k, PERIOD) {
                const int t = start + k;
                if (t >= rows) break;
                arrived_but<DEPTH - 2>();
                show_products();
                meet(warpgroup);
                const bool real = now.real();
                // Sums of a row of y begin with the first row of the window.
                const u32 turned = (KERNEL_H - 1 - k % KERNEL_H) * BLOCK_FILTERS * 16;
                // Where the row before was, of which no warp needs anything any more.
                fetch_next(lines + (slot ? slot - 1 : DEPTH - 1) * LINE_BYTES);
                if (real) {
                    add_line(sums, lines + slot * LINE_BYTES, base + turned);
                    products_left<0>();
                    held(sums);
                }
                float* ready = sums + (k + 1) % KERNEL_H * 4 * BLOCK_OCTETS;
                if (t >= KERNEL_H - 1) {
#if POOL
                    if ((k + KERNEL_H - 1) % 2 == 0) before.find(ready);
                    else finish(ready, before, window, row + t, first_filter, biases, y, places, n, alpha);
#else
                    finish(ready, window, row + t, first_filter, biases, y, n, alpha);
#endif
                }
                UNROLLED(i, 4 * BLOCK_OCTETS) ready[i] = 0.0f;
                slot = slot + 1 == DEPTH ? 0 : slot + 1;
                now.next(end);
            }
        }
    }
    arrived();
}
