// What a GPU tells another through a number in its memory: that all before it has been written.

INLINE void tell(unsigned* flag, unsigned turn) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(turn) : "memory");
}

// The other may be one turn ahead already.
INLINE void wait_for(const unsigned* flag, unsigned turn) {
    unsigned told;
    do asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(told) : "l"(flag) : "memory");
    while ((int)(told - turn) < 0);
}
