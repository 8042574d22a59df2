// wgmma.cuh on the processor, behind device.hpp. Products are computed where they are waited for, so
// that what is read too early, or written over, shows. It ends the process where a product would read
// what nobody has shown it, where warps of a group differ, and where registers are not told of.
namespace emulated {
// An operand in shared memory: number `i` of its rows or columns at a depth of the 16.
struct Operand {
    u32 start, deep, beside;
    bool turned;

    Operand(u64 given, bool turned) : turned(turned) {
        if (given >> 62 || given >> 49 & 7) refuse("no swizzle is meant", given);
        start = u32(given & 0x3fff) << 4, deep = u32(given >> 16 & 0x3fff) << 4;
        beside = u32(given >> 32 & 0x3fff) << 4;
    }
    float at(int i, int depth) const {
        const int row = turned ? depth % 8 : i % 8, place = turned ? i % 8 : depth % 8;
        const u32 where = start + depth / 8 * deep + i / 8 * beside + row * 16;
        const char* line = emulated::at(where, 16);
        if (hidden[where / 16]) refuse("a product reads what it was not shown, at", where);
        unsigned short v;
        memcpy(&v, line + place * 2, 2);
        return __uint_as_float(u32(v) << 16);
    }
};
}  // namespace emulated

INLINE u64 described(u32 at, u32 leading, u32 stride) {
    if ((at | leading | stride) % 16) emulated::refuse("no multiple of 16 bytes", at);
    return at >> 4 | u64(leading >> 4) << 16 | u64(stride >> 4) << 32;
}
INLINE u64 by_rows(u32 at, u32 deep, u32 beside) { return described(at, deep, beside); }
INLINE u64 by_columns(u32 at, u32 deep, u32 beside) { return described(at, deep, beside); }
INLINE u64 behind(u64 operand, u32 bytes) {
    if (bytes % 16) emulated::refuse("no multiple of 16 bytes", bytes);
    return operand + (bytes >> 4);
}
INLINE void begin_products() { emulated::begin_products(); }
INLINE void end_products() { emulated::end_products(); }
template <int groups>
INLINE void products_left() { emulated::products_left(groups); }
template <int count>
INLINE void held(float (&)[count]) {}
INLINE void show_products() { emulated::show_products(); }
template <int warpgroups>
INLINE void meet_team(int team) {
    emulated::meet_team(team, warpgroups);
    RESUMED;
}
INLINE void meet(int warpgroup) { meet_team<1>(warpgroup); }
INLINE u32 thread_of_warpgroup() { return threadIdx.x % 128; }
template <int count>
INLINE void rows_to_shared(u32 at, const u32* r) {
    const auto all = emulated::exchange(&at, 1);
    RESUMED;
    const int lane = threadIdx.x % 32;
    for (int m = 0; m < count; ++m) {
        const u32 row = all[8 * m + lane / 4][0];
        emulated::written_at(row, 16);
        memcpy(emulated::at(row + lane % 4 * 4, 4), &r[m], 4);
    }
}
INLINE void half_to_shared(u32 at, u32 v) { memcpy(emulated::written_at(at, 2), &v, 2); }
template <int bytes>
INLINE void out_of_shared(void* to, u32 at) {
    if (size_t(to) % bytes) emulated::refuse("no multiple of its size", size_t(to));
    memcpy(to, emulated::at(at, bytes), bytes);
}
INLINE float half_of_pair(u32 v, int which) { return float(taken(v, which)); }
INLINE u32 pair_max(u32 a, u32 b) {
    u32 found = 0;
    for (int e = 0; e < 2; ++e) {
        const float x = half_of_pair(a, e), y = half_of_pair(b, e);
        found |= (isnan(x) || isnan(y) ? 0x7fffu : u32(to_bf16(std::max(x, y)))) << 16 * e;
    }
    return found;
}
template <typename Same>
INLINE u32 pair_mask(u32 a, u32 b, Same same) {
    return (same(half_of_pair(a, 0), half_of_pair(b, 0)) ? 0xffffu : 0) |
           (same(half_of_pair(a, 1), half_of_pair(b, 1)) ? 0xffff0000u : 0);
}
INLINE u32 pair_above(u32 a, u32 b) {
    return pair_mask(a, b, [](float x, float y) { return x > y; });
}
INLINE u32 pair_equal(u32 a, u32 b) {
    return pair_mask(a, b, [](float x, float y) { return x == y; });
}

template <int octets>
struct Products {
    template <typename Left, typename Right>
    static void add_up(float* d, bool add, int index, Left left, Right right) {
        const int lane = index % 32;
        for (int o = 0; o < octets; ++o)
            for (int h = 0; h < 2; ++h)
                for (int e = 0; e < 2; ++e) {
                    float& sum = d[4 * o + 2 * h + e];
                    double total = add ? sum : 0.0;
                    for (int k = 0; k < 16; ++k)
                        total += double(left(h, k)) * right(8 * o + lane % 4 * 2 + e, k);
                    sum = float(total);
                }
    }
    template <bool add, bool turned_b = false>
    static void by_registers(float* d, const u32* a, u64 b) {
        const auto all = emulated::exchange(a, 4);
        RESUMED;
        const int index = threadIdx.x, first = index % 32 / 4 * 4;
        u32 words[4][4];
        for (int q = 0; q < 4; ++q) memcpy(words[q], all[first + q], sizeof words[q]);
        const emulated::Operand right(b, turned_b);
        emulated::issue(&b, 1, [=] {
            const auto left = [&](int h, int k) {
                return float(taken(words[k % 8 / 2][h + k / 8 * 2], k % 2));
            };
            add_up(d, add, index, left, [&](int i, int k) { return right.at(i, k); });
        });
        RESUMED;
    }
    template <bool add, bool turned_a = false, bool turned_b = false>
    static void by_memory(float* d, u64 a, u64 b) {
        const int index = threadIdx.x, row = index / 32 * 16 + index % 32 / 4;
        const emulated::Operand left(a, turned_a), right(b, turned_b);
        const u64 both[2] = {a, b};
        emulated::issue(both, 2, [=] {
            const auto of_row = [&](int h, int k) { return left.at(row % 64 + 8 * h, k); };
            add_up(d, add, index, of_row, [&](int i, int k) { return right.at(i, k); });
        });
        RESUMED;
    }
};
