// Copies of channels and planes, changes of layouts, rotated filters, metrics and views on the processor.
#define WITH_COMMON
#include "device.hpp"

#include "activations.cuh"
#include "formulas.cuh"
#define __align__(n) __attribute__((aligned(n)))
static void __threadfence_block() {}
#include "slices.cuh"
#include "gather.cuh"
#include "elementwise.cu"

#include "losses.cu"
#include "lecture.cu"

#include "combine.cu"
// The system has a function of this name.
#define connect connect_planes
#include "classic.cu"

#include "augment.cu"
#include "mix.cu"
#include "least_sure.cu"

double totals[1024], partial[1024];
uint4 drawn[1024];

static void of(int x, int y = 1, int z = 1) { gridDim.x = x, gridDim.y = y, gridDim.z = z; }

extern "C" void narrow(const float* x, void* y, i64 size, const Cast* cast) {
    of(3);
    emulated::launch(64, 0, [=] { convert_to_bf16(x, (T*)y, size, cast); });
}
extern "C" void widen(const void* x, float* y, i64 size, const Cast* cast) {
    of(3);
    emulated::launch(64, 0, [=] { convert_from_bf16((const T*)x, y, size, cast); });
}
extern "C" void rotate(const void* filters, void* out, int outer, int inner, int height, int width,
                       int down, int across, int taps) {
    of(down, across, taps);
    emulated::launch(256, 0, [=] {
        rotate_filters((const T*)filters, (T*)out, outer, inner, height, width);
    });
}
extern "C" void measure(const float* scores, const int* target, const float* loss, double* sums, int n,
                        int classes, int mean, int threads) {
    of(1);
    emulated::launch(threads, 0, [=] { metrics(scores, target, loss, sums, n, classes, mean); });
}
#if WIDE
extern "C" void measure_wide(const float* scores, const int* target, const float* loss, double* sums,
                             int n, int mean, int answer, float threshold, int threads) {
    of(1);
    emulated::launch(threads, 0, [=] {
        metrics_wide(scores, target, loss, sums, n, mean, answer, threshold);
    });
}
#endif
extern "C" void batch(const void* images, int floats, const int* labels, const int* order,
                      const i64* step, void* x, int* target, const float* scale, const float* shift, int n,
                      const int* place, i64* next, unsigned* count, int words, int parts) {
    of(n, parts);
    emulated::launch(32, 0, [=] {
        const Place* p = (const Place*)place;
        if (floats)
            gather_floats((const float*)images, labels, order, step, (T*)x, target, scale, shift, n, p, next,
                          count, words);
        else
            gather_wide((const u8*)images, labels, order, step, (T*)x, target, scale, shift, n, p, next,
                        count, words);
    });
}
extern "C" void gradient(const float* log_p, const int* target, float* dx, int n, int classes,
                         float smoothing, int mean) {
    of(2);
    emulated::launch(256, 0, [=] { loss_backward(log_p, target, dx, n, classes, smoothing, mean); });
}
extern "C" void lecture(const int* target, const float* predict, float* rows, float* loss, int n,
                        int classes, int mean) {
    of(2);
    emulated::launch(64, 0, [=] { one_hot(target, rows, (i64)n * classes, classes); });
    of(1);
    emulated::launch(64, 0, [=] { softmax_loss(predict, rows, loss, n, classes, mean); });
}
extern "C" void sure(const float* scores, const int* target, float* gaps, int* place, int* rows,
                     const int* most, int n, int classes, int size, int blocks) {
    of(blocks);
    emulated::launch(32, 0, [=] { score_gaps(scores, target, gaps, n, classes); });
    of(blocks);
    emulated::launch(32, 0, [=] { least_sure(gaps, target, place, rows, most, n, size); });
}
extern "C" void average(const float* x, float* y, const float* weights, const float* scores,
                        const int* place, int count, int classes, i64 each, i64 size) {
    of(2);
    emulated::launch(32, 0, [=] {
        average_views(x, y, weights, scores, place, count, classes, each, size);
    });
}
extern "C" void seen(const void* x, const int* rows, void* y, const int* table, int views, int n,
                     int outer, int height, int width, int inner) {
    of(views * n);
    emulated::launch(32, 0, [=] {
        ::views((const T*)x, rows, (T*)y, (const View*)table, n, outer, height, width, inner);
    });
}
extern "C" void augment(const u8* images, const int* labels, const int* order, const int* keyed,
                        const i64* step, void* x, int* target, const float* scale, const float* shift,
                        const float* fill, const void* acts, const void* sides, const double* planes,
                        const double* colours, const int* ends, const void* frame, const float* gaussian,
                        float* scratch, i64* next, unsigned* count, int words, int n, int parts) {
    of(n, parts);
    emulated::launch(32, 0, [=] {
        gather_augmented(images, labels, order, keyed, step, (T*)x, target, scale, shift, fill,
                         (const Act*)acts, (const int2*)sides, planes, colours, ends,
                         (const Frame*)frame, gaussian, scratch, next, count, words);
    });
}
extern "C" void mix(const void* x, const int* target, const i64* step, void* y, float* mixed,
                    const int* frame, const unsigned* key, const unsigned* last, const float* tables,
                    int n) {
    of(n);
    emulated::launch(32, 0, [=] {
        mix_samples((const T*)x, target, step, (T*)y, mixed, (const Mixes*)frame, key, last, tables);
    });
}
extern "C" void columns(const void* x, void* y, int fours, unsigned rows, unsigned count, unsigned wide,
                        int xs, int ys, int from, int to) {
    of(3);
    emulated::launch(32, 0, [=] {
        (fours ? copy_fours : copy_columns)((const T*)x, (T*)y, rows, count, wide, xs, ys, from, to);
    });
}
extern "C" void planes(const float* from, float* to, int size, int area, const int* table) {
    of(3);
    emulated::launch(32, 0, [=] { connect(from, to, size, area, table); });
}
extern "C" void drop(const void* x, void* y, u8* mask, unsigned size, const int* places, const i64* step,
                     int parts, unsigned alike, const unsigned* key, unsigned threshold, float scale) {
    of(2);
    emulated::launch(32, 0, [=] {
        dropout((const T*)x, (T*)y, mask, size, (const Places*)places, step, parts, alike, key[0], key[1],
                threshold, scale);
    });
}
