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

// The same of nothing that anyone reads.
INLINE void note(unsigned* flag, unsigned turn) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(turn) : "memory");
}

// A number and the turn that it is of, in one word: whoever finds the turn has the number, too.
INLINE void send_word(unsigned long long* to, float value, unsigned turn) {
    const unsigned long long word = (unsigned long long)turn << 32 | __float_as_uint(value);
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
INLINE unsigned long long sent_word(const unsigned long long* from) {
    unsigned long long word;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}
