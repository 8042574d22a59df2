// ranks_end.cu on the processor: ranks are processes that share memory.
#define WITH_COMMON
#include "device.hpp"
#include "told.hpp"

#define __align__(n) __attribute__((aligned(n)))
static void __threadfence_block() {}
static double __dadd_rn(double a, double b) { return a + b; }
static float __fmul_rn(float a, float b) { return a * b; }

#include "slices.cuh"
#include "sgd.cuh"
#include "gather.cuh"
#include "next_batch.cuh"
#include "peers.cuh"
#include "ranks_end.cu"

struct Given {
    const float* from;
    float* to;
    char* const* memory;
    double *part, *kept, *sums;
    i64* counted;
    const float2* summed;
    float* p;
    const float* g;
    float* v;
    bfloat* copy;
    const float2* rules;
    const float* rates;
    i64* step;
    unsigned* come_count;
    const u8* images;
    const int *labels, *order;
    T* x;
    int* target;
    const float *scale, *shift;
    const Place* next;
    float factor, momentum;
    int fours, split, gap, rank, parts, uncounted, place, all, nesterov, n, each, every, first, gathers;
};

extern "C" i64 bytes() { return BOXES + i64(AREAS) * 2 * (RANKS - 1) * ROOM; }
extern "C" void run(unsigned seed, const Given* given) {
    const Given& o = *given;
    paces = seed;
    gridDim.x = WORKERS + 1 + o.gathers + parts(o.all, SUM_THREADS);
    gridDim.y = gridDim.z = 1;
    emulated::launch(SUM_THREADS, 0, [=] {
        ranks_end(o.from, o.factor, o.to, o.fours, o.split, o.gap, o.memory, o.rank, 0, o.part, o.kept,
                  o.sums, o.parts, o.counted, o.uncounted, o.place, o.summed,
                  o.p, o.g, o.v, o.copy, o.all, o.rules, o.rates, o.step, o.come_count, o.momentum,
                  o.nesterov,
                  o.images, o.labels, o.order, o.x, o.target, o.scale, o.shift, o.n, o.each, o.next,
                  o.every, o.first, o.gathers);
    });
}
