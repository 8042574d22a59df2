// tensor_conv.cu on the processor.
#include "device.hpp"

#include "activations.cuh"
#include "spread.cuh"
#include "channel_sums.cuh"
#include "conv_tile.cuh"
#include "tensor_conv.cu"

extern "C" void sizes(int* bytes, int* threads, int* units) {
    *bytes = SHARED_BYTES, *threads = THREADS, *units = UNITS;
}
extern "C" void run(const void* x, const void* from, const void* mask, const void* w,
                    const void* bias, void* y, void* places, double* slices, int n, float alpha,
                    const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = 1;
    emulated::launch(THREADS, SHARED_BYTES, [=] {
        tensor_conv((const T*)x, (const u8*)from, (const T*)mask, (const T*)w, (const float*)bias,
                    (T*)y, (u8*)places, slices, n, alpha);
    });
}
