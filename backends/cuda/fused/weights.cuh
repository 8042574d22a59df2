// The update by SGD of a dense layer's weights, with their gradient from tensor cores: the sums over
// DEPTH samples of a[sample][row] b[sample][column], which are used where they are and not stored.
//
// Compiled behind mma.cuh and sgd.cuh, for one product: ROWS units, COLUMNS inputs, DEPTH; A_PITCH,
// B_PITCH, C_PITCH, the numbers from a stored row to the next; COUNTED columns are no padding, whose
// gradient is zero. C_PITCH is a multiple of four. Without a product there is nothing here.
//
// And for one tiling: a warp has 32 rows and 32 columns, a block DOWN by ACROSS such parts; SPLIT warps
// of a part share the depth, and their sums are added up in the order of the warps. STAGES parts of the
// depth are in shared memory or on their way there.

#ifdef DOWN
#define SIDE 32
// Samples of a stage that a warp takes.
#define SHARE 16
#define THREADS (32 * DOWN * ACROSS * SPLIT)
#define TALL (SIDE * DOWN)
#define WIDE (SIDE * ACROSS)
#define DEEP (SPLIT * SHARE)
#define TURNS parts(DEPTH, DEEP)
// Lines of shared memory, padded so that eight of them, or four, lie in different banks.
#define PAD (BFLOAT ? 16 : 32)
#define A_LINE (TALL * ITEM + PAD)
#define B_LINE (WIDE * ITEM + PAD)
#define STAGE_BYTES (DEEP * (A_LINE + B_LINE))
#define SUMS_LINE (4 * (WIDE + 8))
#define SHARED_BYTES most(STAGES * STAGE_BYTES, SPLIT * TALL * SUMS_LINE)
// Fours of neighbours that a thread moves.
#define EACH (TALL * WIDE / 4 / THREADS)

static_assert(A_PITCH % CHUNK == 0 && B_PITCH % CHUNK == 0 && C_PITCH % 4 == 0);
static_assert(STAGES > 0 && STAGES <= TURNS);
static_assert(TALL * WIDE / 4 % THREADS == 0);

// A stage of both operands on its way, zeros where there is nothing: 16 bytes a copy.
INLINE void fetch_stage(u32 at, int turn, const T* a, const T* b, int first_row, int first_column) {
    constexpr int left = TALL / CHUNK, all = left + WIDE / CHUNK;
    UNROLLED(i, parts(DEEP * all, THREADS)) {
        const int piece = threadIdx.x + i * THREADS, line = piece / all, own = piece % all;
        if (DEEP * all % THREADS && piece >= DEEP * all) break;
        const int sample = turn * DEEP + line;
        const bool of_a = own < left;
        const int row = first_row + own * CHUNK, column = first_column + (own - left) * CHUNK;
        const bool exists = sample < DEPTH && (of_a ? row < ROWS : column < COLUMNS);
        const T* from = of_a ? a + (i64)sample * A_PITCH + row : b + (i64)sample * B_PITCH + column;
        const u32 to = of_a ? line * A_LINE + own * 16 : DEEP * A_LINE + line * B_LINE + (own - left) * 16;
        fetch(at + to, exists ? from : a, exists);
    }
}

// The products of a warp with 16 samples, whose numbers for its rows begin at `a`, for its columns at
// `b`. Which row of a product a number belongs to is free, as long as `row_of` and `column_of` know it.
INLINE void multiply_share(float (&sums)[2][4][4], u32 a, u32 b) {
    const int lane = threadIdx.x % 32;
#if BFLOAT
    // Matrices of eight samples by eight rows, turned: both eights of samples for each of columns, both
    // eights of rows for each of samples.
    const int line = lane % 8, quarter = lane / 8;
    u32 left[2][4], right[2][4];
    UNROLLED(i, 2) {
        matrices<4, true>(left[i], a + (quarter / 2 * 8 + line) * A_LINE + (i * 16 + quarter % 2 * 8) * 2);
        matrices<4, true>(right[i], b + (quarter % 2 * 8 + line) * B_LINE + (i * 16 + quarter / 2 * 8) * 2);
    }
    UNROLLED(i, 2)
        UNROLLED(j, 4) multiply<false>(sums[i][j], left[i], &right[j / 2][j % 2 * 2]);
#else
    // Four neighbours of a sample and of the fourth behind it.
    const u32 own = lane % 4 * A_LINE + lane / 4 * 16, others = lane % 4 * B_LINE + lane / 4 * 16;
    UNROLLED(half, 2) {
        u32 rows[2][4], columns[2][4];
        UNROLLED(h, 2) {
            shared_four(rows[h], a + own + (half * 8 + h * 4) * A_LINE);
            shared_four(columns[h], b + others + (half * 8 + h * 4) * B_LINE);
            UNROLLED(k, 4) rows[h][k] = operand(rows[h][k]), columns[h][k] = operand(columns[h][k]);
        }
        UNROLLED(i, 2)
            UNROLLED(j, 4) {
                const u32 left[4] = {rows[0][2 * i], rows[0][2 * i + 1], rows[1][2 * i], rows[1][2 * i + 1]};
                const u32 right[2] = {columns[0][j], columns[1][j]};
                multiply<false>(sums[i][j], left, right);
            }
    }
#endif
}

// Where sum 2 h + e of product (i, j) of a warp belongs.
INLINE int row_of(int i, int h) {
    const int own = threadIdx.x % 32 / 4;
    return BFLOAT ? i * 16 + h * 8 + own : own * 4 + i * 2 + h;
}
INLINE int column_of(int j, int e) {
    const int own = threadIdx.x % 4 * 2 + e;
    return BFLOAT ? j * 8 + own : own * 4 + j;
}

// The sums of a warp to shared memory: neighbours in a row together.
INLINE void leave_sums(const float (&sums)[2][4][4], u32 at) {
    UNROLLED(i, 2)
        UNROLLED(h, 2) {
            const u32 line = at + row_of(i, h) * SUMS_LINE;
            if (BFLOAT)
                UNROLLED(j, 4)
                    to_shared(line + column_of(j, 0) * 4, sums[i][j][2 * h], sums[i][j][2 * h + 1]);
            else
                UNROLLED(e, 2) {
                    const float* const v[4] = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
                    const int k = 2 * h + e;
                    const uint4 four = {__float_as_uint(v[0][k]), __float_as_uint(v[1][k]),
                                        __float_as_uint(v[2][k]), __float_as_uint(v[3][k])};
                    to_shared(line + column_of(0, e) * 4, four);
                }
        }
}

// A block's part of the layer: (column, row) of it among blocks. place: the layer's among all parameters;
// rule: factor of its rate, weight decay. A block that has read its part of the operands counts itself
// where that is wanted.
INLINE void update_weights(int block_column, int block_row, const T* a, const T* b, const float2* rule,
                           int place, const Sgd& sgd) {
    if (!EARLY) wait();
    const u32 base = shared_begin();
    const int part = threadIdx.x / 32 % (DOWN * ACROSS), share = threadIdx.x / 32 / (DOWN * ACROSS);
    const int down = part / ACROSS * SIDE, across = part % ACROSS * SIDE;
    const int first_row = block_row * TALL, first_column = block_column * WIDE;
    Fours mine[EACH];
    const auto ask = [&] {
        const float2 all = *rule;
        UNROLLED(u, EACH) {
            const int four = threadIdx.x + u * THREADS, line = four / (WIDE / 4);
            const int row = first_row + line, column = first_column + four % (WIDE / 4) * 4;
            const bool exists = row < ROWS && column < COLUMNS;
            const int at = place + row * C_PITCH + column;
            mine[u].ask(sgd, at / 4, exists ? all : make_float2(0.0f, 0.0f));
        }
    };
    if (EARLY) {
        ask();
        wait();
    }
    UNROLLED(stage, STAGES) {
        fetch_stage(base + stage * STAGE_BYTES, stage, a, b, first_row, first_column);
        fetched();
    }
    const i64 now = *sgd.step;
    if (!EARLY) ask();
    const float rate = sgd.rates[now];
    float sums[2][4][4];
    UNROLLED(i, 2)
        UNROLLED(j, 4)
            UNROLLED(e, 4) sums[i][j][e] = 0.0f;
    for (int turn = 0; turn < TURNS; ++turn) {
        arrived_but<STAGES - 1>();
        __syncthreads();
        const u32 at = base + turn % STAGES * STAGE_BYTES, own = at + share * SHARE * A_LINE;
        const u32 other = at + DEEP * A_LINE + share * SHARE * B_LINE;
        if (turn == TURNS - 1 && sgd.loaded && threadIdx.x == 0) {
            __threadfence();
            atomicAdd(sgd.loaded, 1u);
        }
        multiply_share(sums, own + down * ITEM, other + across * ITEM);
        if (TURNS > STAGES) {
            __syncthreads();
            if (turn + STAGES < TURNS) fetch_stage(at, turn + STAGES, a, b, first_row, first_column);
        }
        fetched();
    }
    tell();
    const unsigned come = sgd.begin();
    // What was the operands' memory becomes that of the sums.
    __syncthreads();
    leave_sums(sums, base + (share * TALL + down) * SUMS_LINE + across * 4);
    __syncthreads();
    UNROLLED(u, EACH) {
        const int four = threadIdx.x + u * THREADS, line = four / (WIDE / 4);
        const int column = four % (WIDE / 4) * 4;
        float gradients[4] = {};
        UNROLLED(s, SPLIT) {
            u32 one[4];
            shared_four(one, base + (s * TALL + line) * SUMS_LINE + column * 4);
            UNROLLED(k, 4) gradients[k] += __uint_as_float(one[k]);
        }
        if (COUNTED < parts(COLUMNS, 4) * 4)
            UNROLLED(k, 4)
                if (first_column + column + k >= COUNTED) gradients[k] = 0.0f;
        mine[u].move(sgd, gradients, rate);
    }
    sgd.end(come, now);
}
#endif
