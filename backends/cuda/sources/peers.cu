// A sum over ranks, with the metrics of the parts: see peers.cuh.
KERNEL add_over_ranks(const float* from, float scale, float* to, int fours, int split, int gap,
                      char* const* memory, int rank, int area, double* part, double* kept,
                      double* sums, int parts, i64* step, int uncounted) {
    enter();
    Talk talk = {memory, rank, area, (int)blockIdx.x};
    if (talk.block == WORKERS) return add_metrics(talk, {part, kept, sums, parts, step, uncounted});
    const Values values = {from, scale, to, fours, split, gap};
    talk.begin();
    talk.send(values);
    talk.meet();
    for (int i = talk.first(); i < fours; i += talk.stride())
        put4(to + 4 * values.place(i), talk.sum(values, i));
    talk.end();
}
