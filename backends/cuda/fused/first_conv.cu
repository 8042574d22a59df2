// A first convolution on pictures of one channel, with its bias, a ReLU if there is one, and the
// max-pool of 2 by 2 behind it, in one pass over the picture; and the gradient of its filters
// through the pool. The convolution's own output, the largest tensor of a small net, never exists.
//
// Compiled for one geometry: HEIGHT, WIDTH of the picture, KERNEL_H, KERNEL_W, PAD on every side,
// FILTERS, STORED (channels of y in memory, a multiple of four), ROWS, COLUMNS of y, WITH_RELU, and
// BLOCK threads of forward; WARPS of backward, and SPLIT: into how many parts it cuts a picture.

// Groups of four filters; channels stored beyond them stay zero.
#define GROUPS ((FILTERS + 3) / 4)
// Four filters of one group, so apart that float4 reads of neighbouring groups do not collide.
#define FOURS ((TAPS + 3) / 4)
#define GROUP_PITCH (16 * FOURS + 4)
#define PAIRS ((FILTERS + 1) / 2)

INLINE float pixel(float v) { return v; }

// What the four windows under one pooled pixel see.
INLINE void load_patch(const float* picture, int position,
                                           float patch[KERNEL_H + 1][KERNEL_W + 1]) {
    const float* corner = picture + 2 * (position / COLUMNS) * PITCH + 2 * (position % COLUMNS);
#pragma unroll
    for (int h = 0; h <= KERNEL_H; ++h)
#pragma unroll
        for (int w = 0; w <= KERNEL_W; w += 2) {
            float2 pair = *(const float2*)&corner[h * PITCH + w];
            patch[h][w] = pair.x;
            if (w < KERNEL_W) patch[h][w + 1] = pair.y;
        }
}

// Grid: (blocks that share the n pictures, parts of a picture); a thread computes four channels of
// one pooled pixel.
KERNEL __launch_bounds__(BLOCK, 3)
    first_conv_pool(const T* x, const float* w, const float* bias, T* y, u8* index, int n) {
    enter();
    __shared__ __align__(16) float pictures[2][TALL * PITCH];
    __shared__ __align__(16) float filters[GROUPS * GROUP_PITCH];
    __shared__ float biases[4 * GROUPS];
    Ahead<BLOCK> ahead;
    ahead.load(x + (i64)blockIdx.x * PIXELS);
    if (PAD) clear(pictures[0], 2 * TALL * PITCH);
    for (int i = threadIdx.x; i < 4 * GROUPS * TAPS; i += BLOCK) {
        int filter = i / TAPS, tap = i % TAPS;
        filters[filter / 4 * GROUP_PITCH + filter % 4 * 4 * FOURS + tap] =
            filter < FILTERS ? w[i] : 0.0f;
    }
    for (int i = threadIdx.x; i < 4 * GROUPS; i += BLOCK)
        biases[i] = bias && i < FILTERS ? bias[i] : 0.0f;
    if (PAD) __syncthreads();
    ahead.store(pictures[0]);
    __syncthreads();
    int now = 0;
    for (int sample = blockIdx.x; sample < n; sample += gridDim.x, now ^= 1) {
        bool more = sample + gridDim.x < n;
        if (more) ahead.load(x + (i64)(sample + gridDim.x) * PIXELS);
        for (int item = blockIdx.y * BLOCK + threadIdx.x; item < POSITIONS * GROUPS;
             item += gridDim.y * BLOCK) {
            int group = item % GROUPS, position = item / GROUPS;
            float patch[KERNEL_H + 1][KERNEL_W + 1];
            load_patch(pictures[now], position, patch);
            float out[4];
            unsigned first = 0;
            UNROLLED(c, 4) {
                float taps[4 * FOURS];
                UNROLLED(q, FOURS)
                    *(float4*)&taps[4 * q] =
                        *(const float4*)&filters[group * GROUP_PITCH + c * 4 * FOURS + 4 * q];
                float s[4] = {0, 0, 0, 0};
                UNROLLED(i, KERNEL_H)
                    UNROLLED(j, KERNEL_W)
                        UNROLLED(q, 4)
                            s[q] = fmaf(taps[i * KERNEL_W + j], patch[i + q / 2][j + q % 2], s[q]);
                float best = s[0];
                unsigned where = 0;
#pragma unroll
                for (int q = 1; q < 4; ++q)
                    if (s[q] > best || (isnan(s[q]) && !isnan(best))) best = s[q], where = q;
                float value = best + biases[group * 4 + c];
                if (WITH_RELU) value = value > 0.0f ? value : (isnan(value) ? value : 0.0f);
                out[c] = value;
                first |= where << (8 * c);
            }
            i64 at = ((i64)sample * POSITIONS + position) * STORED + group * 4;
            put4(y + at, pack(out));
            *(unsigned*)(index + at) = first;
        }
        if (more) ahead.store(pictures[now ^ 1]);
        __syncthreads();
    }
}

// slices[part][filter * TAPS + tap] and, behind all filters, [filter]: the gradients of filters and
// biases over the pictures and positions of this part = (blockIdx.x, blockIdx.y). A warp has two
// filters; its lanes share the positions, and each keeps all sums of its own until the end.
KERNEL __launch_bounds__(32 * WARPS, 2)
    first_conv_pool_backward(const T* x, const T* dy, const u8* index, const T* y, float* slices,
                             int n) {
    enter();
    __shared__ __align__(16) float pictures[2][TALL * PITCH];
    const int per_part = (POSITIONS + SPLIT - 1) / SPLIT, turns = (per_part + 31) / 32;
    int lane = threadIdx.x % 32, pair = blockIdx.z * WARPS + threadIdx.x / 32, filter = 2 * pair;
    int begin = blockIdx.y * per_part, end = min(begin + per_part, POSITIONS);
    float a[32], b[32];
    UNROLLED(q, 32) a[q] = 0.0f, b[q] = 0.0f;
    Ahead<32 * WARPS> ahead;
    if (PAD) clear(pictures[0], 2 * TALL * PITCH);
    if (blockIdx.x < n) ahead.load(x + (i64)blockIdx.x * PIXELS);
    int now = 0;
    for (int sample = blockIdx.x; sample < n; sample += gridDim.x, now ^= 1) {
        float da[turns], db[turns];
        int taps[turns];  // of both filters, the second in the upper bits
        UNROLLED(i, turns) {
            int position = begin + lane + 32 * i;
            da[i] = db[i] = 0.0f;
            taps[i] = 0;
            if (position < end && pair < PAIRS) {
                i64 at = ((i64)sample * POSITIONS + position) * STORED + filter;
                bool second = filter + 1 < FILTERS;
                if (!WITH_RELU || get(y[at]) > 0.0f) da[i] = get(dy[at]);
                if (second && (!WITH_RELU || get(y[at + 1]) > 0.0f)) db[i] = get(dy[at + 1]);
                taps[i] = index[at] | (second ? index[at + 1] << 2 : 0);
            }
        }
        if (PAD) __syncthreads();
        ahead.store(pictures[now]);
        __syncthreads();
        if (sample + gridDim.x < n) ahead.load(x + (i64)(sample + gridDim.x) * PIXELS);
        UNROLLED(i, turns) {
            float patch[KERNEL_H + 1][KERNEL_W + 1];
            load_patch(pictures[now], min(begin + lane + 32 * i, POSITIONS - 1), patch);
            float ea[4], eb[4];
            UNROLLED(q, 4) {
                ea[q] = (taps[i] & 3) == q ? da[i] : 0.0f;
                eb[q] = taps[i] >> 2 == q ? db[i] : 0.0f;
            }
            UNROLLED(h, KERNEL_H)
                UNROLLED(w, KERNEL_W)
                    UNROLLED(q, 4) {
                        float v = patch[h + q / 2][w + q % 2];
                        a[h * KERNEL_W + w] = fmaf(ea[q], v, a[h * KERNEL_W + w]);
                        b[h * KERNEL_W + w] = fmaf(eb[q], v, b[h * KERNEL_W + w]);
                    }
            a[TAPS] += da[i];
            b[TAPS] += db[i];
        }
    }
    fold<16>(a), fold<16>(b);
    float* slice = slices + (i64)(blockIdx.y * gridDim.x + blockIdx.x) * FILTERS * (TAPS + 1);
    for (int q = 0; q < 2; ++q) {
        int mine = filter + q;
        if (mine >= FILTERS) break;
        float sum = q ? b[0] : a[0];
        if (lane < TAPS) slice[mine * TAPS + lane] = sum;
        if (lane == TAPS) slice[FILTERS * TAPS + mine] = sum;
    }
}
