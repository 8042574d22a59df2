/* What a file of the format c is made of: each function is copied where it is called.

   A picture lies row after row, pixel after pixel, channel after channel. Integers of activations
   are bytes in two's complement; sign is 128 where they have one, else 0. Functions of TYPE are
   there for floats and for integers: of VALUE, with WEIGHT and SUM; OF(x) is the number in x. */

/* A window over a picture of h x w with c channels that makes one of p x q with o, of which the
   largest of each ph x pw are kept. */
typedef struct {
    int32_t c, o, h, w, p, q;
    int16_t kh, kw, sh, sw, top, left, dh, dw, groups, ph, pw;
} window;

/* Numbers that lie side by side, in a picture and in a window's weights. */
typedef struct {
    int32_t x, w, count;
} run;

/* What a window sees inside the picture at a place, of a group of channels; returns how many. */
static int runs(const window *s, int p, int q, int group, run *found)
{
    int inner = s->c / s->groups, n = 0;
    int adjacent = s->groups == 1 && s->dw == 1 ? s->kw : 1;
    for (int i = 0; i < s->kh; i++) {
        int row = p * s->sh - s->top + i * s->dh;
        for (int j = 0; j < s->kw && row >= 0 && row < s->h; j += adjacent) {
            int column = q * s->sw - s->left + j * s->dw, low = column < 0 ? -column : 0;
            int high = column + adjacent > s->w ? s->w - column : adjacent;
            run one = {(row * s->w + column + low) * s->c + group * inner,
                       (i * s->kw + j + low) * inner, (high - low) * inner};
            if (low < high) found[n++] = one;
        }
    }
    return n;
}

/* What becomes of the sums of each output: bytes with a multiplier, else floats not below floor. */
typedef struct {
    const int32_t *multiplier;
    const uint8_t *shift;
    const float *scale;
    int low, high;
    float floor;
} result;

/* sums of 16, 4 or 1 outputs, whose weights lie side by side: sum[k] += x[i] * w[i][k]. */
static void add_TYPE(const VALUE *restrict x, int sign, const WEIGHT *restrict w,
                     SUM *restrict sum, int count, int n)
{
    (void)sign;
    if (n == 16) {
        SUM a[16];
        for (int k = 0; k < 16; k++) a[k] = sum[k];
        for (int i = 0; i < count; i++)
            for (int k = 0; k < 16; k++) a[k] += OF(x[i]) * w[16 * i + k];
        for (int k = 0; k < 16; k++) sum[k] = a[k];
    } else {
        for (int i = 0; i < count; i++)
            for (int k = 0; k < n; k++) sum[k] += OF(x[i]) * w[n * i + k];
    }
}

static void keep_floats(float v, const result *r, int o, void *y, int to, int later)
{
    float *out = (float *)y + to;
    if (r->scale) v *= r->scale[o];
    v = v > r->floor ? v : r->floor;
    *out = later && *out > v ? *out : v;
}

/* (v * multiplier) / 2^shift, rounded to the nearest, half up, within the bounds: what TensorFlow
   Lite calls single rounding. Shifts of negative numbers keep the sign, as of all known compilers. */
static int32_t scaled(int32_t v, int32_t multiplier, int shift, int low, int high)
{
    int64_t r = ((int64_t)v * multiplier + ((int64_t)1 << (shift - 1))) >> shift;
    return (int32_t)(r < low ? low : r > high ? high : r);
}

static void keep_integers(int32_t sum, const result *r, int o, void *y, int to, int later)
{
    if (!r->multiplier) {
        keep_floats((float)sum, r, o, y, to, later);
        return;
    }
    int v = scaled(sum, r->multiplier[o], r->shift[o], r->low, r->high);
    int flip = r->low < 0 ? 128 : 0;
    uint8_t *out = (uint8_t *)y + to;
    *out = (uint8_t)(later && (*out ^ flip) - flip > v ? *out : v);
}

/* Convolution, and a dense layer as one of a single pixel. */
static void conv_TYPE(const VALUE *restrict x, int sign, const WEIGHT *restrict w,
                      const SUM *restrict bias, const result *r, void *y, const window *s)
{
    int inner = s->c / s->groups, outer = s->o / s->groups;
    for (int at = 0; at < s->p * s->q * s->groups; at++) {
        run found[MOST_RUNS];
        int group = at % s->groups, p = at / s->groups / s->q, q = at / s->groups % s->q;
        int seen = runs(s, p, q, group, found), later = p % s->ph || q % s->pw;
        int o = group * outer, to = (p / s->ph * (s->q / s->pw) + q / s->pw) * s->o;
        for (int rest = outer, n; rest > 0; rest -= n, o += n) {
            const WEIGHT *of = w + o * s->kh * s->kw * inner;
            SUM sum[16];
            n = rest >= 16 ? 16 : rest >= 4 ? 4 : 1;
            for (int k = 0; k < n; k++) sum[k] = bias ? bias[o + k] : 0;
            for (int i = 0; i < seen; i++)
                add_TYPE(x + found[i].x, sign, of + found[i].w * n, sum, found[i].count, n);
            for (int k = 0; k < n; k++) keep_TYPE(sum[k], r, o + k, y, to + o + k, later);
        }
    }
}

/* Pixels of 8 bits as integers: (raw * multiplier + offset) / 2^shift, half up. */
static void quantize_pixels(const uint8_t *raw, const int32_t *multiplier, const int32_t *offset,
                            int shift, int low, int high, uint8_t *y, int size, int channels)
{
    for (int i = 0; i < size; i++) {
        int32_t r = raw[i] * multiplier[i % channels] + offset[i % channels];
        r = (r + ((int32_t)1 << (shift - 1))) >> shift;
        y[i] = (uint8_t)(r < low ? low : r > high ? high : r);
    }
}

/* The nearest integers of x / scale, half to even. */
static void quantize(const float *x, float scale, int low, int high, uint8_t *y, int size)
{
    for (int i = 0; i < size; i++) {
        float v = x[i] / scale;
        int n = v <= (float)low ? low : v >= (float)high ? high : (int)v;
        float rest = v - (float)n;
        if (n > low && (rest < -0.5f || (rest == -0.5f && n % 2))) n--;
        if (n < high && (rest > 0.5f || (rest == 0.5f && n % 2))) n++;
        y[i] = (uint8_t)n;
    }
}

static void scale_pixels(const uint8_t *x, const float *scale, const float *shift, float *y,
                         int size, int channels)
{
    for (int i = 0; i < size; i++) y[i] = x[i] * scale[i % channels] + shift[i % channels];
}

static void scale_values(const float *x, const double *scale, const double *shift, float *y,
                         int size, int channels)
{
    for (int i = 0; i < size; i++)
        y[i] = (float)(x[i] * scale[i % channels] + shift[i % channels]);
}

/* The largest, or the mean over the pixels inside the picture, which are floats then. */
static void pool_TYPE(const VALUE *restrict x, int sign, int mean, VALUE *restrict y,
                      const window *s)
{
    run found[MOST_RUNS];
    (void)sign;
    for (int at = 0; at < s->p * s->q; at++, y += s->c) {
        int seen = runs(s, at / s->q, at % s->q, 0, found), count = 0;
        for (int k = 0; k < s->c; k++) y[k] = mean ? 0 : x[found[0].x + k];
        for (int i = 0; i < seen; count += found[i].count, i++)
            for (int j = 0; j < found[i].count; j++) {
                VALUE v = x[found[i].x + j], *to = y + j % s->c;
                *to = (VALUE)(mean ? *to + v : OF(*to) > OF(v) ? *to : v);
            }
        for (int k = 0; k < s->c && mean; k++) y[k] /= (VALUE)(count / s->c);
    }
}

static void add(const float *x, const float *term, float *y, int size)
{
    for (int i = 0; i < size; i++) y[i] = x[i] + term[i];
}

static void apply(float (*f)(float, float), float alpha, const float *x, float *y, int size)
{
    for (int i = 0; i < size; i++) y[i] = f(x[i], alpha);
}

/* count channels of each pixel, or zeros: from a picture of from channels into one of to. */
static void copy_channels(const float *x, int from, float *y, int to, int count, int pixels)
{
    for (int i = 0; i < pixels; i++)
        for (int k = 0; k < count; k++) y[i * to + k] = x ? x[i * from + k] : 0;
}

/* Numbers in the order of channels, rows and columns under another shape; of bytes each. */
static void reshape(const void *x, int h, int w, int c, void *y, int rows, int columns,
                    int channels, int bytes)
{
    for (int i = 0; i < h * w * c; i++) {
        int from = i % (h * w) * c + i / (h * w);
        int to = i % (rows * columns) * channels + i / (rows * columns);
        for (int k = 0; k < bytes; k++)
            ((uint8_t *)y)[to * bytes + k] = ((const uint8_t *)x)[from * bytes + k];
    }
}

static void pad(const float *x, int h, int w, int c, int top, int left, int rows, int columns,
                float value, float *y)
{
    for (int i = 0; i < rows * columns * c; i++) {
        int r = i / c / columns - top, column = i / c % columns - left;
        int inside = r >= 0 && r < h && column >= 0 && column < w;
        y[i] = inside ? x[(r * w + column) * c + i % c] : value;
    }
}

/* Minus the squared distance to each centre. */
static void rbf(const float *x, const float *centres, int size, float *y, int count)
{
    for (int k = 0; k < count; k++) {
        y[k] = 0;
        for (int i = 0; i < size; i++) {
            float apart = x[i] - centres[k * size + i];
            y[k] -= apart * apart;
        }
    }
}

/* The logarithm of v > 0, to 4e-9 and what floats round: n ln 2 + 2 atanh((v - 1) / (v + 1)). */
static float logarithm(float v)
{
    float n = 0;
    for (; v > 1.5f && n < 128; n++) v *= 0.5f;
    for (; v < 0.75f && n > -150; n--) v *= 2;
    float r = (v - 1) / (v + 1), s = r * r;
    return n * 0.693147181f + 2 * r * (1 + s * (1 / 3.0f + s * (0.2f + s * (1 / 7.0f + s / 9))));
}

/* x / (k + alpha * squares of size x size pixels and of depth channels near each)^beta. */
static void local_norm(const float *x, int h, int w, int c, int size, int depth, float alpha,
                       float beta, float k, float *y)
{
    for (int at = 0; at < h * w * c; at++) {
        int row = at / c / w, column = at / c % w, channel = at % c;
        float sum = 0;
        for (int i = row - size / 2; i <= row + size / 2; i++)
        for (int j = column - size / 2; j <= column + size / 2; j++)
        for (int l = channel - depth / 2; l <= channel + depth / 2; l++)
            if (i >= 0 && i < h && j >= 0 && j < w && l >= 0 && l < c)
                sum += x[(i * w + j) * c + l] * x[(i * w + j) * c + l];
        y[at] = x[at] * expf(-beta * logarithm(k + alpha * sum));
    }
}

/* Over the channels of each pixel. */
static void softmax(const float *x, int logarithms, float *y, int pixels, int channels)
{
    for (int i = 0; i < pixels; i++, x += channels, y += channels) {
        float most = x[0], sum = 0;
        for (int k = 1; k < channels; k++) most = x[k] > most ? x[k] : most;
        for (int k = 0; k < channels; k++) sum += expf(x[k] - most);
        float log = logarithms ? logarithm(sum) : 0;
        for (int k = 0; k < channels; k++)
            y[k] = logarithms ? x[k] - most - log : expf(x[k] - most) / sum;
    }
}

static float relu(float x, float alpha) { return x > alpha ? x : alpha; }

static float leaky_relu(float x, float alpha) { return x > 0 ? x : x * alpha; }

static float relu6(float x, float one) { return x > 6 ? 6 : x > 0 ? x * one : 0; }

static float hardsigmoid(float x, float one) { return relu6(x + 3, one) / 6; }

static float hardswish(float x, float one) { return x * hardsigmoid(x, one); }

static float heaviside(float x, float alpha) { return x > alpha ? 1 : 0; }

static float elu(float x, float alpha) { return x > 0 ? x : alpha * (expf(x) - 1); }

static float sigmoid(float x, float one)
{
    float small = expf(x < 0 ? x : -x);
    return (x < 0 ? small : one) / (1 + small);
}

static float hyperbolic_tangent(float x, float one)
{
    float small = expf(x < 0 ? 2 * x : -2 * x), size = (one - small) / (one + small);
    return x < 0 ? -size : size;
}

static float scaled_tanh(float x, float one)
{
    return 1.7159f * hyperbolic_tangent(x * (2 / 3.0f), one);
}

static float softplus(float x, float one)
{
    return (x > 0 ? x : 0) + logarithm(one + expf(x < 0 ? x : -x));
}

static float silu(float x, float one) { return x * sigmoid(x, one); }

static float mish(float x, float one)
{
    float small = expf(x < 0 ? x : -x), share = x < 0 ? small * (small + 2) : one + 2 * small;
    return x * share / (share + (x < 0 ? 2 : 2 * small * small));
}

/* With the error function to 1.5e-7: Abramowitz and Stegun, 7.1.26. */
static float gelu(float x, float one)
{
    float z = (x < 0 ? -x : x) * 0.707106781f, t = one / (one + 0.3275911f * z);
    float rest = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f
                 + t * 1.061405429f)))) * expf(-z * z);
    return 0.5f * x * (x < 0 ? rest : 2 - rest);
}

static float gelu_tanh(float x, float one)
{
    float inner = 0.797884561f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1 + hyperbolic_tangent(inner, one));
}
