// An optimizer that moves every number by itself: update(p, g, states, rule) is that of a formula,
// with STATES numbers of state.

struct Segment {
    float* p;
    const float* g;
    bfloat* copy;  // null, or the copy of p
    float* states[STATES ? STATES : 1];
    int size;
    float factor, decay;
    int start;
};

KERNEL elementwise_update(const Segment* segments, const int2* where, const float* rates,
                          const i64* step) {
    enter();
    const Segment s = segments[where[blockIdx.x].x];
    const Rule rule = {rates[step[0]] * s.factor, s.decay, step[0] - s.start + 1};
    // Four elements a thread of segment where[block].x, from where[block].y on.
    for (int k = 0, i = where[blockIdx.x].y + threadIdx.x; k < 4 && i < s.size;
         ++k, i += blockDim.x) {
        float states[STATES ? STATES : 1];
        for (int f = 0; f < STATES; ++f) states[f] = s.states[f][i];
        const float p = update(s.p[i], s.g[i], states, rule);
        s.p[i] = p;
        for (int f = 0; f < STATES; ++f) s.states[f][i] = states[f];
        if (s.copy) put(s.copy + i, p);
    }
}
