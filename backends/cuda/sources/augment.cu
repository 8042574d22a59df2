// Gathering with augmentation, and views of a batch. What is drawn for a picture and what is done
// to it is said in layers/augment.py; here an output pixel is followed backwards through the list.

enum {
    ZERO_CROP, REFLECT_CROP, RANDOM_FLIP, ALTERNATING_FLIP, CUTOUT, ROTATE, SHIFT, SCALE, ELASTIC,
    RECOLOUR
};
enum { PIXEL, BLACK, FILL };

struct Act {
    int kind;
    int size;  // the padding of a crop, the side of a cutout, the radius of the Gaussian
    unsigned k0, k1;
    float first, second;  // radians; pixels; least and range of a scale; pixels by unit of noise
};

// Acts from `begin` up to `end` are the resampling. `steps` make an epoch, `placed` steps have
// their own part of `order`. x has the strides sample, channel and pixel; recoloured: whether an act
// is of that kind.
struct Frame {
    int n, channels, height, width, steps, placed, count, begin, end, elastic;
    int sample, channel, pixel, recoloured;
};

INLINE int mirrored(int at, int size) {
    at = abs(at);
    return at >= size ? 2 * (size - 1) - at : at;
}

// From where the pixel (y, x) behind act `end - 1` comes before act `begin`, or how its way ended.
__device__ int follow(const Act* acts, const uint2* drawn, int begin, int end, const Frame& f,
                      int& y, int& x) {
    for (int i = end - 1; i >= begin; --i) {
        int kind = acts[i].kind, size = acts[i].size;
        uint2 d = drawn[i];
        if (kind <= REFLECT_CROP) {
            y += (int)d.x - size, x += (int)d.y - size;
            if (kind == REFLECT_CROP)
                y = mirrored(y, f.height), x = mirrored(x, f.width);
            else if ((unsigned)y >= f.height || (unsigned)x >= f.width)
                return BLACK;
        } else if (kind <= ALTERNATING_FLIP) {
            if (d.x) x = f.width - 1 - x;
        } else if (kind == CUTOUT && (unsigned)(y - (int)d.x) < size &&
                   (unsigned)(x - (int)d.y) < size) {
            return FILL;
        }
    }
    return PIXEL;
}

// The p-th permutation of three, in lexicographic order, at place c.
INLINE int permuted(int p, int c) {
    int first = p / 2, low = first == 0 ? 1 : 0, high = first == 2 ? 1 : 2;
    return c == 0 ? first : (c == 1) == (p % 2 == 0) ? low : high;
}

// Channel c of the pixel `at` of a picture, recoloured.
__device__ float pixel_of(const u8* from, int pixels, int at, int c, const Act* acts,
                          const uint2* drawn, const Frame& f) {
    unsigned negative = 0;
    for (int i = f.recoloured ? f.count - 1 : -1; i >= 0; --i) {
        if (acts[i].kind != RECOLOUR) continue;
        negative ^= drawn[i].y >> (31 - c % 32) & 1u;
        if (f.channels == 3) c = permuted(drawn[i].x, c);
    }
    const u8 value = from[c * pixels + at];
    return negative ? 255 - value : value;
}

__device__ double unit(unsigned word) { return (word + 0.5) * (1.0 / 4294967296.0); }

// Matrix and offset from an output place, counted from the middle, to its source: m00 m01 m10 m11,
// then y and x of the middle's own source.
__device__ void compose(const Act* acts, const uint2* drawn, const Frame& f, float* out) {
    double m[4] = {1, 0, 0, 1}, y = (f.height - 1) / 2.0, x = (f.width - 1) / 2.0;
    for (int i = f.begin; i < f.end; ++i) {
        Act act = acts[i];
        double u = unit(drawn[i].x), v = unit(drawn[i].y);
        if (act.kind == ROTATE) {
            double s, c;
            sincos((2 * u - 1) * act.first, &s, &c);
            double a = m[0] * c - m[1] * s, b = m[0] * s + m[1] * c;
            double d = m[2] * c - m[3] * s, e = m[2] * s + m[3] * c;
            m[0] = a, m[1] = b, m[2] = d, m[3] = e;
        } else if (act.kind == SCALE) {
            double by = 1 / (act.first + act.second * u);
            for (int k = 0; k < 4; ++k) m[k] *= by;
        } else if (act.kind == SHIFT) {
            double down = -(2 * u - 1) * act.first, right = -(2 * v - 1) * act.first;
            y += m[0] * down + m[1] * right, x += m[2] * down + m[3] * right;
        }
    }
    for (int k = 0; k < 4; ++k) out[k] = m[k];
    out[4] = y, out[5] = x;
}

// What is `step` apart, weighted by its distance, around place x of a line of `size`.
INLINE float smoothed(const float* middle, const float* gaussian, int reach, int x, int size,
                      int step) {
    float sum = 0.0f;
    for (int d = max(-reach, -x); d <= min(reach, size - 1 - x); ++d)
        sum = fmaf(gaussian[abs(d)], middle[d * step], sum);
    return sum;
}

// Smoothed noise of one picture, down and right, by one block: field[2][height][width]; `other` is
// as large. gaussian[d]: the weight of a pixel d away.
__device__ void displace(const Act& act, const float* gaussian, i64 sample, i64 epoch,
                         const Frame& f, float* field, float* other) {
    int pixels = f.height * f.width, each = (pixels + 3) / 4;
    OF_BLOCK(k, each) {
        uint4 four = philox(sample * each + k, epoch, act.k0, act.k1);
        unsigned words[4] = {four.x, four.y, four.z, four.w};
        for (int j = 0; j < 4 && 4 * k + j < pixels; ++j) {
            field[4 * k + j] = (float)(words[j] & 0xffffu) - 32767.5f;
            field[pixels + 4 * k + j] = (float)(words[j] >> 16) - 32767.5f;
        }
    }
    __syncthreads();
    OF_BLOCK(at, 2 * pixels)
        other[at] = smoothed(field + at, gaussian, act.size, at % f.width, f.width, 1);
    __syncthreads();
    OF_BLOCK(at, 2 * pixels) {
        const int y = at % pixels / f.width;
        const float sum = smoothed(other + at, gaussian, act.size, y, f.height, f.width);
        field[at] = sum * act.first;
    }
    __syncthreads();
}

// One block a picture, or several along y where nothing is elastic. keyed[i]: the sample that random
// numbers of place i are keyed by; `fill` is the pixel of cutouts; scratch: four floats a pixel;
// next: the step after this one; words: of a target.
INLINE void augmented(const u8* images, const int* labels, const int* order,
                      const int* keyed, const i64* step, T* x, int* target,
                      const float* scale, const float* shift, const float* fill,
                      const Act* acts, const Frame* frame, const float* gaussian,
                      float* scratch, i64* next, unsigned* come_count, int words) {
    enter();
    extern __shared__ uint2 drawn[];
    __shared__ float plane[6];
    const Frame f = *frame;
    const int pixels = f.height * f.width;
    const i64 here = step[0], epoch = here / f.steps;
    // `next` may be `step`: every block has read it when the last one comes.
    leave(come_count, come(come_count), next, here + 1);
    const int place = (int)(here % f.placed) * f.n + blockIdx.x;
    const int row = order[place];
    if (blockIdx.y == 0)
        OF_BLOCK(w, words)
            target[(i64)blockIdx.x * words + w] = row < 0 ? -1 : labels[(i64)row * words + w];
    T* to = x + (i64)blockIdx.x * f.sample;
    const int thread = blockIdx.y * blockDim.x + threadIdx.x, threads = gridDim.y * blockDim.x;
    if (row < 0) {
        for (int p = thread; p < pixels; p += threads)
            for (int c = 0; c < f.channels; ++c) put(to + c * f.channel + p * f.pixel, 0.0f);
        return;
    }
    const int sample = keyed[place];
    OF_BLOCK(i, f.count) {
        Act act = acts[i];
        uint4 w = philox(sample, act.kind == ALTERNATING_FLIP ? 0 : epoch, act.k0, act.k1);
        uint2 d = make_uint2(w.x, w.y);
        if (act.kind <= REFLECT_CROP) {
            unsigned corners = 2 * act.size + 1;
            d = make_uint2(__umulhi(w.x, corners), __umulhi(w.y, corners));
        } else if (act.kind == RANDOM_FLIP) {
            d.x = w.x >> 31;
        } else if (act.kind == ALTERNATING_FLIP) {
            d.x = (w.x >> 31) ^ (unsigned)(epoch & 1);
        } else if (act.kind == CUTOUT) {
            d = make_uint2(__umulhi(w.x, f.height - act.size + 1),
                           __umulhi(w.y, f.width - act.size + 1));
        } else if (act.kind == RECOLOUR) {
            d.x = __umulhi(w.x, 6);
        }
        drawn[i] = d;
    }
    __syncthreads();
    const bool resampled = f.begin < f.end;
    float* field = scratch + (i64)blockIdx.x * 4 * pixels;
    if (resampled) {
        if (threadIdx.x == 0) compose(acts, drawn, f, plane);
        if (f.elastic >= 0)
            displace(acts[f.elastic], gaussian, sample, epoch, f, field, field + 2 * pixels);
        __syncthreads();
    }
    const u8* from = images + (i64)row * f.channels * pixels;
    for (int p = thread; p < pixels; p += threads) {
        int py = p / f.width, px = p - py * f.width;
        int fate = follow(acts, drawn, f.end, f.count, f, py, px);
        if (!resampled || fate != PIXEL) {
            int at = py * f.width + px;
            for (int c = 0; c < f.channels; ++c) {
                float v = fate == PIXEL  ? pixel_of(from, pixels, at, c, acts, drawn, f)
                          : fate == FILL ? fill[c]
                                         : 0.0f;
                put(to + c * f.channel + p * f.pixel, fmaf(v, scale[c], shift[c]));
            }
            continue;
        }
        float down = py - (f.height - 1) * 0.5f, right = px - (f.width - 1) * 0.5f;
        if (f.elastic >= 0) {
            down += field[py * f.width + px];
            right += field[pixels + py * f.width + px];
        }
        float qy = plane[4] + plane[0] * down + plane[1] * right;
        float qx = plane[5] + plane[2] * down + plane[3] * right;
        qy = fminf(fmaxf(qy, -1.0f), f.height), qx = fminf(fmaxf(qx, -1.0f), f.width);
        int top = min((int)floorf(qy), f.height - 1), left = min((int)floorf(qx), f.width - 1);
        float part_y = qy - top, part_x = qx - left;
        // The four neighbours, further back: where they are, or -1 for black and -2 for the fill.
        int at[4];
        for (int k = 0; k < 4; ++k) {
            int ny = top + k / 2, nx = left + k % 2;
            at[k] = -1;
            if ((unsigned)ny >= f.height || (unsigned)nx >= f.width) continue;
            int end = follow(acts, drawn, 0, f.begin, f, ny, nx);
            at[k] = end == PIXEL ? ny * f.width + nx : end == FILL ? -2 : -1;
        }
        for (int c = 0; c < f.channels; ++c) {
            float v[4];
            for (int k = 0; k < 4; ++k)
                v[k] = at[k] >= 0    ? pixel_of(from, pixels, at[k], c, acts, drawn, f)
                       : at[k] == -2 ? fill[c]
                                     : 0.0f;
            float upper = v[0] + part_x * (v[1] - v[0]), lower = v[2] + part_x * (v[3] - v[2]);
            float value = upper + part_y * (lower - upper);
            put(to + c * f.channel + p * f.pixel, fmaf(value, scale[c], shift[c]));
        }
    }
}

KERNEL gather_augmented(const u8* images, const int* labels, const int* order, const int* keyed,
                        const i64* step, T* x, int* target, const float* scale,
                        const float* shift, const float* fill, const Act* acts,
                        const Frame* frame, const float* gaussian, float* scratch, i64* next,
                        unsigned* come_count) {
    augmented(images, labels, order, keyed, step, x, target, scale, shift, fill, acts, frame, gaussian,
              scratch, next, come_count, 1);
}

KERNEL gather_augmented_wide(const u8* images, const int* labels, const int* order, const int* keyed,
                             const i64* step, T* x, int* target, const float* scale,
                             const float* shift, const float* fill, const Act* acts,
                             const Frame* frame, const float* gaussian, float* scratch, i64* next,
                             unsigned* come_count, int words) {
    augmented(images, labels, order, keyed, step, x, target, scale, shift, fill, acts, frame, gaussian,
              scratch, next, come_count, words);
}

struct View {
    int flip, down, right;
};

// y[v n + i] = view v of x[i], or of x[rows[i]], one block a picture of y: height x width pixels of
// `inner` neighbours in each of `outer` planes.
KERNEL views(const T* x, const int* rows, T* y, const View* views, int n, int outer, int height,
             int width, int inner) {
    enter();
    const View view = views[blockIdx.x / n];
    const int each = outer * height * width * inner;
    const int sample = blockIdx.x % n;
    const T* from = x + (i64)(rows ? rows[sample] : sample) * each;
    T* to = y + (i64)blockIdx.x * each;
    OF_BLOCK(at, each) {
        int k = at % inner, rest = at / inner, w = rest % width;
        rest /= width;
        int h = rest % height, o = rest / height;
        int column = mirrored((view.flip ? width - 1 - w : w) + view.right, width);
        int row = mirrored(h + view.down, height);
        to[at] = from[((o * height + row) * width + column) * inner + k];
    }
}
