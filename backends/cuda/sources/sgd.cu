// The update by SGD in one launch, which adds up gradients that were left in slices.

struct Sgd {
    const float* rates;
    i64* now;
    unsigned* come_count;
    float momentum;
    int nesterov;

    // p and v by a gradient; rule: factor of the rate, weight decay.
    INLINE void follow(float& p, float& v, float g, float rate, float2 rule) const {
        float gradient = fmaf(rule.y, p, g);
        if (momentum != 0.0f) {
            v = fmaf(momentum, v, gradient);
            gradient = nesterov ? fmaf(momentum, v, gradient) : v;
        }
        p = fmaf(-rate * rule.x, gradient, p);
    }
};

// The parameters whose gradients a block adds up.
INLINE void follow_sums(float* p, float* v, bfloat* copy, const Segment* segments, const int2* where,
                        const Sgd& sgd) {
    __shared__ __align__(16) float part[SUM_PARTS];
    // Written by no kernel.
    const int2 here = where[blockIdx.x];
    const Segment s = segments[here.x];
    enter();
    const int element = here.y + threadIdx.x, at = s.place + element;
    const bool exists = threadIdx.x < s.wide() && element < s.size, moves = exists && s.factor != 0.0f;
    const bool remembers = moves && sgd.momentum != 0.0f;
    const i64 now = *sgd.now;
    float value = moves ? p[at] : 0.0f, velocity = remembers ? v[at] : 0.0f;
    const float rate = sgd.rates[now], sum = slice_sum(s, here.y, part);
    const unsigned turn = sgd.come_count ? come(sgd.come_count) : 0;
    if (exists) s.out[element] = sum;
    if (moves) {
        sgd.follow(value, velocity, sum, rate, make_float2(s.factor, s.decay));
        p[at] = value;
        if (remembers) v[at] = velocity;
        if (copy) put(copy + at, value);
    }
    if (sgd.come_count) leave(sgd.come_count, turn, sgd.now, now + 1);
}

// Four neighbours a thread, which belong to one parameter: all at once, while the step and then its
// rate are on their way.
INLINE void follow_fours(float* p, const float* g, float* v, bfloat* copy, int i, int fours,
                         const float2* rules, const Sgd& sgd) {
    const float2 rule = i < fours ? rules[i / 8] : make_float2(0.0f, 0.0f);
    enter();
    const bool moves = rule.x != 0.0f, remembers = moves && sgd.momentum != 0.0f;
    const i64 now = *sgd.now;
    float ps[4], gs[4], vs[4] = {};
    if (moves) unpack(get4(p + 4 * i), ps), unpack(get4(g + 4 * i), gs);
    if (remembers) unpack(get4(v + 4 * i), vs);
    const float rate = sgd.rates[now];
    const unsigned turn = sgd.come_count ? come(sgd.come_count) : 0;
    if (moves) {
        UNROLLED(k, 4) sgd.follow(ps[k], vs[k], gs[k], rate, rule);
        put4(p + 4 * i, pack(ps));
        if (remembers) put4(v + 4 * i, pack(vs));
        if (copy) put4(copy + 4 * i, pack(ps));
    }
    if (sgd.come_count) leave(sgd.come_count, turn, sgd.now, now + 1);
}

// PyTorch's SGD over the arenas. The first `sums` blocks add up slices, as sum_slices does, and update
// the parameters whose gradients the sums are; the others do the rest: rules[tile] is what the 32
// neighbours of a tile have in common, (factor of the learning rate, weight decay), where the factor 0
// leaves them alone. v is unused without momentum; copy, if given, gets p rounded to bfloat16. With
// `come_count` the step is advanced too.
KERNEL __launch_bounds__(SUM_THREADS, 6)
    sgd_update(float* p, const float* g, float* v, bfloat* copy, int fours, const float2* rules,
               const Segment* segments, const int2* where, int sums, const float* rates, i64* step,
               unsigned* come_count, float momentum, int nesterov) {
    const Sgd sgd = {rates, step, come_count, momentum, nesterov};
    const int i = (blockIdx.x - sums) * SUM_THREADS + threadIdx.x;
    if (blockIdx.x < sums) follow_sums(p, v, copy, segments, where, sgd);
    else follow_fours(p, g, v, copy, i, fours, rules, sgd);
}
