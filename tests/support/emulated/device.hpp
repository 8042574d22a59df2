// A GPU as far as the kernels on tensor cores need one, on the processor: blocks one after the
// other, threads as contexts that change where they wait for each other. It finds wrong indices,
// missing barriers where a context runs ahead, and reads beyond shared memory, by copies to it also
// beyond what a kernel was given; it tells no times.
// WITH_COMMON: what every file of kernels begins with is common.cuh itself, not what stands for it.
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define KERNEL extern "C" void
#define INLINE inline
#define __launch_bounds__(...)
#define __host__
#define __device__
#define UNROLLED(i, n) for (int i = 0; i < (n); ++i)
#define OF_BLOCK(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)

typedef unsigned u32;
typedef unsigned char u8;
typedef unsigned short bfloat;
typedef long long i64;
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

struct Three { int x = 0, y = 0, z = 0; };
static Three threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
constexpr int STACK = 1 << 16, WORDS = 8;
// What the lanes of a warp exchange: two rounds, since one may be read while the next is written.
struct Warp {
    long brought = 0;
    u32 words[2][32][WORDS];
};
struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};
    int index = 0;
    long rounds = 0;
    bool done = false;
    // Units of 16 bytes that it has written to shared memory and not shown to products of a warpgroup.
    std::vector<u32> hiding;
    // Those that are on their way there, by groups, the last of which is open.
    std::vector<std::vector<u32>> coming{{}};
};
static std::vector<char> shared;
// By units of 16 bytes, the thread that hides one, counted from 1; see warpgroup.hpp.
static std::vector<int> hidden;
static std::vector<Warp> warps;
static std::vector<std::unique_ptr<Thread>> threads;
static Thread* current;
static ucontext_t scheduler;
static long arrived = 0, generation = 0;
static std::function<void()> body;

static void pause() { swapcontext(&current->context, &scheduler); }

static void begin() {
    body();
    current->done = true;
    pause();
}

static char* at(u32 where, int size) {
    if (where % size || where + size > shared.size()) {
        fprintf(stderr, "%d bytes at %u of %zu of shared memory\n", size, where, shared.size());
        abort();
    }
    return shared.data() + where;
}

static char* written_at(u32 where, int size) {
    char* found = at(where, size);
    hidden[where / 16] = current->index + 1;
    current->hiding.push_back(where / 16);
    return found;
}

static u32 (*exchange(const u32* mine, int count))[WORDS] {
    Warp& warp = warps[current->index / 32];
    const long round = ++current->rounds;
    memcpy(warp.words[round % 2][current->index % 32], mine, count * 4);
    ++warp.brought;
    while (warp.brought < round * 32) pause();
    return warp.words[round % 2];
}

static void launch(int threads_of_block, size_t shared_bytes, std::function<void()> kernel) {
    body = std::move(kernel);
    blockDim.x = threads_of_block;
    while (threads.size() < size_t(threads_of_block)) threads.emplace_back(new Thread);
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
                // NaN, as float and as bfloat16, where nothing is written.
                shared.assign(shared_bytes, char(0xff));
                hidden.assign(shared_bytes / 16 + 1, 0);
                warps.assign(threads_of_block / 32, Warp());
                arrived = generation = 0;
                for (int i = 0; i < threads_of_block; ++i) {
                    Thread& thread = *threads[i];
                    thread.index = i, thread.rounds = 0, thread.done = false;
                    thread.hiding.clear(), thread.coming.assign(1, {});
                    getcontext(&thread.context);
                    thread.context.uc_stack.ss_sp = thread.stack.get();
                    thread.context.uc_stack.ss_size = STACK;
                    thread.context.uc_link = nullptr;
                    makecontext(&thread.context, begin, 0);
                }
                // A warp goes on as long as none of it waits for another: as far ahead as it can be.
                for (int left = threads_of_block; left;)
                    for (int first = 0; first < threads_of_block; first += 32) {
                        const int end = std::min(first + 32, threads_of_block);
                        for (long before = -1, rounds = 0; before != rounds;) {
                            before = rounds, rounds = 0;
                            for (int i = first; i < end; ++i) {
                                rounds += threads[i]->rounds;
                                if (threads[i]->done) continue;
                                current = threads[i].get(), threadIdx.x = i;
                                swapcontext(&scheduler, &current->context);
                                left -= current->done;
                            }
                        }
                    }
            }
}
}  // namespace emulated

static void __syncthreads() {
    using namespace emulated;
    const long now = generation;
    if (++arrived == blockDim.x) arrived = 0, ++generation;
    while (generation == now) pause(), threadIdx.x = current->index;
}
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
namespace emulated {
// What copies may read: from here, and so many bytes; anything if nothing is known.
static std::vector<std::pair<const char*, i64>> given;
static void check_given(const void* from, int size) {
    const char* const at = (const char*)from;
    for (const auto& [begin, bytes] : given)
        if (at >= begin && at + size <= begin + bytes) return;
    if (given.empty()) return;
    fprintf(stderr, "%d bytes at %p are none that were given\n", size, from);
    abort();
}
}  // namespace emulated
extern "C" inline __attribute__((used)) void give(const void* from, i64 bytes) {
    emulated::given.push_back({(const char*)from, bytes});
}
INLINE void fetch(u32 to, const void* from, bool exists) {
    if (exists) emulated::check_given(from, 16);
    char* place = emulated::at(to, 16);
    emulated::hidden[to / 16] = emulated::current->index + 1;
    emulated::current->coming.back().push_back(to / 16);
    if (exists) memcpy(place, from, 16);
    else memset(place, 0, 16);
}
// All but the last groups, the open one not counted, are there.
static void arrive(size_t groups) {
    auto& mine = *emulated::current;
    for (; mine.coming.size() > groups + 1; mine.coming.erase(mine.coming.begin()))
        mine.hiding.insert(mine.hiding.end(), mine.coming[0].begin(), mine.coming[0].end());
}
INLINE void arrived() {
    emulated::current->coming.push_back({});
    arrive(0);
}
INLINE void fetched() { emulated::current->coming.push_back({}); }
template <int groups>
INLINE void arrived_but() { arrive(groups); }
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
