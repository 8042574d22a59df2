// What formulas work on. A formula's functions stand between this and the kernel that calls them.

// A sample of a loss: `classes` numbers, the class that is right, and what `common` made of them; of a
// wide formula as many numbers that are wanted.
struct Row {
    const float* x;
    int target, classes;
    float common;
    const float* wanted;
    __device__ float right(int k) const { return k == target ? 1.0f : 0.0f; }
};

// What all slopes of a row have in common, of a formula that does not say.
template <typename R>
__device__ float common(R) { return 0.0f; }

// What an update knows of a parameter: its rate in this step, its weight decay, and how many updates
// it has had with this one.
struct Rule {
    float lr, decay;
    i64 t;
};

// Whether a row is not masked, by the first word of its target: a class, or numbers if `wide`.
__device__ __forceinline__ bool counts(int word, bool wide) { return wide ? word != -1 : word >= 0; }

// What a row's gradient counts: 1 over the number of rows that are not masked where mean is asked.
// Every block counts them then.
__device__ __forceinline__ float row_weight(const int* target, int n, int mean, double* totals,
                                            bool wide = false, int words = 1) {
    if (!mean) return 1.0f;
    double count = 0.0;
    for (int row = threadIdx.x; row < n; row += blockDim.x)
        count += counts(target[(i64)row * words], wide);
    count = block_sum(count, totals);
    return 1.0 / fmax(count, 1.0);
}
