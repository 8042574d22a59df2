// What direct_conv.cu computes, on tensor cores, for channels-last pictures in bfloat16; and the sums
// of a bias's gradient through the activation behind the convolution, which is computed again for it:
// its input, the largest tensor of many nets, never exists.
//
// Compiled for one geometry as direct_conv.cu is, BLOCK a multiple of 32 threads, STORED one of eight,
// and for OCTETS (times eight filters) of a warp. The rows of pictures in parts of LINES are the
// units that blocks share; a warp computes 32 neighbouring pixels at once, two products of sixteen.

#define TAPS (CHANNELS * KERNEL_H * KERNEL_W)
#define PIXELS (ROWS * COLUMNS)
#define STEPS ((TAPS + 15) / 16)
#define WIDE (8 * OCTETS)
#define GROUPS ((STORED + WIDE - 1) / WIDE)
#define WARPS (BLOCK / 32)
#define BESIDE (WARPS / GROUPS)
#define PARTS ((ROWS + LINES - 1) / LINES)
// Words between pixels of what a warp rearranges: so many that neighbours lie in different banks.
#define PITCH (4 * (OCTETS | 1))

// What LINES rows of y see. WHOLE: nothing beyond the picture; then its rows lie in the tile as in
// memory, and are copied in 16 bytes.
#define TILE_ROWS ((LINES - 1) * STRIDE_H + (KERNEL_H - 1) * DILATION_H + 1)
#define SEEN_COLUMNS ((COLUMNS - 1) * STRIDE_W + (KERNEL_W - 1) * DILATION_W + 1)
#define SEEN_ROWS ((ROWS - 1) * STRIDE_H + (KERNEL_H - 1) * DILATION_H + 1)
#define EIGHTS(n) ((n) % 8 == 0)
constexpr bool WHOLE = TOP == 0 && LEFT == 0 && SEEN_ROWS <= HEIGHT && SEEN_COLUMNS <= WIDTH &&
                       EIGHTS(CHANNELS * HEIGHT * WIDTH) &&
                       (PARTS == 1 || EIGHTS(LINES * STRIDE_H * CHANNELS * WIDTH));
constexpr int TILE_COLUMNS = WHOLE ? WIDTH : SEEN_COLUMNS;
constexpr int TILE = CHANNELS * TILE_ROWS * TILE_COLUMNS;
constexpr int COPIES = WHOLE ? (TILE + 8 * BLOCK - 1) / (8 * BLOCK) : 1;
// Whether the next tile is asked for before work on one begins.
constexpr bool EARLY = WHOLE && COPIES <= 2;
// Blocks on a processor whose registers hold the filters.
constexpr int RESIDENT = OCTETS * STEPS <= 3 ? 3 : OCTETS * STEPS <= 8 ? 2 : 1;

// A part of a picture.
struct Unit {
    i64 sample;
    int first;  // row of y

    INLINE explicit Unit(i64 index) : sample(index / PARTS), first(index % PARTS * LINES) {}
    INLINE int pixels() const { return min(LINES, ROWS - first) * COLUMNS; }
    INLINE i64 begin() const { return sample * PIXELS + first * COLUMNS; }
};

// What a block sees of x.
struct Window {
    uint4 words[COPIES];

    INLINE void load(const T* x, Unit unit) {
        if (!WHOLE) return;
        const int from = unit.first * STRIDE_H * WIDTH * CHANNELS;
        x += unit.sample * (CHANNELS * HEIGHT * WIDTH) + from;
        UNROLLED(c, COPIES) {
            const int i = 8 * (c * BLOCK + threadIdx.x);
            words[c] = make_uint4(0, 0, 0, 0);
            if (i < TILE && from + i < CHANNELS * HEIGHT * WIDTH) words[c] = *(const uint4*)(x + i);
        }
    }

    INLINE void store(T* tile, const T* x, Unit unit) const {
        if (WHOLE) {
            UNROLLED(c, COPIES) {
                const int i = 8 * (c * BLOCK + threadIdx.x);
                if (i < TILE) *(uint4*)(tile + i) = words[c];
            }
            return;
        }
        x += unit.sample * (CHANNELS * HEIGHT * WIDTH);
        const int top = unit.first * STRIDE_H - TOP;
#pragma unroll 4
        OF_BLOCK(i, TILE) {
            const int place = i / CHANNELS, channel = i % CHANNELS;
            const int row = top + place / TILE_COLUMNS, column = place % TILE_COLUMNS - LEFT;
            const bool inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
            tile[i] = inside ? x[(row * WIDTH + column) * CHANNELS + channel] : T(0);
        }
    }
};

// What a warp's lanes keep of the filters, and where their taps look.
struct Filters {
    u32 words[OCTETS][STEPS][2];
    float biases[OCTETS][2];
    int offsets[STEPS][2][2];

    INLINE Filters(const T* w, const float* bias, int first, int lane) {
        UNROLLED(s, STEPS)
            UNROLLED(r, 2) {
                const int tap = 16 * s + 8 * r + lane % 4 * 2;
                UNROLLED(e, 2) {
                    const int place = (tap + e) / CHANNELS, row = place / KERNEL_W * DILATION_H;
                    const int at = row * TILE_COLUMNS + place % KERNEL_W * DILATION_W;
                    offsets[s][r][e] = tap + e < TAPS ? at * CHANNELS + (tap + e) % CHANNELS : -1;
                }
                UNROLLED(o, OCTETS) {
                    const int filter = first + 8 * o + lane / 4;
                    u32 pair[2];
                    UNROLLED(e, 2) {
                        const bool exists = filter < FILTERS && tap + e < TAPS;
                        pair[e] = exists ? w[filter * TAPS + tap + e] : 0;
                    }
                    words[o][s][r] = pair[0] | pair[1] << 16;
                }
            }
        UNROLLED(o, OCTETS)
            UNROLLED(e, 2) {
                const int filter = first + 8 * o + lane % 4 * 2 + e;
                biases[o][e] = bias && filter < FILTERS ? bias[filter] : 0.0f;
            }
    }

    // sums[m][o]: of pixels 16 m + lane / 4, and eight further, from `begin` on, and of filters
    // 8 o + lane % 4 * 2, and the next: as `multiply` leaves them.
    INLINE void multiply_all(float (&sums)[2][OCTETS][4], const T* tile, int begin, int count,
                             int lane) const {
        UNROLLED(m, 2) {
            const T* corner[2];
            UNROLLED(h, 2) {
                const int pixel = min(begin + 16 * m + 8 * h + lane / 4, count - 1);
                const int row = pixel / COLUMNS * STRIDE_H, column = pixel % COLUMNS * STRIDE_W;
                corner[h] = tile + (row * TILE_COLUMNS + column) * CHANNELS;
            }
            UNROLLED(o, OCTETS) UNROLLED(q, 4) sums[m][o][q] = biases[o][q % 2];
            UNROLLED(s, STEPS) {
                u32 a[4];
                UNROLLED(r, 2)
                    UNROLLED(h, 2) {
                        u32 pair[2];
                        UNROLLED(e, 2) {
                            const int offset = offsets[s][r][e];
                            pair[e] = offset < 0 ? 0 : corner[h][offset];
                        }
                        a[2 * r + h] = pair[0] | pair[1] << 16;
                    }
                UNROLLED(o, OCTETS) multiply<false>(sums[m][o], a, words[o][s]);
            }
        }
    }
};

// work(unit, tile) for every unit of this block, of n pictures.
template <typename Work>
__device__ void each_unit(const T* x, int n, T* tile, Work work) {
    const i64 units = (i64)n * PARTS;
    Window ahead;
    if (EARLY && blockIdx.x < units) ahead.load(x, Unit(blockIdx.x));
    for (i64 u = blockIdx.x; u < units; u += gridDim.x) {
        const Unit unit(u);
        if (!EARLY) ahead.load(x, unit);
        ahead.store(tile, x, unit);
        __syncthreads();
        if (EARLY && u + gridDim.x < units) ahead.load(x, Unit(u + gridDim.x));
        work(unit);
        __syncthreads();
    }
}

// bias may be 0.
KERNEL __launch_bounds__(BLOCK, RESIDENT)
    tensor_direct_conv(const T* x, const T* w, const float* bias, T* y, float alpha, int n) {
    enter();
    __shared__ __align__(16) T tile[(TILE + 7) / 8 * 8];
    __shared__ __align__(16) u32 staged[WARPS][32 * PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp % GROUPS * WIDE;
    const Filters filters(w, bias, first, lane);
    u32* const own = staged[warp];
    each_unit(x, n, tile, [&](Unit unit) {
        const int count = unit.pixels();
        T* const to = y + unit.begin() * STORED + first;
        for (int begin = 32 * (warp / GROUPS); begin < count; begin += 32 * BESIDE) {
            if (warp / GROUPS >= BESIDE) break;
            float sums[2][OCTETS][4];
            filters.multiply_all(sums, tile, begin, count, lane);
            UNROLLED(m, 2)
                UNROLLED(o, OCTETS)
                    UNROLLED(h, 2) {
                        float v[2];
                        UNROLLED(e, 2) {
                            const int filter = first + 8 * o + lane % 4 * 2 + e;
                            v[e] = sums[m][o][2 * h + e];
                            if (ACTIVATION >= 0) v[e] = activate(ACTIVATION, v[e], alpha);
                            if (FILTERS < GROUPS * WIDE && filter >= FILTERS) v[e] = 0.0f;
                        }
                        own[(16 * m + 8 * h + lane / 4) * PITCH + 4 * o + lane % 4] =
                            to_bf16_pair(v[0], v[1]);
                    }
            __syncwarp();
            UNROLLED(i, OCTETS) {
                const int chunk = 32 * i + lane, pixel = chunk / OCTETS, part = chunk % OCTETS;
                if (begin + pixel < count && first + 8 * part < STORED)
                    *(uint4*)(to + (begin + pixel) * STORED + 8 * part) =
                        *(const uint4*)(own + pixel * PITCH + 4 * part);
            }
            __syncwarp();
        }
    });
}

// What the slope follows from: the activation's output, or its input.
constexpr bool FROM_OUTPUT = ACTIVATION < SOFTPLUS || ACTIVATION == SCALED_TANH;

// slices[block][filter] of STORED: the sums, over the pixels of the block, of dy times the slope of
// the activation behind the convolution.
KERNEL __launch_bounds__(BLOCK, least(RESIDENT, 2))
    tensor_direct_sums(const T* x, const T* w, const float* bias, const T* dy, float* slices,
                       float alpha, int n) {
    enter();
    __shared__ __align__(16) T tile[(TILE + 7) / 8 * 8];
    __shared__ __align__(16) u32 staged[WARPS][32 * PITCH];
    __shared__ double totals[WARPS][WIDE];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp % GROUPS * WIDE;
    const Filters filters(w, bias, first, lane);
    u32* const own = staged[warp];
    double total[OCTETS][2] = {};
    each_unit(x, n, tile, [&](Unit unit) {
        const int count = unit.pixels();
        const T* const from = dy + unit.begin() * STORED + first;
        // Zeros beyond the last pixel, where products are those of the last one.
        uint4 given[OCTETS];
        const auto ask = [&](int begin) {
            UNROLLED(i, OCTETS) {
                const int chunk = 32 * i + lane, pixel = chunk / OCTETS, part = chunk % OCTETS;
                given[i] = make_uint4(0, 0, 0, 0);
                if (begin + pixel < count && first + 8 * part < STORED)
                    given[i] = *(const uint4*)(from + (begin + pixel) * STORED + 8 * part);
            }
        };
        int begin = 32 * (warp / GROUPS);
        if (warp / GROUPS >= BESIDE) begin = count;
        ask(begin);
        while (begin < count) {
            float part_sum[OCTETS][2] = {};
            // So few are added up in float.
            for (int turn = 0; turn < 2 && begin < count; ++turn) {
                UNROLLED(i, OCTETS) {
                    const int chunk = 32 * i + lane, pixel = chunk / OCTETS, part = chunk % OCTETS;
                    *(uint4*)(own + pixel * PITCH + 4 * part) = given[i];
                }
                __syncwarp();
                const int now = begin;
                begin += 32 * BESIDE;
                ask(begin);
                float sums[2][OCTETS][4];
                filters.multiply_all(sums, tile, now, count, lane);
                UNROLLED(m, 2)
                    UNROLLED(o, OCTETS)
                        UNROLLED(h, 2) {
                            const int pixel = 16 * m + 8 * h + lane / 4;
                            const u32 pair = own[pixel * PITCH + 4 * o + lane % 4];
                            UNROLLED(e, 2) {
                                float v = sums[m][o][2 * h + e];
                                const float d = __uint_as_float(e ? pair & 0xffff0000u : pair << 16);
                                if (FROM_OUTPUT) v = activate(ACTIVATION, v, alpha);
                                part_sum[o][e] += d * slope(ACTIVATION, v, alpha);
                            }
                        }
                __syncwarp();
            }
            UNROLLED(o, OCTETS) UNROLLED(e, 2) total[o][e] += part_sum[o][e];
        }
    });
    UNROLLED(o, OCTETS)
        UNROLLED(e, 2) {
            double sum = total[o][e];
            for (int apart = 4; apart < 32; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
            if (lane < 4) totals[warp][8 * o + lane * 2 + e] = sum;
        }
    __syncthreads();
    // The warps of a group in order.
    OF_BLOCK(filter, STORED) {
        double sum = 0.0;
        UNROLLED(turn, BESIDE) sum += totals[turn * GROUPS + filter / WIDE][filter % WIDE];
        slices[(i64)blockIdx.x * STORED + filter] = filter < FILTERS ? sum : 0.0;
    }
}
