// Pictures of one channel with a border of zeros in shared memory, as a first convolution reads them.
// Compiled for HEIGHT, WIDTH, KERNEL_H, KERNEL_W, PAD, and ROWS, COLUMNS of what is pooled.
#define TAPS (KERNEL_H * KERNEL_W)
#define TALL (HEIGHT + 2 * PAD)
#define PITCH ((WIDTH + 2 * PAD + 1) / 2 * 2 + 2)
#define PIXELS (HEIGHT * WIDTH)
#define POSITIONS (ROWS * COLUMNS)

INLINE float pixel(float v);

INLINE void clear(float* picture, int count) {
    OF_BLOCK(i, count) picture[i] = 0.0f;
}

// A picture on its way: loaded into registers while another is worked on, then stored. `pixel`
// is what the file makes of a number.
template <int threads>
struct Ahead {
    static const int each = (PIXELS + threads - 1) / threads;
    float values[each];

    INLINE void load(const T* x) {
        UNROLLED(k, each) {
            int i = threadIdx.x + k * threads;
            values[k] = i < PIXELS ? get(x[i]) : 0.0f;
        }
    }
    INLINE void store(float* picture) {
        UNROLLED(k, each) {
            int i = threadIdx.x + k * threads;
            if (i < PIXELS) picture[(i / WIDTH + PAD) * PITCH + i % WIDTH + PAD] = pixel(values[k]);
        }
    }
};
