// A sample of a batch: its row of pictures, scaled and shifted.

// A picture's pixels are uint8 or float, NCHW; x is T with any strides.
struct Place {
    int channels, pixels, steps;
    int sample, channel, pixel;  // strides of x in elements
};
// Numbers, or fours of them, that a thread asks for at once.
#define PIXELS_AT_ONCE 4

template <typename P>
struct FourOf {
    using Type = uchar4;
};
template <>
struct FourOf<float> {
    using Type = float4;
};

// Those of `thread` among `threads`; row -1 gives zeros.
template <typename P>
INLINE void gather_row(const P* images, int row, T* to, const float* scale, const float* shift,
                       const Place& p, int thread, int threads) {
    const int each = p.channels * p.pixels;
    const P* from = images + (i64)max(row, 0) * each;
    if (p.channels == 1 && p.pixels % 4 == 0 && p.sample % 4 == 0) {
        const float a = row >= 0 ? scale[0] : 0.0f, b = row >= 0 ? shift[0] : 0.0f;
        for (int first = thread; first < p.pixels / 4; first += PIXELS_AT_ONCE * threads) {
            using Four = typename FourOf<P>::Type;
            Four fours[PIXELS_AT_ONCE];
            UNROLLED(k, PIXELS_AT_ONCE)
                fours[k] = *(const Four*)(from + 4 * min(first + k * threads, p.pixels / 4 - 1));
            UNROLLED(k, PIXELS_AT_ONCE) {
                const int i = first + k * threads;
                if (i >= p.pixels / 4) break;
                // 0 times infinity is no 0.
                const Four four = sizeof(P) > 1 && row < 0 ? Four() : fours[k];
                put4(to + 4 * i, make_float4(fmaf(four.x, a, b), fmaf(four.y, a, b),
                                             fmaf(four.z, a, b), fmaf(four.w, a, b)));
            }
        }
        return;
    }
    for (int first = thread; first < each; first += PIXELS_AT_ONCE * threads) {
        float values[PIXELS_AT_ONCE];
        int places[PIXELS_AT_ONCE];
        UNROLLED(k, PIXELS_AT_ONCE) {
            const int i = min(first + k * threads, each - 1);
            const int channel = p.channel == 1 ? i % p.channels : i / p.pixels;
            const int pixel = p.channel == 1 ? i / p.channels : i % p.pixels;
            const float value = from[channel * p.pixels + pixel];
            values[k] = row < 0 ? 0.0f : fmaf(value, scale[channel], shift[channel]);
            places[k] = channel * p.channel + pixel * p.pixel;
        }
        UNROLLED(k, PIXELS_AT_ONCE)
            if (first + k * threads < each) put(to + places[k], values[k]);
    }
}
