// EACH neighbouring channels of channels-last tensors are a group, 4 or in bfloat16 8, of which a
// thread has one at a time.
#ifndef EACH
#define EACH 4
#endif

// As it lies in memory.
#if !BFLOAT
typedef float4 Group;
#elif EACH == 8
typedef uint4 Group;
#else
typedef uint2 Group;
#endif

INLINE void load(const T* p, float* v) {
    if constexpr (EACH == 8) get8(p, v);
    else unpack(get4(p), v);
}

INLINE void load(const Group& group, float* v) { load((const T*)&group, v); }

INLINE void store(T* p, const float* v) {
    if constexpr (EACH == 8) put8(p, v);
    else put4(p, pack(v));
}
