// The batch of the next step, beside the update of this one. Compiled behind sgd.cuh and gather.cuh.

// SAMPLES of the batch, or one of `parts` of them. The step `now` is followed by batch
// (now + 1) * every + first: of parts of a batch, the first of this rank. `awaited` blocks of the same
// launch, which `loaded` counts, have to read what lies in x first.
INLINE void gather_next(int block, const u8* images, const int* labels, const int* order, T* x,
                        int* target, const float* scale, const float* shift, int n, int parts,
                        const Place* place, int every, int first, const Sgd& sgd,
                        const unsigned* loaded = nullptr, unsigned awaited = 0) {
    wait();
    const Place p = *place;
    const i64 now = *sgd.step;
    if (awaited) {
        if (threadIdx.x == 0)
            while (*(const volatile unsigned*)loaded < awaited) {
            }
        __syncthreads();
    }
    const unsigned turn = sgd.begin();
    tell();
    const int each = SUM_THREADS / SAMPLES, part = block % parts;
    const int sample = block / parts * SAMPLES + threadIdx.x / each, thread = threadIdx.x % each;
    if (sample < n) {
        const int row = order[((now + 1) * every + first) % p.steps * n + sample];
        if (part == 0 && thread == 0) target[sample] = row < 0 ? -1 : labels[row];
        gather_row(images, row, x + (i64)sample * p.sample, scale, shift, p, part * each + thread,
                   parts * each);
    }
    sgd.end(turn, now);
}
