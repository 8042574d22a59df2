// The end of a training step in one launch: the update by SGD (sgd.cuh), and, if wanted, the gradients
// of a classifier's end in front of their own update (tail_gradients.cuh, with TAIL 1), those of a dense
// layer's weights (weights.cuh, with PRODUCT 1), and the batch of the next step (next_batch.cuh).

// struct TailRule: RULE of sgd.py.
struct TailRule {
    int place;
    float factor, decay;
};

#if TAIL
// A gradient that is stored and followed at once; to null: there is none. place: the parameter's among
// all.
struct Followed {
    float* to;
    const Sgd* sgd;
    float2 rule;
    float rate;
    int place;
    Moving parameter;
    int at;

    INLINE void ask(int i) {
        at = i;
        parameter.ask(*sgd, place + i, to != nullptr, rule.x);
    }
    INLINE void leave(float gradient) {
        if (to) to[at] = gradient;
        parameter.move(*sgd, gradient, rate, rule);
    }
};

INLINE void follow_tail(int block, const float* pre, const float* b1, const float* dscores,
                        const T* dpre, const float2* row_sums, float* dw2, float* db1, float* db2,
                        const TailRule* of, int n, float* loss, double* sums, int mean, const Sgd& sgd) {
    wait();
    const i64 now = *sgd.step;
    const float rate = sgd.rates[now];
    float* const to[3] = {dw2, db1, db2};
    Followed gradients[3];
    UNROLLED(i, 3) {
        const TailRule r = of[i];
        gradients[i].to = to[i], gradients[i].sgd = &sgd, gradients[i].rate = rate;
        gradients[i].rule = make_float2(r.factor, r.decay), gradients[i].place = r.place;
    }
    const unsigned turn = sgd.begin();
    tail_gradients(block, pre, b1, dscores, dpre, row_sums, gradients, n, loss, sums, mean);
    sgd.end(turn, now);
}
#endif

// Blocks that a processor shall hold: so many registers are left to each thread.
#if PRODUCT
#define RESIDENT 2
#elif TAIL
#define RESIDENT (CLASSES > 12 ? 2 : 4)
#else
#define RESIDENT 4
#endif

// The blocks, in this order: `sums` that add up slices, `products` for weights, of which `across` lie
// side by side, `tails` for a classifier's end, `gathers` for the next batch, and the rest of the
// parameters, see sgd_update, without the `gaps` blocks from `gap` on, which products move. Where that
// batch takes the place of what products read, `awaited` of them, it waits until they have: their blocks
// begin earlier, so none waits for it.
KERNEL __launch_bounds__(SUM_THREADS, RESIDENT)
    step_end(float* p, const float* g, float* v, bfloat* copy, int fours, int gap, int gaps, const float2* rules,
             const Segment* segments, const int2* where, int sums, const float* rates, i64* step,
             unsigned* come_count, float momentum, int nesterov,
             const float* pre, const float* b1, const float* dscores, const T* dpre,
             const float2* row_sums, float* dw2, float* db1, float* db2, const TailRule* of, int rows,
             float* loss, double* metrics, int mean, int tails,
             const u8* images, const int* labels, const int* order, T* x, int* target,
             const float* scale, const float* shift, int n, int parts, const Place* next,
             const T* left, const T* right, const float2* of_weights, int place, int across, int products,
             unsigned* loaded, unsigned awaited, int gathers) {
    const Sgd sgd = {p, g, v, copy, rates, step, come_count, momentum, nesterov, loaded};
    int block = blockIdx.x;
    if (block < sums) return follow_sums(block, segments, where, sgd);
    block -= sums;
#if PRODUCT
    if (block < products)
        return update_weights(block % across, block / across, left, right, of_weights, place, sgd);
    block -= products;
#endif
#if TAIL
    if (block < tails)
        return follow_tail(block, pre, b1, dscores, dpre, row_sums, dw2, db1, db2, of, rows, loss,
                           metrics, mean, sgd);
    block -= tails;
#endif
    if (block < gathers)
        return gather_next(block, images, labels, order, x, target, scale, shift, n, parts, next, 1, 0, sgd,
                           loaded, awaited);
    follow_fours(beyond(block - gathers, gap, gaps), fours, rules, sgd);
}
