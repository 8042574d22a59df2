// Pairs of pictures and of their targets, mixed: graph/mixing.py says what is drawn for each pair.

// `steps` make an epoch; `outer` planes of height x width pixels of `inner` neighbours each.
struct Mixes {
    int n, steps, count, draws, outer, height, width, inner, classes, wide;
};

// y[i]: x[i] and x[n + i]. last: the largest word of each kind; tables[kind][draws]: the weight of
// x[i], height and width of the rectangle, last those of what stays as it is; target: classes, or
// shares if it is wide. A block a pair.
KERNEL mix_samples(const T* x, const int* target, const i64* step, T* y, float* mixed,
                   const Mixes* mixes, const unsigned* key, const unsigned* last,
                   const float* tables) {
    enter();
    const Mixes f = *mixes;
    const int i = blockIdx.x, pixels = f.height * f.width;
    const uint4 drawn = philox(step[0] % f.steps * f.n + i, step[0] / f.steps, key[0], key[1]);
    int kind = 0;
    while (kind < f.count && drawn.w > last[kind]) ++kind;
    const float* row = tables + 3 * (kind * f.draws + (int)__umulhi(drawn.x, f.draws));
    const float weight = row[0];
    const int middle_y = __umulhi(drawn.y, f.height), middle_x = __umulhi(drawn.z, f.width);
    const int half_y = (int)row[1] / 2, half_x = (int)row[2] / 2;
    const int top = max(middle_y - half_y, 0), bottom = min(middle_y + half_y, f.height);
    const int left = max(middle_x - half_x, 0), right = min(middle_x + half_x, f.width);
    const int each = f.outer * pixels * f.inner;
    const T *first = x + (i64)i * each, *second = x + (i64)(f.n + i) * each;
    T* to = y + (i64)i * each;
    OF_BLOCK(at, each) {
        const int pixel = at / f.inner % pixels, h = pixel / f.width, w = pixel % f.width;
        const bool inside = h >= top && h < bottom && w >= left && w < right;
        const float one = get(first[at]), other = get(second[at]);
        put(to + at, inside ? other : weight * one + (1.0f - weight) * other);
    }
    const float area = (bottom - top) * (right - left);
    const float share = weight * (1.0f - area / pixels);
    const float* shares = (const float*)target;
    OF_BLOCK(k, f.classes) {
        const i64 at = (i64)i * f.classes + k, partner = (i64)(f.n + i) * f.classes + k;
        const float one = f.wide ? shares[at] : target[i] == k;
        const float other = f.wide ? shares[partner] : target[f.n + i] == k;
        mixed[at] = share * one + (1.0f - share) * other;
    }
}
