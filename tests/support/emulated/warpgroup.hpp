// wgmma.cuh on the processor, behind device.hpp. Products are computed where they are waited for, so
// that what is read too early, or written over, shows. It ends the process where a product would read
// what nobody has shown it, where warps of a group differ, and where registers are not told of.
#include <deque>

typedef unsigned long long u64;

namespace emulated {
typedef std::vector<std::function<void()>> Group;
// Of a thread: products of the group that is open, and of those that have been closed.
struct Course {
    Group open;
    std::deque<Group> closed;
    bool told = false;
    size_t count = 0;
};
static std::vector<Course> courses;
// Of a warpgroup: what its products were given, one after the other.
static std::vector<std::vector<u64>> issued;
// Of a warpgroup: how many of its threads wait, and how often all have.
struct Meeting { int waiting = 0; long count = 0; };
static std::vector<Meeting> meetings;

[[noreturn]] static void refuse(const char* why, u64 what) {
    fprintf(stderr, "%s (%llu)\n", why, what);
    abort();
}

static Course& course() { return courses[current->index]; }

// `kernel` as a block of whole warpgroups.
static void launch_warpgroups(int threads_of_block, size_t bytes, std::function<void()> kernel) {
    static int ended;
    launch(threads_of_block, bytes, [=] {
        if (current->index == 0) {
            ended = 0, courses.clear(), courses.resize(threads_of_block);
            issued.assign(threads_of_block / 128, {}), meetings.assign(threads_of_block / 128, {});
        }
        kernel();
        const Course& mine = course();
        if (!mine.open.empty() || !mine.closed.empty())
            refuse("a thread ends with products on their way", current->index);
        if (++ended < threads_of_block) return;
        for (int i = 0; i < threads_of_block; ++i)
            if (courses[i].count != issued[i / 128].size()) refuse("a warp leaves products out", i);
    });
}

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

static void issue(const u64* given, int count, std::function<void()> product) {
    Course& mine = course();
    if (!mine.told) refuse("registers are not told of", mine.count);
    u32 words[4];
    memcpy(words, given, count * 8);
    const auto all = exchange(words, 2 * count);
    for (int lane = 0; lane < 32; ++lane)
        if (memcmp(all[lane], words, count * 8)) refuse("lanes differ in an operand's place", lane);
    auto& known = issued[current->index / 128];
    for (int k = 0; k < count; ++k) {
        if (mine.count == known.size()) known.push_back(given[k]);
        if (known[mine.count++] != given[k]) refuse("warps differ in an operand's place", given[k]);
    }
    mine.open.push_back(std::move(product));
}
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
INLINE void begin_products() { emulated::course().told = true; }
INLINE void end_products() {
    auto& mine = emulated::course();
    mine.closed.push_back(std::move(mine.open));
    mine.open.clear();
}
template <int groups>
INLINE void products_left() {
    auto& mine = emulated::course();
    mine.told = false;
    for (; mine.closed.size() > groups; mine.closed.pop_front())
        for (auto& product : mine.closed.front()) product();
}
template <int count>
INLINE void held(float (&)[count]) {}
INLINE void show_products() {
    for (u32 unit : emulated::current->hiding)
        if (emulated::hidden[unit] == emulated::current->index + 1) emulated::hidden[unit] = 0;
    emulated::current->hiding.clear();
}
template <int warpgroups>
INLINE void meet_team(int team) {
    emulated::Meeting& here = emulated::meetings[team];
    const long now = here.count;
    if (team != threadIdx.x / 128 / warpgroups) emulated::refuse("not its team", team);
    if (++here.waiting == 128 * warpgroups) here.waiting = 0, ++here.count;
    while (here.count == now) emulated::pause();
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
