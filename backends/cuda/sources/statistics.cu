// Running statistics of a batch in parts: one block for the values of one statistic.

struct KeptSegment {
    const float* value;
    int first, size;
};

struct MovedSegment {
    float* running;
    int first, size;
    double momentum, weight;
};

// kept: (parts, numbers); a part has its row.
KERNEL keep_statistics(const KeptSegment* segments, const i64* step, int parts, int numbers,
                       float* kept) {
    enter();
    const KeptSegment s = segments[blockIdx.x];
    float* row = kept + step[0] % parts * numbers + s.first;
    OF_BLOCK(i, s.size) row[i] = s.value[i];
}

KERNEL move_statistics(const MovedSegment* segments, const float* kept, int parts, int numbers) {
    enter();
    const MovedSegment s = segments[blockIdx.x];
    OF_BLOCK(i, s.size) {
        float r = s.running[i];
        for (int part = 0; part < parts; ++part)
            r = (1.0 - s.momentum) * r + s.weight * kept[(i64)part * numbers + s.first + i];
        s.running[i] = r;
    }
}
