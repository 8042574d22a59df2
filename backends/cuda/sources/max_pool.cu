// Max-pooling of channels-last pictures; index: the tap of a window's first maximum, laid out as y.
// x has 4 * groups stored channels; y and dy have `stored`, of which `channels` count.
//
// Compiled for EACH = 4 or 8 channels a thread; KH and KW are the kernel, 0 for any.
struct Windows {
    int height, width, rows, columns, kernel_h, kernel_w, stride_h, stride_w, top, left;
    int groups, channels, stored;
};

// The taps of EACH channels, four in a word.
struct Taps {
    unsigned words[EACH / 4];

    INLINE int operator[](int k) const { return words[k / 4] >> k % 4 * 8 & 255; }
};

INLINE void store_taps(u8* p, const int* taps) {
#pragma unroll
    for (int f = 0; f < EACH; f += 4)
        *(uchar4*)(p + f) = make_uchar4(taps[f], taps[f + 1], taps[f + 2], taps[f + 3]);
}

// EACH channels from `channel` on, as far as they count; `wide`: they lie together, all are stored.
INLINE void channels_of(const T* p, const Windows& w, int channel, bool wide,
                                            float* v) {
    if (wide && channel < w.stored) return load(p, v);
    for (int k = 0; k < EACH; ++k) v[k] = channel + k < w.channels ? get(p[k]) : 0.0f;
}

// A NaN counts as larger than any number, and the first one wins.
INLINE void take(float value, int tap, float& best, int& chosen) {
    if (!(value <= best) && best == best) best = value, chosen = tap;
}

#if KH
// The maxima of a window of which every tap lies in the picture: all loads first.
INLINE void maxima(const T* corner, int pixel, int line, float* best,
                                       int* tap) {
    float v[KH * KW][EACH];
    UNROLLED(h, KH)
        UNROLLED(w, KW) load(corner + h * line + w * pixel, v[h * KW + w]);
    UNROLLED(k, EACH) {
        best[k] = v[0][k], tap[k] = 0;
#pragma unroll
        for (int t = 1; t < KH * KW; ++t) take(v[t][k], t, best[k], tap[k]);
    }
}
#endif

// bias, if given, is added behind the maximum, and relu taken behind that: the same as before it.
// outs: the pooled pixels of the batch.
KERNEL max_pool(const T* x, T* y, u8* index, int outs, const Windows* windows,
                const float* bias, int relu) {
    enter();
    const Windows p = *windows;
    const int groups = p.groups * 4 / EACH, size = outs * groups, pixel = p.groups * 4;
    const int kernel_h = KH ? KH : p.kernel_h, kernel_w = KW ? KW : p.kernel_w;
    const bool wide = p.stored % EACH == 0;
    SHORT_LINEAR(int, i, size) {
        const int out = i / groups, channel = (i - out * groups) * EACH;
        const int line = out / p.columns, column = out - line * p.columns;
        const int sample = line / p.rows, row = line - sample * p.rows;
        const int top = row * p.stride_h - p.top, left = column * p.stride_w - p.left;
        const T* picture = x + (i64)sample * p.height * p.width * pixel + channel;
        float best[EACH];
        int tap[EACH];
        [[maybe_unused]] const bool inside = top >= 0 && left >= 0 && top + kernel_h <= p.height &&
                            left + kernel_w <= p.width;
#if KH
        if (inside) {
            const T* corner = picture + (i64)(top * p.width + left) * pixel;
            maxima(corner, pixel, p.width * pixel, best, tap);
        } else
#endif
        {
            for (int k = 0; k < EACH; ++k) best[k] = -INF, tap[k] = -1;
            for (int h = max(top, 0); h < min(top + kernel_h, p.height); ++h)
                for (int w = max(left, 0); w < min(left + kernel_w, p.width); ++w) {
                    float v[EACH];
                    load(picture + (i64)(h * p.width + w) * pixel, v);
                    const int t = (h - top) * kernel_w + w - left;
                    UNROLLED(k, EACH) {
                        if (tap[k] < 0) best[k] = v[k], tap[k] = t;
                        take(v[k], t, best[k], tap[k]);
                    }
                }
        }
        UNROLLED(k, EACH) {
            if (bias && channel + k < p.channels) best[k] += bias[channel + k];
            if (relu && !(best[k] > 0.0f) && !isnan(best[k])) best[k] = 0.0f;
        }
        const i64 at = (i64)out * p.stored + channel;
        if (wide && channel < p.stored) {
            store(y + at, best);
            store_taps(index + at, tap);
            continue;
        }
        for (int k = 0; k < EACH && channel + k < p.channels; ++k) {
            put(y + at + k, best[k]);
            index[at + k] = tap[k];
        }
    }
}

// The gradients of EACH maxima from `at` on and their taps: none where a ReLU behind the maxima, of
// which y are the results, let nothing through; null without one.
INLINE void gradients_of(const T* dy, const u8* index, const T* y, i64 at, const Windows& w,
                         int channel, bool wide, float* d, Taps& taps) {
    channels_of(dy + at, w, channel, wide, d);
    if (wide && channel < w.stored) {
        UNROLLED(q, EACH / 4) taps.words[q] = ((const unsigned*)(index + at))[q];
    } else {
        UNROLLED(q, EACH / 4) taps.words[q] = 0;
        UNROLLED(k, EACH)
            if (channel + k < w.channels) taps.words[k / 4] |= index[at + k] << k % 4 * 8;
    }
    if (!y) return;
    float v[EACH];
    channels_of(y + at, w, channel, wide, v);
    UNROLLED(k, EACH)
        if (!(v[k] > 0.0f)) d[k] = 0.0f;
}

// slices[block]: what the threads of this block have in `total`, if slices are given.
INLINE void leave_sums(const float* total, int groups, int lines, int channel, int stored,
                       float* slices) {
    __shared__ float4 shared[256];
    if (!slices) return;
#pragma unroll
    for (int f = 0; f < EACH; f += 4) {
        const float4 sum = column_sum(pack(total + f), groups, lines, shared);
        if (threadIdx.x < groups) put4(slices + (i64)blockIdx.x * stored + channel + f, sum);
        __syncthreads();
    }
}

// dx at the first maximum of each window += dy, where y > 0 if y is given (a ReLU before the pool);
// slices[block]: the sums of dx over the pixels of this block, if given. A thread owns a pixel.
KERNEL __launch_bounds__(256, 3)
max_pool_backward(const T* dy, const u8* index, const T* y, T* dx, int pixels,
                  const Windows* windows, float* slices) {
    enter();
    const Windows p = *windows;
    const int groups = p.groups * 4 / EACH, pixel = p.groups * 4;
    const int kernel_h = KH ? KH : p.kernel_h, kernel_w = KW ? KW : p.kernel_w;
    const bool wide = p.stored % EACH == 0;
    const int lines = 256 / groups, line = threadIdx.x / groups;
    const int channel = (threadIdx.x - line * groups) * EACH;
    float total[EACH] = {};
    if (line < lines)
        for (int i = blockIdx.x * lines + line; i < pixels; i += gridDim.x * lines) {
            const int above = i / p.width, w = i - above * p.width + p.left;
            const int sample = above / p.height, h = above - sample * p.height + p.top;
            const int first_row = max(0, (h - kernel_h + p.stride_h) / p.stride_h);
            const int last_row = min(p.rows - 1, h / p.stride_h);
            const int first_column = max(0, (w - kernel_w + p.stride_w) / p.stride_w);
            const int last_column = min(p.columns - 1, w / p.stride_w);
            float sum[EACH] = {};
            for (int row = first_row; row <= last_row; ++row)
                for (int column = first_column; column <= last_column; ++column) {
                    const int tap = (h - row * p.stride_h) * kernel_w + w - column * p.stride_w;
                    const i64 out = ((i64)sample * p.rows + row) * p.columns + column;
                    float d[EACH];
                    Taps t;
                    gradients_of(dy, index, y, out * p.stored + channel, p, channel, wide, d, t);
                    UNROLLED(k, EACH)
                        if (t[k] == tap) sum[k] += d[k];
                }
            store(dx + (i64)i * pixel + channel, sum);
            UNROLLED(k, EACH) total[k] += sum[k];
        }
    leave_sums(total, groups, lines, channel, pixel, slices);
}

// The same where windows neither overlap nor leave the picture: a thread owns a window, and that of
// the last also clears what is beyond it, which no window covers. `outs`: the pooled pixels of the
// batch.
KERNEL __launch_bounds__(256, KH * KW > 4 ? 3 : 4)
max_pool_backward_disjoint(const T* dy, const u8* index, const T* y, T* dx, int outs,
                           const Windows* windows, float* slices) {
    enter();
    const Windows p = *windows;
    const int groups = p.groups * 4 / EACH, pixel = p.groups * 4;
    const int kernel_h = KH ? KH : p.kernel_h, kernel_w = KW ? KW : p.kernel_w;
    const bool wide = p.stored % EACH == 0;
    const int lines = 256 / groups, line = threadIdx.x / groups;
    const int channel = (threadIdx.x - line * groups) * EACH;
    float total[EACH] = {};
    if (line < lines)
        for (int i = blockIdx.x * lines + line; i < outs; i += gridDim.x * lines) {
            const int above = i / p.columns, column = i - above * p.columns;
            const int sample = above / p.rows, row = above - sample * p.rows;
            float d[EACH];
            Taps t;
            gradients_of(dy, index, y, (i64)i * p.stored + channel, p, channel, wide, d, t);
            const int top = row * kernel_h, left = column * kernel_w;
            T* corner = dx + (((i64)sample * p.height + top) * p.width + left) * pixel + channel;
            UNROLLED(h, kernel_h)
                UNROLLED(w, kernel_w) {
                    float v[EACH];
                    UNROLLED(k, EACH) v[k] = t[k] == h * kernel_w + w ? d[k] : 0.0f;
                    store(corner + (i64)(h * p.width + w) * pixel, v);
                }
            const int tall = row == p.rows - 1 ? p.height - top : kernel_h;
            const int across = column == p.columns - 1 ? p.width - left : kernel_w;
            if (tall > kernel_h || across > kernel_w) {
                const float none[EACH] = {};
                for (int h = 0; h < tall; ++h)
                    for (int w = h < kernel_h ? kernel_w : 0; w < across; ++w)
                        store(corner + (i64)(h * p.width + w) * pixel, none);
            }
            UNROLLED(k, EACH) total[k] += d[k];
        }
    leave_sums(total, groups, lines, channel, pixel, slices);
}
