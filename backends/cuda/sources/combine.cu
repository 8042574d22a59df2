// Sums, multiples, dropout, and channels copied from one tensor into another.

// A tensor in memory: samples of `each` stored elements, in them pixels of `row` stored channels.
// The element of channel c and pixel p of a sample is number c * pixels + p of the sample.
struct Places {
    int each, row, channels, pixels;
};

// y = f(sum of the terms), from the first to the last; kind -1 is no f. All lie alike. `check`:
// f(0) is not 0, so channels that do not count, (i / inner) % stored >= columns, are set to 0.
KERNEL add_terms(const T* const* terms, int count, T* __restrict__ y, i64 size, int kind,
                 float alpha, int check, int columns, int stored, int inner) {
    enter();
    const T* a = terms[0];
    const T* b = terms[1];
    LINEAR(i, size / 4) {
        float4 sum = get4(a + i * 4) + get4(b + i * 4);
        for (int t = 2; t < count; ++t) sum += get4(terms[t] + i * 4);
        if (kind >= 0) sum = each(sum, [&](float v) { return activate(kind, v, alpha); });
        if (check) {
            float* parts = (float*)&sum;
            for (int k = 0; k < 4; ++k)
                if ((i * 4 + k) / inner % stored >= columns) parts[k] = 0.0f;
        }
        put4(y + i * 4, sum);
    }
    i64 last = size / 4 * 4 + threadIdx.x;
    if (blockIdx.x || last >= size) return;
    float sum = get(a[last]) + get(b[last]);
    for (int t = 2; t < count; ++t) sum += get(terms[t][last]);
    if (kind >= 0) sum = activate(kind, sum, alpha);
    put(y + last, check && last / inner % stored >= columns ? 0.0f : sum);
}

// The same for two terms without f or with ReLU, which is what a residual block ends in.
KERNEL add_two(const T* a, const T* b, T* __restrict__ y, unsigned fours, int relu) {
    enter();
#pragma unroll 4
    SHORT_LINEAR(unsigned, i, fours) {
        float4 v = get4(a + i * 4ull) + get4(b + i * 4ull);
        if (relu) v = each(v, [](float e) { return e < 0.0f ? 0.0f : e; });  // NaN stays
        put4(y + i * 4ull, v);
    }
}

KERNEL scale(const T* x, T* __restrict__ y, i64 size, float factor) {
    enter();
    LINEAR(i, size / 4) put4(y + i * 4, get4(x + i * 4) * factor);
    i64 last = size / 4 * 4 + threadIdx.x;
    if (blockIdx.x == 0 && last < size) put(y + last, get(x[last]) * factor);
}

// y[row][to + i] = x[row][from + i] for i < count, zero for i up to `wide`: rows of xs and ys stored
// elements, all of these numbers counted in `each`.
template <int each>
INLINE void copy_rows(const T* x, T* y, unsigned rows, unsigned count, unsigned wide, int xs, int ys,
                      int from, int to) {
    enter();
    SHORT_LINEAR(unsigned, i, rows * wide) {
        const unsigned row = i / wide, column = i - row * wide;
        const bool exists = column < count;
        const T* in = x + ((i64)row * xs + from + column) * each;
        T* out = y + ((i64)row * ys + to + column) * each;
        if constexpr (each == 4) put4(out, exists ? get4(in) : make_float4(0.0f, 0.0f, 0.0f, 0.0f));
        else *out = exists ? *in : T(0);
    }
}

KERNEL copy_columns(const T* x, T* __restrict__ y, unsigned rows, unsigned count, unsigned wide, int xs,
                    int ys, int from, int to) {
    copy_rows<1>(x, y, rows, count, wide, xs, ys, from, to);
}

// Where all of these numbers are multiples of four.
KERNEL copy_fours(const T* x, T* __restrict__ y, unsigned rows, unsigned count, unsigned wide, int xs,
                  int ys, int from, int to) {
    copy_rows<4>(x, y, rows, count, wide, xs, ys, from, to);
}

// mask = 1 where the word of an element is at least the threshold, y = scale x mask. Element e is
// counted over (N, C, H, W), from the first of the batch, and `alike` of them share a word; a thread
// takes four neighbours in memory.
KERNEL dropout(const T* x, T* y, u8* mask, unsigned size, const Places* places,
               const i64* step, int parts, unsigned alike, unsigned k0, unsigned k1,
               unsigned threshold, float scale) {
    enter();
    const Places p = *places;
    const i64 now = step[0];
    const unsigned long long turn = now / parts, sample_size = (i64)p.channels * p.pixels;
    const unsigned long long first = now % parts * (size / p.each) * sample_size;
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned begin = thread * 4; begin < size; begin += gridDim.x * blockDim.x * 4) {
        unsigned sample = begin / p.each;
        int rest = begin - sample * p.each, pixel = rest / p.row, channel = rest - pixel * p.row;
        unsigned long long drawn = ~0ull;
        uint4 words = make_uint4(0, 0, 0, 0);
        for (unsigned i = begin; i < min(begin + 4, size); ++i) {
            bool counts = channel < p.channels && pixel < p.pixels;
            unsigned keep = 0;
            if (counts) {
                unsigned long long e =
                    first + sample * sample_size + (i64)channel * p.pixels + pixel;
                if (alike > 1) e /= alike;
                if (e / 4 != drawn) drawn = e / 4, words = philox(drawn, turn, k0, k1);
                int k = e & 3;
                unsigned word = k == 0 ? words.x : k == 1 ? words.y : k == 2 ? words.z : words.w;
                keep = word >= threshold;
            }
            mask[i] = keep;
            put(y + i, counts ? get(x[i]) * keep * scale : 0.0f);
            if (++channel == p.row) channel = 0, ++pixel;
            if (++rest == p.each) rest = channel = pixel = 0, ++sample;
        }
    }
}

// The same for channels-last pictures where channels are stored in fours and a picture has a
// multiple of four pixels: a thread takes four channels of four pixels, and a block of words serves
// four elements.
KERNEL dropout_squares(const T* x, T* __restrict__ y, u8* __restrict__ mask,
                       unsigned squares, const Places* places, const i64* step, int parts,
                       int samples, unsigned k0, unsigned k1, unsigned threshold,
                       float scale) {
    enter();
    const Places p = *places;
    const i64 now = step[0];
    const unsigned groups = p.row / 4, fours = p.pixels / 4;
    const unsigned long long turn = now / parts, size = (i64)p.channels * p.pixels;
    const unsigned long long first = now % parts * samples * size;
    SHORT_LINEAR(unsigned, i, squares) {
        unsigned place = i / groups, group = i - place * groups;
        unsigned sample = place / fours, pixel = (place - sample * fours) * 4;
        unsigned keep[4][4];  // [channel][pixel]
        UNROLLED(k, 4) {
            unsigned channel = group * 4 + k;
            unsigned long long e = first + sample * size + (i64)channel * p.pixels + pixel;
            uint4 words = philox(e / 4, turn, k0, k1);
            bool counts = channel < p.channels;
            unsigned drawn[4] = {words.x, words.y, words.z, words.w};
            UNROLLED(j, 4) keep[k][j] = counts && drawn[j] >= threshold;
        }
        const i64 corner = ((i64)sample * p.pixels + pixel) * p.row + group * 4;
        float4 values[4];
        UNROLLED(j, 4) values[j] = get4(x + corner + j * p.row);
        UNROLLED(j, 4) {
            const i64 at = corner + j * p.row;
            *(uchar4*)(mask + at) = make_uchar4(keep[0][j], keep[1][j], keep[2][j], keep[3][j]);
            const float4 kept = make_float4(keep[0][j], keep[1][j], keep[2][j], keep[3][j]);
            put4(y + at, values[j] * kept * scale);
        }
    }
}

KERNEL dropout_backward(const T* dy, const u8* mask, T* __restrict__ dx, i64 size,
                        float scale) {
    enter();
    LINEAR(i, size / 4) {
        uchar4 m = *(const uchar4*)(mask + i * 4);
        put4(dx + i * 4, get4(dy + i * 4) * make_float4(m.x, m.y, m.z, m.w) * scale);
    }
    i64 last = size / 4 * 4 + threadIdx.x;
    if (blockIdx.x == 0 && last < size) put(dx + last, get(dy[last]) * mask[last] * scale);
}
