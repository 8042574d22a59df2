
template <typename F>
static void launch(int blocks, int threads, F kernel) {
    gridDim.x = blocks, blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
        brought = 0.0;
        for (int round = 0; round < ROUNDS; ++round) {
            bringing = round < ROUNDS - 1;
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x)
                try { kernel(); } catch (int) {}
        }
    }
}
