// Blocks of threads on the processor, as far as it depends on no kernel: compiled once as
// machine.cpp, of which each library of kernels has its own.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

typedef unsigned u32;
typedef unsigned char u8;
typedef unsigned short bfloat;
typedef long long i64;
typedef unsigned long long u64;

#pragma GCC visibility push(hidden)
struct Three { int x = 0, y = 0, z = 0; };
extern Three threadIdx, blockIdx, blockDim, gridDim;
void __syncthreads();

namespace emulated {
constexpr int STACK = 1 << 16, WORDS = 8;
// What the lanes of a warp exchange: two rounds, since one may be read while the next is written.
struct Warp {
    long brought = 0;
    u32 words[2][32][WORDS];
};
struct Thread {
    // Where it begins, and where it goes on.
    ucontext_t context;
    jmp_buf place;
    std::unique_ptr<char[]> stack{new char[STACK]};
    int index = 0;
    long rounds = 0;
    bool begun = false, done = false;
    // Units of 16 bytes that it has written to shared memory and not shown to products of a warpgroup.
    std::vector<u32> hiding;
    // Those that are on their way there, by groups, the last of which is open.
    std::vector<std::vector<u32>> coming{{}};
};
// By units of 16 bytes of shared memory, the thread that hides one, counted from 1; see warpgroup.hpp.
extern std::vector<int> hidden;
extern Thread* current;

void launch(int threads_of_block, size_t shared_bytes, std::function<void()> kernel);
// Go on with another thread.
void pause();
// A place in shared memory, to read or to write.
char* at(u32 where, int size);
char* written_at(u32 where, int size);
// What every lane of the warp brings.
u32 (*exchange(const u32* mine, int count))[WORDS];
// Ends the process where a copy reads what was not given.
void check_given(const void* from, int size);
// Where a copy of 16 bytes goes, which is of the group that is open.
char* coming_to(u32 where);
void open_group();
// All but the last groups, the open one not counted, are there.
void arrive(size_t groups);

// For warpgroup.hpp, which says what for.
[[noreturn]] void refuse(const char* why, u64 what);
// `kernel` as a block of whole warpgroups.
void launch_warpgroups(int threads_of_block, size_t bytes, std::function<void()> kernel);
void issue(const u64* given, int count, std::function<void()> product);
void begin_products();
void end_products();
void products_left(size_t groups);
void show_products();
void meet_team(int team, int warpgroups);
}  // namespace emulated
#pragma GCC visibility pop
