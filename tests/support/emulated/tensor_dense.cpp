// tensor_dense.cu on the processor.
#include "device.hpp"

#include "activations.cuh"
#include "tensor_dense.cu"

extern "C" void sizes(int* bytes, int* threads, int* stages) {
    *bytes = SHARED_BYTES, *threads = THREADS, *stages = STAGES;
}
extern "C" void run(const void* a, const void* b, const void* bias, void* c, float alpha,
                    const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = 1;
    emulated::launch(THREADS, SHARED_BYTES, [=] {
        tensor_dense((const T*)a, (const T*)b, (const float*)bias, (R*)c, DEPTH, alpha);
    });
}
