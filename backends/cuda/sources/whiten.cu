// Sums over the patches of pictures, of whole numbers: in whatever order, they are exact.
//
// A block holds some rows of a picture, less 128, once for each offset across of the window: four
// patches beside each other are a word at the same place of every row. Behind the last patch is 0.

// sum + a . b, of four signed bytes each.
INLINE int four_products(unsigned a, unsigned b, int sum) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
    return __dp4a((int)a, (int)b, sum);
#else
    UNROLLED(n, 4) sum += (int)(signed char)(a >> 8 * n) * (int)(signed char)(b >> 8 * n);
    return sum;
#endif
}

// found: (P, P + 1), zeros before; element i of a patch times element j >= i, and at the end of row
// i the sum of element i. images: (*, channels, height, width); chosen: which of them. A turn of a
// block is `band` rows of patches, fewer than 2^17 patches: sums of their products fit 32 bits.
KERNEL patch_sums(const u8* images, const int* chosen, int pictures, int channels, int height,
                  int width, int kernel_h, int kernel_w, int band, i64* found) {
    enter();
    extern __shared__ unsigned words[];
    const int down = height - kernel_h + 1, across = width - kernel_w + 1, row = (across + 3) / 4;
    const int lines = channels * kernel_w, patch = lines * kernel_h;
    // Odd, so that what the threads of a warp read of different lines is in different banks.
    const int line = (band + kernel_h - 1) * row | 1;

    // A thread has one entry of `found`, and every so many rows of it.
    const int before = blockIdx.y * blockDim.x, entries = patch * (patch + 3) / 2 - before;
    const int own = entries < (int)blockDim.x ? entries : (int)blockDim.x;
    const int sharing = blockDim.x / own, first = threadIdx.x / own;
    int i = 0, j = before + threadIdx.x % own;
    for (; j > patch - i; ++i) j -= patch + 1 - i;
    j += i;
    const auto place = [=](int element) {
        const int c = element / (kernel_h * kernel_w), y = element / kernel_w % kernel_h;
        return (c * kernel_w + element % kernel_w) * line + y * row;
    };
    const bool alone = j == patch;
    const unsigned *a = words + place(i), *b = words + (alone ? 0 : place(j));

    i64 total = 0;
    const int bands = (down + band - 1) / band;
    for (i64 turn = blockIdx.x; turn < (i64)pictures * bands; turn += gridDim.x) {
        const u8* picture = images + (i64)chosen[turn / bands] * channels * height * width;
        const int top = turn % bands * band, rows = band < down - top ? band : down - top;
        const int high = rows + kernel_h - 1;
        __syncthreads();
        OF_BLOCK(k, lines * high * row) {
            const int x = k % row * 4, y = k / row % high, l = k / row / high;
            const u8* from =
                picture + (i64)(l / kernel_w * height + top + y) * width + l % kernel_w + x;
            unsigned four = 0;
            UNROLLED(n, 4) if (x + n < across) four |= (unsigned)(from[n] ^ 128) << 8 * n;
            words[l * line + y * row + x / 4] = four;
        }
        __syncthreads();
        if (first >= sharing) continue;
        int sum = 0;
        for (int y = first; y < rows; y += sharing)
            for (int k = y * row; k < (y + 1) * row; ++k)
                sum = four_products(a[k], alone ? 0x01010101u : b[k], sum);
        total += sum;
    }
    if (first < sharing)
        atomicAdd((unsigned long long*)(found + (i64)i * (patch + 1) + j), (unsigned long long)total);
}
