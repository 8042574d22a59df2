// Pictures unrolled to rows of windows, and back. All float, row-major.

struct Unrolled {
    int channels, height, width, rows, columns;
    int kernel_h, kernel_w, stride_h, stride_w, step_h, step_w, top, left;
};

// columns[(n, row, column), (c, i, j)] = the pixel that the window sees, 0 outside the picture.
KERNEL im2col(const float* x, float* out, i64 size, const Unrolled* window) {
    enter();
    const Unrolled w = *window;
    const int area = w.kernel_h * w.kernel_w;
    LINEAR(i, size) {
        int tap = i % area, channel = i / area % w.channels;
        i64 place = i / area / w.channels;
        int column = place % w.columns, row = place / w.columns % w.rows;
        i64 sample = place / w.columns / w.rows;
        int v = row * w.stride_h - w.top + tap / w.kernel_w * w.step_h;
        int h = column * w.stride_w - w.left + tap % w.kernel_w * w.step_w;
        bool inside = v >= 0 && v < w.height && h >= 0 && h < w.width;
        out[i] = inside ? x[((sample * w.channels + channel) * w.height + v) * w.width + h] : 0.0f;
    }
}

// A thread gathers one pixel: the sum of all columns that it was copied to, in order.
KERNEL col2im(const float* columns, float* x, i64 size, const Unrolled* window) {
    enter();
    const Unrolled w = *window;
    const int area = w.kernel_h * w.kernel_w;
    LINEAR(i, size) {
        int h = i % w.width, v = i / w.width % w.height;
        i64 plane = i / w.width / w.height, sample = plane / w.channels;
        int channel = plane % w.channels;
        float sum = 0.0f;
        for (int a = 0; a < w.kernel_h; ++a) {
            int down = v + w.top - a * w.step_h, row = down / w.stride_h;
            if (down < 0 || down % w.stride_h || row >= w.rows) continue;
            for (int b = 0; b < w.kernel_w; ++b) {
                int right = h + w.left - b * w.step_w, column = right / w.stride_w;
                if (right < 0 || right % w.stride_w || column >= w.columns) continue;
                i64 place = (sample * w.rows + row) * w.columns + column;
                sum += columns[(place * w.channels + channel) * area + a * w.kernel_w + b];
            }
        }
        x[i] = sum;
    }
}
