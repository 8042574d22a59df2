// Losses of the older literature: rows of scores or probabilities, always float. Kinds in the order
// of KINDS in classic_losses.py. A and B are the numbers of a kind, `given` whether MAP has its j.

enum Loss { MULTI_MARGIN, ONE_MINUS_P, SQUARED_DISTANCE, MAP, PERCEPTRON };

// log(e^-j + sum over k of e^x[k]), less the largest exponent, so that nothing overflows.
__device__ float log_sum(const float* x, int classes, float j) {
    float top = -j;
    for (int k = 0; k < classes; ++k) top = fmaxf(top, x[k]);
    float total = expf(-j - top);
    for (int k = 0; k < classes; ++k) total += expf(x[k] - top);
    return top + logf(total);
}

// p m^(p - 1) for m = max(0, margin - own + x), 0 where that is 0.
__device__ __forceinline__ float hinge_slope(float m, float power) {
    return m > 0.0f ? (power == 1.0f ? 1.0f : power * powf(m, power - 1.0f)) : 0.0f;
}

extern "C" {

// losses[row], 0 for a masked row.
__global__ void classic_losses(const float* x, const int* target, float* losses, int n,
                               int classes, int kind, float a, float b, int given) {
    enter();
    LINEAR(row, n) {
        const float* in = x + row * classes;
        const int t = target[row];
        float loss = 0.0f;
        if (t >= 0) switch (kind) {
            case MULTI_MARGIN:
                for (int k = 0; k < classes; ++k) {
                    float m = fmaxf(a - in[t] + in[k], 0.0f);
                    if (k != t) loss += b == 1.0f ? m : powf(m, b);
                }
                loss /= classes;
                break;
            case ONE_MINUS_P: loss = 1.0f - in[t]; break;
            case SQUARED_DISTANCE:
                for (int k = 0; k < classes; ++k) loss += in[k] * ((k - t) * (k - t));
                break;
            case MAP: loss = (given ? log_sum(in, classes, a) : 0.0f) - in[t]; break;
            default:
                for (int k = 0; k < classes; ++k) loss += fabsf(in[k] - (k == t ? 1.0f : 0.0f));
        }
        losses[row] = loss;
    }
}

// dx, the gradients of these; one thread a row. Every block counts the rows that are not masked.
__global__ void classic_losses_backward(const float* x, const int* target, float* dx, int n,
                                        int classes, int mean, int kind, float a, float b,
                                        int given) {
    enter();
    __shared__ double totals[256];
    double count = 0.0;
    for (int row = threadIdx.x; row < n; row += blockDim.x) count += target[row] >= 0;
    count = block_sum(count, totals);
    const float weight = mean ? 1.0 / fmax(count, 1.0) : 1.0;
    LINEAR(row, n) {
        const float* in = x + row * classes;
        float* out = dx + row * classes;
        const int t = target[row];
        const float norm = kind == MAP && given && t >= 0 ? log_sum(in, classes, a) : 0.0f;
        float sum = 0.0f;
        for (int k = 0; k < classes; ++k) {
            float right = k == t ? 1.0f : 0.0f, slope = 0.0f;
            if (t >= 0) switch (kind) {
                case MULTI_MARGIN:
                    slope = k == t ? 0.0f : hinge_slope(a - in[t] + in[k], b) / classes;
                    sum += slope;
                    break;
                case ONE_MINUS_P: slope = -right; break;
                case SQUARED_DISTANCE: slope = (k - t) * (k - t); break;
                case MAP: slope = (given ? expf(in[k] - norm) : 0.0f) - right; break;
                default: slope = in[k] - right;
            }
            out[k] = slope * weight;
        }
        if (kind == MULTI_MARGIN && t >= 0) out[t] = -sum * weight;
    }
}

}  // extern "C"
