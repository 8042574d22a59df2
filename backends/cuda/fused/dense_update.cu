// The update of a dense layer's weights with their gradient alone, as a search times and checks it: see
// weights.cuh.

// Grid: (groups of columns, groups of rows). p, v, copy: of this layer alone.
KERNEL __launch_bounds__(THREADS)
    dense_update(const T* a, const T* b, float* p, float* v, bfloat* copy, const float2* rule,
                 const float* rates, i64* step, float momentum, int nesterov) {
    const Sgd sgd = {p, nullptr, v, copy, rates, step, nullptr, momentum, nesterov, nullptr};
    update_weights(blockIdx.x, blockIdx.y, a, b, rule, 0, sgd);
}
