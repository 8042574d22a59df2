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

// The same over rows of `groups`, with the sums of dx over the rows of this block in slices.
// In bfloat16 a thread asks for two rows at once. dx null: the sums alone.
KERNEL __launch_bounds__(256, EACH == 8 ? 3 : 4)
activation_backward_sums(const T* value, const T* dy, T* dx, i64 rows, int groups, float alpha,
                         float* slices) {
    enter();
    constexpr int PAIR = BFLOAT ? 2 : 1;
    static_assert(SHORT % PAIR == 0);
    __shared__ float4 shared[256];
    const int height = 256 / groups, row = threadIdx.x / groups, group = threadIdx.x - row * groups;
    double total[EACH] = {};
    const i64 step = (i64)gridDim.x * height, apart = step * groups * EACH;
    for (i64 r = blockIdx.x * (i64)height + row; row < height && r < rows;) {
        const i64 stop = min(rows, r + SHORT * step);
        float sum[EACH] = {};
        for (; r < stop; r += PAIR * step) {
            const i64 at = (r * groups + group) * EACH;
            Group values[PAIR], gradients[PAIR];
            UNROLLED(k, PAIR) {
                if (r + k * step >= stop) break;
                values[k] = *(const Group*)(value + at + k * apart);
                gradients[k] = *(const Group*)(dy + at + k * apart);
            }
            UNROLLED(k, PAIR) {
                if (r + k * step >= stop) break;
                float v[EACH], d[EACH];
                load(values[k], v), load(gradients[k], d);
                UNROLLED(c, EACH) {
                    d[c] *= slope(KIND, v[c], alpha);
                    sum[c] += d[c];
                }
                if (dx) store(dx + at + k * apart, d);
            }
        }
        UNROLLED(c, EACH) total[c] += sum[c];
    }
#pragma unroll
    for (int f = 0; f < EACH; f += 4) {
        const float4 own = make_float4(total[f], total[f + 1], total[f + 2], total[f + 3]);
        const float4 sum = column_sum(own, groups, height, shared);
        if (threadIdx.x < groups)
            put4(slices + ((i64)blockIdx.x * groups + threadIdx.x) * EACH + f, sum);
        __syncthreads();
    }
}
