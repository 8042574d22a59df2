// tensor_first.cu on the processor.
#include "device.hpp"

#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

#include "ahead.cuh"
#include "tensor_first.cu"

extern "C" void forward(const void* x, const float* w, const float* bias, void* y, void* index, int n,
                        const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = 1;
    emulated::launch(32 * WARPS, 0, [=] { tensor_first_pool((const T*)x, w, bias, (T*)y, (u8*)index, n); });
}
extern "C" void backward(const void* x, const void* dy, const void* index, const void* y, float* slices,
                         int n, const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = 1;
    emulated::launch(32 * WARPS, 0, [=] {
        tensor_first_pool_backward((const T*)x, (const T*)dy, (const u8*)index, (const T*)y, slices, n);
    });
}
