// Sums of slices: of rows of sums that blocks of other kernels left, each over its part of a batch.

struct Segment {  // sums of `slices` rows, `stride` floats apart, into the `size` floats of `out`
    const float* in;
    float* out;
    // 1 << shift threads share a slice, of which each has `each` neighbours.
    int slices, stride, size, each, shift;
    // What follows from a sum where that is a gradient: the parameter's place among all, the factor of
    // its learning rate, its weight decay.
    int place;
    float factor, decay;

    // Neighbours of a block.
    INLINE int wide() const { return each << shift; }
};

// Slices that a thread asks for at once.
#define AT_ONCE 5
#define SUM_THREADS 256

// The sum of column first + threadIdx.x, for the threads below `wide`. A block of SUM_THREADS: its
// lines of threads share the slices, those of a warp are added first, then the warps in order.
template <int each>
INLINE float slice_sum(const Segment& s, int first, float* part) {
    const int groups = 1 << s.shift, lines = SUM_THREADS >> s.shift, warp = threadIdx.x / 32;
    const int wide = s.wide();
    const int column = (threadIdx.x & groups - 1) * each, line = threadIdx.x >> s.shift;
    float sum[each] = {};
    const int end = first + column < s.size ? s.slices : 0;
    const float* at = s.in + first + column + (i64)line * s.stride;
    for (int r = line; r < end; r += AT_ONCE * lines) {
        unsigned v[AT_ONCE][each];
        UNROLLED(k, AT_ONCE) {
            load_words<each>(v[k], at, r + k * lines < end);
            at += (i64)lines * s.stride;
        }
        // Without it the compiler would save registers, and wait for each of them by itself.
        __threadfence_block();
        UNROLLED(k, AT_ONCE)
            UNROLLED(e, each) sum[e] += __uint_as_float(v[k][e]);
    }
    for (int o = groups; o < 32; o *= 2)
        UNROLLED(e, each) sum[e] += __shfl_xor_sync(~0u, sum[e], o);
    if (threadIdx.x % 32 < groups) {
        float* to = part + warp * wide + column;
        if constexpr (each == 4) put4(to, pack(sum));
        else *to = sum[0];
    }
    __syncthreads();
    float total = 0.0f;
    if (threadIdx.x < wide)
        UNROLLED(w, SUM_THREADS / 32) total += part[w * wide + threadIdx.x];
    return total;
}

INLINE float slice_sum(const Segment& s, int first, float* part) {
    return s.each == 4 ? slice_sum<4>(s, first, part) : slice_sum<1>(s, first, part);
}
// Floats of `part`.
#define SUM_PARTS (SUM_THREADS / 32 * 128)
