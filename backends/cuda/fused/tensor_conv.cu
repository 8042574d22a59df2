// A convolution of stride 1 on tensor cores, for few channels: forward with bias and activation, or
// (DATA) the gradient of its pictures. An implicit matrix product (Chetlur et al. 2014, section 3).
// The 16 rows of a product are DEEP neighbouring rows of 16 / DEEP pictures at one column; the columns
// of y are registers. So what is loaded of one column of x serves all taps of a row of the window.
//
// Compiled for one geometry, that of the convolution which is computed: CHANNELS, HEIGHT, WIDTH of x,
// FILTERS, ROWS, COLUMNS of y (channels as stored), KERNEL_H, KERNEL_W, TOP, LEFT (padding), DATA: x is
// a gradient, w has its filters as channels and is turned by half a circle; ACTIVATION (-1 for none).
// POOL: y is the maximum of 2 by 2 pixels, with its place; FROM_POOL: x is the gradient of such a
// maximum's input, given as that of the maximum; STRIDED: see spread.cuh. POOLED: channels that are
// stored there, at most those of the convolution. Then tiles have even sizes. SUMS: of each filter y's
// sum and that of its squares are left in slices, see channel_sums.cuh.
//
// And for one tiling: a block has PICTURES pictures, BAND rows of y and BLOCK_OCTETS times eight
// filters at once; a warp DEEP rows (of each of its pictures), ACROSS columns, OCTETS times eight
// filters. UNITS_AT_ONCE units of that size are computed at once, each by SPLIT warps, which share the
// depth. ONCE: no block has a second group of pictures; else the next is loaded ahead if AHEAD.
// RESIDENT blocks run on a processor. What is in shared memory: conv_tile.cuh.

// The filters of one tap for a step, b[octet][chunk]; `at`: of this lane.
template <bool half>
INLINE void load_filters(u32 (&b)[OCTETS][2], u32 at) {
#if DATA && !BFLOAT
    UNROLLED(o, OCTETS)
        UNROLLED(k, half ? 1 : 2)
            b[o][k] = operand(shared_word(at + (o * 8 + k * 4 * filter_pitch()) * ITEM));
#else
    const int octet = (DATA ? 8 : 8 * filter_pitch()) * ITEM;
#pragma unroll
    for (int o = 0; o < OCTETS; o += 2) {
        const bool pair = o + 1 < OCTETS;
        u32 v[4];
        if (half) {
            if (pair) matrices<2, DATA>(v, at + o * octet);
            else matrices<1, DATA>(v, at + o * octet);
            b[o][0] = operand(v[0]);
            if (pair) b[(o + 1) % OCTETS][0] = operand(v[1]);
        } else {
            if (pair) matrices<4, DATA>(v, at + o * octet);
            else matrices<2, DATA>(v, at + o * octet);
            b[o][0] = operand(v[0]), b[o][1] = operand(v[1]);
            if (pair) b[(o + 1) % OCTETS][0] = operand(v[2]), b[(o + 1) % OCTETS][1] = operand(v[3]);
        }
    }
#endif
}

// Where a lane finds its filters in those of a tap and step.
INLINE u32 lane_of_filters(int lane, bool half) {
    const int pitch = filter_pitch();
#if DATA && !BFLOAT
    return (lane % 4 * pitch + lane / 4) * ITEM;
#elif DATA
    return half ? (lane % 8 * pitch + lane / 8 % 2 * 8) * ITEM
                : (lane % 16 * pitch + lane / 16 * 8) * ITEM;
#else
    return half ? lane % 16 * pitch * ITEM
                : ((lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * CHUNK) * ITEM;
#endif
}

// One row of the window, one step of the depth.
template <bool half>
INLINE void add_row(float (&sums)[ACROSS][OCTETS][4], u32 pixels, u32 filters) {
    u32 b[KERNEL_W][OCTETS][2];
    UNROLLED(s, KERNEL_W) {
        const int tap = DATA ? KERNEL_W - 1 - s : s;
        load_filters<half>(b[s], filters + tap * (DATA ? BLOCK_FILTERS : CHANNELS) * ITEM);
    }
    UNROLLED(q, LOOKS) {
        u32 a[4];
        matrices<half ? 2 : 4>(a, pixels + q * CHANNELS * ITEM);
        UNROLLED(k, half ? 2 : 4) a[k] = operand(a[k]);
        UNROLLED(s, KERNEL_W) {
            const int j = q - s + (WHOLE ? LEFT : 0);
            if (j >= 0 && j < ACROSS)
                UNROLLED(o, OCTETS) multiply<half>(sums[j][o], a, b[s][o]);
        }
    }
}

// A unit's place: its first picture in the block, row of y, column, filter in the block.
struct Unit {
    int picture, row, column, filter;
};
INLINE Unit unit_at(int i) {
    const int across = i / (PICTURE_GROUPS * ROW_GROUPS), down = i / PICTURE_GROUPS % ROW_GROUPS;
    return {i % PICTURE_GROUPS * TOGETHER, down * DEEP, across % TURNS_ACROSS * ACROSS,
            across / TURNS_ACROSS * 8 * OCTETS};
}

// The warp that finishes column j: both of a pooled pixel.
INLINE int owner_of(int j) { return j / (POOL + 1) % SPLIT; }

// Where the sums of column j lie that warp k has for another, in bytes.
INLINE u32 piece_at(int j, int k, int owner) {
    return (j * (SPLIT - 1) + k - (k > owner)) * OCTETS * 512;
}

// The sums of all warps of a unit at column j: four numbers of a product of octet o.
INLINE void add_up(const float (&sums)[ACROSS][OCTETS][4], int j, int o, u32 mine, float* v) {
    const int owner = owner_of(j);
    UNROLLED(h, 2) {
        float a = 0.0f, b = 0.0f;
        UNROLLED(k, SPLIT) {
            float2 part = make_float2(sums[j][o][2 * h], sums[j][o][2 * h + 1]);
            if (k != owner) part = shared_pair(mine + piece_at(j, k, owner) + (o * 2 + h) * 256);
            a += part.x, b += part.y;
        }
        v[2 * h] = a, v[2 * h + 1] = b;
    }
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

// Of pairs of rows, which neighbouring lanes have, and of columns: each lane finishes one pair.
INLINE void finish(float (&sums)[ACROSS][OCTETS][4], const Unit& unit, int share, u32 mine, int first,
                   int low, int first_filter, const float* bias, T* y, u8* places, int n,
                   float alpha) {
    const int lane = threadIdx.x % 32, lower = lane / 4 % 2;
#pragma unroll
    for (int j = 0; j < ACROSS; j += 2) {
        const int column = (unit.column + j) / 2;
        if (owner_of(j) != share || column >= COLUMNS / 2) continue;
        UNROLLED(o, OCTETS) {
            float v[2][4];
            add_up(sums, j, o, mine, v[0]), add_up(sums, j + 1, o, mine, v[1]);
            u32 taps[4] = {0, 0, 0, 0};
            UNROLLED(e, 4) take(v[1][e], 1, v[0][e], taps[e]);
            const int m = (lane / 4 - lower) + 8 * lower;
            const int picture = first + unit.picture + m / DEEP, row = (low + unit.row + m % DEEP) / 2;
            const int filter = first_filter + unit.filter + o * 8 + lane % 4 * 2;
            float best[2];
            u32 chosen[2];
            UNROLLED(e, 2) {
                // Lanes of upper rows give the second half away, those of lower rows the first.
                const float own = lower ? v[0][2 + e] : v[0][e];
                const u32 own_tap = lower ? taps[2 + e] : taps[e];
                const float other = __shfl_xor_sync(~0u, lower ? v[0][e] : v[0][2 + e], 4);
                const u32 other_tap = __shfl_xor_sync(~0u, lower ? taps[e] : taps[2 + e], 4);
                best[e] = lower ? other : own, chosen[e] = lower ? other_tap : own_tap;
                take(lower ? own : other, 2 + (lower ? own_tap : other_tap), best[e], chosen[e]);
                best[e] = ended(best[e], bias && filter + e < FILTERS ? bias[filter + e] : 0.0f, alpha);
            }
            if (picture >= n || row >= ROWS / 2) continue;
            const i64 at = (((i64)picture * (ROWS / 2) + row) * (COLUMNS / 2) + column) * POOLED + filter;
            if (POOLED % 2 == 0 && filter < POOLED) {
                put2(y + at, best[0], best[1]);
                *(unsigned short*)(places + at) = chosen[0] | chosen[1] << 8;
            } else if (POOLED % 2) {
                UNROLLED(e, 2)
                    if (filter + e < POOLED) put(y + at + e, best[e]), places[at + e] = chosen[e];
            }
        }
    }
}
#else
// Adds up the columns of a unit that this warp owns, and writes them.
INLINE void finish(float (&sums)[ACROSS][OCTETS][4], const Unit& unit, int share, u32 mine, int first,
                   int low, int first_filter, const float* bias, T* y, u8*, int n, float alpha) {
    const int lane = threadIdx.x % 32;
    [[maybe_unused]] ChannelSums left;
#if SUMS
    left.find(shared_begin() + ROWS_AT + threadIdx.x / 32 * ROW_BYTES, BLOCK_FILTERS, unit.filter);
    if (left.first) {
        // The first column of its own, at whatever pixel: of rows or pictures that are not there, too.
        UNROLLED(j, most(1, least(ACROSS, SPLIT))) {
            if (owner_of(j) != share) continue;
            UNROLLED(o, OCTETS) {
                float v[4];
                add_up(sums, j, o, mine, v);
                const int filter = first_filter + unit.filter + o * 8 + lane % 4 * 2;
                const bool biased = bias && filter < FILTERS;
                const float a = ended(v[0], biased ? bias[filter] : 0.0f, alpha);
                left.begin(o, rounded(a, ended(v[1], biased ? bias[filter + 1] : 0.0f, alpha)));
            }
        }
    }
#endif
    UNROLLED(j, ACROSS) {
        const int column = unit.column + j;
        if (owner_of(j) != share || column >= COLUMNS) continue;
        UNROLLED(o, OCTETS) {
            float v[4];
            add_up(sums, j, o, mine, v);
            UNROLLED(h, 2) {
                const int m = lane / 4 + 8 * h, picture = first + unit.picture + m / DEEP;
                const int row = low + unit.row + m % DEEP;
                const int filter = first_filter + unit.filter + o * 8 + lane % 4 * 2;
                const bool exists = picture < n && row < ROWS && filter < FILTERS;
                // Sums are added up without a branch, which would take as long as all of them.
                if (!SUMS && !exists) continue;
                const float a = ended(v[2 * h], bias && exists ? bias[filter] : 0.0f, alpha);
                const float b = ended(v[2 * h + 1], bias && exists ? bias[filter + 1] : 0.0f, alpha);
                if (SUMS) left.add(o, rounded(a, b), exists);
                if (!exists) continue;
                put2(y + (((i64)picture * ROWS + row) * COLUMNS + column) * FILTERS + filter, a, b);
            }
        }
    }
    if (SUMS) left.leave();
}
#endif

// Grid: (blocks that share the groups of pictures and bands, groups of filters).
KERNEL __launch_bounds__(THREADS, RESIDENT)
    tensor_conv(const T* x, const u8* from, const T* mask, const T* w, const float* bias, T* y,
                u8* places, double* slices, int n, float alpha) {
    enter();
    const u32 base = shared_begin(), zeros = base + ZEROS_AT;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slot = warp / SPLIT;
    const int share = warp % SPLIT, first_filter = blockIdx.y * BLOCK_FILTERS;
    const int groups = parts(n, PICTURES) * BANDS;
    if (SUMS) clear_rows(base + ROWS_AT, THREADS / 32 * ROW_BYTES);
    fetch_filters(base, w, first_filter);
    clear_edges(base + TILE_AT, zeros);
    if (blockIdx.x < groups) fetch_group(base + TILE_AT, x, from, mask, blockIdx.x, n);
    const u32 filter_lane = base + lane_of_filters(lane, false);
    [[maybe_unused]] const u32 half_lane = base + lane_of_filters(lane, true);
    int now = 0;
    for (int group = blockIdx.x; group < groups; group += gridDim.x) {
        const u32 tile = base + TILE_AT + now * TILE_BYTES;
        const bool more = !ONCE && group + gridDim.x < groups;
        arrived();
        __syncthreads();
        if (AHEAD && more) {
            now ^= 1;
            fetch_group(base + TILE_AT + now * TILE_BYTES, x, from, mask, group + gridDim.x, n);
        }
        const int low = group % BANDS * BAND, first = group / BANDS * PICTURES;
        const int above = first_row(group % BANDS) + TOP;
#pragma unroll 1
        for (int at = slot; at - slot < UNITS; at += UNITS_AT_ONCE) {
            const Unit unit = unit_at(at);
            float sums[ACROSS][OCTETS][4];
            UNROLLED(j, ACROSS)
                UNROLLED(o, OCTETS)
                    UNROLLED(e, 4) sums[j][o][e] = 0.0f;
            // Of this lane: its row of y and where that row's first tap is, its half of a step.
            const int row = low + unit.row + lane % 16 % DEEP;
            const int column = (WHOLE ? 0 : unit.column) * CHUNKS + lane / 16;
            const u32 pixels = tile + ((unit.picture + lane % 16 / DEEP) * picture_pitch() +
                                       (row - above) * ROW_PITCH + column) * 16;
            // Rows of the window that see a row of x from any row of the unit.
            const int begin = most(0, TOP - (low + unit.row + DEEP - 1));
            const int end = at < UNITS ? least(KERNEL_H, HEIGHT + TOP - (low + unit.row)) : 0;
            int r = begin + share / STEPS, step = share % STEPS;
#pragma unroll 1
            for (; r < end; r += SPLIT / STEPS) {
                const bool inside = row + r >= TOP && row + r < HEIGHT + TOP;
                const u32 a = (inside ? pixels + r * ROW_PITCH * 16 : zeros + column * 16) + step * 32;
                const int tap_row = (DATA ? KERNEL_H - 1 - r : r) * KERNEL_W;
                const u32 b = unit.filter * (DATA ? 1 : filter_pitch()) * ITEM +
                              tap_row * (DATA ? BLOCK_FILTERS : CHANNELS) * ITEM +
                              step * 2 * CHUNK * (DATA ? filter_pitch() : 1) * ITEM;
                if (CHUNKS % 2 == 0 || step < STEPS - 1) add_row<false>(sums, a, filter_lane + b);
                else add_row<true>(sums, a, half_lane + b);
                step += SPLIT % STEPS;
                if (step >= STEPS) step -= STEPS, ++r;
            }
            // Each of the warps that share a unit adds up the columns that are its own.
            const u32 mine = base + SUMS_AT + slot * ((SPLIT - 1) * ACROSS * OCTETS * 512) + lane * 8;
            if (SPLIT > 1) {
                if (OVER_TILE) __syncthreads();
                UNROLLED(j, ACROSS) {
                    const int owner = owner_of(j);
                    if (owner == share) continue;
                    UNROLLED(o, OCTETS)
                        UNROLLED(h, 2)
                            to_shared(mine + piece_at(j, share, owner) + (o * 2 + h) * 256,
                                      sums[j][o][2 * h], sums[j][o][2 * h + 1]);
                }
                __syncthreads();
            }
            if (at < UNITS)
                finish(sums, unit, share, mine, first, low, first_filter, bias, y, places, n, alpha);
            if (SPLIT > 1 && UNITS > UNITS_AT_ONCE) __syncthreads();
        }
        if (!AHEAD && more) {
            __syncthreads();
            fetch_group(base + TILE_AT, x, from, mask, group + gridDim.x, n);
        }
    }
    if (SUMS)
        leave_slice(slices + first_filter, base + ROWS_AT, THREADS / 32, BLOCK_FILTERS,
                    FILTERS - first_filter, FILTERS);
}
