// The end of a step of ranks in one launch: the sum of what they have computed (peers.cuh), the update
// by SGD (sgd.cuh) of that and of what was added up before, and the next part that this rank computes
// (next_batch.cuh).

// The values of a sum, and the update of the parameters whose gradients they are. place: where the
// first lies among all, in fours; rules: as of follow_fours.
INLINE void follow_ranks(Talk& talk, const Values& values, int place, const float2* rules,
                         const Sgd& sgd) {
    wait();
    const i64 now = *sgd.step;
    talk.begin();
    talk.send(values);
    // What depends on no other rank, while its values are on their way.
    const float rate = sgd.rates[now];
    Fours next;
    const auto ask = [&](int i) {
        const int at = place + values.place(i);
        next.ask(sgd, at, rules[at / 8]);
    };
    int i = talk.first();
    if (i < values.fours) ask(i);
    tell();
    const unsigned turn = sgd.begin();
    talk.meet();
    while (i < values.fours) {
        const float4 total = talk.sum(values, i);
        float gradients[4];
        put4(values.to + 4 * values.place(i), total);
        unpack(total, gradients);
        next.move(sgd, gradients, rate);
        i += talk.stride();
        if (i < values.fours) ask(i);
    }
    sgd.end(turn, now);
    talk.end();
}

// The blocks, in this order: WORKERS and one more for the sum and the metrics, `gathers` for the next
// part, and the rest of the parameters; see add_over_ranks and step_end. rules: 0 of what is summed
// here; summed: of that.
KERNEL __launch_bounds__(SUM_THREADS, 2)
    ranks_end(const float* from, float factor, float* to, int fours, int split, int gap,
              char* const* memory, int rank, int area, double* part, double* kept, double* sums,
              int parts, i64* counted, int uncounted, int place, const float2* summed,
              float* p, const float* g, float* v, bfloat* copy, int all, const float2* rules,
              const float* rates, i64* step, unsigned* come_count, float momentum, int nesterov,
              const u8* images, const int* labels, const int* order, T* x, int* target,
              const float* scale, const float* shift, int n, int each, const Place* next,
              int every, int first, int gathers) {
    const Sgd sgd = {p, g, v, copy, rates, step, come_count, momentum, nesterov, nullptr};
    int block = blockIdx.x;
    Talk talk = {memory, rank, area, block};
    if (block < WORKERS)
        return follow_ranks(talk, {from, factor, to, fours, split, gap}, place, summed, sgd);
    if (block == WORKERS) {
        wait();
        const i64 now = *step;
        tell();
        const unsigned turn = sgd.begin();
        add_metrics(talk, {part, kept, sums, parts, counted, uncounted});
        return sgd.end(turn, now);
    }
    block -= WORKERS + 1;
    if (block < gathers)
        return gather_next(block, images, labels, order, x, target, scale, shift, n, each, next, every,
                           first, sgd);
    follow_fours(block - gathers, all, rules, sgd);
}
