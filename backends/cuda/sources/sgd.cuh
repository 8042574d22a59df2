// The update by SGD, block by block: of parameters whose gradients are there, and of those whose
// gradients were left in slices. Compiled behind slices.cuh.

// EARLY: between two updates something tells after it has waited, so that parameters and momentum are
// there before the kernel in front has ended.
#ifndef EARLY
#define EARLY 0
#endif

struct Sgd {
    float* p;
    const float* g;
    float* v;
    bfloat* copy;
    const float* rates;
    i64* step;
    unsigned* come_count;
    float momentum;
    int nesterov;
    // Another count of blocks, which is 0 between launches; see weights.cuh.
    unsigned* loaded;

    // p and v by a gradient; rule: factor of the rate, weight decay.
    INLINE void follow(float& p, float& v, float g, float rate, float2 rule) const {
        float gradient = fmaf(rule.y, p, g);
        if (momentum != 0.0f) {
            v = fmaf(momentum, v, gradient);
            gradient = nesterov ? fmaf(momentum, v, gradient) : v;
        }
        p = fmaf(-rate * rule.x, gradient, p);
    }

    // What a block does before and behind its work, once its threads have read the step.
    INLINE unsigned begin() const { return come_count ? come(come_count) : 0; }
    INLINE void end(unsigned turn, i64 now) const {
        if (come_count) leave(come_count, turn, step, now + 1);
        if (loaded && threadIdx.x == 0 && turn == gridDim.x * gridDim.y - 1) *loaded = 0;
    }
};

// One parameter on its way: asked for before its gradient is known, then moved.
struct Moving {
    float value, velocity;
    int at;
    bool moves, remembers;

    INLINE void ask(const Sgd& sgd, int place, bool exists, float factor) {
        at = place, moves = exists && factor != 0.0f, remembers = moves && sgd.momentum != 0.0f;
        value = moves ? sgd.p[at] : 0.0f, velocity = remembers ? sgd.v[at] : 0.0f;
    }
    INLINE void move(const Sgd& sgd, float gradient, float rate, float2 rule) {
        if (!moves) return;
        sgd.follow(value, velocity, gradient, rate, rule);
        sgd.p[at] = value;
        if (remembers) sgd.v[at] = velocity;
        if (sgd.copy) put(sgd.copy + at, value);
    }
};

// The parameters whose gradients a block adds up.
INLINE void follow_sums(int block, const Segment* segments, const int2* where, const Sgd& sgd) {
    __shared__ __align__(16) float part[SUM_PARTS];
    // Written by no kernel.
    const int2 here = where[block];
    const Segment s = segments[here.x];
    const int element = here.y + threadIdx.x;
    const bool exists = threadIdx.x < s.wide() && element < s.size;
    Moving parameter;
    if (EARLY) parameter.ask(sgd, s.place + element, exists, s.factor);
    wait();
    const i64 now = *sgd.step;
    if (!EARLY) parameter.ask(sgd, s.place + element, exists, s.factor);
    const float rate = sgd.rates[now], sum = slice_sum(s, here.y, part);
    tell();
    const unsigned turn = sgd.begin();
    if (exists) s.out[element] = sum;
    parameter.move(sgd, sum, rate, make_float2(s.factor, s.decay));
    sgd.end(turn, now);
}

// Four neighbours on their way, which belong to one parameter.
struct Fours {
    float ps[4], vs[4];
    float2 rule;
    int at;

    INLINE bool moves() const { return rule.x != 0.0f; }
    INLINE void ask(const Sgd& sgd, int i, float2 r) {
        at = 4 * i, rule = r;
        if (moves()) unpack(get4(sgd.p + at), ps);
        if (moves() && sgd.momentum != 0.0f) unpack(get4(sgd.v + at), vs);
    }
    INLINE void move(const Sgd& sgd, const float* gradients, float rate) {
        if (!moves()) return;
        UNROLLED(k, 4) sgd.follow(ps[k], vs[k], gradients[k], rate, rule);
        put4(sgd.p + at, pack(ps));
        if (sgd.momentum != 0.0f) put4(sgd.v + at, pack(vs));
        if (sgd.copy) put4(sgd.copy + at, pack(ps));
    }
};

// The block of a number, without the `gaps` blocks from `gap` on: those of what another kernel moves.
INLINE int beyond(int block, int gap, int gaps) { return block < gap ? block : block + gaps; }

// Four neighbours a thread: all at once, while the step and then its rate are on their way.
// rules[tile]: what the 32 neighbours of a tile have in common.
INLINE void follow_fours(int block, int fours, const float2* rules, const Sgd& sgd) {
    const int i = block * SUM_THREADS + threadIdx.x;
    const float2 rule = i < fours ? rules[i / 8] : make_float2(0.0f, 0.0f);
    Fours mine;
    if (!EARLY) wait();
    mine.ask(sgd, i, rule);
    if (EARLY) wait();
    float gradients[4];
    const i64 now = *sgd.step;
    if (mine.moves()) unpack(get4(sgd.g + 4 * i), gradients);
    const float rate = sgd.rates[now];
    tell();
    const unsigned turn = sgd.begin();
    mine.move(sgd, gradients, rate);
    sgd.end(turn, now);
}
