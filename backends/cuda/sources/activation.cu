// Activations of eight or four neighbouring channels at a time; KIND, in the order of ACTIVATIONS,
// is fixed when this is compiled, -1 for none. Rows of `stored` channels, of which `columns` count;
// the rest stay zero.

// y = f(x + b), in place too; b null: no bias. `eights`: of y; `groups`: eights in a row.
KERNEL wide_activation(const T* x, const float* b, T* y, int eights, int columns,
                       int groups, float alpha) {
    enter();
    SHORT_LINEAR(int, i, eights) {
        const int first = i % groups * 8;
        float v[8];
        get8(x + (i64)i * 8, v);
        UNROLLED(k, 8) {
            const bool counts = first + k < columns;
            if (b && counts) v[k] += b[first + k];
            if (KIND >= 0) v[k] = activate(KIND, v[k], alpha);
            if (!counts) v[k] = 0.0f;
        }
        put8(y + (i64)i * 8, v);
    }
}

// dx = dy f'(value).
KERNEL wide_activation_backward(const T* value, const T* dy, T* dx, int eights,
                                float alpha) {
    enter();
    SHORT_LINEAR(int, i, eights) {
        float v[8], d[8];
        get8(value + (i64)i * 8, v);
        get8(dy + (i64)i * 8, d);
        UNROLLED(k, 8) d[k] *= slope(KIND, v[k], alpha);
        put8(dx + (i64)i * 8, d);
    }
}

// The same over rows of `groups` fours, with the sums of dx over the rows of this block in slices.
KERNEL activation_backward_sums(const T* value, const T* dy, T* dx, i64 rows, int groups,
                                float alpha, float* slices) {
    enter();
    __shared__ float4 shared[256];
    int height = 256 / groups, row = threadIdx.x / groups, group = threadIdx.x % groups;
    double total[4] = {0.0, 0.0, 0.0, 0.0};
    const i64 step = (i64)gridDim.x * height;
    for (i64 r = blockIdx.x * (i64)height + row; row < height && r < rows;) {
        const i64 stop = min(rows, r + SHORT * step);
        float4 sum = make_float4(0, 0, 0, 0);
        for (; r < stop; r += step) {
            i64 at = (r * groups + group) * 4;
            const float4 d = each(get4(dy + at), get4(value + at),
                                  [&](float d, float v) { return d * slope(KIND, v, alpha); });
            put4(dx + at, d);
            sum += d;
        }
        total[0] += sum.x, total[1] += sum.y, total[2] += sum.z, total[3] += sum.w;
    }
    const float4 own = make_float4(total[0], total[1], total[2], total[3]);
    const float4 sum = column_sum(own, groups, height, shared);
    if (threadIdx.x < groups) ((float4*)slices)[blockIdx.x * groups + threadIdx.x] = sum;
}
