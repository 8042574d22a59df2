
#include <cmath>
#include <cstring>
#define __device__
#define KERNEL extern "C" void
#define __forceinline__ inline
#define __shared__
typedef long long i64;
typedef unsigned short bfloat;
struct int2 { int x, y; };
// Ranks that are threads launch side by side.
static thread_local struct { int x; } blockIdx, threadIdx, blockDim, gridDim;
thread_local double totals[1024];
static thread_local bool bringing;
static thread_local double brought;
#define INF HUGE_VALF
#define LINEAR(i, n) \
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); \
         i += (i64)gridDim.x * blockDim.x)
static void enter() {}
static void wait() {}
static void tell() {}
static void put(bfloat* p, float v) {
    unsigned bits;
    memcpy(&bits, &v, 4);
    *p = bits + 0x7fff + (bits >> 16 & 1) >> 16;
}
static void __syncthreads() {}
static double block_sum(double mine, double*) {
    if (!bringing) return brought;
    brought += mine;
    throw 0;
}
