// Activations and their slopes, in the order of ACTIVATIONS in graph/ops.

// 1 / x and 2^x. Where results are bfloat16 the device's own instruction, good to about 22 bits,
// will do: what is exact costs several times as much.
INLINE float reciprocal(float x) {
#if BFLOAT && defined(__CUDA_ARCH__)
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return 1.0f / x;
#endif
}

INLINE float power_of_two(float x) {
#if BFLOAT && defined(__CUDA_ARCH__)
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
#else
    return exp2f(x);
#endif
}

INLINE float sigmoid(float x) {
#if BFLOAT
    return reciprocal(1.0f + power_of_two(x * -1.44269504f));
#else
    return 1.0f / (1.0f + expf(-x));
#endif
}

// |x|, but 16 where it is more: e^(-x^2 / 2) is 0 in float before. NaN stays.
INLINE float up_to_16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float t;
    asm("min.NaN.f32 %0, %1, 0f41800000;" : "=f"(t) : "f"(fabsf(x)));
    return t;
#else
    return fabsf(x) > 16.0f ? 16.0f : fabsf(x);
#endif
}

// x cdf(x) of the standard normal distribution. Where results are bfloat16 the share beyond |x| is
// 2^p(|x|), p a polynomial: off by less than 2^-15 of the result and 2e-7, with one exponential and
// no division.
INLINE float gelu(float x) {
#if BFLOAT
    const float t = up_to_16(x);
    float p = 6.60791434e-3f + t * -4.05999657e-4f;
    p = -4.60942775e-1f + t * (-5.07102422e-2f + t * p);
    p = -1.0f + t * (-1.15061784f + t * p);
    return fmaxf(x, 0.0f) - t * power_of_two(p);
#else
    return x * (0.5f * (1.0f + erff(x * 0.70710678118654752f)));
#endif
}

// cdf(x) + x density(x). Where results are bfloat16 what is missing at |x| is e^(-x^2 / 2) q(|x|), q
// a polynomial: off by less than 2^-14 of the result and 2e-6.
INLINE float gelu_slope(float x) {
#if BFLOAT
    const float t = up_to_16(x);
    float q = 1.76869239e-3f + t * -1.15166047e-4f;
    q = 4.57797162e-2f + t * (-1.17504783e-2f + t * q);
    q = 2.46140256e-1f + t * (-1.21807709e-1f + t * q);
    q = 0.5f + t * (-7.97380567e-1f + t * q);
    // The slope at -x is 1 less the slope at x: both are as far from 0.5.
    const float far = 0.5f - q * power_of_two(t * t * -0.72134752f);
    return 0.5f + copysignf(far, x);
#else
    const float density = 0.39894228040143268f * expf(-0.5f * x * x);
    return 0.5f * (1.0f + erff(x * 0.70710678118654752f)) + x * density;
#endif
}

// min(max(x, 0), 6); NaN stays.
INLINE float relu6(float x) {
    return x > 0.0f ? fminf(x, 6.0f) : (isnan(x) ? x : 0.0f);
}

INLINE float softplus(float x) {
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

enum Kind {
    RELU, LEAKY_RELU, SIGMOID, TANH, ELU, RELU6,
    SOFTPLUS, SILU, GELU, GELU_TANH, HARDSIGMOID, HARDSWISH, MISH, SCALED_TANH
};

INLINE float activate(int kind, float x, float alpha) {
    switch (kind) {
        case RELU: return x > 0.0f ? x : (isnan(x) ? x : 0.0f);
        case LEAKY_RELU: return x > 0.0f ? x : alpha * x;
        case SIGMOID: return sigmoid(x);
        case TANH: return tanhf(x);
        case ELU: return x > 0.0f ? x : alpha * expm1f(x);
        case SOFTPLUS: return softplus(x);
        case SILU: return x * sigmoid(x);
        case GELU: return gelu(x);
        case GELU_TANH: {
            float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
            return 0.5f * x * (1.0f + tanhf(inner));
        }
        case RELU6: return relu6(x);
        case HARDSIGMOID: return relu6(x + 3.0f) / 6.0f;
        case HARDSWISH: return x * (relu6(x + 3.0f) / 6.0f);
        case MISH: return x * tanhf(softplus(x));
        default: return 1.7159f * tanhf(0.66666666666666667f * x);
    }
}

// v is forward's output for the first six kinds and the last, its input for the others.
INLINE float slope(int kind, float v, float alpha) {
    switch (kind) {
        case RELU: return v > 0.0f ? 1.0f : 0.0f;
        case LEAKY_RELU: return v > 0.0f ? 1.0f : alpha;
        case SIGMOID: return v * (1.0f - v);
        case TANH: return (1.0f - v) * (1.0f + v);
        case ELU: return v > 0.0f ? 1.0f : v + alpha;
        case SOFTPLUS: return sigmoid(v);
        case SILU: {
            float s = sigmoid(v);
            return s * (1.0f + v * (1.0f - s));
        }
        case GELU: return gelu_slope(v);
        case GELU_TANH: {
            float t = tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v));
            float inner = 0.79788456080286536f * (1.0f + 3.0f * 0.044715f * v * v);
            return 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * inner;
        }
        case RELU6: return v > 0.0f && v < 6.0f ? 1.0f : 0.0f;
        case HARDSIGMOID: return v > -3.0f && v < 3.0f ? 1.0f / 6.0f : 0.0f;
        case HARDSWISH: return v > -3.0f && v < 3.0f ? v / 3.0f + 0.5f : (v >= 3.0f ? 1.0f : 0.0f);
        case MISH: {
            float share = tanhf(softplus(v));
            return share + v * sigmoid(v) * (1.0f - share) * (1.0f + share);
        }
        // The difference is exact near the ends, where the square's is lost in rounding.
        // In bfloat16 the ends are rounded to more than 1.7159; there it is 0. NaN stays.
        default: return fabsf(v) > 1.7159f ? 0.0f : 0.38852303f * ((1.7159f - v) * (1.7159f + v));
    }
}
