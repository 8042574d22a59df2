// Pooling where cuDNN's does not mean the same, is slow, or does not reach: see pointwise.py.

struct Pool {
    int channels, height, width, rows, columns;
    int kernel_h, kernel_w, stride_h, stride_w, top, left, nhwc, average;
};

__device__ i64 at(const Pool& p, i64 sample, int channel, int y, int x, int height, int width) {
    return p.nhwc ? ((sample * height + y) * width + x) * p.channels + channel
                  : ((sample * p.channels + channel) * height + y) * width + x;
}

__device__ void place(const Pool& p, i64 i, int height, int width, i64& sample, int& channel,
                      int& y, int& x) {
    if (p.nhwc) {
        channel = i % p.channels;
        x = i / p.channels % width;
        y = i / ((i64)p.channels * width) % height;
    } else {
        x = i % width;
        y = i / width % height;
        channel = i / ((i64)width * height) % p.channels;
    }
    sample = i / ((i64)p.channels * height * width);
}

extern "C" {

__global__ void pool_forward(const T* x, T* y, i64 size, const Pool* pool) {
    const Pool p = *pool;
    LINEAR(i, size) {
        i64 sample;
        int channel, row, column;
        place(p, i, p.rows, p.columns, sample, channel, row, column);
        int top = row * p.stride_h - p.top, left = column * p.stride_w - p.left;
        float best = -INF, sum = 0.0f;
        int count = 0;
        for (int h = max(top, 0); h < min(top + p.kernel_h, p.height); ++h)
            for (int w = max(left, 0); w < min(left + p.kernel_w, p.width); ++w) {
                float value = get(x[at(p, sample, channel, h, w, p.height, p.width)]);
                if (value > best || isnan(value)) best = value;
                sum += value;
                ++count;
            }
        put(y + i, p.average ? sum / count : best);
    }
}

// A thread gathers for one input pixel: every window that covers it, in order.
__global__ void pool_backward(const T* x, const T* y, const T* dy, T* dx, i64 size,
                              const Pool* pool) {
    const Pool p = *pool;
    LINEAR(i, size) {
        i64 sample;
        int channel, h, w;
        place(p, i, p.height, p.width, sample, channel, h, w);
        int first_row = max(0, (h + p.top - p.kernel_h + p.stride_h) / p.stride_h);
        int last_row = min(p.rows - 1, (h + p.top) / p.stride_h);
        int first_column = max(0, (w + p.left - p.kernel_w + p.stride_w) / p.stride_w);
        int last_column = min(p.columns - 1, (w + p.left) / p.stride_w);
        float sum = 0.0f;
        for (int row = first_row; row <= last_row; ++row)
            for (int column = first_column; column <= last_column; ++column) {
                int top = row * p.stride_h - p.top, left = column * p.stride_w - p.left;
                int bottom = min(top + p.kernel_h, p.height);
                int right = min(left + p.kernel_w, p.width);
                i64 out = at(p, sample, channel, row, column, p.rows, p.columns);
                if (p.average) {
                    sum += get(dy[out]) / ((bottom - max(top, 0)) * (right - max(left, 0)));
                    continue;
                }
                float largest = get(y[out]);
                if (get(x[i]) != largest) continue;
                bool first = true;
                for (int a = max(top, 0); first && a <= h; ++a)
                    for (int b = max(left, 0); b < (a == h ? w : right); ++b)
                        if (get(x[at(p, sample, channel, a, b, p.height, p.width)]) == largest) {
                            first = false;
                            break;
                        }
                if (first) sum += get(dy[out]);
            }
        put(dx + i, sum);
    }
}

// The same where windows neither overlap nor reach into padding: a thread owns one window, and the
// last of a row or column also clears the pixels that no window covers.
__global__ void pool_backward_disjoint(const T* x, const T* dy, T* dx, i64 size,
                                       const Pool* pool) {
    const Pool p = *pool;
    LINEAR(i, size) {
        i64 sample;
        int channel, row, column;
        place(p, i, p.rows, p.columns, sample, channel, row, column);
        int top = row * p.stride_h, left = column * p.stride_w;
        int bottom = row == p.rows - 1 ? p.height : top + p.stride_h;
        int right = column == p.columns - 1 ? p.width : left + p.stride_w;
        int pixel = p.nhwc ? p.channels : 1, line = pixel * p.width;
        i64 corner = at(p, sample, channel, top, left, p.height, p.width);
        int chosen_h = 0, chosen_w = 0;
        if (!p.average) {
            float best = get(x[corner]);
            for (int h = 0; h < p.kernel_h; ++h)
                for (int w = 0; w < p.kernel_w; ++w) {
                    float value = get(x[corner + h * line + w * pixel]);
                    if (value > best) {
                        best = value;
                        chosen_h = h;
                        chosen_w = w;
                    }
                }
        }
        float gradient = get(dy[i]), share = gradient / (p.kernel_h * p.kernel_w);
        for (int h = 0; h < bottom - top; ++h)
            for (int w = 0; w < right - left; ++w) {
                bool inside = h < p.kernel_h && w < p.kernel_w;
                float value = p.average ? share : (h == chosen_h && w == chosen_w ? gradient : 0.0f);
                put(dx + corner + h * line + w * pixel, inside ? value : 0.0f);
            }
    }
}

// Max-pooling of channels-last pictures, four channels a thread; index: the tap of a window's first
// maximum, laid out as y. x has 4 * groups stored channels; y and dy have `stored`, of which
// `channels` count.
struct Windows {
    int height, width, rows, columns, kernel_h, kernel_w, stride_h, stride_w, top, left;
    int groups, channels, stored;
};

// Four channels from `group` on, as far as they count; `wide`: four lie together and all count.
__device__ __forceinline__ float4 channels_of(const T* p, const Windows& w, int group, bool wide) {
    if (wide && group * 4 < w.stored) return get4(p);
    float v[4];
    for (int k = 0; k < 4; ++k) v[k] = group * 4 + k < w.channels ? get(p[k]) : 0.0f;
    return make_float4(v[0], v[1], v[2], v[3]);
}

// bias, if given, is added behind the maximum, and relu taken behind that: the same as before it.
__global__ void max_pool(const T* x, T* y, u8* index, int size, const Windows* windows,
                         const float* bias, int relu) {
    const Windows p = *windows;
    bool wide = p.stored % 4 == 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x) {
        int out = i / p.groups, group = i - out * p.groups;
        int line = out / p.columns, column = out - line * p.columns;
        int sample = line / p.rows, row = line - sample * p.rows;
        int top = row * p.stride_h - p.top, left = column * p.stride_w - p.left;
        float best[4] = {-INF, -INF, -INF, -INF};
        int tap[4] = {-1, -1, -1, -1};
        for (int h = max(top, 0); h < min(top + p.kernel_h, p.height); ++h)
            for (int w = max(left, 0); w < min(left + p.kernel_w, p.width); ++w) {
                i64 pixel = ((i64)sample * p.height + h) * p.width + w;
                float4 v = get4(x + (pixel * p.groups + group) * 4);
                float values[4] = {v.x, v.y, v.z, v.w};
                for (int k = 0; k < 4; ++k)
                    if (tap[k] < 0 || values[k] > best[k] ||
                        (isnan(values[k]) && !isnan(best[k]))) {
                        best[k] = values[k];
                        tap[k] = (h - top) * p.kernel_w + w - left;
                    }
            }
        for (int k = 0; k < 4; ++k) {
            if (bias && group * 4 + k < p.channels) best[k] += bias[group * 4 + k];
            if (relu && !(best[k] > 0.0f) && !isnan(best[k])) best[k] = 0.0f;
        }
        i64 at = (i64)out * p.stored + group * 4;
        if (wide && group * 4 < p.stored) {
            put4(y + at, make_float4(best[0], best[1], best[2], best[3]));
            *(uchar4*)(index + at) = make_uchar4(tap[0], tap[1], tap[2], tap[3]);
            continue;
        }
        for (int k = 0; k < 4 && group * 4 + k < p.channels; ++k) {
            put(y + at + k, best[k]);
            index[at + k] = tap[k];
        }
    }
}

// dx at the first maximum of each window += dy, where y > 0 if y is given (a ReLU before the pool);
// slices[block]: the sums of dx over the pixels of this block, if given.
__global__ void max_pool_backward(const T* dy, const u8* index, const T* y, T* dx, int pixels,
                                  const Windows* windows, float* slices) {
    const Windows p = *windows;
    __shared__ float4 shared[256];
    int lines = 256 / p.groups, line = threadIdx.x / p.groups, group = threadIdx.x % p.groups;
    float total[4] = {0, 0, 0, 0};
    if (line < lines)
        for (int i = blockIdx.x * lines + line; i < pixels; i += gridDim.x * lines) {
            int above = i / p.width, w = i - above * p.width;
            int sample = above / p.height, h = above - sample * p.height;
            int first_row = max(0, (h + p.top - p.kernel_h + p.stride_h) / p.stride_h);
            int last_row = min(p.rows - 1, (h + p.top) / p.stride_h);
            int first_column = max(0, (w + p.left - p.kernel_w + p.stride_w) / p.stride_w);
            int last_column = min(p.columns - 1, (w + p.left) / p.stride_w);
            float sum[4] = {0, 0, 0, 0};
            for (int row = first_row; row <= last_row; ++row)
                for (int column = first_column; column <= last_column; ++column) {
                    int tap = (h - row * p.stride_h + p.top) * p.kernel_w + w -
                              column * p.stride_w + p.left;
                    i64 out = (((i64)sample * p.rows + row) * p.columns + column) * p.stored +
                              group * 4;
                    for (int k = 0; k < 4; ++k)
                        if (group * 4 + k < p.channels && index[out + k] == tap &&
                            (!y || get(y[out + k]) > 0.0f))
                            sum[k] += get(dy[out + k]);
                }
            put4(dx + ((i64)i * p.groups + group) * 4,
                 make_float4(sum[0], sum[1], sum[2], sum[3]));
            for (int k = 0; k < 4; ++k) total[k] += sum[k];
        }
    if (!slices) return;
    float4 sum = column_sum(make_float4(total[0], total[1], total[2], total[3]), p.groups, lines,
                            shared);
    if (threadIdx.x < p.groups) ((float4*)slices)[blockIdx.x * p.groups + threadIdx.x] = sum;
}

// The same where windows neither overlap nor leave the picture: a thread owns a window, and pixels
// that no window covers stay as they are, zero. `outs`: the pooled pixels of the batch.
__global__ void max_pool_backward_disjoint(const T* dy, const u8* index, const T* y, T* dx, int outs,
                                           const Windows* windows, float* slices) {
    const Windows p = *windows;
    __shared__ float4 shared[256];
    bool wide = p.stored % 4 == 0;
    int lines = 256 / p.groups, line = threadIdx.x / p.groups, group = threadIdx.x % p.groups;
    float4 total = make_float4(0, 0, 0, 0);
    if (line < lines)
        for (int i = blockIdx.x * lines + line; i < outs; i += gridDim.x * lines) {
            int above = i / p.columns, column = i - above * p.columns;
            int sample = above / p.rows, row = above - sample * p.rows;
            i64 at = (i64)i * p.stored + group * 4;
            float4 d = channels_of(dy + at, p, group, wide);
            if (y) {
                float4 v = channels_of(y + at, p, group, wide);
                if (!(v.x > 0.0f)) d.x = 0.0f;
                if (!(v.y > 0.0f)) d.y = 0.0f;
                if (!(v.z > 0.0f)) d.z = 0.0f;
                if (!(v.w > 0.0f)) d.w = 0.0f;
            }
            uchar4 t = make_uchar4(0, 0, 0, 0);
            if (wide && group * 4 < p.stored) {
                t = *(const uchar4*)(index + at);
            } else {
                for (int k = 0; k < 4 && group * 4 + k < p.channels; ++k)
                    ((u8*)&t)[k] = index[at + k];
            }
            i64 corner = (((i64)sample * p.height + row * p.stride_h) * p.width +
                          column * p.stride_w) * p.groups + group;
            for (int h = 0, tap = 0; h < p.kernel_h; ++h)
                for (int w = 0; w < p.kernel_w; ++w, ++tap)
                    put4(dx + (corner + (h * p.width + w) * p.groups) * 4,
                         make_float4(t.x == tap ? d.x : 0.0f, t.y == tap ? d.y : 0.0f,
                                     t.z == tap ? d.z : 0.0f, t.w == tap ? d.w : 0.0f));
            total.x += d.x, total.y += d.y, total.z += d.z, total.w += d.w;
        }
    if (!slices) return;
    float4 sum = column_sum(total, p.groups, lines, shared);
    if (threadIdx.x < p.groups) ((float4*)slices)[blockIdx.x * p.groups + threadIdx.x] = sum;
}

}  // extern "C"
