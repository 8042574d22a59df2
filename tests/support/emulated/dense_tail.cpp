// dense_tail.cu on the processor.
#include "device.hpp"

#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
using std::max;
using std::min;
static float4 pack(const float* v) { return {v[0], v[1], v[2], v[3]}; }
static void put4(float* p, float4 v) { memcpy(p, &v, sizeof v); }
static void put4(bfloat* p, float4 v) { put2(p, v.x, v.y), put2(p + 2, v.z, v.w); }
static void __threadfence_block() {}
static float __fdividef(float a, float b) { return a / b; }
static double __shfl_xor_sync(u32 all, double v, int lanes) {
    u32 words[2];
    memcpy(words, &v, 8);
    for (u32& word : words) word = __shfl_xor_sync(all, word, lanes);
    memcpy(&v, words, 8);
    return v;
}
// As common.cuh.
template <typename N>
static N warp_sum(N v) {
    for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
template <int width>
static void fold(float* v) {
    const bool upper = threadIdx.x & width;
    for (int q = 0; q < width; ++q) {
        const float keep = upper ? v[q + width] : v[q], send = upper ? v[q] : v[q + width];
        v[q] = keep + __shfl_xor_sync(~0u, send, width);
    }
    if constexpr (width > 1) fold<width / 2>(v);
}

#include "activations.cuh"
#include "tail_gradients.cuh"
#include "dense_tail.cu"

extern "C" void tail(const float* pre, const float* b1, const float* w2, const float* b2,
                     const int* target, float* scores, float* dscores, void* dpre, void* row_sums, int n,
                     float smoothing, int mean, int blocks) {
    gridDim.x = blocks, gridDim.y = gridDim.z = 1;
    emulated::launch(THREADS, 0, [=] {
        dense_tail(pre, b1, w2, b2, target, scores, dscores, (T*)dpre, (float2*)row_sums, n, smoothing,
                   mean);
    });
}
extern "C" void gradients(const float* pre, const float* b1, const float* dscores, const void* dpre,
                          const void* row_sums, float* dw2, float* db1, float* db2,
                          int n, float* loss, double* sums, int mean) {
    gridDim.x = parts(STRIDE, SPAN) + 2, gridDim.y = gridDim.z = 1;
    emulated::launch(SPAN * LINES, 0, [=] {
        dense_tail_gradients(pre, b1, dscores, (const T*)dpre, (const float2*)row_sums, dw2, db1, db2,
                             n, loss, sums, mean);
    });
}
