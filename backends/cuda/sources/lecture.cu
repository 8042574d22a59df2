// What the slides compute by kernels of their own: the targets' rows, the loss.

// rows[n][k] = 1 where k is the class of sample n, else 0.
KERNEL one_hot(const int* target, float* rows, i64 size, int classes) {
    enter();
    LINEAR(i, size) rows[i] = target[i / classes] == i % classes;
}

// loss = -sum over samples and classes of target log(predict), or its mean: the slides' kernel in one
// block. There each thread of many blocks writes a sample's loss, and block 0 adds up all of them. But
// __syncthreads() waits for the threads of a block alone, and blocks run in any order: block 0 may
// read what others have yet to write. Here each thread adds up its own samples first.
KERNEL softmax_loss(const float* predict, const float* target, float* loss, int n, int classes,
                    int mean) {
    enter();
    extern __shared__ double totals[];
    double sum = 0.0;
    OF_BLOCK(row, n)
        for (int k = 0; k < classes; ++k) {
            const i64 at = (i64)row * classes + k;
            // 0 log(0) is no number, where softmax has rounded a wrong class to 0.
            if (target[at] != 0.0f) sum -= target[at] * logf(predict[at]);
        }
    sum = block_sum(sum, totals);
    if (threadIdx.x == 0) loss[0] = mean ? sum / n : sum;
}
