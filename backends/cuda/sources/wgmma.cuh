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

// add: to what the sums are; else from zero. a, b: what `by_rows` or `by_columns` gives. The numbers
// are those of the operands behind the sums, which are named in `sums` and come last. What calls this,
// for 1 to 32 octets, is written by kernels.py.
#define PRODUCTS(octets, n, sums, p, q, r, s, t, u, v, ...) \
    template <> \
    struct Products<octets> { \
        template <bool add, bool turned_b = false> \
        static INLINE void by_registers(float* d, const u32* a, u64 b) { \
            asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #u ", 0;\n\t" \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" sums \
                         "}, {%" #p ",%" #q ",%" #r ",%" #s "}, %" #t ", p, 1, 1, %" #v ";\n\t}" \
                         : __VA_ARGS__ \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)add), \
                           "n"((int)turned_b)); \
        } \
        template <bool add, bool turned_a = false, bool turned_b = false> \
        static INLINE void by_memory(float* d, u64 a, u64 b) { \
            asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #r ", 0;\n\t" \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" sums \
                         "}, %" #p ", %" #q ", p, 1, 1, %" #s ", %" #t ";\n\t}" \
                         : __VA_ARGS__ \
                         : "l"(a), "l"(b), "n"((int)add), "n"((int)turned_a), "n"((int)turned_b)); \
        } \
    };
