// Gathering with augmentation, and views of a batch. What is drawn for a picture and what is done
// to it is said in layers/augment.py; here an output pixel is followed backwards through the list.

// Of a BOX what is covered, of a WINDOW what is seen; of TABLE one of its variants.
enum {
    ZERO_CROP, REFLECT_CROP, RANDOM_FLIP, ALTERNATING_FLIP, BOX, WINDOW, ELASTIC, RECOLOUR, ROTATE,
    SHIFT, SCALE, TABLE
};
enum { PIXEL, BLACK, FILL };

// size: the padding of a crop, the radius of the Gaussian, or how many sizes of rectangles or
// variants there are, from number `at` on; last: the largest word for which a box is drawn.
struct Act {
    int kind, size;
    unsigned k0, k1;
    float first, second;  // radians; pixels; least and range of a scale; pixels by unit of noise
    int at;
    unsigned last;
};

// Acts from `begin` up to `end` are the resampling. `steps` make an epoch, `placed` steps have
// their own part of `order`. x has the strides sample, channel and pixel; coloured: whether an act
// changes colours; reflects: whether the resampling mirrors at the border.
struct Frame {
    int n, channels, height, width, steps, placed, count, begin, end, elastic;
    int sample, channel, pixel, coloured, reflects;
};

INLINE int mirrored(int at, int size) {
    at = abs(at);
    return at >= size ? 2 * (size - 1) - at : at;
}

// The place mirrored at the border as often as need be.
INLINE float folded(float at, int size) {
    at = fmodf(fabsf(at), (float)max(2 * (size - 1), 1));
    return fmaxf(fminf(at, 2 * (size - 1) - at), 0.0f);
}

// From where the pixel (y, x) behind act `end - 1` comes before act `begin`, or how its way ended.
__device__ int follow(const Act* acts, const uint4* drawn, int begin, int end, const Frame& f,
                      int& y, int& x) {
    for (int i = end - 1; i >= begin; --i) {
        int kind = acts[i].kind, size = acts[i].size;
        uint4 d = drawn[i];
        if (kind <= REFLECT_CROP) {
            y += (int)d.x - size, x += (int)d.y - size;
            if (kind == REFLECT_CROP)
                y = mirrored(y, f.height), x = mirrored(x, f.width);
            else if ((unsigned)y >= f.height || (unsigned)x >= f.width)
                return BLACK;
        } else if (kind <= ALTERNATING_FLIP) {
            if (d.x) x = f.width - 1 - x;
        } else if (kind == BOX && (unsigned)(y - (int)d.x) < d.z && (unsigned)(x - (int)d.y) < d.w) {
            return FILL;
        }
    }
    return PIXEL;
}

// What an act draws: a corner, a flip, a rectangle, a variant, or words.
__device__ uint4 draw(const Act& act, i64 sample, i64 epoch, const int2* sides, const Frame& f) {
    uint4 w = philox(sample, act.kind == ALTERNATING_FLIP ? 0 : epoch, act.k0, act.k1);
    if (act.kind <= REFLECT_CROP) {
        unsigned corners = 2 * act.size + 1;
        w.x = __umulhi(w.x, corners), w.y = __umulhi(w.y, corners);
    } else if (act.kind <= ALTERNATING_FLIP) {
        w.x = (w.x >> 31) ^ (act.kind == ALTERNATING_FLIP ? (unsigned)(epoch & 1) : 0u);
    } else if (act.kind <= WINDOW) {
        const int2 size = sides[act.at + (int)__umulhi(w.z, act.size)];
        const bool acts = w.w <= act.last;
        w.x = __umulhi(w.x, f.height - size.x + 1), w.y = __umulhi(w.y, f.width - size.y + 1);
        w.z = acts ? size.x : 0, w.w = acts ? size.y : 0;
    } else if (act.kind == RECOLOUR) {
        w.x = __umulhi(w.x, 6);
    } else if (act.kind == TABLE) {
        w.x = act.at + __umulhi(w.x, act.size);
    }
    return w;
}

// The p-th permutation of three, in lexicographic order, at place c.
INLINE int permuted(int p, int c) {
    int first = p / 2, low = first == 0 ? 1 : 0, high = first == 2 ? 1 : 2;
    return c == 0 ? first : (c == 1) == (p % 2 == 0) ? low : high;
}

// By channel c, every channel of its new colour, the last of C + 1 numbers added: out (C, C + 1);
// then the first value that is inverted, and the bits that are kept. total: sums of channels;
// colours: (variants, C + 1, C); m, old: as large as out.
__device__ void colour(const Act* acts, const uint4* drawn, const double* colours, const int* ends,
                       const Frame& f, const unsigned* total, double* m, double* old, int* out) {
    const int n = f.channels, wide = n + 1;
    int first = 256, kept = 255;
    for (int k = 0; k < n * wide; ++k) m[k] = k / wide == k % wide;
    for (int i = 0; i < f.count; ++i) {
        if (acts[i].kind != RECOLOUR && acts[i].kind != TABLE) continue;
        const uint4 d = drawn[i];
        const double* of = colours + (i64)d.x * wide * n;
        double added = 0;
        for (int k = 0; k < n * wide; ++k) old[k] = m[k];
        for (int k = 0; k < n * wide && acts[i].kind == TABLE; ++k) {
            const double mean = k % wide == n ? 1 : total[k % wide] / (double)(f.height * f.width);
            added += of[n * n + k / wide] * old[k] * mean;
        }
        for (int k = 0; k < n * wide; ++k) {
            const int row = k / wide, column = k % wide, last = column == n;
            if (acts[i].kind == RECOLOUR) {
                const double value = old[(n == 3 ? permuted(d.x, row) : row) * wide + column];
                m[k] = d.y >> (31 - row % 32) & 1 ? 255 * last - value : value;
            } else {
                m[k] = last * added;
                for (int j = 0; j < n; ++j) m[k] += of[row * n + j] * old[j * wide + column];
            }
        }
        if (acts[i].kind == TABLE) first = min(first, ends[2 * d.x]), kept &= ends[2 * d.x + 1];
    }
    for (int k = 0; k < n * wide; ++k) out[k] = (int)rint(m[k] * 65536);
    out[n * wide] = first, out[n * wide + 1] = kept;
}

// Channel c of the pixel `at` of a picture, in its new colours if there are such.
__device__ float pixel_of(const u8* from, int pixels, int at, int c, const int* colours, int n) {
    if (colours == nullptr) return from[c * pixels + at];
    const int *row = colours + c * (n + 1), *ends = colours + n * (n + 1);
    i64 sum = row[n] + 32768;
    for (int k = 0; k < n; ++k) sum += (i64)row[k] * from[k * pixels + at];
    const int value = min(max((int)(sum >> 16), 0), 255);
    return (value >= ends[0] ? 255 - value : value) & ends[1];
}

__device__ double unit(unsigned word) { return (word + 0.5) * (1.0 / 4294967296.0); }

// Matrix and offset from an output place, counted from the middle, to its source: m00 m01 m10 m11,
// then y and x of the middle's own source. planes: (variants, 2, 3).
__device__ void compose(const Act* acts, const uint4* drawn, const double* planes, const Frame& f,
                        float* out) {
    double m[4] = {1, 0, 0, 1}, y = (f.height - 1) / 2.0, x = (f.width - 1) / 2.0;
    for (int i = f.begin; i < f.end; ++i) {
        const Act act = acts[i];
        const uint4 d = drawn[i];
        double u = unit(d.x), v = unit(d.y), down = 0, right = 0, t[4] = {1, 0, 0, 1};
        if (act.kind == ROTATE) {
            sincos((2 * u - 1) * act.first, t + 1, t);
            t[2] = -t[1], t[3] = t[0];
        } else if (act.kind == SCALE) {
            t[0] = t[3] = 1 / (act.first + act.second * u);
        } else if (act.kind == SHIFT) {
            down = -(2 * u - 1) * act.first, right = -(2 * v - 1) * act.first;
        } else if (act.kind == WINDOW) {
            t[0] = d.z / (double)f.height, t[3] = d.w / (double)f.width;
            down = d.x + (t[0] - 1) * f.height / 2, right = d.y + (t[3] - 1) * f.width / 2;
        } else if (act.kind == TABLE) {
            const double* plane = planes + (i64)d.x * 6;
            for (int k = 0; k < 4; ++k) t[k] = plane[k + k / 2];
            down = plane[2], right = plane[5];
        }
        y += m[0] * down + m[1] * right, x += m[2] * down + m[3] * right;
        for (int row = 0; row < 4; row += 2) {
            const double one = m[row], other = m[row + 1];
            m[row] = one * t[0] + other * t[2], m[row + 1] = one * t[1] + other * t[3];
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
KERNEL gather_augmented(const u8* images, const int* labels, const int* order, const int* keyed,
                        const i64* step, T* x, int* target, const float* scale, const float* shift,
                        const float* fill, const Act* acts, const int2* sides,
                        const double* planes, const double* tables, const int* ends,
                        const Frame* frame, const float* gaussian, float* scratch, i64* next,
                        unsigned* come_count, int words) {
    enter();
    extern __shared__ uint4 drawn[];
    __shared__ float plane[6];
    const Frame f = *frame;
    const int pixels = f.height * f.width, channels = f.channels;
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
            for (int c = 0; c < channels; ++c) put(to + c * f.channel + p * f.pixel, 0.0f);
        return;
    }
    const int sample = keyed[place];
    OF_BLOCK(i, f.count) drawn[i] = draw(acts[i], sample, epoch, sides, f);
    const u8* from = images + (i64)row * channels * pixels;
    double* matrix = (double*)(drawn + f.count);
    double* old = matrix + channels * (channels + 1);
    unsigned* total = (unsigned*)(old + channels * (channels + 1));
    int* colours = f.coloured ? (int*)(total + channels) : nullptr;
    if (f.coloured) {
        OF_BLOCK(c, channels) total[c] = 0;
        __syncthreads();
        for (int c = 0; c < channels; ++c) {
            unsigned sum = 0;
            OF_BLOCK(p, pixels) sum += from[c * pixels + p];
            atomicAdd(total + c, sum);
        }
    }
    __syncthreads();
    const bool resampled = f.begin < f.end;
    if (f.coloured && threadIdx.x == 0) colour(acts, drawn, tables, ends, f, total, matrix, old, colours);
    if (resampled && threadIdx.x == 0) compose(acts, drawn, planes, f, plane);
    __syncthreads();
    float* field = scratch + (i64)blockIdx.x * 4 * pixels;
    if (resampled && f.elastic >= 0)
        displace(acts[f.elastic], gaussian, sample, epoch, f, field, field + 2 * pixels);
    for (int p = thread; p < pixels; p += threads) {
        int py = p / f.width, px = p - py * f.width;
        int fate = follow(acts, drawn, f.end, f.count, f, py, px);
        if (!resampled || fate != PIXEL) {
            int at = py * f.width + px;
            for (int c = 0; c < f.channels; ++c) {
                float v = fate == PIXEL  ? pixel_of(from, pixels, at, c, colours, channels)
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
        if (f.reflects) qy = folded(qy, f.height), qx = folded(qx, f.width);
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
                v[k] = at[k] >= 0    ? pixel_of(from, pixels, at[k], c, colours, channels)
                       : at[k] == -2 ? fill[c]
                                     : 0.0f;
            float upper = v[0] + part_x * (v[1] - v[0]), lower = v[2] + part_x * (v[3] - v[2]);
            float value = upper + part_y * (lower - upper);
            put(to + c * f.channel + p * f.pixel, fmaf(value, scale[c], shift[c]));
        }
    }
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
