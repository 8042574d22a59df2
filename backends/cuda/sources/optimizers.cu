// Optimizers, averages of the weights, sums of gradients: tensors by the piece. Block i works on
// four elements a thread of segment where[i].x, from element where[i].y on.

#define EACH(i, size)                                                                   \
    for (int k = 0, i = where[blockIdx.x].y + threadIdx.x; k < 4; ++k, i += blockDim.x) \
        if (i < (size))

struct AdamSegment {
    float* p;
    const float* g;
    float *m, *v;
    bfloat* copy;  // null, or the copy of p
    int size;
    float factor, decay;
    int start;
};

struct MeanSegment {
    float *a, *p;
    bfloat* copy;
    int size, unused;
};

#ifndef LEVELS
#define LEVELS 1
#endif
// slots: the sums that wait, by level.
struct SumSegment {
    const float* g;
    float* slots[LEVELS];
    int size, unused;
};

// A filter is `rows` rows of `row` numbers. x: its matrix, transposed where `tall`, with `stride`
// numbers from row to row; y: where the iteration ends.
struct FilterSegment {
    float* p;
    const float* g;
    float* v;
    bfloat* copy;
    T *x, *y;
    int size, row, stride, tall, first, blocks;
    float factor, decay, root;
    int index;
};

INLINE int place(const FilterSegment& s, int i) {
    int r = i / s.row, c = i - r * s.row;
    return s.tall ? c * s.stride + r : r * s.stride + c;
}

INLINE float direction(float g, float v, float momentum, int nesterov) {
    return nesterov ? fmaf(momentum, v, g) : v;
}

KERNEL adam_update(const AdamSegment* segments, const int2* where, const float* rates,
                   const i64* step, double beta1, double beta2, float eps, int decoupled) {
    enter();
    __shared__ float bias[2];
    const AdamSegment s = segments[where[blockIdx.x].x];
    if (threadIdx.x == 0) {
        double t = (double)(step[0] - s.start + 1);
        bias[0] = 1.0 / (1.0 - pow(beta1, t));
        bias[1] = 1.0 / sqrt(1.0 - pow(beta2, t));
    }
    __syncthreads();
    float lr = rates[step[0]] * s.factor, rate = lr * bias[0], root = bias[1];
    float b1 = beta1, rest1 = 1.0 - beta1, b2 = beta2, rest2 = 1.0 - beta2;
    float shrink = decoupled ? lr * s.decay : 0.0f, decay = decoupled ? 0.0f : s.decay;
    EACH(i, s.size) {
        float p = s.p[i], g = fmaf(decay, p, s.g[i]);
        float m = b1 * s.m[i] + rest1 * g;
        float v = b2 * s.v[i] + rest2 * g * g;
        // One difference: 1 - shrink would round a small decay away.
        p -= fmaf(shrink, p, rate * m / (sqrtf(v) * root + eps));
        s.p[i] = p, s.m[i] = m, s.v[i] = v;
        if (s.copy) put(s.copy + i, p);
    }
}

// a = d a + (1 - d) p, and p = a where `pull`; a negative d leaves all as it is.
KERNEL average(const MeanSegment* segments, const int2* where, const float* decays,
               const i64* step, int pull) {
    enter();
    float d = decays[step[0]];
    if (d < 0.0f) return;
    const MeanSegment s = segments[where[blockIdx.x].x];
    EACH(i, s.size) {
        float a = d * s.a[i] + (1.0f - d) * s.p[i];
        s.a[i] = a;
        if (!pull) continue;
        s.p[i] = a;
        if (s.copy) put(s.copy + i, a);
    }
}

// v = m v + 0, a segment's a being m and its p being v.
KERNEL mask(const MeanSegment* segments, const int2* where) {
    enter();
    const MeanSegment s = segments[where[blockIdx.x].x];
    EACH(i, s.size) {
        float v = __fadd_rn(__fmul_rn(s.a[i], s.p[i]), 0.0f);
        s.p[i] = v;
        if (s.copy) put(s.copy + i, v);
    }
}

// A part ends as many of the sums that wait as it has ones at the end of its binary digits, the last
// part all. Product and sums are rounded one by one, as where a sum comes from another rank.
KERNEL accumulate(const SumSegment* segments, const int2* where, const i64* step, int parts,
                  float scale) {
    enter();
    const SumSegment s = segments[where[blockIdx.x].x];
    const int part = step[0] % parts, waiting = __popc(part);
    const int ends = part == parts - 1 ? waiting : __popc(part & ~(part + 1));
    EACH(i, s.size) {
        float total = __fmul_rn(scale, s.g[i]);
        for (int level = waiting - 1; level >= waiting - ends; --level)
            total = __fadd_rn(s.slots[level][i], total);
        s.slots[waiting - ends][i] = total;
    }
}

// A thread's elements of an array of a filter, all asked for at once; zeros beyond the last.
INLINE void ask(float (&v)[4], const float* from, int first, int size) {
    UNROLLED(k, 4) {
        const int i = first + threadIdx.x + k * blockDim.x;
        v[k] = i < size ? from[i] : 0.0f;
    }
}

// The sums of both numbers over the block, known to all: of the lanes of each warp, then the warps in
// order.
INLINE double2 both_sums(double2 v) {
    __shared__ double2 parts[32];
    v.x = warp_sum(v.x), v.y = warp_sum(v.y);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    double2 total = make_double2(0.0, 0.0);
    for (int w = 0; w < blockDim.x / 32; ++w) total.x += parts[w].x, total.y += parts[w].y;
    return total;
}

// v = m v + g; partial[block]: the squares of the direction and of p, summed over the piece.
KERNEL muon_momentum(const FilterSegment* segments, const int2* where, float momentum,
                     int nesterov, double2* partial) {
    enter();
    const int2 here = where[blockIdx.x];
    const FilterSegment s = segments[here.x];
    float g[4], v[4], p[4];
    ask(g, s.g, here.y, s.size), ask(v, s.v, here.y, s.size), ask(p, s.p, here.y, s.size);
    double2 sums = make_double2(0.0, 0.0);
    UNROLLED(k, 4) {
        const int i = here.y + threadIdx.x + k * blockDim.x;
        v[k] = fmaf(momentum, v[k], g[k]);
        const float u = direction(g[k], v[k], momentum, nesterov);
        if (i < s.size) s.v[i] = v[k];
        sums.x += (double)u * u, sums.y += (double)p[k] * p[k];
    }
    sums = both_sums(sums);
    if (threadIdx.x == 0) partial[blockIdx.x] = sums;
}

// x = direction / (its norm + eps); norms[index]: that of p.
KERNEL muon_normalize(const FilterSegment* segments, const int2* where, float momentum,
                      int nesterov, float eps, const double2* partial, float* norms) {
    enter();
    const int2 here = where[blockIdx.x];
    const FilterSegment s = segments[here.x];
    float g[4], v[4];
    ask(g, s.g, here.y, s.size), ask(v, s.v, here.y, s.size);
    double2 sums = make_double2(0.0, 0.0);
    OF_BLOCK(b, s.blocks) {
        const double2 each = partial[s.first + b];
        sums.x += each.x, sums.y += each.y;
    }
    sums = both_sums(sums);
    if (threadIdx.x == 0 && here.y == 0) norms[s.index] = sqrt(sums.y);
    const float by = 1.0 / (sqrt(sums.x) + eps);
    UNROLLED(k, 4) {
        const int i = here.y + threadIdx.x + k * blockDim.x;
        if (i < s.size) put(s.x + place(s, i), direction(g[k], v[k], momentum, nesterov) * by);
    }
}

// p = sqrt(O) p / |p| where asked for, then p -= lr (y + decay p).
KERNEL muon_update(const FilterSegment* segments, const int2* where, const float* rates,
                   const i64* step, const float* norms, int rescale) {
    enter();
    const int2 here = where[blockIdx.x];
    const FilterSegment s = segments[here.x];
    float p[4], y[4];
    ask(p, s.p, here.y, s.size);
    UNROLLED(k, 4) {
        const int i = here.y + threadIdx.x + k * blockDim.x;
        y[k] = i < s.size ? get(s.y[place(s, i)]) : 0.0f;
    }
    const float lr = rates[step[0]] * s.factor, norm = norms[s.index];
    const float keep = rescale && norm > 0.0f ? s.root / norm : 1.0f;
    UNROLLED(k, 4) {
        const int i = here.y + threadIdx.x + k * blockDim.x;
        if (i >= s.size) break;
        p[k] = keep * p[k] - lr * fmaf(s.decay * keep, p[k], y[k]);
        s.p[i] = p[k];
        if (s.copy) put(s.copy + i, p[k]);
    }
}
