// The kernels of Muon in optimizers.cu on the processor.
#define WITH_COMMON
#include "device.hpp"

struct alignas(16) double2 { double x, y; };
static double2 make_double2(double a, double b) { return {a, b}; }
static int __popc(u32 v) { return __builtin_popcount(v); }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }

#include "optimizers.cu"

extern "C" void momentum(const void* segments, const void* where, int blocks, float momentum,
                         int nesterov, float eps, void* partial, float* norms) {
    gridDim.x = blocks, gridDim.y = gridDim.z = 1;
    const auto of = (const FilterSegment*)segments;
    emulated::launch(256, 0, [=] {
        muon_momentum(of, (const int2*)where, momentum, nesterov, (double2*)partial);
    });
    emulated::launch(256, 0, [=] {
        muon_normalize(of, (const int2*)where, momentum, nesterov, eps, (const double2*)partial, norms);
    });
}
extern "C" void update(const void* segments, const void* where, int blocks, const float* rates,
                       const i64* step, const float* norms, int rescale) {
    gridDim.x = blocks, gridDim.y = gridDim.z = 1;
    emulated::launch(256, 0, [=] {
        muon_update((const FilterSegment*)segments, (const int2*)where, rates, step, norms, rescale);
    });
}
