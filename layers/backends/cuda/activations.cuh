// Activations and their slopes, in the order of ACTIVATIONS in layers/ops.

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

enum Kind { RELU, LEAKY_RELU, SIGMOID, TANH, ELU, SOFTPLUS, SILU, GELU, GELU_TANH, SCALED_TANH };

__device__ __forceinline__ float activate(int kind, float x, float alpha) {
    switch (kind) {
        case RELU: return x > 0.0f ? x : (isnan(x) ? x : 0.0f);
        case LEAKY_RELU: return x > 0.0f ? x : alpha * x;
        case SIGMOID: return sigmoid(x);
        case TANH: return tanhf(x);
        case ELU: return x > 0.0f ? x : alpha * expm1f(x);
        case SOFTPLUS: return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
        case SILU: return x * sigmoid(x);
        case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
        case GELU_TANH: {
            float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
            return 0.5f * x * (1.0f + tanhf(inner));
        }
        default: return 1.7159f * tanhf(0.66666666666666667f * x);
    }
}

// v is forward's output for the first five kinds and the last, its input for the others.
__device__ __forceinline__ float slope(int kind, float v, float alpha) {
    switch (kind) {
        case RELU: return v > 0.0f ? 1.0f : 0.0f;
        case LEAKY_RELU: return v > 0.0f ? 1.0f : alpha;
        case SIGMOID: return v * (1.0f - v);
        case TANH: return 1.0f - v * v;
        case ELU: return v > 0.0f ? 1.0f : v + alpha;
        case SOFTPLUS: return sigmoid(v);
        case SILU: {
            float s = sigmoid(v);
            return s * (1.0f + v * (1.0f - s));
        }
        case GELU: {
            float density = 0.39894228040143268f * expf(-0.5f * v * v);
            return 0.5f * (1.0f + erff(v * 0.70710678118654752f)) + v * density;
        }
        case GELU_TANH: {
            float t = tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v));
            float inner = 0.79788456080286536f * (1.0f + 3.0f * 0.044715f * v * v);
            return 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * inner;
        }
        default: return 0.66666666666666667f * (1.7159f - v * v / 1.7159f);
    }
}
