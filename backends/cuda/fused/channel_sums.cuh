// What a convolution leaves of its result for the batch norm behind it: of each filter the sum and the
// sum of squares of what a block has written, a slice a block. Batch norm need not read it for them.
//
// Compiled behind mma.cuh, for a unit of OCTETS times eight filters: of octet o a lane has the filters
// lane % 4 * 2 and the next. Each warp has a row in shared memory, for each of the block's filters: in
// double the sum and the sum of squares, counted from a number of its own, so that a large mean costs
// no digits; behind all of these, in float, that number, and how many were added up.
#ifndef SUMS
#define SUMS 0
#endif
// Bytes of a filter in a row.
#define ROW_ITEM 24

INLINE void double_to_shared(u32 at, double v) {
    float2 halves;
    memcpy(&halves, &v, sizeof v);
    to_shared(at, halves.x, halves.y);
}
INLINE double shared_double(u32 at) {
    const float2 halves = shared_pair(at);
    double v;
    memcpy(&v, &halves, sizeof v);
    return v;
}

// Halves of `count` numbers change sides between lanes, then halves of these, until lane l has what
// l / 4 says: number l / 4 of eight, added up over the lanes that differ in l / 4 alone.
template <int count>
INLINE void fold_lanes(float* v) {
    constexpr int half = count / 2;
    const bool upper = threadIdx.x & 4 * half;
    UNROLLED(k, half) {
        const float keep = upper ? v[k + half] : v[k], send = upper ? v[k] : v[k + half];
        v[k] = keep + __shfl_xor_sync(~0u, send, 4 * half);
    }
    if constexpr (half > 1) fold_lanes<half>(v);
}

// Of a unit.
struct ChannelSums {
    float origin[OCTETS][2], sum[OCTETS][2], square[OCTETS][2];
    int count = 0;
    // The row at the unit's first filter, and its second part.
    u32 row, numbers;
    bool first;

    // What the row of a warp has of the unit's filters.
    INLINE void find(u32 begin, int filters, int filter) {
        row = begin + filter * 16, numbers = begin + filters * 16 + filter * 8;
        UNROLLED(o, OCTETS) {
            UNROLLED(e, 2) {
                const float2 known = shared_pair(numbers + (o * 8 + threadIdx.x % 4 * 2 + e) * 8);
                origin[o][e] = known.x, first = known.y == 0.0f;
                sum[o][e] = square[o][e] = 0.0f;
            }
        }
    }
    // Where this is the warp's first unit of these filters, with all lanes.
    INLINE void begin(int o, float2 v) {
        origin[o][0] = __shfl_sync(~0u, v.x, threadIdx.x % 4);
        origin[o][1] = __shfl_sync(~0u, v.y, threadIdx.x % 4);
    }
    INLINE void add(int o, float2 v, bool exists) {
        const float gaps[2] = {exists ? v.x - origin[o][0] : 0.0f, exists ? v.y - origin[o][1] : 0.0f};
        UNROLLED(e, 2) sum[o][e] += gaps[e], square[o][e] += gaps[e] * gaps[e];
        count += o == 0 && exists;
    }
    // Adds the unit's to the row.
    INLINE void leave() {
        const int lane = threadIdx.x % 32, which = lane / 4;
        for (int d = 4; d < 32; d *= 2) count += __shfl_xor_sync(~0u, count, d);
#pragma unroll
        for (int o = 0; o < OCTETS; o += 2) {
            // By octet, number of two, and which of both sums.
            float v[8];
            UNROLLED(k, 8) {
                const int own = o + k / 4;
                v[k] = own < OCTETS ? (k % 2 ? square : sum)[own < OCTETS ? own : 0][k / 2 % 2] : 0.0f;
            }
            fold_lanes<8>(v);
            const int filter = (o + which / 4) * 8 + lane % 4 * 2 + which / 2 % 2;
            if (o + which / 4 < OCTETS) {
                const u32 at = row + filter * 16 + which % 2 * 8;
                double_to_shared(at, shared_double(at) + v[0]);
            }
        }
        UNROLLED(o, lane < 4 ? OCTETS : 0) {
            UNROLLED(e, 2) {
                const u32 at = numbers + (o * 8 + lane * 2 + e) * 8;
                to_shared(at, origin[o][e], shared_pair(at).y + count);
            }
        }
        __syncwarp();
    }
};

// Clears all rows; a barrier must follow.
INLINE void clear_rows(u32 rows, int bytes) {
    OF_BLOCK(i, bytes / 8) to_shared(rows + i * 8, 0.0f, 0.0f);
}

// slices[block][0 and 1][filter]: the rows of all warps, from the first to the last; `exist`: filters of
// the block that there are, of `all`.
INLINE void leave_slice(double* slices, u32 rows, int warps, int filters, int exist, int all) {
    __syncthreads();
    OF_BLOCK(i, warps * filters) {
        const u32 row = rows + i / filters * filters * ROW_ITEM, at = row + i % filters * 16;
        const float2 known = shared_pair(row + filters * 16 + i % filters * 8);
        const double from = known.x, sum = shared_double(at), more = known.y * from;
        double_to_shared(at, sum + more);
        double_to_shared(at + 8, shared_double(at + 8) + from * (2.0 * sum + more));
    }
    __syncthreads();
    OF_BLOCK(i, 2 * filters) {
        const int filter = i % filters, which = i / filters;
        double total = 0.0;
        for (int w = 0; w < warps; ++w)
            total += shared_double(rows + w * filters * ROW_ITEM + filter * 16 + which * 8);
        if (filter < exist) slices[((i64)blockIdx.x * 2 + which) * all + filter] = total;
    }
}
