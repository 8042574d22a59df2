// The gradient of an activation's output as its input's. Compiled for SLOPE: the activation, or -1.
#if SLOPE >= 0
INLINE float sloped(float d, float v, float alpha) { return d * slope(SLOPE, v, alpha); }

// A chunk of gradients times the slopes, rounded as the activation's own kernel rounds.
INLINE uint4 sloped(uint4 d, uint4 v, float alpha) {
    const u32 gradients[4] = {d.x, d.y, d.z, d.w}, values[4] = {v.x, v.y, v.z, v.w};
    u32 found[4];
    UNROLLED(q, 4) {
        const u32 a = gradients[q], b = values[q];
#if BFLOAT
        found[q] = to_bf16_pair(
            sloped(__uint_as_float(a << 16), __uint_as_float(b << 16), alpha),
            sloped(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u), alpha));
#else
        found[q] = __float_as_uint(sloped(__uint_as_float(a), __uint_as_float(b), alpha));
#endif
    }
    return make_uint4(found[0], found[1], found[2], found[3]);
}
#endif
