// Products of small matrices on tensor cores, and what feeds them: copies of 16 bytes to shared
// memory, matrices of 8 rows of 16 bytes from there (PTX ISA: mma, ldmatrix, cp.async). Shared memory
// is addressed by bytes from its beginning.
typedef unsigned u32;

// Numbers in 16 bytes, a chunk. A product is two chunks deep, or one.
#define CHUNK (BFLOAT ? 8 : 4)
#define ITEM (BFLOAT ? 2 : 4)

__host__ __device__ constexpr int least(int a, int b) { return a < b ? a : b; }
__host__ __device__ constexpr int most(int a, int b) { return a > b ? a : b; }
__host__ __device__ constexpr int parts(int a, int b) { return (a + b - 1) / b; }

INLINE u32 shared_begin() {
    extern __shared__ __align__(128) char everything[];
    return (u32)__cvta_generic_to_shared(everything);
}

// 16 bytes on their way from memory, or zeros; they are there after `arrived` and a barrier.
INLINE void fetch(u32 to, const void* from, bool exists) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
}
INLINE void arrived() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// What a thread has sent for since the last call is a group.
INLINE void fetched() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the last groups of this thread are there.
template <int groups>
INLINE void arrived_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
// `count` matrices of 8 rows of 16 bytes; lane 8 i + k brings the address of row k of matrix i, and
// gets of each the 4 bytes at row lane / 4, place lane % 4. turned: of the transposes, of 2 bytes.
#define LOAD_MATRICES(kind) \
    if constexpr (count == 4) \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" kind ".shared.b16 {%0,%1,%2,%3}, [%4];" \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at)); \
    if constexpr (count == 2) \
        asm volatile("ldmatrix.sync.aligned.m8n8.x2" kind ".shared.b16 {%0,%1}, [%2];" \
                     : "=r"(r[0]), "=r"(r[1]) : "r"(at)); \
    if constexpr (count == 1) \
        asm volatile("ldmatrix.sync.aligned.m8n8.x1" kind ".shared.b16 {%0}, [%1];" \
                     : "=r"(r[0]) : "r"(at))
template <int count, bool turned = false>
INLINE void matrices(u32* r, u32 at) {
    if constexpr (turned) { LOAD_MATRICES(".trans"); }
    else { LOAD_MATRICES(""); }
}

INLINE u32 shared_word(u32 at) {
    u32 v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
    return v;
}
INLINE float2 shared_pair(u32 at) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}
INLINE void shared_four(u32 (&v)[4], u32 at) {
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}
INLINE void word_to_shared(u32 at, u32 v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}
INLINE void to_shared(u32 at, float a, float b) {
    asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(at), "f"(a), "f"(b) : "memory");
}
INLINE void to_shared(u32 at, uint4 v) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

// c += a b for a of 16 rows, b of 8 columns, two chunks deep; `half`: one, a[0..1] and b[0].
template <bool half>
INLINE void multiply(float* c, const u32* a, const u32* b) {
#if BFLOAT
    if constexpr (!half)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
            "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#else
    if constexpr (!half)
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 "
            "{%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
}

// An operand for tensor cores, which drop the 13 last bits of a float. The factor, 1 + 2^-11 / 1.39,
// moves a number up by half of what is dropped, more or less: the error is that of rounding within a
// tenth, numbers of ten bits stay, NaN stays, and it takes one instruction where cvt.rna takes two.
INLINE u32 operand(u32 v) {
    return BFLOAT ? v : __float_as_uint(__uint_as_float(v) * 1.000352f);
}

// Two neighbours in memory.
INLINE void put2(float* p, float a, float b) { *(float2*)p = make_float2(a, b); }
INLINE void put2(bfloat* p, float a, float b) { *(u32*)p = to_bf16_pair(a, b); }
