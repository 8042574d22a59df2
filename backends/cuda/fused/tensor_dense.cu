// A small matrix product on tensor cores: c = f(op(a) op(b) + bias), ROWS by COLUMNS, DEPTH deep.
// Operands come from memory straight to the registers that a product takes them from. The order of the
// depth is free, as long as both operands have the same one: a lane loads 16 bytes at once and uses
// them in two products, one behind the other.
//
// Compiled for one product: ROWS, COLUMNS, DEPTH; A_PITCH, B_PITCH, C_PITCH, the numbers from a stored
// row to the next; A_DEEP, B_DEEP: whether stored rows run along the depth, as a's do unless it is
// transposed; COUNTED columns of c are no padding, which is zero; ACTIVATION (-1 for none);
// RESULT_BFLOAT: the type of c.
//
// And for one tiling: a warp has A_TILES times sixteen rows and B_TILES times eight columns of c, a block
// A_WARPS times B_WARPS such parts side by side, whose warps find in the processor's cache what others
// have asked for. SPLIT warps of a part share the depth; their sums are added up in shared memory, in
// the order of the warps.

#define PARTS (A_WARPS * B_WARPS)
#define THREADS (32 * SPLIT * PARTS)
#define TALL (16 * A_TILES)
#define WIDE (8 * B_TILES)
#define BLOCK_TALL (TALL * A_WARPS)
#define BLOCK_WIDE (WIDE * B_WARPS)
// The depth that a warp takes in at once, 64 bytes of a row: two products.
#define SPAN (4 * CHUNK)
#define TURNS parts(DEPTH, SPAN * SPLIT)
// Registers of one span, and spans that are on their way from memory at the same time.
#define SPAN_WORDS (8 * A_TILES + 4 * B_TILES)
#define STAGES least(TURNS, most(1, least(4, 64 / SPAN_WORDS)))
#define SHARED_BYTES (SPLIT > 1 ? SPLIT * BLOCK_TALL * BLOCK_WIDE * 4 : 0)

static_assert(A_PITCH % CHUNK == 0 && B_PITCH % CHUNK == 0);
static_assert((!A_DEEP && !B_DEEP) || DEPTH % CHUNK == 0);
static_assert((A_DEEP || A_TILES % 2 == 0) && (B_DEEP || B_TILES % 4 == 0));

#if RESULT_BFLOAT
typedef bfloat R;
#else
typedef float R;
#endif

// Where a lane begins in an operand, of which its block takes the rows or columns from `first` on, and
// it the depth from k on.
template <bool deep, int pitch>
INLINE const T* begin(const T* from, int first, int k) {
    const int own = threadIdx.x % 32 / 4;
    return from + (deep ? (i64)(first + own) * pitch + k : (i64)k * pitch + first + own * 4);
}

// What a lane has of a span: 16 bytes of each of `eights` rows; or, where rows run across, four
// numbers of each of CHUNK rows of the depth, for every four of them. All but `from` is known to the
// compiler as far as addresses are concerned, which are one register then.
template <int eights, bool deep, int size, int pitch>
INLINE void load(u32 (&v)[eights][4], const T* from, int first, int k) {
    const int own = threadIdx.x % 32 / 4;
    if constexpr (deep) {
        UNROLLED(e, eights)
            load_words<4>(v[e], from + e * 8 * pitch, first + own + e * 8 < size && k < DEPTH);
    } else {
        UNROLLED(four, eights / 4)
            UNROLLED(i, CHUNK)
                load_words<ITEM>(v[four * 4 + i * ITEM / 4] + i * ITEM % 4, from + i * pitch + four * 32,
                                 first + (four * 8 + own) * 4 < size && k + i < DEPTH);
    }
}

// The same as a product takes it: for each row four words along the depth.
template <int eights, bool deep>
INLINE void arrange(u32 (&to)[eights][4], const u32 (&v)[eights][4]) {
    UNROLLED(e, eights) {
        const auto rows = &v[e / 4 * 4];
        const int own = e % 4;
        UNROLLED(w, 4) {
            if (deep) {
                to[e][w] = operand(v[e][w]);
            } else if (BFLOAT) {
                // Of two rows of the depth the lower half of a word, or the upper.
                const u32 even = rows[w][own / 2], odd = rows[w][2 + own / 2];
                to[e][w] = own % 2 ? even >> 16 | (odd & 0xffff0000u) : (even & 0xffffu) | odd << 16;
            } else {
                to[e][w] = operand(rows[w][own]);
            }
        }
    }
}

// Where row or column `which` of the eight with number e lies among those of the block.
template <bool deep>
INLINE int place(int e, int which) {
    return deep ? e * 8 + which : (e / 4 * 8 + which) * 4 + e % 4;
}

INLINE float ended(float v, int column, const float* bias, float alpha) {
    if (column >= COUNTED) return 0.0f;
    if (bias) v += bias[column];
    return ACTIVATION >= 0 ? activate(ACTIVATION, v, alpha) : v;
}

// Two neighbours in a row of c.
INLINE void finish(R* c, int row, int column, float a, float b, const float* bias, float alpha) {
    if (row >= ROWS || column >= COLUMNS) return;
    R* to = c + (i64)row * C_PITCH + column;
    a = ended(a, column, bias, alpha);
    if (column + 1 == COLUMNS) return put(to, a);
    b = ended(b, column + 1, bias, alpha);
    if (C_PITCH % 2 == 0) put2(to, a, b);
    else put(to, a), put(to + 1, b);
}

// Grid: (groups of columns, groups of rows). depth: DEPTH, which the compiler must not know here: where
// it knows the number of turns, it saves registers and waits for the loads of each by themselves.
KERNEL __launch_bounds__(THREADS)
    tensor_dense(const T* a, const T* b, const float* bias, R* c, int depth, float alpha) {
    wait();
    const u32 base = shared_begin();
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32 % PARTS, share = threadIdx.x / 32 / PARTS;
    const int down = part / B_WARPS * TALL, across = part % B_WARPS * WIDE;
    const int block_row = blockIdx.y * BLOCK_TALL, block_column = blockIdx.x * BLOCK_WIDE;
    const int first_row = block_row + down, first_column = block_column + across;
    const int turns = parts(depth - share * SPAN, SPAN * SPLIT);
    u32 rows[STAGES][2 * A_TILES][4], columns[STAGES][B_TILES][4];
    const int begin_k = share * SPAN + lane % 4 * CHUNK;
    a = begin<A_DEEP, A_PITCH>(a, first_row, begin_k);
    b = begin<B_DEEP, B_PITCH>(b, first_column, begin_k);
    const auto fetch_span = [&](int stage, int turn) {
        const int further = turn * SPLIT * SPAN, k = begin_k + further;
        load<2 * A_TILES, A_DEEP, ROWS, A_PITCH>(rows[stage], a + (i64)further * (A_DEEP ? 1 : A_PITCH),
                                                 first_row, k);
        load<B_TILES, B_DEEP, COLUMNS, B_PITCH>(columns[stage],
                                                b + (i64)further * (B_DEEP ? 1 : B_PITCH), first_column, k);
    };
    float sums[A_TILES][B_TILES][4];
    UNROLLED(i, A_TILES)
        UNROLLED(j, B_TILES)
            UNROLLED(e, 4) sums[i][j][e] = 0.0f;
    UNROLLED(stage, STAGES) fetch_span(stage, stage);
#pragma unroll 1
    for (int turn = 0; turn < turns; turn += STAGES) {
        UNROLLED(stage, STAGES) {
            u32 left[2 * A_TILES][4], right[B_TILES][4];
            arrange<2 * A_TILES, A_DEEP>(left, rows[stage]);
            arrange<B_TILES, B_DEEP>(right, columns[stage]);
            if (TURNS > STAGES) fetch_span(stage, turn + stage + STAGES);
            UNROLLED(s, 2)
                UNROLLED(i, A_TILES) {
                    const u32 v[4] = {left[2 * i][2 * s], left[2 * i + 1][2 * s],
                                      left[2 * i][2 * s + 1], left[2 * i + 1][2 * s + 1]};
                    UNROLLED(j, B_TILES) multiply<false>(sums[i][j], v, &right[j][2 * s]);
                }
        }
        if (TURNS <= STAGES) break;
    }
    tell();
    // Pairs of sums of neighbours: of a product where columns lie eight by eight, else of two.
    const auto leave = [&](int i, int h, int j, int which, float v, float w) {
        const int row = place<A_DEEP>(2 * i + h, lane / 4);
        const int column = place<B_DEEP>(j, lane % 4 * 2 + which);
        if (SPLIT == 1) finish(c, first_row + row, first_column + column, v, w, bias, alpha);
        else to_shared(base + ((share * BLOCK_TALL + down + row) * BLOCK_WIDE + across + column) * 4, v, w);
    };
    UNROLLED(i, A_TILES)
        UNROLLED(h, 2)
            UNROLLED(j, B_TILES) {
                const float* v = sums[i][j] + 2 * h;
                const float* next = sums[i][(j + 1) % B_TILES] + 2 * h;
                if (B_DEEP) leave(i, h, j, 0, v[0], v[1]);
                else if (j % 2 == 0) leave(i, h, j, 0, v[0], next[0]), leave(i, h, j, 1, v[1], next[1]);
            }
    if (SPLIT == 1) return;
    __syncthreads();
    OF_BLOCK(p, BLOCK_TALL * BLOCK_WIDE / 2) {
        float2 sum = make_float2(0.0f, 0.0f);
        UNROLLED(k, SPLIT) {
            const float2 one = shared_pair(base + (k * BLOCK_TALL * BLOCK_WIDE + 2 * p) * 4);
            sum.x += one.x, sum.y += one.y;
        }
        const int row = p / (BLOCK_WIDE / 2), column = p % (BLOCK_WIDE / 2) * 2;
        finish(c, block_row + row, block_column + column, sum.x, sum.y, bias, alpha);
    }
}
