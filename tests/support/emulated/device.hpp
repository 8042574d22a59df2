// A GPU as far as the kernels on tensor cores need one, on the processor: blocks one after the
// other, threads as contexts that change where they wait for each other. It finds wrong indices,
// missing barriers where a context runs ahead, and reads beyond shared memory, by copies to it also
// beyond what a kernel was given; it tells no times.
// WITH_COMMON: what every file of kernels begins with is common.cuh itself, not what stands for it.
#include "machine.hpp"

#define KERNEL extern "C" void
#define INLINE inline
#define __launch_bounds__(...)
#define __host__
#define __device__
#define UNROLLED(i, n) for (int i = 0; i < (n); ++i)
#define OF_BLOCK(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)

#if BFLOAT
typedef bfloat T;
#else
typedef float T;
#endif
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct int2 { int x, y; };
struct alignas(8) uint2 { u32 x, y; };
struct alignas(4) ushort2 { unsigned short x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };
static float2 make_float2(float a, float b) { return {a, b}; }
static float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
struct alignas(4) uchar4 { u8 x, y, z, w; };
static uint2 make_uint2(u32 a, u32 b) { return {a, b}; }
static uchar4 make_uchar4(u8 a, u8 b, u8 c, u8 d) { return {a, b, c, d}; }
static uint4 make_uint4(u32 a, u32 b, u32 c, u32 d) { return {a, b, c, d}; }
static u32 __byte_perm(u32 a, u32 b, u32 how) {
    const unsigned long long both = (unsigned long long)b << 32 | a;
    u32 v = 0;
    for (int i = 0; i < 4; ++i) v |= u32(both >> (how >> 4 * i & 7) * 8 & 255) << 8 * i;
    return v;
}
static float __uint_as_float(u32 v) { float f; memcpy(&f, &v, 4); return f; }
static u32 __float_as_uint(float f) { u32 v; memcpy(&v, &f, 4); return v; }
using std::isnan;

// A thread's index is read after every pause.
#define RESUMED (threadIdx.x = emulated::current->index)

#ifdef WITH_COMMON
#define __global__
#define __forceinline__ inline
#define __shared__ static
using std::max;
using std::min;
static double rsqrt(double v) { return 1.0 / std::sqrt(v); }
static float __int_as_float(int v) { return __uint_as_float(v); }
static u32 __umulhi(u32 a, u32 b) { return u32((unsigned long long)a * b >> 32); }
static void __threadfence() {}
static u32 atomicAdd(u32* p, u32 v) { *p += v; return *p - v; }
template <typename N>
static N __shfl_xor_sync(u32, N v, int lanes) {
    static_assert(sizeof v % 4 == 0);
    u32 mine[sizeof v / 4];
    memcpy(mine, &v, sizeof v);
    const auto all = emulated::exchange(mine, sizeof v / 4);
    memcpy(&v, all[emulated::current->index % 32 ^ lanes], sizeof v);
    RESUMED;
    return v;
}
#undef KERNEL
#undef INLINE
#undef UNROLLED
#undef OF_BLOCK
#include "common.cuh"
#else
INLINE void enter() {}
INLINE void wait() {}
INLINE void tell() {}
INLINE float get(float v) { return v; }
INLINE float get(bfloat v) { return __uint_as_float(u32(v) << 16); }
static bfloat to_bf16(float v);
INLINE float rounded(float v) { return BFLOAT ? get(to_bf16(v)) : v; }
INLINE float2 rounded(float a, float b) { return {rounded(a), rounded(b)}; }
static bfloat to_bf16(float v) {
    const u32 bits = __float_as_uint(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    return bfloat((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
static u32 to_bf16_pair(float low, float high) { return to_bf16(low) | u32(to_bf16(high)) << 16; }
INLINE float __shfl_xor_sync(u32, float v, int lanes) {
    const u32 mine = __float_as_uint(v);
    const u32 got = emulated::exchange(&mine, 1)[emulated::current->index % 32 ^ lanes][0];
    RESUMED;
    return __uint_as_float(got);
}
INLINE int __shfl_xor_sync(u32, int v, int lanes) {
    const u32 mine = v;
    const int got = emulated::exchange(&mine, 1)[emulated::current->index % 32 ^ lanes][0];
    RESUMED;
    return got;
}
INLINE u32 __shfl_xor_sync(u32, u32 v, int lanes) {
    const u32 got = emulated::exchange(&v, 1)[emulated::current->index % 32 ^ lanes][0];
    RESUMED;
    return got;
}
INLINE float4 get4(const float* p) { return {p[0], p[1], p[2], p[3]}; }
INLINE float4 get4(const bfloat* p) { return {get(p[0]), get(p[1]), get(p[2]), get(p[3])}; }
INLINE void unpack(float4 a, float* v) { v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w; }
INLINE void put(float* p, float v) { *p = v; }
INLINE void put(bfloat* p, float v) { *p = to_bf16(v); }
#endif

INLINE int __shfl_sync(u32, int v, int lane) {
    const u32 mine = v;
    const int got = emulated::exchange(&mine, 1)[lane][0];
    RESUMED;
    return got;
}
INLINE float __shfl_sync(u32, float v, int lane) {
    const u32 mine = __float_as_uint(v);
    const float got = __uint_as_float(emulated::exchange(&mine, 1)[lane][0]);
    RESUMED;
    return got;
}
INLINE void __syncwarp() {
    const u32 nothing = 0;
    emulated::exchange(&nothing, 1);
    RESUMED;
}

// As mma.cuh.
#define CHUNK (BFLOAT ? 8 : 4)
#define ITEM (BFLOAT ? 2 : 4)
constexpr int least(int a, int b) { return a < b ? a : b; }
constexpr int most(int a, int b) { return a > b ? a : b; }
constexpr int parts(int a, int b) { return (a + b - 1) / b; }
INLINE u32 shared_begin() { return 0; }
INLINE void fetch(u32 to, const void* from, bool exists) {
    if (exists) emulated::check_given(from, 16);
    char* place = emulated::coming_to(to);
    if (exists) memcpy(place, from, 16);
    else memset(place, 0, 16);
}
INLINE void fetched() { emulated::open_group(); }
INLINE void arrived() {
    emulated::open_group();
    emulated::arrive(0);
}
template <int groups>
INLINE void arrived_but() { emulated::arrive(groups); }
#ifndef WITH_COMMON
template <int words>
INLINE void load_words(u32* v, const void* from, bool exists) {
    if (exists && size_t(from) % (4 * words)) {
        fprintf(stderr, "%d bytes at %p of memory\n", 4 * words, from);
        abort();
    }
    if (exists) memcpy(v, from, 4 * words);
    else memset(v, 0, 4 * words);
}
#endif
INLINE u32 shared_word(u32 at) { u32 v; memcpy(&v, emulated::at(at, 4), 4); return v; }
INLINE float2 shared_pair(u32 at) { float2 v; memcpy(&v, emulated::at(at, 8), 8); return v; }
INLINE void shared_four(u32 (&v)[4], u32 at) { memcpy(v, emulated::at(at, 16), 16); }
INLINE void word_to_shared(u32 at, u32 v) { memcpy(emulated::written_at(at, 4), &v, 4); }
INLINE void to_shared(u32 at, float a, float b) {
    const float2 v{a, b};
    memcpy(emulated::written_at(at, 8), &v, 8);
}
INLINE void to_shared(u32 at, uint4 v) { memcpy(emulated::written_at(at, 16), &v, 16); }
template <int count, bool turned = false>
INLINE void matrices(u32* r, u32 at) {
    const auto all = emulated::exchange(&at, 1);
    RESUMED;
    const int lane = threadIdx.x % 32;
    for (int m = 0; m < count; ++m) {
        for (int k = 0; k < 8; ++k) emulated::at(all[m * 8 + k][0], 16);
        const int first = turned ? lane % 4 * 2 : lane / 4;
        if (turned) {
            u32 pair[2];
            for (int k = 0; k < 2; ++k) {
                unsigned short v;
                memcpy(&v, emulated::at(all[m * 8 + first + k][0] + lane / 4 * 2, 2), 2);
                pair[k] = v;
            }
            r[m] = pair[0] | pair[1] << 16;
        } else {
            memcpy(&r[m], emulated::at(all[m * 8 + first][0] + lane % 4 * 4, 4), 4);
        }
    }
}
// What a tensor core takes of an operand's 32 bits: two bfloat16, or a float without its last bits.
INLINE double taken(u32 v, int which) {
    if (BFLOAT) return __uint_as_float(which ? v & 0xffff0000u : v << 16);
    return which ? 0.0 : __uint_as_float(v & ~0x1fffu);
}
template <bool half>
INLINE void multiply(float* c, const u32* a, const u32* b) {
    const u32 mine[6] = {a[0], a[1], half ? 0 : a[2], half ? 0 : a[3], b[0], half ? 0 : b[1]};
    const auto all = emulated::exchange(mine, 6);
    RESUMED;
    const int lane = threadIdx.x % 32;
    for (int h = 0; h < 2; ++h)
        for (int e = 0; e < 2; ++e) {
            double sum = c[2 * h + e];
            for (int chunk = 0; chunk < (half ? 1 : 2); ++chunk)
                for (int k = 0; k < 4; ++k)
                    for (int which = 0; which < 2; ++which)
                        sum += taken(all[lane / 4 * 4 + k][2 * chunk + h], which) *
                               taken(all[(lane % 4 * 2 + e) * 4 + k][4 + chunk], which);
            c[2 * h + e] = float(sum);
        }
}
INLINE u32 operand(u32 v) {
    return BFLOAT ? v : __float_as_uint(__uint_as_float(v) * 1.000352f);
}
INLINE void put2(float* p, float a, float b) { p[0] = a, p[1] = b; }
INLINE void put2(bfloat* p, float a, float b) { p[0] = to_bf16(a), p[1] = to_bf16(b); }
