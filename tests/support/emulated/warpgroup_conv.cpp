// warpgroup_conv.cu on the processor.
#include "device.hpp"
#include "warpgroup.hpp"

#include "activations.cuh"
#include "spread_chunks.cuh"
#include "rows_ahead.cuh"
#include "warpgroup_conv.cu"

extern "C" void sizes(int* bytes, int* threads, int* units) {
    *bytes = SHARED_BYTES, *threads = THREADS, *units = ROWS;
}
extern "C" void run(const void* x, const void* from, const void* mask, const void* w,
                    const void* bias, void* y, void* places, int n, float alpha, const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = 1;
    emulated::launch_warpgroups(THREADS, SHARED_BYTES, [=] {
        warpgroup_conv((const T*)x, (const u8*)from, (const T*)mask, (const T*)w,
                       (const float*)bias, (T*)y, (u8*)places, n, alpha);
    });
}
