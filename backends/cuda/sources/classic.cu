// What LeNet-5 and the perceptron need. All float, row-major.

struct Border {  // planes of the inner picture, which lies in the outer at (top, left)
    int height, width, rows, columns, top, left;
};

// y = x with a border of `value`.
KERNEL pad2d(const float* x, float* y, i64 size, const Border* border, float value) {
    enter();
    const Border b = *border;
    LINEAR(i, size) {
        int column = i % b.columns - b.left, row = i / b.columns % b.rows - b.top;
        i64 plane = i / b.columns / b.rows;
        bool inside = row >= 0 && row < b.height && column >= 0 && column < b.width;
        y[i] = inside ? x[(plane * b.height + row) * b.width + column] : value;
    }
}

// dx = dy without its border.
KERNEL pad2d_backward(const float* dy, float* dx, i64 size, const Border* border) {
    enter();
    const Border b = *border;
    LINEAR(i, size) {
        int column = i % b.width + b.left, row = i / b.width % b.height + b.top;
        i64 plane = i / b.width / b.height;
        dx[i] = dy[(plane * b.rows + row) * b.columns + column];
    }
}

// y = factor s x along axis 1.
KERNEL channel_scale(const float* x, const float* s, float* y, i64 size, int channels,
                     int pixels, float factor) {
    enter();
    LINEAR(i, size) y[i] = factor * s[i / pixels % channels] * x[i];
}

// ds[channel] = factor times the sum of dy x over the channel; one block per channel.
KERNEL channel_scale_gradient(const float* x, const float* dy, float* ds, int n,
                              int channels, int pixels, float factor) {
    enter();
    __shared__ double partial[256];
    int channel = blockIdx.x;
    double sum = long_sum(threadIdx.x, (i64)n * pixels, blockDim.x, [&](i64 i) {
        i64 at = (i / pixels * channels + channel) * pixels + i % pixels;
        return dy[at] * x[at];
    });
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) ds[channel] = factor * sum;
}

// Plane k of `to` is plane planes[k] of `from`, or zero where that is -1.
KERNEL connect(const float* from, float* to, int size, int area, const int* planes) {
    enter();
    LINEAR(i, size) {
        int plane = planes[i / area];
        to[i] = plane < 0 ? 0.0f : from[(i64)plane * area + i % area];
    }
}

// y[n,k] = minus the squared distance of x[n] from centre k.
KERNEL rbf(const float* x, const float* centres, float* y, int n, int classes,
           int inputs) {
    enter();
    LINEAR(i, (i64)n * classes) {
        const float* row = x + i / classes * inputs;
        const float* centre = centres + i % classes * inputs;
        float sum = 0.0f;
        for (int k = 0; k < inputs; ++k) sum += (row[k] - centre[k]) * (row[k] - centre[k]);
        y[i] = -sum;
    }
}

// dx[n,i] = -2 times the sum over k of dy[n,k] (x[n,i] - centre[k][i]).
KERNEL rbf_backward(const float* x, const float* dy, const float* centres, float* dx,
                    int n, int classes, int inputs) {
    enter();
    LINEAR(i, (i64)n * inputs) {
        float sum = 0.0f;
        for (int k = 0; k < classes; ++k)
            sum += dy[i / inputs * classes + k] * (x[i] - centres[k * inputs + i % inputs]);
        dx[i] = -2.0f * sum;
    }
}

KERNEL heaviside(const float* x, float* y, i64 size) {
    enter();
    LINEAR(i, size) y[i] = x[i] > 0.0f ? 1.0f : 0.0f;
}
