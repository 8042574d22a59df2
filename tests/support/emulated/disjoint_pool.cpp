// disjoint_pool.cu on the processor, compiled for each of the geometries in geometries.hpp.
#define WITH_COMMON
#include "device.hpp"

#undef KERNEL
#define KERNEL static void
#define LAUNCHERS(number) \
    extern "C" void forward_##number(const void* x, void* y, unsigned size, int blocks) { \
        gridDim.x = blocks, gridDim.y = gridDim.z = 1; \
        emulated::launch(256, 0, [=] { geometry_##number::disjoint_pool((const T*)x, (T*)y, size); }); \
    } \
    extern "C" void backward_##number(const void* dy, void* dx, unsigned size, int blocks) { \
        gridDim.x = blocks, gridDim.y = gridDim.z = 1; \
        emulated::launch(256, 0, [=] { geometry_##number::disjoint_pool_backward((const T*)dy, (T*)dx, size); }); \
    }
#include "geometries.hpp"
