"""Canonical Huffman codes of at most 15 bits, encoded and decoded by tables.

A code is given by the lengths of its words, one for each symbol, 0 for a symbol without a word.
Words of one length are consecutive numbers in the order of their symbols, and follow those that are
shorter (as in RFC 1951, 3.2.2). Of a code with a single word, the word takes no bits at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 15
# Symbols that words of 15 bits suffice for, with room to spare.
MOST_SYMBOLS = 1 << 12
# Bytes that are decoded together, so that the tables of a block stay in the cache.
_BLOCK = 1 << 12
# Words between two that are found one after the other: 2 ** _DOUBLINGS.
_DOUBLINGS = 6

Array = NDArray[Any]


def word_lengths(counts: Array) -> NDArray[np.uint8]:
    """The lengths of the words that make the shortest text with these counts of symbols.

    counts: (symbols,), of which at most ``MOST_SYMBOLS`` are above 0. By package-merge: Larmore and
    Hirschberg 1990, "A fast algorithm for optimal length-limited Huffman codes".
    """
    found = np.zeros(len(counts), np.uint8)
    used = np.flatnonzero(counts)
    if len(used) < 2:
        found[used] = 1
        return found
    order = used[np.argsort(counts[used], kind="stable")]
    leaves = counts[order].astype(np.int64)
    packages = leaves[:0]
    levels = []
    for _ in range(LONGEST):
        items = np.concatenate((leaves, packages))
        rank = np.argsort(items, kind="stable")
        levels.append(rank < len(leaves))
        items = items[rank]
        pairs = len(items) // 2 * 2
        packages = items[0:pairs:2] + items[1:pairs:2]
    taken = 2 * len(leaves) - 2
    lengths = np.zeros(len(leaves), np.uint8)
    for is_leaf in reversed(levels):
        count = int(is_leaf[:taken].sum())
        lengths[:count] += 1
        taken = 2 * (taken - count)
    found[order] = lengths
    return found


def text_bits(counts: Array, lengths: Array) -> int:
    """The number of bits of a text with these counts of symbols."""
    if np.count_nonzero(lengths) < 2:
        return 0
    return int((counts.astype(np.int64) * lengths).sum())


def encode(symbols: Array, lengths: Array) -> bytes:
    """The words of ``symbols``, (n,) integers, the first bit of each first; zeros fill a byte."""
    if np.count_nonzero(lengths) < 2 or not len(symbols):
        return b""
    sizes = lengths[symbols].astype(np.int64)
    words = _words(lengths)[symbols]
    begins = np.cumsum(sizes) - sizes
    bits = np.zeros(int(begins[-1] + sizes[-1]), np.uint8)
    for place in range(int(sizes.max())):
        longer = sizes > place
        shift = sizes[longer] - 1 - place
        bits[begins[longer] + place] = words[longer] >> shift & 1
    return np.packbits(bits).tobytes()


def decode(data: bytes | memoryview, count: int, lengths: Array) -> NDArray[np.uint16]:
    """The ``count`` symbols whose words fill ``data``; lengths: (symbols,).

    All bit positions of a block are looked up at once, which gives for each the position after the
    word that would begin there. Squaring this map six times gives the position 64 words later.
    Raises ValueError if the lengths are not those of a code in which every sequence of bits means
    something, or if ``data`` is shorter or longer than the words.
    """
    ordered = _ordered(lengths)
    if len(ordered) < 2:
        if (len(ordered) == 0 and count) or len(data):
            raise ValueError("there are bits, or symbols, without words")
        return np.full(count, ordered[0] if len(ordered) else 0, np.uint16)
    table, sizes, longest = _table(ordered, lengths)
    total = 8 * len(data)
    found = np.empty(count, np.uint16)
    done, begin = 0, 0
    while done < count:
        first = begin >> 3
        if begin >= total:
            raise ValueError("the words end too early")
        looked = _windows(data, first, longest)
        step = sizes[looked]
        places = _word_places(step, begin & 7)[: count - done]
        found[done : done + len(places)] = table[looked[places]]
        done += len(places)
        begin = 8 * first + int(places[-1]) + int(step[places[-1]])
    left = total - begin
    if not 0 <= left < 8 or (left and data[-1] & ((1 << left) - 1)):
        raise ValueError("the words do not end where the bits end")
    return found


def _ordered(lengths: Array) -> Array:
    """The symbols that have words, in the order of these."""
    used = np.flatnonzero(lengths)
    return used[np.argsort(lengths[used], kind="stable")]


def _words(lengths: Array) -> Array:
    """The word of each symbol as a number: (symbols,) int64."""
    ordered = _ordered(lengths)
    sizes = lengths[ordered].astype(np.int64)
    shares = np.left_shift(1, LONGEST - sizes)
    words = np.zeros(len(lengths), np.int64)
    words[ordered] = (np.cumsum(shares) - shares) >> (LONGEST - sizes)
    return words


def _table(ordered: Array, lengths: Array) -> tuple[Array, Array, int]:
    """The symbol, and the length of its word, by the next ``longest`` bits, and ``longest``."""
    sizes = lengths[ordered].astype(np.int64)
    longest = int(sizes[-1])
    if longest > LONGEST:
        raise ValueError(f"a word has more than {LONGEST} bits")
    shares = np.left_shift(1, longest - sizes)
    if int(shares.sum()) != 1 << longest:
        raise ValueError("the lengths of the words do not make a code")
    return (
        np.repeat(ordered, shares).astype(np.uint16),
        np.repeat(sizes, shares).astype(np.intp),
        longest,
    )


def _windows(data: bytes | memoryview, first: int, longest: int) -> Array:
    """The number that ``longest`` bits make, from each bit of a block on; zeros follow the data."""
    given = np.frombuffer(data[first : first + _BLOCK + 3], np.uint8)
    size = min(_BLOCK, len(given))
    block = np.zeros(size + 3, np.uint32)
    block[: len(given)] = given[: size + 3]
    words = block[:-3] << 24 | block[1:-2] << 16 | block[2:-1] << 8 | block[3:]
    shifts = np.arange(32 - longest, 24 - longest, -1, dtype=np.uint32)
    return (words[:, None] >> shifts & np.uint32((1 << longest) - 1)).ravel().astype(np.intp)


def _word_places(step: Array, begin: int) -> Array:
    """Where the words of a block begin; step: (bits,) the length of a word that begins there."""
    end = len(step)
    jump = np.append(np.minimum(np.arange(end) + step, end), end)
    jumps = []
    for _ in range(_DOUBLINGS):
        jumps.append(jump)
        jump = jump[jump]
    far, place, places = jump.data, begin, []
    while place < end:
        places.append(place)
        place = far[place]
    found = np.array(places, np.intp)
    for jump in reversed(jumps):
        found = np.stack((found, jump[found]), 1).ravel()
    return found[found < end]
