// What every file of kernels begins with. All sums run in a fixed order: no float atomics, so that
// two runs give the same bits. T is how activations are stored: float, or bfloat16 as the upper
// half of a float, where BFLOAT is 1; arithmetic is float throughout.

#define KERNEL extern "C" __global__ void
#define INLINE __device__ __forceinline__
typedef unsigned char u8;
typedef unsigned short bfloat;
typedef long long i64;
#if BFLOAT
typedef bfloat T;
#else
typedef float T;
#endif

#ifndef QUIET
#define QUIET 0
#endif
// What every kernel begins with: it waits until the launch in front has ended and what that wrote can
// be seen, see overlap.py; `tell` lets the launch behind take its place and wait so. `enter` tells at
// once, which suits kernels of many blocks: others wait, and tell when their end is near, for what has
// taken its place keeps it from other streams. One that is QUIET only ends. Without effect where
// neither was launched so. No pointer to what is read is __restrict__: it would be read by
// ld.global.nc, for what nobody writes as long as the kernel lives, and that begins before.
INLINE void wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
INLINE void tell() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !QUIET
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
INLINE void enter() { tell(), wait(); }

#define INF __int_as_float(0x7f800000)
#define LINEAR(i, n) \
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)
#define UNROLLED(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)
// Those of a block alone.
#define OF_BLOCK(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)
// The first where all threads and numbers are counted in 32 bits, by this type.
#define SHORT_LINEAR(type, i, n) \
    for (type i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

INLINE float get(float v) { return v; }
INLINE float get(bfloat v) { return __uint_as_float((unsigned)v << 16); }

// Round to nearest, ties to even; NaN stays NaN.
INLINE bfloat to_bf16(float v) {
    unsigned bits = __float_as_uint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    return (bfloat)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
// Two neighbours, rounded so, in one instruction where there is one.
INLINE unsigned to_bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return to_bf16(low) | (unsigned)to_bf16(high) << 16;
#endif
}
// v as it is read again when it has been stored.
INLINE float rounded(float v) {
#if BFLOAT
    return get(to_bf16(v));
#else
    return v;
#endif
}
// Both, as neighbours are stored.
INLINE float2 rounded(float a, float b) {
#if BFLOAT
    const unsigned both = to_bf16_pair(a, b);
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
#else
    return make_float2(a, b);
#endif
}
INLINE void put(float* p, float v) { *p = v; }
INLINE void put(bfloat* p, float v) { *p = to_bf16(v); }

// Four numbers, each by itself.
INLINE float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
INLINE float4 operator-(float4 a, float4 b) {
    return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}
INLINE float4 operator*(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
INLINE float4 operator*(float4 a, float b) {
    return make_float4(a.x * b, a.y * b, a.z * b, a.w * b);
}
INLINE void operator+=(float4& a, float4 b) { a = a + b; }
template <typename F>
INLINE float4 each(float4 a, F f) {
    return make_float4(f(a.x), f(a.y), f(a.z), f(a.w));
}
template <typename F>
INLINE float4 each(float4 a, float4 b, F f) {
    return make_float4(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w));
}
INLINE float4 pack(const float* v) {
    return make_float4(v[0], v[1], v[2], v[3]);
}
INLINE void unpack(float4 a, float* v) {
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
}

// Four neighbours at once; the address is a multiple of four elements.
INLINE float4 get4(const float* p) { return *(const float4*)p; }
INLINE float4 get4(const bfloat* p) {
    uint2 v = *(const uint2*)p;
    return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u),
                       __uint_as_float(v.y << 16), __uint_as_float(v.y & 0xffff0000u));
}
INLINE void put4(float* p, float4 v) { *(float4*)p = v; }
INLINE void put4(bfloat* p, float4 v) {
    *(uint2*)p = make_uint2(to_bf16_pair(v.x, v.y), to_bf16_pair(v.z, v.w));
}

// Eight neighbours at once; the address is a multiple of eight elements.
INLINE void get8(const float* p, float* v) {
    unpack(get4(p), v), unpack(get4(p + 4), v + 4);
}
INLINE void get8(const bfloat* p, float* v) {
    const uint4 u = *(const uint4*)p;
    const unsigned pairs[4] = {u.x, u.y, u.z, u.w};
    UNROLLED(k, 4) {
        v[2 * k] = __uint_as_float(pairs[k] << 16);
        v[2 * k + 1] = __uint_as_float(pairs[k] & 0xffff0000u);
    }
}
INLINE void put8(float* p, const float* v) {
    put4(p, pack(v)), put4(p + 4, pack(v + 4));
}
INLINE void put8(bfloat* p, const float* v) {
    *(uint4*)p = make_uint4(to_bf16_pair(v[0], v[1]), to_bf16_pair(v[2], v[3]), to_bf16_pair(v[4], v[5]),
                            to_bf16_pair(v[6], v[7]));
}

// 4, 2 or 1 words of memory in registers, or zeros. The load is where it is written: a compiler that
// moved it to where it is used would wait for each by itself.
template <int words>
INLINE void load_words(unsigned* v, const void* from, bool exists) {
#if defined(__CUDA_ARCH__)
    if constexpr (words == 4)
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\t"
            "mov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\tmov.u32 %2, 0;\n\tmov.u32 %3, 0;\n\t"
            "@p ld.global.v4.u32 {%0,%1,%2,%3}, [%4];\n\t}"
            : "=&r"(v[0]), "=&r"(v[1]), "=&r"(v[2]), "=&r"(v[3])
            : "l"(from), "r"((unsigned)exists)
            : "memory");
    else if constexpr (words == 2)
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %3, 0;\n\t"
            "mov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\t"
            "@p ld.global.v2.u32 {%0,%1}, [%2];\n\t}"
            : "=&r"(v[0]), "=&r"(v[1])
            : "l"(from), "r"((unsigned)exists)
            : "memory");
    else
        asm volatile(
            "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t"
            "mov.u32 %0, 0;\n\t@p ld.global.u32 %0, [%1];\n\t}"
            : "=&r"(v[0])
            : "l"(from), "r"((unsigned)exists)
            : "memory");
#else
    for (int k = 0; k < words; ++k) v[k] = exists ? ((const unsigned*)from)[k] : 0;
#endif
}

template <typename N>
__device__ N block_sum(N value, N* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    N total = shared[0];
    __syncthreads();
    return total;
}

// The sum over the lanes of a warp, known to all.
template <typename N>
INLINE N warp_sum(N v) {
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
    return v;
}

// Halves of 2 * width sums change sides between lanes, down to one: lane l ends with sum l, added
// over the lanes that differ from it in the bits below 2 * width.
template <int width>
INLINE void fold(float* v) {
    bool upper = threadIdx.x & width;
    UNROLLED(q, width) {
        float keep = upper ? v[q + width] : v[q], send = upper ? v[q] : v[q + width];
        v[q] = keep + __shfl_xor_sync(~0u, send, width);
    }
    if constexpr (width > 1) fold<width / 2>(v);
}

// Terms that are added up one after the other in float; what they give is united in double, or in
// pairs: a long row of equal values would be rounded to the same side again and again.
constexpr int SHORT = 8;

// The sum of term(i) for i = first, first + step and so on below `end`.
template <typename Term>
INLINE double long_sum(i64 first, i64 end, i64 step, Term term) {
    double total = 0.0;
    for (i64 i = first; i < end;) {
        const i64 stop = min(end, i + SHORT * step);
        float sum = 0.0f;
#pragma unroll 4
        for (; i < stop; i += step) sum += term(i);
        total += sum;
    }
    return total;
}

// A counter that the last block to come advances: `come`, once every thread of the block has read
// it, gives the block's turn, `leave` writes where that is the last. `come_count` is 0 in between.
INLINE unsigned come(unsigned* come_count) {
    __syncthreads();
    return threadIdx.x == 0 ? atomicAdd(come_count, 1) : 0;
}

INLINE void leave(unsigned* come_count, unsigned turn, i64* counter, i64 value) {
    if (threadIdx.x == 0 && turn == gridDim.x * gridDim.y - 1) *come_count = 0, *counter = value;
}

// The sum over the rows of a block of a float4 for each of `groups` columns, pairwise: thread
// row * groups + column brings its own, and the threads of row 0 get the sums.
INLINE float4 column_sum(float4 mine, int groups, int rows, float4* shared) {
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (int n = rows, half; n > 1; n = half) {
        half = (n + 1) / 2;
        if (threadIdx.x < (n - half) * groups) {
            mine += shared[threadIdx.x + half * groups];
            shared[threadIdx.x] = mine;
        }
        __syncthreads();
    }
    return mine;
}

// Philox4x32-10 (Salmon et al. 2011) of the counter (block, turn), both low word first.
__device__ uint4 philox(unsigned long long block, unsigned long long turn, unsigned k0,
                        unsigned k1) {
    unsigned c0 = block, c1 = block >> 32, c2 = turn, c3 = turn >> 32;
    UNROLLED(round, 10) {
        unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}
