// step_end.cu on the processor.
#define WITH_COMMON
#include "device.hpp"

#define __align__(n) __attribute__((aligned(n)))
static void __threadfence_block() {}

#include "activations.cuh"
#include "slices.cuh"
#include "sgd.cuh"
#include "tail_gradients.cuh"
#include "gather.cuh"
#include "next_batch.cuh"
#include "weights.cuh"
#include "step_end.cu"

struct Given {
    float* p;
    const float* g;
    float* v;
    bfloat* copy;
    const float2* rules;
    const Segment* segments;
    const int2* where;
    const float* rates;
    i64* step;
    unsigned* come_count;
    const float *pre, *b1, *dscores;
    const T* dpre;
    const float2* row_sums;
    float *dw2, *db1, *db2;
    const void* of;
    float* loss;
    double* metrics;
    const u8* images;
    const int *labels, *order;
    T* x;
    int* target;
    const float *scale, *shift;
    const Place* next;
    const void *left, *right, *of_weights;
    unsigned* loaded;
    float momentum;
    int nesterov, fours, gap, gaps, sums, rows, mean, tails, n, parts, place, across, products, awaited, gathers;
};

extern "C" void run(const Given* given) {
    const Given& o = *given;
    gridDim.x = o.sums + o.products + o.tails + o.gathers + parts(o.fours, SUM_THREADS) - o.gaps;
    gridDim.y = gridDim.z = 1;
#if PRODUCT
    const int bytes = SHARED_BYTES;
#else
    const int bytes = 0;
#endif
    emulated::launch(SUM_THREADS, bytes, [=] {
        step_end(o.p, o.g, o.v, o.copy, o.fours, o.gap, o.gaps, o.rules, o.segments, o.where, o.sums, o.rates, o.step,
                 o.come_count, o.momentum, o.nesterov,
                 o.pre, o.b1, o.dscores, o.dpre, o.row_sums, o.dw2, o.db1, o.db2,
                 (const TailRule*)o.of, o.rows, o.loss, o.metrics, o.mean, o.tails,
                 o.images, o.labels, o.order, o.x, o.target, o.scale, o.shift, o.n, o.parts, o.next,
                 (const T*)o.left, (const T*)o.right, (const float2*)o.of_weights, o.place, o.across,
                 o.products, o.loaded, o.awaited, o.gathers);
    });
}
