// What formulas work on. A formula's functions stand between this and the kernel that calls them.

// Numbers in a row of targets; 0: each is the number of a class.
#ifndef WIDE
#define WIDE 0
#endif

// A sample of a loss: `classes` numbers, the class that is right, or the numbers that are, and what
// `common` made of them.
struct Row {
    const float* x;
    int target, classes;
    float common;
    const float* wanted;
    __device__ float right(int k) const { return WIDE ? wanted[k] : k == target ? 1.0f : 0.0f; }
    // The number of the class; of a distribution, the mean of those of all.
    __device__ float of(const float* numbers) const {
        if (!WIDE) return numbers[target];
        float mean = 0.0f;
        for (int k = 0; k < WIDE; ++k) mean += wanted[k] * numbers[k];
        return mean;
    }
};

// Whether a sample is not masked.
__device__ __forceinline__ bool counted(const int* target, int row) {
    return WIDE ? target[(i64)row * WIDE] != -1 : target[row] >= 0;
}

__device__ __forceinline__ Row row_of(const float* x, const int* target, i64 i, int classes) {
    return {x + i * classes, WIDE ? 0 : target[i], classes, 0.0f, (const float*)target + i * WIDE};
}

// What all slopes of a row have in common, of a formula that does not say.
template <typename R>
__device__ float common(R) { return 0.0f; }

// What an update knows of a parameter: its rate in this step, its weight decay, and how many updates
// it has had with this one.
struct Rule {
    float lr, decay;
    i64 t;
};

// What a row's gradient counts: 1 over the number of rows that are not masked where mean is asked.
// Every block counts them then.
__device__ __forceinline__ float row_weight(const int* target, int n, int mean, double* totals) {
    if (!mean) return 1.0f;
    double count = 0.0;
    for (int row = threadIdx.x; row < n; row += blockDim.x) count += counted(target, row);
    count = block_sum(count, totals);
    return 1.0 / fmax(count, 1.0);
}
