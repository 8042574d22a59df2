// tensor_filter.cu on the processor.
#include "device.hpp"

#include "activations.cuh"
#include "spread.cuh"
#include "sloped.cuh"
#include "tensor_filter.cu"

extern "C" void sizes(int* bytes, int* threads, int* units) {
    *bytes = SHARED_BYTES, *threads = THREADS, *units = UNITS;
}
extern "C" void run(const void* x, const void* dy, const void* from, const void* mask,
                    void* slices, i64 stride, int n, float alpha, const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = grid[2];
    emulated::launch(THREADS, SHARED_BYTES, [=] {
        tensor_filter((const T*)x, (const T*)dy, (const u8*)from, (const T*)mask, (float*)slices,
                      stride, n, alpha);
    });
}
