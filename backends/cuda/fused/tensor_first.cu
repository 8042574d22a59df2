// What first_conv.cu computes, on tensor cores: pictures, filters and gradients are rounded as those of
// every convolution are there.
//
// Compiled for one geometry as first_conv.cu is, and for WARPS of a block and OCTETS (times eight
// filters) of a warp; the second index of a block is the part of a picture that it works on. A warp
// works on eight windows of the max-pool at once, whose four pixels are four rows of products: each lane
// has all four of a window, so that it takes the maximum by itself.
#define UNITS ((POSITIONS + 7) / 8)
#define WIDE (8 * OCTETS)
#define GROUPS ((FILTERS + WIDE - 1) / WIDE)
// Numbers in a word of an operand, and the depth of a product.
#define EACH (BFLOAT ? 2 : 1)
#define DEPTH (2 * CHUNK)
#define STEPS ((TAPS + DEPTH - 1) / DEPTH)
// Rows of sixteen taps, and products over the pixels of eight windows.
#define TAP_ROWS ((TAPS + 15) / 16)
#define PIXEL_STEPS (32 / DEPTH)
// Numbers between the sums of two filters of a warp, so that neighbours lie in different banks if there
// is room, and those of a warp.
#define TAP_PITCH (16 * TAP_ROWS + (OCTETS > 3 ? 1 : 4))
#define SLAB (WIDE * TAP_PITCH)

INLINE float pixel(float v) { return BFLOAT ? v : __uint_as_float(operand(__float_as_uint(v))); }

INLINE u32 word(const float* v) {
    return BFLOAT ? to_bf16_pair(v[0], v[EACH - 1]) : __float_as_uint(v[0]);
}

INLINE int offset_of(int tap) { return tap / KERNEL_W * PITCH + tap % KERNEL_W; }
INLINE int corner_of(int position) {
    position = least(position, POSITIONS - 1);
    return 2 * (position / COLUMNS) * PITCH + 2 * (position % COLUMNS);
}

// The place in depth of a number in a lane's words: of both halves of a product.
INLINE int depth_of(int step, int half, int lane, int e) {
    return step * DEPTH + half * CHUNK + lane % 4 * EACH + e;
}

// A NaN counts as larger than any number, and the first one wins.
INLINE float maximum(const float (&sums)[2][OCTETS][4], int o, int e, u32& place) {
    float best = sums[0][o][e];
    place = 0;
#pragma unroll
    for (int q = 1; q < 4; ++q) {
        const float v = sums[q / 2][o][q % 2 * 2 + e];
        if (v > best || (isnan(v) && !isnan(best))) best = v, place = q;
    }
    return best;
}

// Grid: (blocks that share the n pictures, parts of a picture).
KERNEL __launch_bounds__(32 * WARPS, 2)
    tensor_first_pool(const T* x, const float* w, const float* bias, T* y, u8* index, int n) {
    enter();
    __shared__ __align__(16) float pictures[2][TALL * PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = warp % GROUPS * WIDE, beside = WARPS / GROUPS;
    Ahead<32 * WARPS> ahead;
    ahead.load(x + (i64)blockIdx.x * PIXELS);
    if (PAD) clear(pictures[0], 2 * TALL * PITCH);
    int offsets[STEPS][2][EACH];
    u32 filters[OCTETS][STEPS][2];
    float biases[OCTETS][2];
    UNROLLED(s, STEPS)
        UNROLLED(r, 2) {
            UNROLLED(e, EACH) offsets[s][r][e] = offset_of(least(depth_of(s, r, lane, e), TAPS - 1));
            UNROLLED(o, OCTETS) {
                float v[EACH];
                UNROLLED(e, EACH) {
                    const int tap = depth_of(s, r, lane, e), filter = first + 8 * o + lane / 4;
                    v[e] = filter < FILTERS && tap < TAPS ? pixel(w[filter * TAPS + tap]) : 0.0f;
                }
                filters[o][s][r] = word(v);
            }
        }
    UNROLLED(o, OCTETS)
        UNROLLED(e, 2) {
            const int filter = first + 8 * o + lane % 4 * 2 + e;
            biases[o][e] = bias && filter < FILTERS ? bias[filter] : 0.0f;
        }
    if (PAD) __syncthreads();
    ahead.store(pictures[0]);
    __syncthreads();
    int now = 0;
    for (int sample = blockIdx.x; sample < n; sample += gridDim.x, now ^= 1) {
        const bool more = sample + gridDim.x < n;
        if (more) ahead.load(x + (i64)(sample + gridDim.x) * PIXELS);
        for (int unit = blockIdx.y * beside + warp / GROUPS; unit < UNITS; unit += gridDim.y * beside) {
            const int position = unit * 8 + lane / 4;
            const float* corner = pictures[now] + corner_of(position);
            float sums[2][OCTETS][4];
            UNROLLED(i, 2 * OCTETS * 4)(&sums[0][0][0])[i] = 0.0f;
            UNROLLED(s, STEPS)
                UNROLLED(row, 2) {
                    u32 a[4];
                    UNROLLED(r, 2)
                        UNROLLED(column, 2) {
                            float v[EACH];
                            UNROLLED(e, EACH) {
                                const float* at = corner + offsets[s][r][e] + row * PITCH + column;
                                v[e] = depth_of(s, r, lane, e) < TAPS ? *at : 0.0f;
                            }
                            a[2 * r + column] = word(v);
                        }
                    UNROLLED(o, OCTETS) multiply<false>(sums[row][o], a, filters[o][s]);
                }
            if (position >= POSITIONS) continue;
            UNROLLED(o, OCTETS) {
                const int filter = first + 8 * o + lane % 4 * 2;
                if (filter >= STORED) continue;
                float out[2];
                u32 places[2];
                UNROLLED(e, 2) {
                    out[e] = maximum(sums, o, e, places[e]) + biases[o][e];
                    if (WITH_RELU) out[e] = out[e] > 0.0f ? out[e] : (isnan(out[e]) ? out[e] : 0.0f);
                }
                const i64 at = ((i64)sample * POSITIONS + position) * STORED + filter;
                put2(y + at, out[0], out[1]);
                *(unsigned short*)(index + at) = places[0] | places[1] << 8;
            }
        }
        if (more) ahead.store(pictures[now ^ 1]);
        __syncthreads();
    }
}

// A gradient and the place of its maximum in one word: the place is where tensor cores do not look.
INLINE u32 with_place(float d, u32 place) {
    return BFLOAT ? __float_as_uint(d) >> 16 | place << 16
                  : (operand(__float_as_uint(d)) & ~3u) | place;
}

// The gradient at the pixels that this lane's word has, of the window that the gradient is of.
INLINE u32 at_pixels(u32 v, int lane) {
    if (!BFLOAT) return (v & 3) == lane % 4 ? v : 0;
    return v >> 17 == lane % 2 ? (v & 0xffff) << (v >> 16 & 1) * 16 : 0;
}

// slices: as first_conv.cu leaves them; a block is a part = (blockIdx.x, blockIdx.y). Products have taps
// as rows, filters as columns, and are as deep as there are pixels.
KERNEL __launch_bounds__(32 * WARPS, 2)
    tensor_first_pool_backward(const T* x, const T* dy, const u8* index, const T* y, float* slices,
                               int n) {
    enter();
    __shared__ u32 staged[WARPS][8 * WIDE];
    // Two pictures; at the end the sums of every warp.
    __shared__ __align__(16) float space[most(2 * TALL * PITCH, WARPS * SLAB)];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp % GROUPS;
    const int first = group * WIDE;
    constexpr int beside = WARPS / GROUPS, turns = (OCTETS + 1) / 2;
    int offsets[TAP_ROWS][2];
    UNROLLED(m, TAP_ROWS)
        UNROLLED(h, 2) offsets[m][h] = offset_of(least(16 * m + 8 * h + lane / 4, TAPS - 1));
    // Of this lane's pixels within a window.
    const int inside = BFLOAT ? lane % 2 * PITCH : lane % 4 / 2 * PITCH + lane % 2;
    float sums[TAP_ROWS][OCTETS][4], biases[turns][4];
    UNROLLED(i, TAP_ROWS * OCTETS * 4)(&sums[0][0][0])[i] = 0.0f;
    UNROLLED(i, turns * 4)(&biases[0][0])[i] = 0.0f;
    // Gradients of eight windows on their way, four neighbours at a time.
    float4 given[turns], maxima[turns];
    u32 places[turns];
    const auto ask = [&](int sample, int unit) {
        UNROLLED(t, turns) {
            const int i = t * 32 + lane, window = i / (2 * OCTETS), four = i % (2 * OCTETS) * 4;
            const int position = unit * 8 + window;
            given[t] = maxima[t] = make_float4(0, 0, 0, 0), places[t] = 0;
            if (window < 8 && position < POSITIONS && first + four < STORED) {
                const i64 at = ((i64)sample * POSITIONS + position) * STORED + first + four;
                given[t] = get4(dy + at), places[t] = *(const u32*)(index + at);
                if (WITH_RELU) maxima[t] = get4(y + at);
            }
        }
    };
    const int begin = blockIdx.y * beside + warp / GROUPS, step = gridDim.y * beside;
    Ahead<32 * WARPS> ahead;
    if (PAD) clear(space, 2 * TALL * PITCH);
    if (blockIdx.x < n) ahead.load(x + (i64)blockIdx.x * PIXELS);
    int now = 0;
    for (int sample = blockIdx.x; sample < n; sample += gridDim.x, now ^= 1) {
        ask(sample, begin);
        if (PAD) __syncthreads();
        float* const picture = space + now * TALL * PITCH;
        ahead.store(picture);
        __syncthreads();
        if (sample + gridDim.x < n) ahead.load(x + (i64)(sample + gridDim.x) * PIXELS);
        for (int unit = begin; unit < UNITS; unit += step) {
            __syncwarp();
            UNROLLED(t, turns) {
                const int i = t * 32 + lane, window = i / (2 * OCTETS), four = i % (2 * OCTETS) * 4;
                if (window >= 8) continue;
                float d[4], best[4];
                unpack(given[t], d), unpack(maxima[t], best);
                UNROLLED(k, 4) {
                    if (WITH_RELU && !(best[k] > 0.0f)) d[k] = 0.0f;
                    biases[t][k] += d[k];
                    staged[warp][window * WIDE + four + k] = with_place(d[k], places[t] >> 8 * k & 255);
                }
            }
            if (unit + step < UNITS) ask(sample, unit + step);
            __syncwarp();
            UNROLLED(s, PIXEL_STEPS) {
                u32 b[OCTETS][2];
                const float* corners[2];
                UNROLLED(r, 2) {
                    const int window = BFLOAT ? 4 * s + 2 * r + lane % 4 / 2 : 2 * s + r;
                    corners[r] = picture + corner_of(unit * 8 + window) + inside;
                    UNROLLED(o, OCTETS)
                        b[o][r] = at_pixels(staged[warp][window * WIDE + 8 * o + lane / 4], lane);
                }
                UNROLLED(m, TAP_ROWS) {
                    u32 a[4];
                    UNROLLED(r, 2)
                        UNROLLED(h, 2) {
                            float v[EACH];
                            const bool exists = 16 * m + 8 * h + lane / 4 < TAPS;
                            UNROLLED(e, EACH) v[e] = exists ? corners[r][offsets[m][h] + e] : 0.0f;
                            a[2 * r + h] = word(v);
                        }
                    UNROLLED(o, OCTETS) multiply<false>(sums[m][o], a, b[o]);
                }
            }
        }
    }
    __syncthreads();
    UNROLLED(m, TAP_ROWS)
        UNROLLED(o, OCTETS)
            UNROLLED(q, 4) {
                const int tap = 16 * m + q / 2 * 8 + lane / 4, filter = 8 * o + lane % 4 * 2 + q % 2;
                space[warp * SLAB + filter * TAP_PITCH + tap] = sums[m][o][q];
            }
    UNROLLED(t, turns)
        UNROLLED(k, 4)
            if (t * 32 + lane < 16 * OCTETS)
                staged[warp][(t * 32 + lane) * 4 + k] = __float_as_uint(biases[t][k]);
    __syncthreads();
    // The warps of a group in order.
    float* slice = slices + (i64)(blockIdx.y * gridDim.x + blockIdx.x) * FILTERS * (TAPS + 1);
    OF_BLOCK(i, FILTERS * TAPS) {
        const int filter = i / TAPS, at = filter / WIDE * SLAB + filter % WIDE * TAP_PITCH + i % TAPS;
        float sum = 0.0f;
        UNROLLED(turn, beside) sum += space[turn * GROUPS * SLAB + at];
        slice[i] = sum;
    }
    // By threads at the end of the block, which had less to do.
    for (int filter = 32 * WARPS - 1 - threadIdx.x; filter < FILTERS; filter += 32 * WARPS) {
        float sum = 0.0f;
        UNROLLED(turn, beside) {
            float part = 0.0f;
            UNROLLED(window, 8)
                part += __uint_as_float(
                    staged[turn * GROUPS + filter / WIDE][window * WIDE + filter % WIDE]);
            sum += part;
        }
        slice[FILTERS * TAPS + filter] = sum;
    }
}
