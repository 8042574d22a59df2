// max_pool.cu on the processor.
#define WITH_COMMON
#include "device.hpp"

#include "groups.cuh"
#include "max_pool.cu"

extern "C" void forward(const void* x, void* y, u8* index, int outs, const Windows* windows,
                        const float* bias, int relu, int blocks) {
    gridDim.x = blocks, gridDim.y = gridDim.z = 1;
    emulated::launch(256, 0, [=] { max_pool((const T*)x, (T*)y, index, outs, windows, bias, relu); });
}
extern "C" void backward(int disjoint, const void* dy, const u8* index, const void* y, void* dx,
                         int places, const Windows* windows, float* slices, int blocks) {
    gridDim.x = blocks, gridDim.y = gridDim.z = 1;
    const auto kernel = disjoint ? max_pool_backward_disjoint : max_pool_backward;
    emulated::launch(256, 0, [=] {
        kernel((const T*)dy, index, (const T*)y, (T*)dx, places, windows, slices);
    });
}
