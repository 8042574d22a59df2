// told.cuh between processes that share memory, each at its own pace.
#include <chrono>
#include <thread>

static void sleep_for(int microseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}
// Now and then a rank takes its time, long enough for the others to go on to their next call.
static unsigned paces;
static void dawdle() {
    paces = paces * 1664525 + 1013904223;
    if (paces >> 27 == 0) sleep_for(BLOCKS > 1 ? 200 : 20000);
}
static void tell(unsigned* flag, unsigned turn) {
    dawdle();
    __atomic_store_n(flag, turn, __ATOMIC_RELEASE);
}
static void wait_for(const unsigned* flag, unsigned turn) {
    while ((int)(__atomic_load_n(flag, __ATOMIC_ACQUIRE) - turn) < 0) sleep_for(1);
    dawdle();
}
static void note(unsigned* flag, unsigned turn) { __atomic_store_n(flag, turn, __ATOMIC_RELAXED); }
static void send_word(unsigned long long* to, float value, unsigned turn) {
    dawdle();
    u32 bits;
    memcpy(&bits, &value, 4);
    __atomic_store_n(to, (unsigned long long)turn << 32 | bits, __ATOMIC_RELAXED);
}
static unsigned long long sent_word(const unsigned long long* from) {
    const unsigned long long word = __atomic_load_n(from, __ATOMIC_RELAXED);
    if (paces & 1) sleep_for(1);
    paces = paces * 1664525 + 1013904223;
    return word;
}
