// Scores of several views, of all samples of a batch or of those that have the closest scores.

// The gap between the two largest scores of a sample; INF without a target, or with a NaN.
KERNEL score_gaps(const float* scores, const int* target, float* gaps, int n, int classes) {
    enter();
    LINEAR(i, n) {
        const float* own = scores + (i64)i * classes;
        float best = -INF, second = -INF;
        bool known = target[i] >= 0;
        for (int k = 0; k < classes; ++k) {
            const float score = own[k];
            known = known && score == score;
            if (score > best)
                second = best, best = score;
            else if (score > second)
                second = score;
        }
        const float gap = best - second;
        gaps[i] = known && gap == gap ? gap : INF;
    }
}

// rows: the `size` samples with the smallest gaps, in order; place: where in these a sample is, or -1
// behind the first most[c], with c targets in the batch.
KERNEL least_sure(const float* gaps, const int* target, int* place, int* rows, const int* most, int n,
                  int size) {
    enter();
    LINEAR(i, n) {
        const float own = gaps[i];
        int before = 0, count = 0;
        for (int k = 0; k < n; ++k) {
            before += gaps[k] < own || (gaps[k] == own && k < i);
            count += target[k] >= 0;
        }
        place[i] = before < most[count] ? before : -1;
        if (before < size) rows[before] = i;
    }
}

// y[i] = sum over v of weights[v] x[v M + i] of M samples; with place: of sample place[i] of these, or
// scores[i] where that is -1. size: of the numbers of y; each: of those of a view.
KERNEL average_views(const float* x, float* y, const float* weights, const float* scores,
                     const int* place, int count, int classes, i64 each, i64 size) {
    enter();
    LINEAR(i, size) {
        i64 at = i;
        if (place) {
            const int own = place[i / classes];
            if (own < 0) {
                y[i] = scores[i];
                continue;
            }
            at = (i64)own * classes + i % classes;
        }
        float sum = 0.0f;
        for (int v = 0; v < count; ++v) sum = fmaf(weights[v], x[v * each + at], sum);
        y[i] = sum;
    }
}
