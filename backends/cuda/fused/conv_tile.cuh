// What tensor_conv.cu has in shared memory, for what it is compiled for, and how that comes there.

#define TAPS (KERNEL_H * KERNEL_W)
#define THREADS (32 * UNITS_AT_ONCE * SPLIT)
#define BLOCK_FILTERS (8 * BLOCK_OCTETS)
// Chunks of a pixel; steps of a product along the channels, the last of which may be half.
#define CHUNKS (CHANNELS / CHUNK)
#define STEPS ((CHUNKS + 1) / 2)
#define TOGETHER (16 / DEEP)
#define BANDS parts(ROWS, BAND)
// If a warp has all columns, taps beside the picture are left out; else zeros stand there.
#define WHOLE (ACROSS == COLUMNS)
#define TURNS_ACROSS parts(COLUMNS, ACROSS)
#define TALL least(HEIGHT, BAND + KERNEL_H - 1)
#define WIDE (WHOLE ? WIDTH : TURNS_ACROSS * ACROSS + KERNEL_W - 1)
#define EDGE (WHOLE ? 0 : LEFT)
#define LOOKS (WHOLE ? WIDTH : ACROSS + KERNEL_W - 1)
// Columns of a picture that are written: windows of 2 by 2 leave the last of an odd number.
#define FILLED (FROM_POOL ? WIDTH / 2 * 2 : WIDTH)
// In chunks: a row of a picture and a picture in shared memory, so apart that the eight rows of a
// matrix lie in different banks.
#define ROW_PITCH (WIDE * CHUNKS | 1)
__host__ __device__ constexpr int picture_pitch() {
    int pitch = TALL * ROW_PITCH;
    while (DEEP < 8 && pitch % 8 != DEEP % 8) ++pitch;
    return pitch;
}
// In numbers: a filter or, for the gradient, an input channel of all filters.
__host__ __device__ constexpr int filter_pitch() {
    int pitch = TAPS * (DATA ? BLOCK_FILTERS : CHANNELS);
    while (DATA && !BFLOAT ? pitch % 32 != 8 && pitch % 32 != 24 : pitch / CHUNK % 2 == 0)
        pitch += CHUNK;
    return pitch;
}
#define ROW_GROUPS (BAND / DEEP)
#define PICTURE_GROUPS (PICTURES / TOGETHER)
#define UNITS (PICTURE_GROUPS * ROW_GROUPS * TURNS_ACROSS * (BLOCK_OCTETS / OCTETS))

// Shared memory: filters, a row of zeros, one or two tiles of pictures, sums on their way.
#define FILTER_BYTES ((DATA ? CHANNELS : BLOCK_FILTERS) * filter_pitch() * ITEM)
#define ZEROS_AT (parts(FILTER_BYTES, 16) * 16)
#define TILE_AT (ZEROS_AT + ROW_PITCH * 16)
#define TILE_BYTES (PICTURES * picture_pitch() * 16)
#define OVER_TILE (ONCE && UNITS <= UNITS_AT_ONCE)
#define SUMS_AT (OVER_TILE ? TILE_AT : TILE_AT + (AHEAD ? 2 : 1) * TILE_BYTES)
// 512 bytes: the sums of a product.
#define OWN_BYTES \
    most(TILE_AT + (AHEAD ? 2 : 1) * TILE_BYTES, \
         SUMS_AT + (SPLIT - 1) * UNITS_AT_ONCE * ACROSS * OCTETS * 512)
#define ROWS_AT OWN_BYTES
#define ROW_BYTES (BLOCK_FILTERS * ROW_ITEM)
#define SHARED_BYTES (OWN_BYTES + SUMS * (THREADS / 32) * ROW_BYTES)

static_assert(CHANNELS % CHUNK == 0 && FILTERS % 8 == 0 && PICTURES % TOGETHER == 0 &&
              BLOCK_OCTETS % OCTETS == 0 && 16 % DEEP == 0 && BAND % DEEP == 0);
static_assert(!POOL || (ACROSS % 2 == 0 && DEEP % 2 == 0 && !SUMS));

INLINE int first_row(int band) {
    return most(0, least(band * BAND - TOP, HEIGHT - TALL));
}

INLINE void fetch_filters(u32 to, const T* w, int first) {
#if DATA
    const int each = BLOCK_FILTERS / CHUNK, run = TAPS * each;
    OF_BLOCK(i, CHANNELS * run) {
        const int channel = i / run, j = i % run, filter = first + i % each * CHUNK;
        const bool exists = filter < FILTERS;
        fetch(to + (channel * filter_pitch() + j * CHUNK) * ITEM,
              exists ? w + ((i64)(i / each) * FILTERS + filter) : w, exists);
    }
#else
    const int run = TAPS * CHUNKS;
    OF_BLOCK(i, BLOCK_FILTERS * run) {
        const bool exists = first + i / run < FILTERS;
        fetch(to + (i / run * filter_pitch() + i % run * CHUNK) * ITEM,
              exists ? w + ((i64)first * run + i) * CHUNK : w, exists);
    }
#endif
}

// The pictures and rows of a group: group / BANDS, group % BANDS.
INLINE void fetch_pictures(u32 to, const T* x, int group, int n) {
    const int first = group / BANDS * PICTURES, run = WIDTH * CHUNKS;
    x += (i64)first_row(group % BANDS) * run * CHUNK;
    OF_BLOCK(i, PICTURES * TALL * run) {
        const int row = i / run, picture = row / TALL;
        const bool exists = first + picture < n;
        const i64 from = (i64)(first + picture) * HEIGHT * run + (row - picture * TALL) * run + i % run;
        const int at = picture * picture_pitch() + (row - picture * TALL) * ROW_PITCH + EDGE * CHUNKS;
        fetch(to + (at + i % run) * 16, exists ? x + from * CHUNK : x, exists);
    }
}

#if FROM_POOL
// What a gradient of the maxima is for the four pixels of each; `mask`: the maxima, where they were
// behind a ReLU, else null. Pictures that are not there are zero, and so is a row beyond the windows.
INLINE void spread_pictures(u32 to, const T* dy, const u8* from, const T* mask, int group, int n) {
    const int first = group / BANDS * PICTURES, top = first_row(group % BANDS);
    const int pooled_top = top / 2, tall = (top + TALL + 1) / 2 - pooled_top, run = WIDTH / 2 * CHUNKS;
    OF_BLOCK(i, PICTURES * tall * run) {
        const int place = i % run, row = i / run % tall, picture = i / (run * tall);
        const int column = place / CHUNKS, part = place % CHUNKS;
        const i64 pixel = ((i64)(first + picture) * (HEIGHT / 2) + pooled_top + row) * (WIDTH / 2) + column;
        const bool exists = first + picture < n && pooled_top + row < HEIGHT / 2;
        const Spread spread(dy, from, mask, pixel, part * CHUNK, exists);
        UNROLLED(tap, 4) {
            const int line = 2 * (pooled_top + row) + tap / 2 - top;
            if (line < 0 || line >= TALL) continue;
            const int unit = picture * picture_pitch() + line * ROW_PITCH +
                             (EDGE + 2 * column + tap % 2) * CHUNKS + part;
            spread.put(to + unit * 16, tap);
        }
    }
}
#endif

// The pictures of a group on their way to a tile.
INLINE void fetch_group(u32 to, const T* x, const u8* from, const T* mask, int group, int n) {
#if FROM_POOL
    spread_pictures(to, x, from, mask, group, n);
#else
    fetch_pictures(to, x, group, n);
#endif
}

INLINE void clear_edges(u32 tile, u32 zeros) {
    const uint4 zero = make_uint4(0, 0, 0, 0);
    OF_BLOCK(i, ROW_PITCH) to_shared(zeros + i * 16, zero);
    const int beside = most(1, (WIDE - FILLED) * CHUNKS);
    OF_BLOCK(i, WIDE == FILLED ? 0 : (AHEAD ? 2 : 1) * PICTURES * TALL * beside) {
        const int row = i / beside, place = i % beside, picture = row / TALL % PICTURES;
        const int at = row / (TALL * PICTURES) * (TILE_BYTES / 16) + picture * picture_pitch() +
                       row % TALL * ROW_PITCH;
        to_shared(tile + (at + place + (place < EDGE * CHUNKS ? 0 : FILLED * CHUNKS)) * 16, zero);
    }
}
