// sgd.cu on the processor.
#include "device.hpp"

#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
static float4 pack(const float* v) { return {v[0], v[1], v[2], v[3]}; }
static void put4(float* p, float4 v) { memcpy(p, &v, sizeof v); }
static void put4(bfloat* p, float4 v) { put2(p, v.x, v.y), put2(p + 2, v.z, v.w); }
static void __threadfence_block() {}

// As common.cuh.
static unsigned come(unsigned* come_count) {
    __syncthreads();
    return threadIdx.x == 0 ? (*come_count)++ : 0;
}
static void leave(unsigned* come_count, unsigned turn, i64* counter, i64 value) {
    if (threadIdx.x == 0 && turn == gridDim.x * gridDim.y - 1) *come_count = 0, *counter = value;
}

#include "slices.cuh"
#include "sgd.cuh"
#include "sgd.cu"

extern "C" void run(float* p, const float* g, float* v, bfloat* copy, int fours, const void* rules,
                    const void* segments, const void* where, int sums, const float* rates, i64* step,
                    unsigned* come_count, float momentum, int nesterov) {
    gridDim.x = sums + parts(fours, SUM_THREADS), gridDim.y = gridDim.z = 1;
    emulated::launch(SUM_THREADS, 0, [=] {
        sgd_update(p, g, v, copy, fours, (const float2*)rules, (const Segment*)segments,
                   (const int2*)where, sums, rates, step, come_count, momentum, nesterov);
    });
}
