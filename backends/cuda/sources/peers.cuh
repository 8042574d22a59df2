// A sum over ranks in each other's memory: every GPU writes its values into the memory of the
// others, says so, and adds up what it has got. For sums so small that NCCL's start would last longer
// than the way of the bytes. Compiled behind told.cuh, for RANKS, and for WORKERS blocks of at most
// BLOCKS, all of which take part in every call of an area; one more has the metrics. With LINES each
// number goes with its turn: twice the bytes, but nobody waits for what is sent to be there before it
// says so. These have a room of their own, where no other number could look like a turn.
#ifndef LINES
#define LINES 0
#endif
constexpr int TOLD = BLOCKS + 1;
// Doubles of all ranks' metrics, and bytes of a rank's values: SIZE are those of all others.
constexpr int TAIL = 192;
constexpr i64 ROOM = SIZE / (RANKS - 1) / 16 * 16;
// Bytes of a rank's numbers with their turns.
constexpr i64 LINE_ROOM = 512 << 10;
constexpr int AREAS = 2;
// Where a rank's memory holds what was told by each rank, the turns of its own blocks, the metrics,
// and the values of the others. What a call brings lies apart from what the one before brought: that
// may still be read, but nothing older. For a call ends only when every rank has been heard in it, so
// that each has begun it, and has ended the one before; with LINES too, where blocks without numbers
// hear nobody, but the others do.
constexpr i64 TURNS = 4 * AREAS * RANKS * TOLD;
constexpr i64 TAILS = (TURNS + 4 * AREAS * TOLD + 127) / 128 * 128;
constexpr i64 LINES_AT = TAILS + 8 * AREAS * 2 * RANKS * TAIL;
constexpr i64 BOXES = LINES_AT + AREAS * 2 * (RANKS - 1) * LINE_ROOM;

// scale * from is summed up into `to`; both: (fours, 4), with a gap of so many fours behind the first
// `split`.
struct Values {
    const float* from;
    float scale;
    float* to;
    int fours, split, gap;

    INLINE int place(int i) const { return i < split ? i : i + gap; }
    INLINE float4 own(int i) const {
        const float4 v = get4(from + 4 * place(i));
        return make_float4(__fmul_rn(scale, v.x), __fmul_rn(scale, v.y), __fmul_rn(scale, v.z),
                           __fmul_rn(scale, v.w));
    }
};

// The metrics of the parts. kept: (parts, 3), of which a rank has those of its own; part: those of its
// only one, which go there and begin with 0 again, or null. Those of all are added to sums, in order,
// and the step counts the parts that it has not counted yet.
struct Metrics {
    double *part, *kept, *sums;
    int parts;
    i64* step;
    int uncounted;
};

// What a block tells the same block of the other ranks, and hears of them, in one call. memory: the
// addresses of that of all ranks.
struct Talk {
    char* const* memory;
    int rank, area, block;
    unsigned turn;

    INLINE unsigned* turns() const { return (unsigned*)(memory[rank] + TURNS) + area * TOLD + block; }
    INLINE unsigned* flag(int of, int from) const {
        return (unsigned*)memory[of] + (area * RANKS + from) * TOLD + block;
    }
    INLINE double* tail(int of, int from) const {
        return (double*)(memory[of] + TAILS) + ((area * 2 + turn % 2) * RANKS + from) * TAIL;
    }
    // A rank has no box for its own values.
    INLINE int place(int of, int from) const {
        return (area * 2 + turn % 2) * (RANKS - 1) + from - (from > of);
    }
    INLINE float* box(int of, int from) const {
        return (float*)(memory[of] + BOXES + place(of, from) * ROOM);
    }
    INLINE unsigned long long* line(int of, int from) const {
        return (unsigned long long*)(memory[of] + LINES_AT + place(of, from) * LINE_ROOM);
    }
    INLINE void begin() { turn = *turns() + 1; }
    // All that the block has sent is there, on every rank; with LINES who wants it waits for it.
    INLINE void meet() const {
        __syncthreads();
        if (LINES && block < WORKERS) return;
        if (threadIdx.x < RANKS && threadIdx.x != rank) {
            tell(flag(threadIdx.x, rank), turn);
            wait_for(flag(rank, threadIdx.x), turn);
        }
        __syncthreads();
    }
    INLINE void end() const {
        // Who told nothing notes its turn, for a later call that waits for more than the numbers.
        if (LINES && block < WORKERS && threadIdx.x < RANKS && threadIdx.x != rank)
            note(flag(threadIdx.x, rank), turn);
        if (threadIdx.x == 0) *turns() = turn;
    }

    INLINE int first() const { return block * blockDim.x + threadIdx.x; }
    INLINE int stride() const { return WORKERS * blockDim.x; }
    INLINE void send(const Values& values) const {
        UNROLLED(to, RANKS) {
            if (to == rank) continue;
            for (int i = first(); i < values.fours; i += stride()) {
                const float4 v = values.own(i);
                if (LINES) {
                    float each[4];
                    unpack(v, each);
                    UNROLLED(k, 4) send_word(line(to, rank) + k * values.fours + i, each[k], turn);
                } else {
                    put4(box(to, rank) + 4 * i, v);
                }
            }
        }
    }
    INLINE float4 heard(int from, int fours, int i) const {
        if (!LINES) return get4(box(rank, from) + 4 * i);
        unsigned long long words[4];
        bool there;
        do {
            there = true;
            UNROLLED(k, 4) words[k] = sent_word(line(rank, from) + k * fours + i);
            UNROLLED(k, 4) there = there && (unsigned)(words[k] >> 32) == turn;
        } while (!there);
        float each[4];
        UNROLLED(k, 4) each[k] = __uint_as_float((unsigned)words[k]);
        return pack(each);
    }
    // In pairs, pairs of pairs and so on.
    INLINE float4 sum(const Values& values, int i) const {
        float4 v[RANKS];
        UNROLLED(r, RANKS) v[r] = r == rank ? values.own(i) : heard(r, values.fours, i);
        UNROLLED(level, 3)
            UNROLLED(a, RANKS)
                if (a % (2 << level) == 0 && a + (1 << level) < RANKS) v[a] += v[a + (1 << level)];
        return v[0];
    }
};

// The block behind the workers.
INLINE void add_metrics(Talk& talk, const Metrics& m) {
    const int each = 3 * m.parts / RANKS, own = talk.rank * each;
    talk.begin();
    if (m.part) {
        OF_BLOCK(i, 3) m.kept[own + i] = m.part[i], m.part[i] = 0.0;
        __syncthreads();
    }
    UNROLLED(to, RANKS)
        if (to != talk.rank) OF_BLOCK(i, each) talk.tail(to, talk.rank)[i] = m.kept[own + i];
    talk.meet();
    OF_BLOCK(i, RANKS * each)
        if (i / each != talk.rank) m.kept[i] = talk.tail(talk.rank, i / each)[i % each];
    __syncthreads();
    if (threadIdx.x < 3) {
        double total = m.sums[threadIdx.x];
        for (int at = 0; at < m.parts; ++at) total = __dadd_rn(total, m.kept[at * 3 + threadIdx.x]);
        m.sums[threadIdx.x] = total;
    }
    if (threadIdx.x == 0) *m.step += m.uncounted;
    talk.end();
}
