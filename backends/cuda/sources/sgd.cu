// The update by SGD in one launch, which adds up gradients that were left in slices.

// PyTorch's SGD over the arenas. The first `sums` blocks add up slices, as sum_slices does, and update
// the parameters whose gradients the sums are; the others do the rest: rules[tile] is what the 32
// neighbours of a tile have in common, (factor of the learning rate, weight decay), where the factor 0
// leaves them alone. v is unused without momentum; copy, if given, gets p rounded to bfloat16. With
// `come_count` the step is advanced too.
KERNEL __launch_bounds__(SUM_THREADS, 6)
    sgd_update(float* p, const float* g, float* v, bfloat* copy, int fours, const float2* rules,
               const Segment* segments, const int2* where, int sums, const float* rates, i64* step,
               unsigned* come_count, float momentum, int nesterov) {
    const Sgd sgd = {p, g, v, copy, rates, step, come_count, momentum, nesterov, nullptr};
    const int block = blockIdx.x;
    if (block < sums) follow_sums(block, segments, where, sgd);
    else follow_fours(block - sums, fours, rules, sgd);
}
