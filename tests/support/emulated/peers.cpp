// peers.cu on the processor: ranks are processes that share memory, each at its own pace.
#define WITH_COMMON
#include "device.hpp"

#include "told.hpp"

static double __dadd_rn(double a, double b) { return a + b; }
static float __fmul_rn(float a, float b) { return a * b; }

#include "peers.cuh"
#include "peers.cu"

extern "C" i64 bytes() { return BOXES + i64(AREAS) * 2 * (RANKS - 1) * ROOM; }
extern "C" void numbers(i64* found) {
    found[0] = TAIL, found[1] = ROOM, found[2] = AREAS;
}
extern "C" void run(unsigned seed, int threads, const float* from, float scale, float* values,
                    int fours, int split, int gap, char* const* memory, int rank, int area,
                    double* part, double* kept, double* sums, int parts, i64* step, int uncounted) {
    paces = seed;
    gridDim.x = WORKERS + (kept != nullptr), gridDim.y = gridDim.z = 1;
    emulated::launch(threads, 0, [=] {
        add_over_ranks(from, scale, values, fours, split, gap, memory, rank, area, part, kept, sums,
                       parts, step, uncounted);
    });
}
