// norm.cu on the processor.
#define WITH_COMMON
#include "device.hpp"

#include "activations.cuh"
#include "groups.cuh"
#include "norm.cu"

static void of(const int* grid) { gridDim.x = grid[0], gridDim.y = grid[1], gridDim.z = 1; }

extern "C" void sums(const int* grid, const void* x, double* slices, int rows, int groups,
                     int channels, int width) {
    of(grid);
    emulated::launch(256, 0, [=] { moments((const T*)x, slices, rows, groups, channels, width); });
}
extern "C" void forward(const int* grid, const void* x, const void* other, void* y, int rows,
                        int groups, int channels, int width, const float* mean, const float* spread, const float* weight,
                        const float* bias, float eps, float alpha) {
    of(grid);
    emulated::launch(256, 0, [=] {
        normalize((const T*)x, (const T*)other, (T*)y, rows, groups, channels, width, mean, spread, weight, bias, eps,
                  alpha);
    });
}
extern "C" void gradients(const int* grid, const void* x, const void* dy, const void* other,
                          const void* y, void* left, double* slices, int rows, int groups, int channels, int width,
                          const float* mean, const float* inverse_std, const float* weight,
                          const float* bias, float alpha) {
    of(grid);
    emulated::launch(256, 0, [=] {
        gradient_sums((const T*)x, (const T*)dy, (const T*)other, (const T*)y, (T*)left, slices, rows,
                      groups, channels, width, mean, inverse_std, weight, bias, alpha);
    });
}
extern "C" void backward(const int* grid, const void* x, const void* dy, const void* y, void* dx,
                         int rows, int groups, int channels, int width, const float* mean,
                         const float* inverse_std, const float* weight, const float* bias,
                         float alpha, const float* means) {
    of(grid);
    emulated::launch(256, 0, [=] {
        normalize_backward((const T*)x, (const T*)dy, (const T*)y, (T*)dx, rows, groups, channels,
                           width, mean, inverse_std, weight, bias, alpha, means);
    });
}
extern "C" void united(const double* slices, int blocks, int rows, int channels, int stored, float eps,
                       float momentum, float* mean, float* inverse_std, float* running_mean,
                       float* running_var, float* left) {
    const int grid[2] = {(channels + TILE - 1) / TILE, 1};
    of(grid);
    emulated::launch(TILE * PARTS, 0, [=] {
        statistics(slices, blocks, rows, channels, stored, eps, momentum, mean, inverse_std, running_mean,
                   running_var, left);
    });
}
extern "C" void means_of(const double* slices, int blocks, int rows, int channels, int stored, float* db,
                         float* dw, float* means) {
    const int grid[2] = {(channels + TILE - 1) / TILE, 1};
    of(grid);
    emulated::launch(TILE * PARTS, 0, [=] {
        gradient_means(slices, blocks, rows, channels, stored, db, dw, means);
    });
}
