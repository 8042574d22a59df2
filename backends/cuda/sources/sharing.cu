// Weights that share their values: codes are whole numbers, 0 for a weight that is pruned.

struct WeightSegment {
    const float *codes, *centroids;
    float* p;
    bfloat* copy;  // null, or the copy of p
    int size, unused;
};

struct SumSegment {
    const float *g, *codes;
    float* sums;
    int size, unused;
};

// Block i works on four elements a thread of segment where[i].x, from element where[i].y on.
KERNEL share_weights(const WeightSegment* segments, const int2* where) {
    enter();
    const WeightSegment s = segments[where[blockIdx.x].x];
    for (int k = 0, i = where[blockIdx.x].y + threadIdx.x; k < 4; ++k, i += blockDim.x) {
        if (i >= s.size) continue;
        const int code = (int)s.codes[i];
        const float w = code ? s.centroids[code - 1] : 0.0f;
        s.p[i] = w;
        if (s.copy) put(s.copy + i, w);
    }
}

// Block i adds up the gradients of centroid where[i].y of segment where[i].x, in a fixed order.
KERNEL sum_shared(const SumSegment* segments, const int2* where) {
    enter();
    extern __shared__ double partial[];
    const SumSegment s = segments[where[blockIdx.x].x];
    const int centroid = where[blockIdx.x].y;
    const float code = (float)(centroid + 1);
    double sum = 0.0;
    OF_BLOCK(i, s.size) if (s.codes[i] == code) sum += s.g[i];
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) s.sums[centroid] = (float)sum;
}
