#include "machine.hpp"

#include <deque>

Three threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {
static std::vector<char> shared;
std::vector<int> hidden;
static std::vector<Warp> warps;
static std::vector<std::unique_ptr<Thread>> threads;
Thread* current;
static jmp_buf scheduler;
static long arrived = 0, generation = 0;
static std::function<void()> body;

// Jumps leave the mask of signals alone, for which swapcontext calls the kernel twice.
void pause() {
    if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}

static void go_on(Thread& thread) {
    if (_setjmp(scheduler)) return;
    if (thread.begun) _longjmp(thread.place, 1);
    thread.begun = true;
    setcontext(&thread.context);
}

// The same thread in one block after the other.
static void begin() {
    for (;;) {
        body();
        current->done = true;
        pause();
    }
}

static Thread* created() {
    Thread* thread = new Thread;
    getcontext(&thread->context);
    thread->context.uc_stack.ss_sp = thread->stack.get();
    thread->context.uc_stack.ss_size = STACK;
    thread->context.uc_link = nullptr;
    makecontext(&thread->context, begin, 0);
    return thread;
}

char* at(u32 where, int size) {
    if (where % size || where + size > shared.size()) {
        fprintf(stderr, "%d bytes at %u of %zu of shared memory\n", size, where, shared.size());
        abort();
    }
    return shared.data() + where;
}

char* written_at(u32 where, int size) {
    char* found = at(where, size);
    hidden[where / 16] = current->index + 1;
    current->hiding.push_back(where / 16);
    return found;
}

u32 (*exchange(const u32* mine, int count))[WORDS] {
    Warp& warp = warps[current->index / 32];
    const long round = ++current->rounds;
    memcpy(warp.words[round % 2][current->index % 32], mine, count * 4);
    ++warp.brought;
    while (warp.brought < round * 32) pause();
    return warp.words[round % 2];
}

void launch(int threads_of_block, size_t shared_bytes, std::function<void()> kernel) {
    body = std::move(kernel);
    blockDim.x = threads_of_block;
    while (threads.size() < size_t(threads_of_block)) threads.emplace_back(created());
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
                // NaN, as float and as bfloat16, where nothing is written.
                shared.assign(shared_bytes, char(0xff));
                hidden.assign(shared_bytes / 16 + 1, 0);
                warps.assign(threads_of_block / 32, Warp());
                arrived = generation = 0;
                for (int i = 0; i < threads_of_block; ++i) {
                    Thread& thread = *threads[i];
                    thread.index = i, thread.rounds = 0, thread.done = false;
                    thread.hiding.clear(), thread.coming.assign(1, {});
                }
                // A warp goes on as long as none of it waits for another: as far ahead as it can be.
                for (int left = threads_of_block; left;)
                    for (int first = 0; first < threads_of_block; first += 32) {
                        const int end = std::min(first + 32, threads_of_block);
                        for (long before = -1, rounds = 0; before != rounds;) {
                            before = rounds, rounds = 0;
                            for (int i = first; i < end; ++i) {
                                rounds += threads[i]->rounds;
                                if (threads[i]->done) continue;
                                current = threads[i].get(), threadIdx.x = i;
                                go_on(*current);
                                left -= current->done;
                            }
                        }
                    }
            }
}

// What copies may read: from here, and so many bytes; anything if nothing is known.
static std::vector<std::pair<const char*, i64>> given;
void check_given(const void* from, int size) {
    const char* const at = (const char*)from;
    for (const auto& [begin, bytes] : given)
        if (at >= begin && at + size <= begin + bytes) return;
    if (given.empty()) return;
    fprintf(stderr, "%d bytes at %p are none that were given\n", size, from);
    abort();
}

char* coming_to(u32 where) {
    char* place = at(where, 16);
    hidden[where / 16] = current->index + 1;
    current->coming.back().push_back(where / 16);
    return place;
}

void open_group() { current->coming.push_back({}); }

void arrive(size_t groups) {
    auto& mine = *current;
    for (; mine.coming.size() > groups + 1; mine.coming.erase(mine.coming.begin()))
        mine.hiding.insert(mine.hiding.end(), mine.coming[0].begin(), mine.coming[0].end());
}

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

[[noreturn]] void refuse(const char* why, u64 what) {
    fprintf(stderr, "%s (%llu)\n", why, what);
    abort();
}

static Course& course() { return courses[current->index]; }

void launch_warpgroups(int threads_of_block, size_t bytes, std::function<void()> kernel) {
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

void issue(const u64* given, int count, std::function<void()> product) {
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

void begin_products() { course().told = true; }

void end_products() {
    Course& mine = course();
    mine.closed.push_back(std::move(mine.open));
    mine.open.clear();
}

void products_left(size_t groups) {
    Course& mine = course();
    mine.told = false;
    for (; mine.closed.size() > groups; mine.closed.pop_front())
        for (auto& product : mine.closed.front()) product();
}

void show_products() {
    for (u32 unit : current->hiding)
        if (hidden[unit] == current->index + 1) hidden[unit] = 0;
    current->hiding.clear();
}

void meet_team(int team, int warpgroups) {
    Meeting& here = meetings[team];
    const long now = here.count;
    if (team != threadIdx.x / 128 / warpgroups) refuse("not its team", team);
    if (++here.waiting == 128 * warpgroups) here.waiting = 0, ++here.count;
    while (here.count == now) pause();
}
}  // namespace emulated

void __syncthreads() {
    using namespace emulated;
    const long now = generation;
    if (++arrived == blockDim.x) arrived = 0, ++generation;
    while (generation == now) pause(), threadIdx.x = current->index;
}

extern "C" void give(const void* from, i64 bytes) {
    emulated::given.push_back({(const char*)from, bytes});
}
