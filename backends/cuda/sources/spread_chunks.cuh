// The gradient of a max-pool's output as its input's, as in spread.cuh, a chunk of bfloat16 at once.
#if FROM_POOL
struct Chunk {
    // Gradients in pairs, and where their maxima were, a byte each.
    u32 v[CHUNK / 2], places[CHUNK / 4];

    // mask: the maxima, or null without a ReLU; pixel, channel: of the output.
    INLINE void load(const T* dy, const u8* from, const T* mask, u32 pixel, int channel, bool exists) {
        UNROLLED(q, 4) v[q] = 0;
        UNROLLED(q, 2) places[q] = 0;
        if (!exists || channel >= POOLED) return;
        const i64 first = (i64)pixel * POOLED + channel;
        if (POOLED % CHUNK == 0) {
            const uint4 g = *(const uint4*)(dy + first);
            const uint2 p = *(const uint2*)(from + first);
            v[0] = g.x, v[1] = g.y, v[2] = g.z, v[3] = g.w, places[0] = p.x, places[1] = p.y;
            if (!mask) return;
            const uint4 m = *(const uint4*)(mask + first);
            v[0] &= pair_above(m.x, 0), v[1] &= pair_above(m.y, 0);
            v[2] &= pair_above(m.z, 0), v[3] &= pair_above(m.w, 0);
            return;
        }
        UNROLLED(k, CHUNK) {
            if (channel + k >= POOLED || (mask && !(get(mask[first + k]) > 0.0f))) continue;
            v[k / 2] |= (u32)dy[first + k] << k % 2 * 16;
            places[k / 4] |= (u32)from[first + k] << k % 4 * 8;
        }
    }

    // For the four pixels of each maximum: those of the upper row, then those of the lower one.
    INLINE void spread(uint4 (&out)[4]) const {
        u32 found[4][4];
        UNROLLED(q, 4) {
            // Both bits of a place fill a half each.
            const u32 pair = places[q / 2] >> q % 2 * 16, place = (pair & 3) | (pair & 0x300) << 8;
            const u32 right = (place & 0x10001) * 0xffff, lower = (place >> 1 & 0x10001) * 0xffff;
            found[0][q] = v[q] & ~lower & ~right, found[1][q] = v[q] & ~lower & right;
            found[2][q] = v[q] & lower & ~right, found[3][q] = v[q] & lower & right;
        }
        UNROLLED(tap, 4)
            out[tap] = make_uint4(found[tap][0], found[tap][1], found[tap][2], found[tap][3]);
    }
};
#endif
