// disjoint_pool.cu on the processor.
#define WITH_COMMON
#include "device.hpp"

#include "groups.cuh"
#include "disjoint_pool.cu"

extern "C" void forward(const void* x, void* y, unsigned size, int blocks) {
    gridDim.x = blocks, gridDim.y = gridDim.z = 1;
    emulated::launch(256, 0, [=] { disjoint_pool((const T*)x, (T*)y, size); });
}
extern "C" void backward(const void* dy, void* dx, unsigned size, int blocks) {
    gridDim.x = blocks, gridDim.y = gridDim.z = 1;
    emulated::launch(256, 0, [=] { disjoint_pool_backward((const T*)dy, (T*)dx, size); });
}
