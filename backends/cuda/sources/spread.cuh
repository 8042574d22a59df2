// The gradient of a max-pool's output, of windows of 2 by 2 side by side, as its input's. Compiled for
// FROM_POOL and POOLED: channels that are stored of the output.
#if FROM_POOL
#if BFLOAT
typedef ushort2 Pair;
#else
typedef float2 Pair;
#endif

INLINE void get2(const T* p, T* v) {
#if POOLED % 2 == 0
    const auto both = *(const Pair*)p;
    v[0] = both.x, v[1] = both.y;
#else
    v[0] = p[0], v[1] = p[1];
#endif
}

// A chunk of it: the gradients of CHUNK maxima, and where these were. Beyond the channels that are
// stored, and where a ReLU behind the maxima let nothing pass, there is none.
struct Spread {
    T v[CHUNK];
    u32 taps[CHUNK];

    // mask: the maxima, or null without a ReLU; pixel, channel: of the output.
    INLINE Spread(const T* dy, const u8* places, const T* mask, i64 pixel, int channel, bool exists) {
        const i64 first = pixel * POOLED + channel;
        UNROLLED(k, CHUNK) v[k] = T(0), taps[k] = 4;
#pragma unroll
        for (int k = 0; k < CHUNK; k += 2) {
            if (!exists || channel + k >= POOLED) continue;
            if (channel + k + 1 < POOLED) get2(dy + first + k, v + k);
            else v[k] = dy[first + k];
            UNROLLED(e, 2) {
                const i64 at = first + k + e;
                if (channel + k + e < POOLED && (!mask || get(mask[at]) > 0.0f))
                    taps[k + e] = places[at];
            }
        }
    }

    // Of the pixel at one place of the windows.
    INLINE uint4 at(u32 tap) const {
        u32 word[4];
        UNROLLED(q, 4) {
#if BFLOAT
            word[q] = (taps[2 * q] == tap ? v[2 * q] : 0) |
                      (u32)(taps[2 * q + 1] == tap ? v[2 * q + 1] : 0) << 16;
#else
            word[q] = taps[q] == tap ? __float_as_uint(v[q]) : 0;
#endif
        }
        return make_uint4(word[0], word[1], word[2], word[3]);
    }
};
#endif
