// Local response normalisation across the channels of channels-last pictures: rows of 4 * groups
// stored channels, of which those that do not count are zero and stay so. A block takes as many
// rows at a time as there is room for, and holds their squares in shared memory.

// The sums over the `reach` neighbours to both sides of four channels, from the first to the last.
INLINE float4 nearby(const float4* line, int group, int groups, int reach) {
    const int far = (reach + 3) / 4;
    float sum[4] = {0, 0, 0, 0};
    for (int q = max(group - far, 0); q <= min(group + far, groups - 1); ++q) {
        float e[4];
        unpack(line[q], e);
        UNROLLED(j, 4)
            UNROLLED(k, 4)
                if (abs((q - group) * 4 + j - k) <= reach) sum[k] += e[j];
    }
    return pack(sum);
}

// s^-beta; for Krizhevsky's 3/4 without a logarithm.
INLINE float damped(float s, float beta) {
    float root = 1.0f / sqrtf(s);
    return beta == 0.75f ? root * sqrtf(root) : powf(s, -beta);
}

// s = k + share times the sum of squares nearby, y = x s^-beta.
KERNEL lrn_forward(const T* x, T* __restrict__ y, int rows, int groups,
                   int reach, float share, float beta, float k) {
    enter();
    __shared__ float4 squares[256];
    const int lines = blockDim.x / groups, line = threadIdx.x / groups;
    const int group = threadIdx.x - line * groups;
    for (int base = blockIdx.x * lines; base < rows; base += gridDim.x * lines) {
        const bool inside = line < lines && base + line < rows;
        const i64 at = ((i64)(base + line) * groups + group) * 4;
        float4 v = inside ? get4(x + at) : make_float4(0, 0, 0, 0);
        squares[threadIdx.x] = v * v;
        __syncthreads();
        if (inside) {
            float4 s = nearby(squares + line * groups, group, groups, reach);
            put4(y + at, v * each(s, [&](float e) { return damped(k + share * e, beta); }));
        }
        __syncthreads();
    }
}

// dx = dy s^-beta - 2 share beta x times the sum of dy y / s nearby.
KERNEL lrn_backward(const T* x, const T* y, const T* dy, T* __restrict__ dx, int rows,
                    int groups, int reach, float share, float beta, float k) {
    enter();
    __shared__ float4 squares[256], shares[256];
    const int lines = blockDim.x / groups, line = threadIdx.x / groups;
    const int group = threadIdx.x - line * groups;
    for (int base = blockIdx.x * lines; base < rows; base += gridDim.x * lines) {
        const bool inside = line < lines && base + line < rows;
        const i64 at = ((i64)(base + line) * groups + group) * 4;
        const float4 zero = make_float4(0, 0, 0, 0);
        float4 v = inside ? get4(x + at) : zero, d = inside ? get4(dy + at) : zero;
        float4 out = inside ? get4(y + at) : zero, s = zero;
        squares[threadIdx.x] = v * v;
        __syncthreads();
        if (inside) {
            s = nearby(squares + line * groups, group, groups, reach);
            s = each(s, [&](float e) { return k + share * e; });
            shares[threadIdx.x] = each(d * out, s, [](float a, float b) { return a / b; });
        }
        __syncthreads();
        if (inside) {
            float4 r = nearby(shares + line * groups, group, groups, reach);
            const float twice = 2.0f * share * beta;
            const float4 power = each(s, [&](float e) { return damped(e, beta); });
            put4(dx + at, d * power - v * twice * r);
        }
    }
}
