"""Keyed randomness: a random number is a pure function of seed, purpose, name, counter, element.

There is no state, so a resumed run, another batch size or another backend gets the same numbers.
The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1,
2, 3", SC 2011).

A 128-bit Philox counter has two 64-bit halves: words 0 and 1 are the *block* (low word first),
words 2 and 3 the *counter* (a step, an epoch, a sample index). Word ``e % 4`` of block ``e // 4``
is the 32-bit number of element ``e``; a backend that draws its own masks follows the same layout.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_ROUNDS = 10
_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
# Large enough to hide the cost of a NumPy call, small enough that ten rounds stay in the cache.
_CHUNK = 16384

Counter = int | NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.int32]


class Key(NamedTuple):
    """The two 32-bit key words of one stream of random numbers."""

    low: int
    high: int


def key(seed: int, purpose: str, name: str = "") -> Key:
    """The key of one stream: the first 64 bits of a SHA-256 over (seed, purpose, name).

    Every field is preceded by its length, so that no two triples share an encoding.
    """
    digest = hashlib.sha256(b"dnnstack.random.1")
    for field in (str(int(seed)), purpose, name):
        encoded = field.encode("utf-8")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    head = digest.digest()
    return Key(int.from_bytes(head[0:4], "little"), int.from_bytes(head[4:8], "little"))


def philox(stream: Key, counters: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Philox4x32-10 of each counter. counters: (n, 4) uint32 -> (n, 4) uint32."""
    out = np.empty_like(counters)
    lanes = _lanes(len(counters))
    for start in range(0, len(counters), _CHUNK):
        part = counters[start : start + _CHUNK]
        cut = [lane[: len(part)] for lane in lanes]
        for word in range(4):
            cut[word][...] = part[:, word]
        _rounds(stream, cut)
        for word in range(4):
            out[start : start + _CHUNK, word] = cut[word]
    return out


def _lanes(count: int) -> list[NDArray[np.uint64]]:
    """Four lanes of counter words and two of products, all in 64 bits, so that a 32 x 32 bit
    product needs no conversion."""
    return [np.empty(min(count, _CHUNK), np.uint64) for _ in range(6)]


def _rounds(stream: Key, lanes: Sequence[NDArray[np.uint64]]) -> None:
    """Ten rounds on the counters in lanes 0 to 3, in place: new arrays would cost as much."""
    c0, c1, c2, c3, product_0, product_1 = lanes
    for turn in range(_ROUNDS):
        k0 = np.uint64((stream.low + turn * _WEYL_0) & 0xFFFFFFFF)
        k1 = np.uint64((stream.high + turn * _WEYL_1) & 0xFFFFFFFF)
        np.multiply(c0, _MULTIPLIER_0, out=product_0)
        np.multiply(c2, _MULTIPLIER_1, out=product_1)
        np.right_shift(product_1, _SHIFT, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, k0, out=c0)
        np.right_shift(product_0, _SHIFT, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, k1, out=c2)
        np.bitwise_and(product_1, _MASK, out=c1)
        np.bitwise_and(product_0, _MASK, out=c3)


def at_least(
    stream: Key, counter: int, threshold: int, out: NDArray[np.uint8], *, first: int = 0
) -> None:
    """out[e] = 1 if the word of element first + e >= threshold, else 0; out: (n,) uint8.

    The words are not stored, which takes half the time of ``words`` and a comparison.
    """
    # The first block may begin before the first element.
    block, before = divmod(first, 4)
    count = -(-(before + len(out)) // 4)
    lanes = _lanes(count)
    for start in range(0, count, _CHUNK):
        cut = [lane[: count - start] for lane in lanes]
        blocks = np.arange(block + start, block + start + len(cut[0]), dtype=np.uint64)
        np.bitwise_and(blocks, _MASK, out=cut[0])
        np.right_shift(blocks, _SHIFT, out=cut[1])
        cut[2].fill(counter & 0xFFFFFFFF)
        cut[3].fill(counter >> 32)
        _rounds(stream, cut)
        for word in range(4):
            place = 4 * start + word - before
            skip = int(place < 0)
            kept = out[place + 4 * skip : 4 * (start + len(cut[0])) - before : 4]
            values = cut[word][skip : skip + len(kept)]
            np.greater_equal(values, threshold, out=kept.view(np.bool_))


def words(stream: Key, counter: Counter, first_block: int, blocks: int) -> NDArray[np.uint32]:
    """Random words of blocks first_block .. first_block + blocks - 1.

    counter: one number -> (blocks, 4) uint32; an integer array of shape S -> S + (blocks, 4), the
    same as each of its counters gives separately.
    """
    outer = np.asarray(counter).astype(np.uint64)
    inner = np.arange(blocks, dtype=np.uint64) + np.uint64(first_block)
    grid = np.empty((*outer.shape, blocks, 4), np.uint32)
    grid[..., 0] = inner & _MASK
    grid[..., 1] = inner >> _SHIFT
    grid[..., 2] = (outer & _MASK)[..., None]
    grid[..., 3] = (outer >> _SHIFT)[..., None]
    return philox(stream, grid.reshape(-1, 4)).reshape(grid.shape)


def uniform(
    stream: Key,
    counter: Counter,
    shape: int | tuple[int, ...],
    dtype: type[np.floating[Any]] = np.float64,
    *,
    first: int = 0,
) -> NDArray[Any]:
    """Uniform numbers in [0, 1): float64 with 53 random bits, or float32 with 24.

    Element ``e`` of the flattened result is number ``first + e`` of the stream, however the range
    is divided into calls. The shape of an array of counters precedes ``shape``.
    """
    if dtype is np.float32:
        bits = _elements(stream, counter, shape, first, per_element=1)[..., 0]
        return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    pair = _elements(stream, counter, shape, first, per_element=2).astype(np.uint64)
    return (_bits53(pair) * 2.0**-53).astype(dtype, copy=False)


def _bits53(pairs: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The upper 53 bits of each pair of words (..., 2), low word first, as a whole number."""
    return ((pairs[..., 1] << np.uint64(21)) | (pairs[..., 0] >> np.uint64(11))).astype(np.float64)


def normal(
    stream: Key, counter: Counter, shape: int | tuple[int, ...], *, first: int = 0
) -> NDArray[np.float64]:
    """Standard normal numbers in float64 (Box and Muller 1958, the cosine branch).

    Four words per element; element ``e`` is number ``first + e``, as for ``uniform``.
    """
    four = _elements(stream, counter, shape, first, per_element=4).astype(np.uint64)
    # (bits + 1) is in (0, 1], where the logarithm is finite.
    radius = np.sqrt(-2.0 * np.log((_bits53(four[..., :2]) + 1.0) * 2.0**-53))
    return np.asarray(radius * np.cos(_bits53(four[..., 2:]) * (2.0 * math.pi * 2.0**-53)))


def integers(
    stream: Key, counter: Counter, shape: int | tuple[int, ...], high: int, *, first: int = 0
) -> NDArray[np.int64]:
    """Integers in [0, high), high at most 2**32; multiply and shift of 64 bits, bias < 2**-32."""
    if not 1 <= high <= 2**32:
        raise ValueError(f"high must be between 1 and 2**32, got {high}")
    pair = _elements(stream, counter, shape, first, per_element=2).astype(np.uint64)
    low_product = (pair[..., 0] * np.uint64(high)) >> _SHIFT
    return ((pair[..., 1] * np.uint64(high) + low_product) >> _SHIFT).astype(np.int64)


def permutation(stream: Key, counter: int, n: int) -> NDArray[np.int64]:
    """A permutation of range(n): the stable argsort of n 64-bit keys. Returns (n,) int64."""
    pair = _elements(stream, counter, n, 0, per_element=2).astype(np.uint64)
    keys = (pair[:, 1] << _SHIFT) | pair[:, 0]
    # NumPy sorts 16 bits by counting, and merges what is nearly in order: a third of the time.
    order = np.argsort((keys >> np.uint64(48)).astype(np.uint16), kind="stable")
    return order[np.argsort(keys[order], kind="stable")].astype(np.int64)


def _elements(
    stream: Key, counter: Counter, shape: int | tuple[int, ...], first: int, *, per_element: int
) -> NDArray[np.uint32]:
    """Words of elements first, first + 1, ...: counter's shape + shape + (per_element,)."""
    inner = (shape,) if isinstance(shape, int) else shape
    count = math.prod(inner)
    begin = first * per_element
    end = begin + count * per_element
    block = begin // 4
    drawn = words(stream, counter, block, -(-end // 4) - block)
    outer = drawn.shape[:-2]
    flat = drawn.reshape(*outer, -1)[..., begin - 4 * block : end - 4 * block]
    return flat.reshape(*outer, *inner, per_element)
