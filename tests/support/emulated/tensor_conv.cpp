// tensor_conv.cu on the processor.
#include "device.hpp"

#include "activations.cuh"
#include "tensor_conv.cu"

extern "C" void sizes(int* bytes, int* threads, int* units) {
    *bytes = SHARED_BYTES, *threads = THREADS, *units = UNITS;
}
extern "C" void run(const void* x, const void* w, const void* bias, void* y, int n, float alpha,
                    const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = 1;
    emulated::launch(THREADS, SHARED_BYTES, [=] {
        tensor_conv((const T*)x, (const T*)w, (const float*)bias, (T*)y, n, alpha);
    });
}
