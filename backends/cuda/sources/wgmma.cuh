// Products of a warpgroup, four warps, on tensor cores of compute capability 9.0 (PTX ISA: wgmma). They
// read shared memory by themselves while the warps go on, as matrices of 8 rows of 16 bytes in 128
// bytes without a gap. Compiled for sm_90a; all operands are bfloat16, sums float.
typedef unsigned long long u64;

INLINE u64 described(u32 at, u32 leading, u32 stride) {
    return (at >> 4) + ((u64)(leading >> 4) << 16) + ((u64)(stride >> 4) << 32);
}
// Where an operand lies whose rows of 16 bytes are a chunk of the depth each. deep: bytes from one
// chunk to the next; beside: from eight rows, or columns, of the product to the next eight.
INLINE u64 by_rows(u32 at, u32 deep, u32 beside) {
    return described(at, deep, beside);
}
// Where one lies whose rows of 16 bytes are eight numbers at one depth. deep: bytes from eight depths
// to the next eight; beside: as above. Such an operand is `turned`.
INLINE u64 by_columns(u32 at, u32 deep, u32 beside) {
    return described(at, deep, beside);
}

// The same of an operand that lies so many bytes behind.
INLINE u64 behind(u64 operand, u32 bytes) { return operand + (bytes >> 4); }

// Before the first product, and where registers of one have been written since the last.
INLINE void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Those since the last call are a group.
INLINE void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most so many groups are on their way. What they add to is there for `held` only.
template <int groups>
INLINE void products_left() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}
// No compiler reads or writes these sums on the other side of this.
template <int count>
INLINE void held(float (&sums)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
// What this thread has written to shared memory can be seen by products behind the next barrier.
INLINE void show_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// The barrier of one warpgroup of a block, counted from 0.
INLINE void meet(int warpgroup) {
    asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}
// That of a team of so many warpgroups.
template <int warpgroups>
INLINE void meet_team(int team) {
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(128 * warpgroups) : "memory");
}

// The number of a thread in its warpgroup, asked again every time: what follows from it is worked out
// where it is used and takes no registers elsewhere.
INLINE u32 thread_of_warpgroup() {
    u32 v;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(v));
    return v % 128;
}

// Matrices of 8 rows of 16 bytes, from registers as `matrices` gives them; lane 8 i + k brings the
// address of row k of matrix i.
template <int count>
INLINE void rows_to_shared(u32 at, const u32* r) {
    if constexpr (count == 4)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at),
                     "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
    if constexpr (count == 2)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" ::"r"(at), "r"(r[0]),
                     "r"(r[1])
                     : "memory");
    if constexpr (count == 1)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(at), "r"(r[0])
                     : "memory");
}
INLINE void half_to_shared(u32 at, u32 v) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(at), "h"((unsigned short)v) : "memory");
}
// So many bytes from shared memory to memory.
template <int bytes>
INLINE void out_of_shared(void* to, u32 at) {
    if constexpr (bytes == 16) {
        uint4 v;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(at)
                     : "memory");
        *(uint4*)to = v;
    } else if constexpr (bytes == 8) {
        uint2 v;
        asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
        *(uint2*)to = v;
    } else if constexpr (bytes == 4) {
        *(u32*)to = shared_word(at);
    } else {
        const u32 v = shared_word(at & ~3u) >> (at & 3) * 8;
        if (bytes == 2) *(unsigned short*)to = v;
        else *(u8*)to = v;
    }
}

// Pairs of bfloat16. Of a number and a NaN the larger is a NaN; none is above or equal to a NaN. What
// is true has all bits of its half set.
INLINE u32 pair_max(u32 a, u32 b) {
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
    return a;
}
INLINE u32 pair_above(u32 a, u32 b) {
    u32 v;
    asm("set.gt.u32.bf16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}
INLINE u32 pair_equal(u32 a, u32 b) {
    u32 v;
    asm("set.eq.u32.bf16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}

// The sums of a thread of warp w, lane l: number 4 o + 2 h + e is that of row 16 w + 8 h + l / 4 and
// column 8 o + 2 (l % 4) + e. An operand in registers is, of a warp, as `multiply` has it.
template <int octets>
struct Products;

#define FOUR_SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])

#define NAMES_1 "%0,%1,%2,%3"
#define NAMES_2 NAMES_1 ",%4,%5,%6,%7"
#define NAMES_3 NAMES_2 ",%8,%9,%10,%11"
#define NAMES_4 NAMES_3 ",%12,%13,%14,%15"
#define NAMES_5 NAMES_4 ",%16,%17,%18,%19"
#define NAMES_6 NAMES_5 ",%20,%21,%22,%23"
#define NAMES_7 NAMES_6 ",%24,%25,%26,%27"
#define NAMES_8 NAMES_7 ",%28,%29,%30,%31"
#define NAMES_9 NAMES_8 ",%32,%33,%34,%35"
#define NAMES_10 NAMES_9 ",%36,%37,%38,%39"
#define NAMES_11 NAMES_10 ",%40,%41,%42,%43"
#define NAMES_12 NAMES_11 ",%44,%45,%46,%47"
#define NAMES_13 NAMES_12 ",%48,%49,%50,%51"
#define NAMES_14 NAMES_13 ",%52,%53,%54,%55"
#define NAMES_15 NAMES_14 ",%56,%57,%58,%59"
#define NAMES_16 NAMES_15 ",%60,%61,%62,%63"
#define NAMES_17 NAMES_16 ",%64,%65,%66,%67"
#define NAMES_18 NAMES_17 ",%68,%69,%70,%71"
#define NAMES_19 NAMES_18 ",%72,%73,%74,%75"
#define NAMES_20 NAMES_19 ",%76,%77,%78,%79"
#define NAMES_21 NAMES_20 ",%80,%81,%82,%83"
#define NAMES_22 NAMES_21 ",%84,%85,%86,%87"
#define NAMES_23 NAMES_22 ",%88,%89,%90,%91"
#define NAMES_24 NAMES_23 ",%92,%93,%94,%95"
#define NAMES_25 NAMES_24 ",%96,%97,%98,%99"
#define NAMES_26 NAMES_25 ",%100,%101,%102,%103"
#define NAMES_27 NAMES_26 ",%104,%105,%106,%107"
#define NAMES_28 NAMES_27 ",%108,%109,%110,%111"
#define NAMES_29 NAMES_28 ",%112,%113,%114,%115"
#define NAMES_30 NAMES_29 ",%116,%117,%118,%119"
#define NAMES_31 NAMES_30 ",%120,%121,%122,%123"
#define NAMES_32 NAMES_31 ",%124,%125,%126,%127"
#define SUMS_1 FOUR_SUMS(0)
#define SUMS_2 SUMS_1, FOUR_SUMS(4)
#define SUMS_3 SUMS_2, FOUR_SUMS(8)
#define SUMS_4 SUMS_3, FOUR_SUMS(12)
#define SUMS_5 SUMS_4, FOUR_SUMS(16)
#define SUMS_6 SUMS_5, FOUR_SUMS(20)
#define SUMS_7 SUMS_6, FOUR_SUMS(24)
#define SUMS_8 SUMS_7, FOUR_SUMS(28)
#define SUMS_9 SUMS_8, FOUR_SUMS(32)
#define SUMS_10 SUMS_9, FOUR_SUMS(36)
#define SUMS_11 SUMS_10, FOUR_SUMS(40)
#define SUMS_12 SUMS_11, FOUR_SUMS(44)
#define SUMS_13 SUMS_12, FOUR_SUMS(48)
#define SUMS_14 SUMS_13, FOUR_SUMS(52)
#define SUMS_15 SUMS_14, FOUR_SUMS(56)
#define SUMS_16 SUMS_15, FOUR_SUMS(60)
#define SUMS_17 SUMS_16, FOUR_SUMS(64)
#define SUMS_18 SUMS_17, FOUR_SUMS(68)
#define SUMS_19 SUMS_18, FOUR_SUMS(72)
#define SUMS_20 SUMS_19, FOUR_SUMS(76)
#define SUMS_21 SUMS_20, FOUR_SUMS(80)
#define SUMS_22 SUMS_21, FOUR_SUMS(84)
#define SUMS_23 SUMS_22, FOUR_SUMS(88)
#define SUMS_24 SUMS_23, FOUR_SUMS(92)
#define SUMS_25 SUMS_24, FOUR_SUMS(96)
#define SUMS_26 SUMS_25, FOUR_SUMS(100)
#define SUMS_27 SUMS_26, FOUR_SUMS(104)
#define SUMS_28 SUMS_27, FOUR_SUMS(108)
#define SUMS_29 SUMS_28, FOUR_SUMS(112)
#define SUMS_30 SUMS_29, FOUR_SUMS(116)
#define SUMS_31 SUMS_30, FOUR_SUMS(120)
#define SUMS_32 SUMS_31, FOUR_SUMS(124)

// add: to what the sums are; else from zero. a, b: what `by_rows` or `by_columns` gives. The numbers
// are those of the operands behind the sums.
#define PRODUCTS(octets, n, p, q, r, s, t, u, v) \
    template <> \
    struct Products<octets> { \
        template <bool add, bool turned_b = false> \
        static INLINE void by_registers(float* d, const u32* a, u64 b) { \
            asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #u ", 0;\n\t" \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" NAMES_##octets \
                         "}, {%" #p ",%" #q ",%" #r ",%" #s "}, %" #t ", p, 1, 1, %" #v ";\n\t}" \
                         : SUMS_##octets \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)add), \
                           "n"((int)turned_b)); \
        } \
        template <bool add, bool turned_a = false, bool turned_b = false> \
        static INLINE void by_memory(float* d, u64 a, u64 b) { \
            asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #r ", 0;\n\t" \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" NAMES_##octets \
                         "}, %" #p ", %" #q ", p, 1, 1, %" #s ", %" #t ";\n\t}" \
                         : SUMS_##octets \
                         : "l"(a), "l"(b), "n"((int)add), "n"((int)turned_a), "n"((int)turned_b)); \
        } \
    };

PRODUCTS(1, 8, 4, 5, 6, 7, 8, 9, 10)
PRODUCTS(2, 16, 8, 9, 10, 11, 12, 13, 14)
PRODUCTS(3, 24, 12, 13, 14, 15, 16, 17, 18)
PRODUCTS(4, 32, 16, 17, 18, 19, 20, 21, 22)
PRODUCTS(5, 40, 20, 21, 22, 23, 24, 25, 26)
PRODUCTS(6, 48, 24, 25, 26, 27, 28, 29, 30)
PRODUCTS(7, 56, 28, 29, 30, 31, 32, 33, 34)
PRODUCTS(8, 64, 32, 33, 34, 35, 36, 37, 38)
PRODUCTS(9, 72, 36, 37, 38, 39, 40, 41, 42)
PRODUCTS(10, 80, 40, 41, 42, 43, 44, 45, 46)
PRODUCTS(11, 88, 44, 45, 46, 47, 48, 49, 50)
PRODUCTS(12, 96, 48, 49, 50, 51, 52, 53, 54)
PRODUCTS(13, 104, 52, 53, 54, 55, 56, 57, 58)
PRODUCTS(14, 112, 56, 57, 58, 59, 60, 61, 62)
PRODUCTS(15, 120, 60, 61, 62, 63, 64, 65, 66)
PRODUCTS(16, 128, 64, 65, 66, 67, 68, 69, 70)
PRODUCTS(17, 136, 68, 69, 70, 71, 72, 73, 74)
PRODUCTS(18, 144, 72, 73, 74, 75, 76, 77, 78)
PRODUCTS(19, 152, 76, 77, 78, 79, 80, 81, 82)
PRODUCTS(20, 160, 80, 81, 82, 83, 84, 85, 86)
PRODUCTS(21, 168, 84, 85, 86, 87, 88, 89, 90)
PRODUCTS(22, 176, 88, 89, 90, 91, 92, 93, 94)
PRODUCTS(23, 184, 92, 93, 94, 95, 96, 97, 98)
PRODUCTS(24, 192, 96, 97, 98, 99, 100, 101, 102)
PRODUCTS(25, 200, 100, 101, 102, 103, 104, 105, 106)
PRODUCTS(26, 208, 104, 105, 106, 107, 108, 109, 110)
PRODUCTS(27, 216, 108, 109, 110, 111, 112, 113, 114)
PRODUCTS(28, 224, 112, 113, 114, 115, 116, 117, 118)
PRODUCTS(29, 232, 116, 117, 118, 119, 120, 121, 122)
PRODUCTS(30, 240, 120, 121, 122, 123, 124, 125, 126)
PRODUCTS(31, 248, 124, 125, 126, 127, 128, 129, 130)
PRODUCTS(32, 256, 128, 129, 130, 131, 132, 133, 134)
