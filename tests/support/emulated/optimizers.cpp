// Updates and averages of optimizers.cu on the processor.
#define WITH_COMMON
#include "device.hpp"

struct alignas(16) double2 { double x, y; };
static double2 make_double2(double a, double b) { return {a, b}; }
static int __popc(u32 v) { return __builtin_popcount(v); }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }

#include "optimizers.cu"

static void of(int blocks) { gridDim.x = blocks, gridDim.y = gridDim.z = 1; }

extern "C" void adam(const void* segments, const void* where, int blocks, const float* rates,
                     const i64* step, double beta1, double beta2, float eps, int decoupled) {
    of(blocks);
    emulated::launch(256, 0, [=] {
        adam_update((const AdamSegment*)segments, (const int2*)where, rates, step, beta1, beta2, eps, decoupled);
    });
}
extern "C" void muon(const void* segments, const void* where, int blocks, const float* rates,
                     const i64* step, const float* norms, int rescale) {
    of(blocks);
    emulated::launch(256, 0, [=] {
        muon_update((const FilterSegment*)segments, (const int2*)where, rates, step, norms, rescale);
    });
}
extern "C" void mean(const void* segments, const void* where, int blocks, const float* decays,
                     const i64* step, int pull) {
    of(blocks);
    emulated::launch(256, 0, [=] {
        average((const MeanSegment*)segments, (const int2*)where, decays, step, pull);
    });
}
