// A kernel of a student's on the processor, called as the library of one in C is.
#include "device.hpp"
#define __global__
#define __shared__ static

#include "own.cu"

extern "C" int lab_call(void** a, const double* n) {
    int launch[7] = {0, 1, 1, 1, 1, 1, 0};
    PLAN(launch, n);
    if (!launch[0]) return 1;
    gridDim.x = launch[0], gridDim.y = launch[1], gridDim.z = launch[2];
    blockDim.x = launch[3], blockDim.y = launch[4], blockDim.z = launch[5];
    emulated::launch(launch[3] * launch[4] * launch[5], launch[6], [=] { KERNEL_CALL(a, n); });
    return 0;
}
extern "C" void* lab_map() { return nullptr; }
