// A sum over ranks in each other's memory: every GPU writes its values into the memory of the
// others, says so, and adds up what it has got. For sums so small that NCCL's start would last longer
// than the way of the bytes. Compiled for RANKS, and for WORKERS blocks of at most BLOCKS, each of which
// has the same numbers in every call of an area, whatever their count; one more has the metrics.
constexpr int TOLD = BLOCKS + 1;
// Doubles of all ranks' metrics, and bytes of a rank's values.
constexpr int TAIL = 192;
constexpr i64 ROOM = (4 << 20) / (RANKS - 1) / 16 * 16;
constexpr int AREAS = 2;
// Where a rank's memory holds what was told by each rank, the turns of its own blocks, the metrics,
// and the values of the others. What a call brings lies apart from what the one before brought: that
// may still be read, but nothing older, for everyone has told that it is past that.
constexpr i64 TURNS = 4 * AREAS * RANKS * TOLD;
constexpr i64 TAILS = (TURNS + 4 * AREAS * TOLD + 127) / 128 * 128;
constexpr i64 BOXES = TAILS + 8 * AREAS * 2 * RANKS * TAIL;

INLINE unsigned* flag_at(char* memory, int area, int from) {
    return (unsigned*)memory + (area * RANKS + from) * TOLD + blockIdx.x;
}
INLINE double* tail_at(char* memory, int area, unsigned turn, int from) {
    return (double*)(memory + TAILS) + ((area * 2 + turn % 2) * RANKS + from) * TAIL;
}
// A rank has no box for its own values.
INLINE float* box_at(char* memory, int area, unsigned turn, int from, int to) {
    const int place = (area * 2 + turn % 2) * (RANKS - 1) + from - (from > to);
    return (float*)(memory + BOXES + place * ROOM);
}
#define OF_GRID(i, n) \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += WORKERS * blockDim.x)

INLINE float4 scaled(const float* p, float scale) {
    const float4 v = get4(p);
    return make_float4(__fmul_rn(scale, v.x), __fmul_rn(scale, v.y), __fmul_rn(scale, v.z),
                       __fmul_rn(scale, v.w));
}

// values = the sum over the ranks, in pairs, of scale * from; both: (fours, 4), with a gap of so many
// fours behind the first `split`; memory: the addresses of that of all ranks. kept: (parts, 3), of
// which a rank has the metrics of its own parts, or null; part: those of the only one, which go there
// and begin with 0 again, or null. Those of all are added to sums, in order, and the step counts the
// parts that it has not counted yet.
KERNEL add_over_ranks(const float* from, float scale, float* values, int fours, int split, int gap,
                      char* const* memory, int rank, int area, double* part, double* kept,
                      double* sums, int parts, i64* step, int uncounted) {
    enter();
    char* own = memory[rank];
    unsigned* turns = (unsigned*)(own + TURNS) + area * TOLD + blockIdx.x;
    const unsigned turn = *turns + 1;
    const bool counts = blockIdx.x == WORKERS;
    const int each = 3 * parts / RANKS;
    if (counts && part) {
        OF_BLOCK(i, 3) kept[rank * each + i] = part[i], part[i] = 0.0;
        __syncthreads();
    }
    UNROLLED(to, RANKS) {
        if (to == rank) continue;
        if (counts) {
            double* tail = tail_at(memory[to], area, turn, rank);
            OF_BLOCK(i, each) tail[i] = kept[rank * each + i];
        } else {
            float* box = box_at(memory[to], area, turn, rank, to);
            OF_GRID(i, fours) put4(box + 4 * i, scaled(from + 4 * (i < split ? i : i + gap), scale));
        }
    }
    __syncthreads();
    if (threadIdx.x < RANKS && threadIdx.x != rank) {
        tell(flag_at(memory[threadIdx.x], area, rank), turn);
        wait_for(flag_at(own, area, threadIdx.x), turn);
    }
    __syncthreads();
    if (counts) {
        OF_BLOCK(i, RANKS * each)
            if (i / each != rank) kept[i] = tail_at(own, area, turn, i / each)[i % each];
        __syncthreads();
        if (threadIdx.x < 3) {
            double total = sums[threadIdx.x];
            for (int at = 0; at < parts; ++at)
                total = __dadd_rn(total, kept[at * 3 + threadIdx.x]);
            sums[threadIdx.x] = total;
        }
        if (threadIdx.x == 0) *step += uncounted;
    } else {
        OF_GRID(i, fours) {
            const int place = 4 * (i < split ? i : i + gap);
            float4 v[RANKS];
            UNROLLED(r, RANKS)
                v[r] = r == rank ? scaled(from + place, scale)
                                 : get4(box_at(own, area, turn, r, rank) + 4 * i);
            UNROLLED(level, 3)
                UNROLLED(a, RANKS)
                    if (a % (2 << level) == 0 && a + (1 << level) < RANKS)
                        v[a] += v[a + (1 << level)];
            put4(values + place, v[0]);
        }
    }
    if (threadIdx.x == 0) *turns = turn;
}
