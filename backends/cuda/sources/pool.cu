// Pooling where cuDNN's does not mean the same, is slow, or does not reach: see pool.py.

struct Pool {
    int channels, height, width, rows, columns;
    int kernel_h, kernel_w, stride_h, stride_w, top, left, nhwc, average;
};

__device__ i64 at(const Pool& p, i64 sample, int channel, int y, int x, int height, int width) {
    return p.nhwc ? ((sample * height + y) * width + x) * p.channels + channel
                  : ((sample * p.channels + channel) * height + y) * width + x;
}

struct Place {
    i64 sample;
    int channel, y, x;
};

__device__ Place place(const Pool& p, i64 i, int height, int width) {
    Place at;
    if (p.nhwc) {
        at.channel = i % p.channels;
        at.x = i / p.channels % width;
        at.y = i / ((i64)p.channels * width) % height;
    } else {
        at.x = i % width;
        at.y = i / width % height;
        at.channel = i / ((i64)width * height) % p.channels;
    }
    at.sample = i / ((i64)p.channels * height * width);
    return at;
}

KERNEL pool_forward(const T* x, T* y, i64 size, const Pool* pool) {
    enter();
    const Pool p = *pool;
    LINEAR(i, size) {
        const auto [sample, channel, row, column] = place(p, i, p.rows, p.columns);
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
KERNEL pool_backward(const T* x, const T* y, const T* dy, T* dx, i64 size,
                     const Pool* pool) {
    enter();
    const Pool p = *pool;
    LINEAR(i, size) {
        const auto [sample, channel, h, w] = place(p, i, p.height, p.width);
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
