// The rows of x that a warpgroup of warpgroup_conv.cu goes through, on their way to shared memory.
#define CHUNKS (CHANNELS / CHUNK)
#define RIGHT (COLUMNS + KERNEL_W - 1 - LEFT - WIDTH)
#define EVEN (POOL || FROM_POOL ? 2 : 1)
#define PITCH (parts(WIDTH + most(LEFT, RIGHT), EVEN) * EVEN)
// Rows of x that are not zero: windows of 2 by 2 leave the last of an odd number.
#define FILLED (FROM_POOL ? HEIGHT / 2 * 2 : HEIGHT)
// Rows of y that are shared out together, and how many of these there are.
#define TOGETHER (POOL ? 2 : 1)
#define UNITS (ROWS / TOGETHER)

// Pixels of a row in shared memory, chunk by chunk: so far apart, in bytes, that chunks which lie side
// by side in memory are written to different banks.
#define LINE (64 + KERNEL_W - 1)
__host__ __device__ constexpr int plane() {
    int units = LINE;
    while (units % 8 != (CHUNKS % 2 ? CHUNKS % 8 : most(1, 8 / CHUNKS))) ++units;
    return units * 16;
}
#define LINE_BYTES (CHUNKS * plane())

// Rows of x, one after the other, for the units from `unit` on; `row` is the next of `left` that its
// window needs.
struct Walk {
    int unit, window = 0, row = 0, left = 0;

    INLINE Walk(int unit, int end) : unit(unit) { begin(end); }
    INLINE void begin(int end) {
        if (unit >= end) return;
        const int first = unit % UNITS, count = least(end - unit, UNITS - first);
        window = unit / UNITS, row = first * TOGETHER - TOP;
        left = count * TOGETHER + KERNEL_H - 1, unit += count;
    }
    INLINE bool real() const { return row >= 0 && row < FILLED; }
    INLINE void next(int end, int rows = 1) {
        row += rows, left -= rows;
        if (left == 0) begin(end);
    }
};

// Brings rows of x at 64 columns and what the window sees beside them, to the DEPTH places of pairs in
// turn; all pixels but those of pictures are zeros.
struct Ahead {
    Walk walk;
    u32 lines;
    int slot = 0;

    // Where this thread's pieces of row 0 are, counted in chunks, below 0 for zeros; and where they go,
    // below 0 for what is no piece.
    static const int each = parts(LINE * CHUNKS, 128);
    int from[each], into[each];

    INLINE Ahead(int first, int end, u32 lines) : walk(first, end), lines(lines) { begin(); }
    // Both rows of a pair, or one.
    INLINE void bring(const T* x, const u8* places, const T* mask, int end, int n) {
        if (walk.left) {
            const u32 to = lines + slot * (2 * LINE_BYTES);
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
            const bool lower = walk.row & 1, both = !lower && walk.left > 1;
#if FROM_POOL
            if (walk.real()) fetch_pair(to, !lower, lower || both, x, places, mask, n);
#else
            const int size = n * (HEIGHT * WIDTH * CHUNKS);
            if (walk.real()) fetch_line(to + lower * LINE_BYTES, walk.row, x, size);
            // Of a pair above the picture neither is in it.
            if (both && walk.row >= 0 && walk.row + 1 < FILLED)
                fetch_line(to + LINE_BYTES, walk.row + 1, x, size);
#endif
            const int window = walk.window;
            walk.next(end, both ? 2 : 1);
            if (walk.window != window) begin();
        }
        fetched();
    }
#if FROM_POOL
    INLINE void begin() {}
    INLINE void fetch_pair(u32 to, bool upper, bool lower, const T* dy, const u8* places, const T* mask,
                           int n) const {
        // Pairs of pixels, the first of which is at an even column.
        constexpr u32 odd = LEFT % 2, pieces = parts(LINE + odd, 2) * CHUNKS;
        constexpr int count = parts(pieces, 128);
        const u32 thread = thread_of_warpgroup();
        const u32 line = (walk.row >> 1) * (WIDTH / 2);
        Chunk chunks[count];
        UNROLLED(k, count) {
            const u32 i = thread + k * 128, place = walk.window * 64 + i / CHUNKS * 2 - odd + PITCH;
            const int picture = place / PITCH - 1, column = place % PITCH - LEFT;
            const bool exists = i < pieces && picture >= 0 && picture < n && column >= 0 &&
                                column < WIDTH / 2 * 2;
            const u32 pixel = picture * (HEIGHT / 2 * (WIDTH / 2)) + line + (column >> 1);
            chunks[k].load(dy, places, mask, pixel, i % CHUNKS * CHUNK, exists);
        }
        UNROLLED(k, count) {
            const u32 i = thread + k * 128, place = i / CHUNKS * 2;
            if (i >= pieces) continue;
            uint4 v[4];
            chunks[k].spread(v);
            const u32 at = to + i % CHUNKS * plane() + place * 16 - odd * 16;
            const bool left = !odd || place > 0, right = LINE % 2 == odd || place + 1 < LINE + odd;
            if (upper && left) to_shared(at, v[0]);
            if (upper && right) to_shared(at + 16, v[1]);
            if (lower && left) to_shared(at + LINE_BYTES, v[2]);
            if (lower && right) to_shared(at + LINE_BYTES + 16, v[3]);
        }
    }
#else
    INLINE void begin() {
        const u32 thread = thread_of_warpgroup();
        UNROLLED(k, each) {
            const u32 i = thread + k * 128, place = walk.window * 64 + i / CHUNKS;
            const int column = place % PITCH - LEFT;
            into[k] = i < LINE * CHUNKS ? (int)(i % CHUNKS * plane() + i / CHUNKS * 16) : -1;
            from[k] = column >= 0 && column < WIDTH
                          ? (int)((place / PITCH * (HEIGHT * WIDTH) + column) * CHUNKS + i % CHUNKS)
                          : -1;
        }
    }
    INLINE void fetch_line(u32 to, int row, const T* x, int size) const {
        const T* line = x + row * (WIDTH * CHUNKS) * CHUNK;
        UNROLLED(k, each) {
            if (k + 1 == each && into[k] < 0) continue;
            const bool exists = (u32)from[k] < (u32)size;
            fetch(to + into[k], line + (i64)(exists ? from[k] : 0) * CHUNK, exists);
        }
    }
#endif
};
