// warpgroup_filter.cu on the processor.
#include "device.hpp"
#include "warpgroup.hpp"

#include "spread.cuh"
#include "warpgroup_filter.cu"

extern "C" void sizes(int* bytes, int* threads, int* units) {
    *bytes = SHARED_BYTES, *threads = THREADS, *units = UNITS;
}
extern "C" void run(const void* x, const void* dy, const void* from, const void* mask,
                    void* slices, i64 stride, int n, const int* grid) {
    gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = grid[2];
    emulated::launch_warpgroups(THREADS, SHARED_BYTES, [=] {
        warpgroup_filter((const T*)x, (const T*)dy, (const u8*)from, (const T*)mask, (float*)slices,
                         stride, n);
    });
}
