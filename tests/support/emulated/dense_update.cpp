// dense_update.cu on the processor.
#define WITH_COMMON
#include "device.hpp"

#define __align__(n) __attribute__((aligned(n)))
static void __threadfence_block() {}

#include "slices.cuh"
#include "sgd.cuh"
#include "weights.cuh"
#include "dense_update.cu"

extern "C" void sizes(int* bytes, int* threads) { *bytes = SHARED_BYTES, *threads = THREADS; }

extern "C" void run(const void* a, const void* b, float* p, float* v, void* copy, const float* rule,
                    const float* rates, i64* step, float momentum, int nesterov, const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = 1;
    emulated::launch(THREADS, SHARED_BYTES, [=] {
        dense_update((const T*)a, (const T*)b, p, v, (bfloat*)copy, (const float2*)rule, rates, step,
                     momentum, nesterov);
    });
}
