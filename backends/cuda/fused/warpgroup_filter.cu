// The gradients of the filters and biases of a convolution of stride 1 by products of warpgroups, for
// few channels, in bfloat16: what tensor_filter.cu computes, compiled for the same geometry.
//
// The depth of a product are 16 pixels of dy: two octets beside each other or, if a row has an odd
// number of these, one below the other. Its 64 rows are filters, which come from registers; its
// columns are channels of the x that as many rows of the window see, so that the rows of x lie as far
// apart in shared memory as all their chunks take. Columns of the window are pixels, 16 bytes, apart.
//
// LINES of dy, as it lies in memory, of PICTURES are a tile. A team has one at once, and DEPTH - 1 on
// their way: its warpgroups have TAP_COLUMNS of the window each. A block has TEAMS, and OCTETS times
// eight channels. RESIDENT blocks run on a processor.

#define TAPS (KERNEL_H * KERNEL_W)
#define TAP_GROUPS parts(KERNEL_W, TAP_COLUMNS)
#define TEAM (128 * TAP_GROUPS)
#define THREADS (TEAMS * TEAM)
#define BLOCK_FILTERS 64
#define BLOCK_CHUNKS (BLOCK_FILTERS / CHUNK)
#define BLOCK_CHANNELS (8 * OCTETS)
// Columns of a product, in octets.
#define SEEN (KERNEL_H * OCTETS)
// Rows, and columns, of dy that one in memory gives, and those in memory.
#define EVEN (FROM_POOL ? 2 : 1)
#define DY_ROWS (ROWS / EVEN)
#define DY_COLUMNS (COLUMNS / EVEN)
#define BANDS parts(DY_ROWS, LINES)
#define TALL (LINES * EVEN + KERNEL_H - 1)
// Octets of a row, whether a product has two of different rows, and products across and in all.
#define ACROSS parts(COLUMNS, 8)
#define DOWN (ACROSS % 2)
#define STEPS (DOWN ? ACROSS : ACROSS / 2)
#define UNITS (PICTURES * LINES / (DOWN ? 2 : 1) * STEPS)

// In bytes: a chunk of a row of x, so that those side by side in memory lie in different banks; a row.
__host__ __device__ constexpr int plane() {
    int units = 8 * ACROSS + TAP_GROUPS * TAP_COLUMNS - 1;
    while (units % 8 != (OCTETS % 2 ? OCTETS % 8 : most(1, 8 / OCTETS))) ++units;
    return units * 16;
}
#define X_ROW (OCTETS * plane())
// A pixel of dy; with FROM_POOL what to do with its numbers lies behind them. An odd number of chunks.
#define PIXEL pixel_bytes(EVEN)
#define DY_OCTET (8 / EVEN * PIXEL)
#define DY_ROW (ACROSS * DY_OCTET)
__host__ __device__ constexpr int pixel_bytes(int even) { return (BLOCK_CHUNKS * even + 1) * 16; }
__host__ __device__ constexpr int x_bytes(int even) {
    return PICTURES * (LINES * even + KERNEL_H - 1) * X_ROW;
}
__host__ __device__ constexpr int stage_bytes(int even) {
    return x_bytes(even) + PICTURES * LINES * ACROSS * (8 / even) * pixel_bytes(even);
}
#define X_BYTES x_bytes(EVEN)
#define STAGE_BYTES stage_bytes(EVEN)
// At the end sums of the teams, as slices have them. As much as the kernel needs with FROM_POOL or
// without.
#define SUM_BYTES (BLOCK_FILTERS * (TAPS * BLOCK_CHANNELS + 1) * 4)
#define SHARED_BYTES (TEAMS * most(DEPTH * most(stage_bytes(1), stage_bytes(2)), SUM_BYTES))

static_assert(BFLOAT && CHANNELS % CHUNK == 0 && FILTERS % 8 == 0 && SEEN <= 32 && DEPTH > 1);
static_assert(!DOWN || LINES % 2 == 0);

// Threads of a team that share a row of so many chunks; as many rows as there is room for are copied
// at once, so that a thread has the same place in all of its rows.
__host__ __device__ constexpr int seats(int run) {
    int count = 1;
    while (count < run && count < 32) count *= 2;
    return least(TEAM, count < 32 ? count : parts(run, 32) * 32);
}
INLINE int thread_of_team() { return TEAMS == 1 ? threadIdx.x : threadIdx.x % TEAM; }

// Rows and columns that do not exist are not read, wherever they would be.
INLINE void fetch_x(u32 to, const T* x, int group, int n, int channel) {
    constexpr int run = WIDTH * OCTETS, wide = seats(run), at_once = TEAM / wide;
    const int first = group / BANDS * PICTURES, top = group % BANDS * LINES * EVEN - TOP;
    const int thread = thread_of_team(), row = thread / wide;
    if (row >= at_once) return;
    UNROLLED(pass, parts(run, wide)) {
        const int place = thread % wide + pass * wide, column = place / OCTETS;
        const int c = channel + place % OCTETS * CHUNK;
        if (place >= run) continue;
        const u32 at = to + row * X_ROW + place % OCTETS * plane() + (LEFT + column) * 16;
        const T* from = x + (((i64)first * HEIGHT + top + row) * WIDTH + column) * CHANNELS + c;
        UNROLLED(p, PICTURES)
            UNROLLED(k, parts(TALL, at_once)) {
                const int line = row + k * at_once, y = top + line;
                if (line >= TALL) continue;
                const bool exists = first + p < n && y >= 0 && y < HEIGHT && c < CHANNELS;
                fetch(at + (p * TALL + k * at_once) * X_ROW,
                      from + (p * HEIGHT + k * at_once) * (WIDTH * CHANNELS), exists);
            }
    }
}

// f(number, where in shared memory, pixel, filter, whether there is one) for a thread's chunks of dy.
#define DY_RUN (DY_COLUMNS * BLOCK_CHUNKS)
#define DY_WIDE seats(DY_RUN)
#define DY_TURNS parts(LINES, TEAM / DY_WIDE)
#define DY_CHUNKS (parts(DY_RUN, DY_WIDE) * PICTURES * DY_TURNS)
template <typename F>
INLINE void each_chunk(u32 to, int group, int n, int filter, F f) {
    constexpr int at_once = TEAM / DY_WIDE;
    const int first = group / BANDS * PICTURES, low = group % BANDS * LINES;
    const int thread = thread_of_team(), row = thread / DY_WIDE;
    UNROLLED(pass, parts(DY_RUN, DY_WIDE)) {
        const int place = thread % DY_WIDE + pass * DY_WIDE, chunk = place % BLOCK_CHUNKS;
        const int column = place / BLOCK_CHUNKS;
        const i64 pixel = ((i64)first * DY_ROWS + low + row) * DY_COLUMNS + column;
        const u32 at = to + row * DY_ROW + column * PIXEL + chunk * 16;
        UNROLLED(p, PICTURES)
            UNROLLED(t, DY_TURNS) {
                const int line = row + t * at_once;
                if (row >= at_once || place >= DY_RUN || line >= LINES) continue;
                f((pass * PICTURES + p) * DY_TURNS + t, at + (p * LINES + t * at_once) * DY_ROW,
                  pixel + (p * DY_ROWS + t * at_once) * DY_COLUMNS, filter + chunk * CHUNK,
                  first + p < n && low + line < DY_ROWS);
            }
    }
}

#if FROM_POOL
// Bytes of both words by the last one's half bytes, which are below 8.
INLINE u32 permuted(u32 a, u32 b, u32 how) {
#if defined(__CUDA_ARCH__)
    u32 v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(how));
    return v;
#else
    return __byte_perm(a, b, how);
#endif
}

// Where maxima were, as `permuted` takes it to place a maximum, in the lower half of a word, among
// both columns of a row of its window: before zero for the upper row, behind it for the lower. Four
// of `places`; 4 is nowhere.
INLINE void selectors(u32 places, u32* both) {
    const u32 packed = permuted(places | places >> 4, 0, 0x4420);
    const u32 low = permuted(0x22542210, 0x22222222, packed);
    const u32 high = permuted(0x54221022, 0x22222222, packed);
    both[0] = permuted(low, high, 0x5140), both[1] = permuted(low, high, 0x7362);
}

// Maxima's gradients are on their way to shared memory when their places are in registers.
struct Places {
    u32 chunks[DY_CHUNKS][2];

    INLINE void ask(u32 to, const T* dy, const u8* from, const T* mask, int group, int n, int filter) {
#if POOLED % CHUNK
        each_chunk(to, group, n, filter, [&](int k, u32 at, i64 pixel, int f, bool exists) {
            const Spread all(dy, from, mask, pixel, f, exists);
            u32 v[4];
            UNROLLED(q, 4) v[q] = all.v[2 * q] | (u32)all.v[2 * q + 1] << 16;
            to_shared(at, make_uint4(v[0], v[1], v[2], v[3]));
            UNROLLED(q, 2) chunks[k][q] = all.taps[2 * q] | all.taps[2 * q + 1] << 16;
        });
#else
        each_chunk(to, group, n, filter, [&](int k, u32 at, i64 pixel, int f, bool exists) {
            exists = exists && f < POOLED;
            fetch(at, dy + pixel * POOLED + f, exists);
            load_words<2>(chunks[k], from + pixel * POOLED + f, exists);
        });
        if (!mask) return;
        u32 maxima[DY_CHUNKS][4];
        each_chunk(to, group, n, filter, [&](int k, u32, i64 pixel, int f, bool exists) {
            load_words<4>(maxima[k], mask + pixel * POOLED + f, exists && f < POOLED);
        });
        // A ReLU lets nothing pass but where it is larger than zero.
        each_chunk(to, group, n, filter, [&](int k, u32, i64, int, bool) {
            UNROLLED(e, 8) {
                const u32 at = e % 4 * 8, v = maxima[k][e / 2];
                const bool passes = __uint_as_float(e % 2 ? v & 0xffff0000u : v << 16) > 0.0f;
                if (!passes) chunks[k][e / 4] = chunks[k][e / 4] & ~(7u << at) | 4u << at;
            }
        });
#endif
    }
    INLINE void store(u32 to, int group, int n, int filter) {
        each_chunk(to, group, n, filter, [&](int k, u32 at, i64, int, bool) {
            u32 v[4];
            UNROLLED(q, 2) selectors(chunks[k][q], v + 2 * q);
            to_shared(at + BLOCK_CHUNKS * 16, make_uint4(v[0], v[1], v[2], v[3]));
        });
    }
};
#else
struct Places {
    INLINE void ask(u32 to, const T* dy, const u8*, const T*, int group, int n, int filter) {
        each_chunk(to, group, n, filter, [&](int, u32 at, i64 pixel, int f, bool exists) {
            fetch(at, dy + pixel * FILTERS + f, exists && f < FILTERS);
        });
    }
    INLINE void store(u32, int, int, int) {}
};
#endif

// From one half of a product's depth to the other.
#define DY_HALF (DOWN ? DY_ROW : DY_OCTET)
#define X_HALF (DOWN ? EVEN * X_ROW : 128)

// Of what `matrices` reads of the first product, what this lane brings: with FROM_POOL the numbers of
// both octets of a warp's filters, then what to do with them; else those of both halves.
INLINE u32 lane_part() {
    const int thread = thread_of_warpgroup(), lane = thread % 32, m = lane / 8, k = lane % 8;
    const u32 octet = (thread / 32 * 2 + m % 2) * 16;
    if (FROM_POOL) return octet + m / 2 * BLOCK_CHUNKS * 16 + k % 2 * DY_HALF + k / 2 * PIXEL;
    return octet + m / 2 * DY_HALF + k * PIXEL;
}
// Where unit i has its dy and its x in a tile.
INLINE u32 dy_of(int i) {
    return i / STEPS * (DOWN ? 2 : 1) * DY_ROW + i % STEPS * (DOWN ? 1 : 2) * DY_OCTET;
}
INLINE u32 x_of(int i) {
    const int line = i / STEPS * (DOWN ? 2 : 1);
    return (line / LINES * TALL + line % LINES * EVEN) * X_ROW + i % STEPS * (DOWN ? 1 : 2) * 128;
}

#if FROM_POOL
// The filters' operands for both rows of dy.
INLINE void expand(const u32* raw, u32 (&a)[2][4]) {
    UNROLLED(h, 2)
        UNROLLED(half, 2) {
            const u32 v = half ? raw[h] >> 16 : raw[h] & 0xffffu;
            const u32 how = half ? raw[2 + h] >> 16 : raw[2 + h];
            a[0][h + 2 * half] = permuted(v, 0, how);
            a[1][h + 2 * half] = permuted(0, v, how);
        }
}
#endif

// The sum of what they have of a filter at two columns.
INLINE float of_pair(const u32 (&a)[EVEN][4], int k) {
#if FROM_POOL
    // One of the window's four is not zero.
    const u32 v = a[0][k] | a[1][k];
    return __uint_as_float(v << 16 | v & 0xffff0000u);
#else
    return __uint_as_float(a[0][k] << 16) + __uint_as_float(a[0][k] & 0xffff0000u);
#endif
}

// Grid: (slices, groups of filters, groups of channels). slices: as of tensor_filter.cu.
KERNEL __launch_bounds__(THREADS, RESIDENT)
    warpgroup_filter(const T* x, const T* dy, const u8* from, const T* mask, float* slices, i64 stride,
                     int n) {
    enter();
    const u32 base = shared_begin();
    // The same in all lanes, as the compiler can see.
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int team = warpgroup / TAP_GROUPS, tap_group = warpgroup % TAP_GROUPS;
    const int first_filter = blockIdx.y * BLOCK_FILTERS, first_channel = blockIdx.z * BLOCK_CHANNELS;
    const int groups = parts(n, PICTURES) * BANDS, step = gridDim.x * TEAMS;
    const u32 stages = base + team * DEPTH * STAGE_BYTES, lane_at = lane_part();
    const bool with_biases = BIAS && tap_group == 0 && blockIdx.z == 0;
    // Zeros beside the pictures, where no copy comes.
    OF_BLOCK(i, SHARED_BYTES / 16) to_shared(base + i * 16, make_uint4(0, 0, 0, 0));
    // Of other teams nobody waits for more.
    show_products();
    __syncthreads();
    float sums[TAP_COLUMNS][4 * SEEN];
    float biases[2] = {0.0f, 0.0f};
    UNROLLED(s, TAP_COLUMNS)
        UNROLLED(i, 4 * SEEN) sums[s][i] = 0.0f;
    Places places;
    const auto ask = [&](u32 stage, int group) {
        if (group < groups) {
            fetch_x(stage, x, group, n, first_channel);
            places.ask(stage + X_BYTES, dy, from, mask, group, n, first_filter);
        }
        fetched();
    };
    const auto store = [&](u32 stage, int group) {
        if (group < groups) places.store(stage + X_BYTES, group, n, first_filter);
    };
    int group = blockIdx.x * TEAMS + team, slot = 0;
#pragma unroll 1
    for (int i = 0; i < DEPTH - 1; ++i) {
        ask(stages + i * STAGE_BYTES, group + i * step);
        store(stages + i * STAGE_BYTES, group + i * step);
    }
#pragma unroll 1
    for (; group < groups; group += step) {
        const u32 xs = stages + slot * STAGE_BYTES, ds = xs + X_BYTES + lane_at;
        const u64 first = by_columns(xs + tap_group * TAP_COLUMNS * 16, X_HALF, plane());
        // Where the tile before was, of which no warp needs anything behind the barrier.
        const u32 free = stages + (slot ? slot - 1 : DEPTH - 1) * STAGE_BYTES;
        arrived_but<DEPTH - 2>();
        show_products();
        meet_team<TAP_GROUPS>(team);
        ask(free, group + (DEPTH - 1) * step);
        // One group of products is on its way while the next one's operands are made.
        u32 raw[4], a[2][EVEN][4];
        if (FROM_POOL) matrices<4, true>(raw, ds);
#pragma unroll (UNITS <= 12 ? 6 : 1)
        for (int start = 0; start < UNITS; start += 2)
            UNROLLED(j, 2) {
                const int i = start + j;
                if (i >= UNITS) break;
#if FROM_POOL
                expand(raw, a[j]);
#else
                matrices<4, true>(a[j][0], ds + dy_of(i));
#endif
                if (with_biases) UNROLLED(k, 4) biases[k % 2] += of_pair(a[j], k);
                begin_products();
                UNROLLED(row, EVEN)
                    UNROLLED(s, TAP_COLUMNS) {
                        const u64 b = behind(first, x_of(i) + row * X_ROW + s * 16);
                        Products<SEEN>::template by_registers<true, true>(sums[s], a[j][row], b);
                    }
                end_products();
                if (FROM_POOL) matrices<4, true>(raw, ds + dy_of(i + 1 < UNITS ? i + 1 : 0));
                products_left<1>();
            }
        products_left<0>();
        UNROLLED(s, TAP_COLUMNS) held(sums[s]);
        store(free, group + (DEPTH - 1) * step);
        slot = slot + 1 == DEPTH ? 0 : slot + 1;
    }
    arrived();
    __syncthreads();
    // The teams' sums meet in shared memory.
    const int thread = thread_of_warpgroup(), lane = thread % 32, filter = thread / 32 * 16 + lane / 4;
    const u32 own = base + team * SUM_BYTES;
    const auto place = [](int f, int tap, int c) {
        return ((f * TAPS + tap) * BLOCK_CHANNELS + c) * 4;
    };
    UNROLLED(s, TAP_COLUMNS) {
        const int column = tap_group * TAP_COLUMNS + s;
        if (column < KERNEL_W)
            UNROLLED(o, SEEN)
                UNROLLED(h, 2)
                    to_shared(own + place(filter + 8 * h, o / OCTETS * KERNEL_W + column,
                                          o % OCTETS * 8 + lane % 4 * 2),
                              sums[s][4 * o + 2 * h], sums[s][4 * o + 2 * h + 1]);
    }
    UNROLLED(h, 2) {
        biases[h] += __shfl_xor_sync(~0u, biases[h], 1);
        biases[h] += __shfl_xor_sync(~0u, biases[h], 2);
        if (with_biases && lane % 4 == 0)
            word_to_shared(own + place(BLOCK_FILTERS, 0, filter + 8 * h), __float_as_uint(biases[h]));
    }
    __syncthreads();
    const auto total = [&](u32 at) {
        float2 sum = shared_pair(base + at);
        UNROLLED(k, TEAMS - 1) {
            const float2 more = shared_pair(base + (k + 1) * SUM_BYTES + at);
            sum.x += more.x, sum.y += more.y;
        }
        return sum;
    };
    float* slice = slices + blockIdx.x * stride;
    const int pairs = BLOCK_CHANNELS / 2;
    OF_BLOCK(i, BLOCK_FILTERS * TAPS * pairs) {
        const int f = first_filter + i / (TAPS * pairs), c = first_channel + i % pairs * 2;
        if (f >= FILTERS || c >= CHANNELS) continue;
        const float2 v = total(i * 8);
        put2(slice + ((i64)f * TAPS + i / pairs % TAPS) * CHANNELS + c, v.x, v.y);
    }
    if (BIAS && blockIdx.z == 0)
        OF_BLOCK(i, BLOCK_FILTERS / 2) {
            const int f = first_filter + 2 * i;
            if (f >= FILTERS) continue;
            const float2 v = total(place(BLOCK_FILTERS, 0, 2 * i));
            put2(slice + (i64)FILTERS * TAPS * CHANNELS + f, v.x, v.y);
        }
}
