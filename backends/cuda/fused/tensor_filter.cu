// The gradients of the filters and biases of a convolution of stride 1 on tensor cores, for few
// channels. The depth of a product are rows of pictures at one column: a column of dy meets the
// columns of x that the taps of a row of the window see, and the sums of all taps stay in registers.
//
// Compiled for one geometry: CHANNELS, HEIGHT, WIDTH of x, FILTERS, ROWS, COLUMNS of dy (channels as
// stored), KERNEL_H, KERNEL_W, TOP, LEFT (padding), BIAS; FROM_POOL, STRIDED, POOLED: of dy, as in
// tensor_conv.cu. SLOPE: the activation, or -1, of whose output dy is; `mask`: what its slope is of.
//
// And for one tiling: a block has PICTURES pictures and BAND rows of dy at once, BLOCK_SIXTEENS times
// sixteen filters and BLOCK_OCTETS times eight channels; a warp SIXTEENS and OCTETS of these, TAP_ROWS
// rows of the window, ACROSS columns of dy at once. SPLIT warps share the rows and columns of a tile.
// AHEAD: the next tile is loaded ahead. RESIDENT blocks run on a processor.

#define TAPS (KERNEL_H * KERNEL_W)
// Rows of a product's depth.
#define DEPTH (BFLOAT ? 16 : 8)
#define TAP_GROUPS parts(KERNEL_H, TAP_ROWS)
#define FILTER_UNITS (BLOCK_SIXTEENS / SIXTEENS)
#define CHANNEL_UNITS (BLOCK_OCTETS / OCTETS)
#define UNITS (FILTER_UNITS * CHANNEL_UNITS * TAP_GROUPS)
#define THREADS (32 * UNITS * SPLIT)
#define BLOCK_FILTERS (16 * BLOCK_SIXTEENS)
#define BLOCK_CHANNELS (8 * BLOCK_OCTETS)
#define BANDS parts(ROWS, BAND)
#define TURNS_ACROSS parts(COLUMNS, ACROSS)
#define TALL least(HEIGHT, BAND + KERNEL_H - 1)
#define WIDE_DY (TURNS_ACROSS * ACROSS)
#define WIDE_X (WIDE_DY + KERNEL_W - 1)
// Columns of dy that are written: windows of 2 by 2 leave the last of an odd number.
#define FILLED (FROM_POOL ? COLUMNS / 2 * 2 : COLUMNS)
// In numbers: a row in shared memory, so that neighbouring rows lie in different banks.
__host__ __device__ constexpr int row_pitch(int pitch) {
    while (BFLOAT ? pitch / 8 % 2 == 0 : pitch % 32 != 8 && pitch % 32 != 24) pitch += CHUNK;
    return pitch;
}
#define X_PITCH row_pitch(WIDE_X * BLOCK_CHANNELS)
#define DY_PITCH row_pitch(WIDE_DY * BLOCK_FILTERS)
#define DEPTHS parts(PICTURES * BAND, DEPTH)

// Shared memory: a row of zeros, then the tiles of x, then those of dy; at the end, in their place,
// the sums of the warps that share a tile.
#define X_AT (most(X_PITCH, DY_PITCH) * ITEM)
#define X_BYTES (PICTURES * TALL * X_PITCH * ITEM)
#define DY_AT (X_AT + (AHEAD ? 2 : 1) * X_BYTES)
#define DY_BYTES (PICTURES * BAND * DY_PITCH * ITEM)
#define SUM_BYTES (UNITS * TAP_ROWS * KERNEL_W * SIXTEENS * OCTETS * 512 + BLOCK_FILTERS * 4)
#define SHARED_BYTES \
    most(DY_AT + (AHEAD ? 2 : 1) * DY_BYTES, SPLIT > 1 ? SPLIT * SUM_BYTES : 0)

static_assert(FILTERS % 8 == 0 && BLOCK_SIXTEENS % SIXTEENS == 0 && BLOCK_OCTETS % OCTETS == 0);

INLINE int first_row(int band) {
    return most(0, least(band * BAND - TOP, HEIGHT - TALL));
}

// Zeros: the row of them, and beside the pictures, where no copy comes.
INLINE void clear(u32 at, int rows, int pitch, int left, int inner, int wide) {
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const int beside = most(1, (wide - inner) / CHUNK);
    OF_BLOCK(i, wide == inner ? 0 : rows * beside) {
        const int place = i % beside * CHUNK;
        to_shared(at + (i / beside * pitch + place + (place < left ? 0 : inner)) * ITEM, zero);
    }
}
INLINE void clear_edges(u32 base) {
    OF_BLOCK(i, X_AT / 16) to_shared(base + i * 16, make_uint4(0, 0, 0, 0));
    const int tiles = AHEAD ? 2 : 1;
    clear(base + X_AT, tiles * PICTURES * TALL, X_PITCH, LEFT * BLOCK_CHANNELS,
          WIDTH * BLOCK_CHANNELS, WIDE_X * BLOCK_CHANNELS);
    clear(base + DY_AT, tiles * PICTURES * BAND, DY_PITCH, 0, FILLED * BLOCK_FILTERS,
          WIDE_DY * BLOCK_FILTERS);
}

INLINE void fetch_x(u32 to, const T* x, int group, int n, int channel) {
    const int first = group / BANDS * PICTURES, row0 = first_row(group % BANDS);
    const int chunks = BLOCK_CHANNELS / CHUNK, run = WIDTH * chunks;
    OF_BLOCK(i, PICTURES * TALL * run) {
        const int row = i / run, picture = first + row / TALL, place = i % run;
        const int c = channel + place % chunks * CHUNK;
        const bool exists = picture < n && c < CHANNELS;
        const i64 pixel = ((i64)picture * HEIGHT + row0 + row % TALL) * WIDTH + place / chunks;
        const u32 at = to + (row * X_PITCH + (LEFT * chunks + place) * CHUNK) * ITEM;
#if CHANNELS % CHUNK
        // Pixels that begin anywhere.
        alignas(16) T v[CHUNK];
        UNROLLED(k, CHUNK) v[k] = exists && c + k < CHANNELS ? x[pixel * CHANNELS + c + k] : T(0);
        to_shared(at, *(const uint4*)v);
#else
        fetch(at, exists ? x + pixel * CHANNELS + c : x, exists);
#endif
    }
}

// The chunks of a tile of dy, from 0 on.
#define DY_RUN (COLUMNS * (BLOCK_FILTERS / CHUNK))
#define DY_CHUNKS (PICTURES * BAND * DY_RUN)

// Where a chunk goes in a tile, and where it is in memory: -1 if it is in no picture.
struct Place {
    u32 to;
    i64 from;
    INLINE Place(int i, int group, int n, int filter) {
        const int first = group / BANDS * PICTURES, low = group % BANDS * BAND;
        const int chunks = BLOCK_FILTERS / CHUNK, line = i / DY_RUN, place = i % DY_RUN;
        const int picture = first + line / BAND, row = low + line % BAND;
        const int f = filter + place % chunks * CHUNK;
        const i64 pixel = ((i64)picture * ROWS + row) * COLUMNS + place / chunks;
        to = (line * DY_PITCH + place * CHUNK) * ITEM;
        from = picture < n && row < ROWS && f < FILTERS ? pixel * FILTERS + f : -1;
    }
};

#if SLOPE >= 0
// So many chunks of a thread are asked for before the first is stored.
#define ASKED least(4, parts(DY_CHUNKS, THREADS))

INLINE void fetch_dy(u32 to, const T* dy, const T* values, int group, int n, int filter,
                     float alpha) {
#pragma unroll 1
    for (int begin = threadIdx.x; begin < DY_CHUNKS; begin += ASKED * THREADS) {
        uint4 d[ASKED], v[ASKED];
        UNROLLED(k, ASKED) {
            const Place place(begin + k * THREADS, group, n, filter);
            d[k] = v[k] = make_uint4(0, 0, 0, 0);
            if (begin + k * THREADS >= DY_CHUNKS || place.from < 0) continue;
            d[k] = *(const uint4*)(dy + place.from), v[k] = *(const uint4*)(values + place.from);
        }
        UNROLLED(k, ASKED) {
            const Place place(begin + k * THREADS, group, n, filter);
            if (begin + k * THREADS < DY_CHUNKS) to_shared(to + place.to, sloped(d[k], v[k], alpha));
        }
    }
}
#else
INLINE void fetch_dy(u32 to, const T* dy, const T*, int group, int n, int filter, float) {
    OF_BLOCK(i, DY_CHUNKS) {
        const Place place(i, group, n, filter);
        fetch(to + place.to, place.from < 0 ? dy : dy + place.from, place.from >= 0);
    }
}
#endif

#if FROM_POOL
// The same from the gradient of maxima, in turns: two chunks of a thread are asked for, then stored.
#define POOL_TALL ((BAND + 1) / 2)
#define POOL_RUN (COLUMNS / 2 * (BLOCK_FILTERS / CHUNK))
#define SPREADS parts(PICTURES * POOL_TALL * POOL_RUN, THREADS)

struct Gradients {
    Spread chunks[least(2, SPREADS)];

    // f(chunk, picture, pooled row, column times chunks of a pixel, picture exists) for those of a turn.
    template <typename F>
    INLINE void each(int group, int turn, F f) {
        UNROLLED(k, least(2, SPREADS)) {
            const int i = threadIdx.x + (2 * turn + k) * THREADS;
            const int row = group % BANDS * BAND / 2 + i / POOL_RUN % POOL_TALL;
            const int picture = i / (POOL_RUN * POOL_TALL);
            f(chunks[k], picture, row, i % POOL_RUN, picture < PICTURES);
        }
    }

    INLINE void ask(const T* dy, const u8* from, const T* mask, int group, int n, int filter,
                    int turn) {
        const int chunks_of = BLOCK_FILTERS / CHUNK, first = group / BANDS * PICTURES;
        each(group, turn, [&](Spread& chunk, int picture, int row, int place, bool exists) {
            exists = exists && first + picture < n && row < ROWS / 2;
            const i64 line = (i64)(first + picture) * (ROWS / 2) + row;
            chunk = Spread(dy, from, mask, line * (COLUMNS / 2) + place / chunks_of,
                           filter + place % chunks_of * CHUNK, exists);
        });
    }

    INLINE void store(u32 to, int group, int turn) {
        const int chunks_of = BLOCK_FILTERS / CHUNK, low = group % BANDS * BAND;
        each(group, turn, [&](Spread& chunk, int picture, int row, int place, bool exists) {
            UNROLLED(tap, 4) {
                const int line = 2 * row + tap / 2 - low;
                const int column = 2 * (place / chunks_of) + tap % 2;
                const int at = (picture * BAND + line) * DY_PITCH +
                               (column * chunks_of + place % chunks_of) * CHUNK;
                if (exists && line >= 0 && line < BAND) chunk.put(to + at * ITEM, tap);
            }
        });
    }
};
#endif

INLINE void fetch_gradient(u32 to, const T* dy, const u8* from, const T* mask, int group, int n,
                           int filter, float alpha) {
#if FROM_POOL
#pragma unroll 1
    for (int turn = 0; turn < parts(SPREADS, 2); ++turn) {
        Gradients gradients;
        gradients.ask(dy, from, mask, group, n, filter, turn);
        gradients.store(to, group, turn);
    }
#else
    fetch_dy(to, dy, mask, group, n, filter, alpha);
#endif
}

// Sums of a warp: [tap][sixteen][octet][number of a product].
typedef float Sums[TAP_ROWS * KERNEL_W][SIXTEENS][OCTETS][4];

// A lane's operands: of ACROSS columns of dy, of column q of x; d_at, x_at: where its rows are.
INLINE void load_dy(u32 (&a)[ACROSS][SIXTEENS][4], const u32* d_at) {
    UNROLLED(j, ACROSS)
        UNROLLED(m, SIXTEENS) {
            const int off = (j * BLOCK_FILTERS + m * 16) * ITEM;
#if BFLOAT
            matrices<4, true>(a[j][m], d_at[0] + off);
#else
            UNROLLED(k, 4) a[j][m][k] = shared_word(d_at[k / 2] + off + k % 2 * 32);
#endif
        }
}

INLINE void load_x(u32 (&b)[OCTETS][2], const u32* x_at, int q) {
#if BFLOAT
#pragma unroll
    for (int o = 0; o < OCTETS; o += 2) {
        u32 v[4];
        const u32 from = x_at[0] + (q * BLOCK_CHANNELS + o * 8) * ITEM;
        if (o + 1 < OCTETS) matrices<4, true>(v, from);
        else matrices<2, true>(v, from);
        b[o][0] = v[0], b[o][1] = v[1];
        if (o + 1 < OCTETS) b[(o + 1) % OCTETS][0] = v[2], b[(o + 1) % OCTETS][1] = v[3];
    }
#else
    UNROLLED(o, OCTETS)
        UNROLLED(k, 2)
            b[o][k] = operand(shared_word(x_at[k] + (q * BLOCK_CHANNELS + o * 8) * ITEM));
#endif
}

INLINE float pair_sum(u32 v) {
    return BFLOAT ? __uint_as_float(v << 16) + __uint_as_float(v & 0xffff0000u) : __uint_as_float(v);
}

// Grid: (slices, groups of filters, groups of channels). slices[slice]: the sums over its pictures,
// [FILTERS][TAPS][CHANNELS] and, behind them, [FILTERS] of the biases; `stride` numbers apart.
KERNEL __launch_bounds__(THREADS, RESIDENT)
    tensor_filter(const T* x, const T* dy, const u8* from, const T* mask, float* slices, i64 stride,
                  int n, float alpha) {
    enter();
    const u32 base = shared_begin();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = warp % UNITS;
    const int share = warp / UNITS, filter_unit = unit % FILTER_UNITS;
    const int channel_unit = unit / FILTER_UNITS % CHANNEL_UNITS;
    const int tap_row = unit / (FILTER_UNITS * CHANNEL_UNITS) * TAP_ROWS;
    const int first_filter = blockIdx.y * BLOCK_FILTERS, first_channel = blockIdx.z * BLOCK_CHANNELS;
    const int groups = parts(n, PICTURES) * BANDS;
    clear_edges(base);
    Sums sums;
    float biases[SIXTEENS][2];
    UNROLLED(t, TAP_ROWS * KERNEL_W)
        UNROLLED(m, SIXTEENS)
            UNROLLED(o, OCTETS)
                UNROLLED(e, 4) sums[t][m][o][e] = 0.0f;
    UNROLLED(m, SIXTEENS) biases[m][0] = biases[m][1] = 0.0f;
    const bool with_biases = BIAS && unit < FILTER_UNITS;
    if (blockIdx.x < groups) {
        fetch_x(base + X_AT, x, blockIdx.x, n, first_channel);
        fetch_gradient(base + DY_AT, dy, from, mask, blockIdx.x, n, first_filter, alpha);
    }
    int now = 0;
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        const u32 xs = base + X_AT + now * X_BYTES, ds = base + DY_AT + now * DY_BYTES;
        const bool more = group + gridDim.x < groups;
        arrived();
        __syncthreads();
        if (AHEAD && more) {
            now ^= 1;
            const int next = group + gridDim.x;
            fetch_x(base + X_AT + now * X_BYTES, x, next, n, first_channel);
            fetch_gradient(base + DY_AT + now * DY_BYTES, dy, from, mask, next, n, first_filter, alpha);
        }
        const int low = group % BANDS * BAND, above = first_row(group % BANDS) + TOP;
#pragma unroll 1
        for (int item = share; item < DEPTHS * TURNS_ACROSS; item += SPLIT) {
            const int column = item % TURNS_ACROSS * ACROSS, depth = item / TURNS_ACROSS * DEPTH;
            // The rows that this lane loads: of dy and of x, one each or, as words, two.
            constexpr int rows = BFLOAT ? 1 : 2;
            int d_row[rows], x_row[rows];
            u32 d_at[rows], x_at[rows];
            UNROLLED(k, rows) {
                d_row[k] = depth + (BFLOAT ? lane / 16 * 8 + lane % 8 : lane % 4 + k * 4);
                x_row[k] = depth + (BFLOAT ? lane % 16 : lane % 4 + k * 4);
                const bool exists = d_row[k] < PICTURES * BAND;
                const int place = column * BLOCK_FILTERS + filter_unit * SIXTEENS * 16 +
                                  (BFLOAT ? lane / 8 % 2 * 8 : lane / 4);
                d_at[k] = (exists ? ds + d_row[k] * DY_PITCH * ITEM : base) + place * ITEM;
            }
            u32 a[ACROSS][SIXTEENS][4];
            load_dy(a, d_at);
            UNROLLED(j, ACROSS)
                UNROLLED(m, SIXTEENS)
                    UNROLLED(k, 4) {
                        if (with_biases) biases[m][k % 2] += pair_sum(a[j][m][k]);
                        a[j][m][k] = operand(a[j][m][k]);
                    }
            UNROLLED(r, TAP_ROWS) {
                UNROLLED(k, rows) {
                    const int picture = x_row[k] / BAND, row = low + x_row[k] % BAND + tap_row + r;
                    const bool inside = row >= TOP && row < HEIGHT + TOP &&
                                        tap_row + r < KERNEL_H && x_row[k] < PICTURES * BAND;
                    const int place = column * BLOCK_CHANNELS + channel_unit * OCTETS * 8 +
                                      (BFLOAT ? lane / 16 * 8 : lane / 4);
                    const u32 line = xs + (picture * TALL + row - above) * (X_PITCH * ITEM);
                    x_at[k] = (inside ? line : base) + place * ITEM;
                }
                UNROLLED(q, ACROSS + KERNEL_W - 1) {
                    u32 b[OCTETS][2];
                    load_x(b, x_at, q);
                    UNROLLED(s, KERNEL_W) {
                        const int j = q - s;
                        if (j >= 0 && j < ACROSS)
                            UNROLLED(m, SIXTEENS)
                                UNROLLED(o, OCTETS)
                                    multiply<false>(sums[r * KERNEL_W + s][m][o], a[j][m], b[o]);
                    }
                }
            }
        }
        if (!AHEAD && more) {
            __syncthreads();
            fetch_x(base + X_AT, x, group + gridDim.x, n, first_channel);
            fetch_gradient(base + DY_AT, dy, from, mask, group + gridDim.x, n, first_filter, alpha);
        }
    }
    // biases[m][h]: of filter lane / 4 + 8 h over this lane's rows; the other rows have its neighbours.
    if (BIAS)
        UNROLLED(m, SIXTEENS)
            UNROLLED(h, 2) {
                biases[m][h] += __shfl_xor_sync(~0u, biases[m][h], 1);
                biases[m][h] += __shfl_xor_sync(~0u, biases[m][h], 2);
            }
    // What the warps that share a tile have is added up by the first of them.
    const u32 lines = UNITS * TAP_ROWS * KERNEL_W * SIXTEENS * OCTETS * 2;
    const u32 own = unit * (TAP_ROWS * KERNEL_W * SIXTEENS * OCTETS * 2);
    if (SPLIT > 1) {
        __syncthreads();
        const u32 to = base + share * SUM_BYTES;
        UNROLLED(t, TAP_ROWS * KERNEL_W)
            UNROLLED(m, SIXTEENS)
                UNROLLED(o, OCTETS)
                    UNROLLED(h, 2)
                        to_shared(to + ((own + ((t * SIXTEENS + m) * OCTETS + o) * 2 + h) * 32 + lane) * 8,
                                  sums[t][m][o][2 * h], sums[t][m][o][2 * h + 1]);
        if (with_biases && lane % 4 == 0)
            UNROLLED(m, SIXTEENS)
                UNROLLED(h, 2)
                    word_to_shared(to + lines * 256 +
                                       ((filter_unit * SIXTEENS + m) * 16 + lane / 4 + 8 * h) * 4,
                                   __float_as_uint(biases[m][h]));
        __syncthreads();
    }
    float* slice = slices + blockIdx.x * stride;
    const auto total = [&](u32 at) {
        float2 sum = make_float2(0.0f, 0.0f);
        UNROLLED(k, SPLIT) {
            const float2 part = shared_pair(base + k * SUM_BYTES + at);
            sum.x += part.x, sum.y += part.y;
        }
        return sum;
    };
    UNROLLED(t, TAP_ROWS * KERNEL_W)
        UNROLLED(m, SIXTEENS)
            UNROLLED(o, OCTETS)
                UNROLLED(h, 2) {
                    const int line = ((t * SIXTEENS + m) * OCTETS + o) * 2 + h;
                    // Each of these warps has its share of the lines.
                    if (SPLIT > 1 && line % SPLIT != share) continue;
                    float2 v = make_float2(sums[t][m][o][2 * h], sums[t][m][o][2 * h + 1]);
                    if (SPLIT > 1) v = total(((own + line) * 32 + lane) * 8);
                    const int filter = first_filter + (filter_unit * SIXTEENS + m) * 16 + lane / 4 + 8 * h;
                    const int channel = first_channel + (channel_unit * OCTETS + o) * 8 + lane % 4 * 2;
                    const int tap = tap_row * KERNEL_W + t;
                    if (filter >= FILTERS || channel >= CHANNELS || tap >= TAPS) continue;
                    float* to = slice + ((i64)filter * TAPS + tap) * CHANNELS + channel;
                    if (CHANNELS % 2 == 0) put2(to, v.x, v.y);
                    else {
                        to[0] = v.x;
                        if (channel + 1 < CHANNELS) to[1] = v.y;
                    }
                }
    if (with_biases && blockIdx.z == 0 && share == 0 && lane % 4 == 0)
        UNROLLED(m, SIXTEENS)
            UNROLLED(h, 2) {
                const int mine = (filter_unit * SIXTEENS + m) * 16 + lane / 4 + 8 * h;
                float sum = biases[m][h];
                if (SPLIT > 1) {
                    sum = 0.0f;
                    UNROLLED(k, SPLIT)
                        sum += __uint_as_float(shared_word(base + k * SUM_BYTES + lines * 256 + mine * 4));
                }
                if (first_filter + mine < FILTERS)
                    slice[(i64)FILTERS * TAPS * CHANNELS + first_filter + mine] = sum;
            }
}
