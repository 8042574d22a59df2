// The gradient of a max-pool's output, of windows of 2 by 2 side by side, as its input's. Compiled for
// FROM_POOL and POOLED: channels that are stored of the output. STRIDED: the first of each window is
// its maximum, whatever `places` and `mask`, so that the output is that of a convolution of stride 2,
// and the input that of the same with stride 1; POOLED are whole chunks then.
#if FROM_POOL && STRIDED
static_assert(POOLED % CHUNK == 0);

struct Spread {
    const T* from;
    bool exists;

    INLINE Spread() {}

    INLINE Spread(const T* dy, const u8*, const T*, i64 pixel, int channel, bool there) {
        exists = there && channel < POOLED;
        from = exists ? dy + pixel * POOLED + channel : dy;
    }

    // Brings that of the pixel at one place of the windows to a tile; there as what `fetch` brings.
    INLINE void put(u32 to, u32 tap) const {
        if (tap == 0) fetch(to, from, exists);
        else to_shared(to, make_uint4(0, 0, 0, 0));
    }
};
#elif FROM_POOL
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

INLINE u32 get_places(const u8* p) {
#if POOLED % 2 == 0
    return *(const unsigned short*)p;
#else
    return p[0] | p[1] << 8;
#endif
}

// A chunk of it: the gradients of CHUNK maxima, and where these were, a byte each in pairs. Beyond the
// channels that are stored, and where a ReLU behind the maxima let nothing pass, there is none.
struct Spread {
    T v[CHUNK];
    u32 taps[CHUNK / 2];

    INLINE Spread() {}

    // mask: the maxima, or null without a ReLU; pixel, channel: of the output.
    INLINE Spread(const T* dy, const u8* places, const T* mask, i64 pixel, int channel, bool exists) {
        const i64 first = pixel * POOLED + channel;
#pragma unroll
        for (int k = 0; k < CHUNK; k += 2) {
            v[k] = v[k + 1] = T(0), taps[k / 2] = 0x404;
            if (!exists || channel + k >= POOLED) continue;
            if (channel + k + 1 < POOLED) {
                get2(dy + first + k, v + k);
                taps[k / 2] = get_places(places + first + k);
            } else {
                v[k] = dy[first + k];
                taps[k / 2] = places[first + k] | 0x400;
            }
            if (!mask) continue;
            UNROLLED(e, 2)
                if (channel + k + e < POOLED && !(get(mask[first + k + e]) > 0.0f))
                    taps[k / 2] = taps[k / 2] & 0xff00u >> 8 * e | 4u << 8 * e;
        }
    }

    INLINE u32 tap_of(int k) const { return taps[k / 2] >> k % 2 * 8 & 255; }

    // Of the pixel at one place of the windows.
    INLINE uint4 at(u32 tap) const {
        u32 word[4];
        UNROLLED(q, 4) {
#if BFLOAT
            word[q] = (tap_of(2 * q) == tap ? v[2 * q] : 0) |
                      (u32)(tap_of(2 * q + 1) == tap ? v[2 * q + 1] : 0) << 16;
#else
            word[q] = tap_of(q) == tap ? __float_as_uint(v[q]) : 0;
#endif
        }
        return make_uint4(word[0], word[1], word[2], word[3]);
    }

    INLINE void put(u32 to, u32 tap) const { to_shared(to, at(tap)); }
};
#endif
