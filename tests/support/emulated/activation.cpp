// activation.cu on the processor.
#define WITH_COMMON
#include "device.hpp"

#include "activations.cuh"
#include "groups.cuh"
#include "activation.cu"

extern "C" void sums(const void* value, const void* dy, void* dx, i64 rows, int groups, float alpha,
                     float* slices, int blocks) {
    gridDim.x = blocks, gridDim.y = gridDim.z = 1;
    emulated::launch(256, 0, [=] {
        activation_backward_sums((const T*)value, (const T*)dy, (T*)dx, rows, groups, alpha, slices);
    });
}

// Of the activation itself, and of its slope, without a rounding behind them.
extern "C" void curve(const float* x, float* y, float* dy, i64 n, float alpha) {
    for (i64 i = 0; i < n; ++i) y[i] = activate(KIND, x[i], alpha), dy[i] = slope(KIND, x[i], alpha);
}
