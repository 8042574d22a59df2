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

// The standard normal distribution at x. Where results are bfloat16, by 26.2.17 of Abramowitz and
// Stegun (1964): off by less than 4e-7, with one exponential for both.
struct Normal {
    float cdf, density;
};

INLINE Normal normal(float x) {
#if BFLOAT
    const float density = 0.39894228f * power_of_two(x * x * -0.72134752f);
    const float t = reciprocal(1.0f + 0.2316419f * fabsf(x));
    float sum = -1.821255978f + t * 1.330274429f;
    sum = -0.356563782f + t * (1.781477937f + t * sum);
    const float beyond = density * t * (0.319381530f + t * sum);
    return {x < 0.0f ? beyond : 1.0f - beyond, density};
#else
    return {0.5f * (1.0f + erff(x * 0.70710678118654752f)),
            0.39894228040143268f * expf(-0.5f * x * x)};
#endif
}

enum Kind { RELU, LEAKY_RELU, SIGMOID, TANH, ELU, SOFTPLUS, SILU, GELU, GELU_TANH, SCALED_TANH };

INLINE float activate(int kind, float x, float alpha) {
    switch (kind) {
        case RELU: return x > 0.0f ? x : (isnan(x) ? x : 0.0f);
        case LEAKY_RELU: return x > 0.0f ? x : alpha * x;
        case SIGMOID: return sigmoid(x);
        case TANH: return tanhf(x);
        case ELU: return x > 0.0f ? x : alpha * expm1f(x);
        case SOFTPLUS: return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
        case SILU: return x * sigmoid(x);
        case GELU: return x * normal(x).cdf;
        case GELU_TANH: {
            float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
            return 0.5f * x * (1.0f + tanhf(inner));
        }
        default: return 1.7159f * tanhf(0.66666666666666667f * x);
    }
}

// v is forward's output for the first five kinds and the last, its input for the others.
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
        case GELU: {
            const Normal at = normal(v);
            return at.cdf + v * at.density;
        }
        case GELU_TANH: {
            float t = tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v));
            float inner = 0.79788456080286536f * (1.0f + 3.0f * 0.044715f * v * v);
            return 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * inner;
        }
        // The difference is exact near the ends, where the square's is lost in rounding.
        // In bfloat16 the ends are rounded to more than 1.7159; there it is 0. NaN stays.
        default: return fabsf(v) > 1.7159f ? 0.0f : 0.38852303f * ((1.7159f - v) * (1.7159f + v));
    }
}
