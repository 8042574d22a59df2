"""An array as a few bytes: a code book, and Huffman-coded gaps and code-book indices.

Zeros are not stored. Each other number is an entry with the count of zeros before it, its gap, as
a symbol of ``width`` bits. The largest symbol, 2^width - 1, is padding: as many zeros, and no
number. Source: Han, Mao and Dally 2016, "Deep Compression", sections 2 to 4; there, padding is a
stored zero.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....common.records import dataclass
from ....graph.graph import Shape
from .huffman import MOST_SYMBOLS, decode, encode, text_bits, word_lengths

PLAIN, CODED, SCALED, BYTES = 0, 1, 2, 3
WIDEST = 12
# Width of a gap, numbers in the code book, listed gaps, entries, bytes of gaps and of indices.
_HEAD = struct.Struct("<BHHIII")
_ROWS = struct.Struct("<I")
# Symbols that are counted together.
_COUNTED = 1 << 16
# Bytes that decoding takes for each number of an array, the array included.
WORKING_BYTES = 24
# The largest integer that a scaled array is made of.
LARGEST = 127
Array = NDArray[Any]


@dataclass(frozen=True)
class Cost:
    """What an array takes in a file.

    ``kept`` of its ``size`` numbers are not 0; ``bytes`` are all of its bytes. Of a coded array:
    ``values`` in the code book, ``entries`` with padding, and the bits that Huffman's words of all
    indices and all gaps take. ``number_bits``: of a number of an array that is not coded.
    """

    size: int
    kept: int
    bytes: int
    values: int = 0
    width: int = 0
    entries: int = 0
    value_bits: int = 0
    gap_bits: int = 0
    number_bits: int = 32

    @property
    def is_coded(self) -> bool:
        return self.width > 0

    @property
    def index_width(self) -> int:
        """The bits of an index into the code book before Huffman's code."""
        return max(self.values - 1, 0).bit_length()


@dataclass(frozen=True)
class _Gaps:
    width: int
    symbols: Array
    counts: Array
    lengths: Array

    @property
    def bits(self) -> int:
        """Of the words and of the table of their lengths."""
        return text_bits(self.counts, self.lengths) + 8 * -(-len(self.lengths) // 2)


def encode_array(array: Array, widths: tuple[int, ...] = ()) -> tuple[bytes, Cost]:
    """The bytes of a float32 array of any shape, and what they are made of.

    widths: of gaps, of which the best is taken; by default all from 1 to ``WIDEST``. An array
    with too many different numbers, or that is not smaller coded, is stored as it is.
    """
    flat = np.ascontiguousarray(array, "<f4").ravel()
    bits = flat.view("<u4")
    places = np.flatnonzero(bits)
    plain = bytes([PLAIN]) + flat.tobytes(), Cost(flat.size, len(places), 1 + flat.nbytes)
    book, indices = np.unique(bits[places], return_inverse=True)
    if len(book) > MOST_SYMBOLS or flat.size >= 1 << 32:
        return plain
    zeros = np.diff(places, prepend=-1) - 1
    tried = (_gaps(zeros, width) for width in widths or range(1, WIDEST + 1))
    gaps = min(tried, key=lambda gaps: gaps.bits)
    counts = np.bincount(indices, minlength=len(book))
    lengths = word_lengths(counts)
    texts = encode(gaps.symbols, gaps.lengths), encode(indices, lengths)
    sizes = (len(gaps.symbols), *map(len, texts))
    head = _HEAD.pack(gaps.width, len(book), len(gaps.lengths), *sizes)
    tables = book.astype("<u4").tobytes(), _nibbles(gaps.lengths), _nibbles(lengths)
    data = b"".join((bytes([CODED]), head, *tables, *texts))
    if len(data) >= len(plain[0]):
        return plain
    bits_of = text_bits(counts, lengths), text_bits(gaps.counts, gaps.lengths)
    made = (len(book), gaps.width, len(gaps.symbols), *bits_of)
    return data, Cost(flat.size, len(places), len(data), *made)


def encode_scaled(array: Array, widths: tuple[int, ...] = ()) -> tuple[bytes, Cost]:
    """The same, as integers from -127 to 127 and a scale for each row, if that is smaller.

    Rows are those of the first axis; each must be such integers times largest / 127, bit for bit.
    """
    otherwise = encode_array(array, widths)
    rows = np.ascontiguousarray(array, "<f4").reshape(len(array), -1)
    scales = (np.abs(rows).max(1) / np.float32(LARGEST)).astype("<f4")
    scales[scales == 0] = 1.0
    integers = np.rint(rows / scales[:, None]) + np.float32(0)
    if (integers * scales[:, None]).tobytes() != rows.tobytes():
        return otherwise
    data, cost = encode_array(integers, widths)
    if len(data) > integers.size:
        data = bytes([BYTES]) + integers.astype(np.int8).tobytes()
        cost = Cost(cost.size, cost.kept, len(data), number_bits=8)
    data = bytes([SCALED]) + _ROWS.pack(len(rows)) + scales.tobytes() + data
    if len(data) >= len(otherwise[0]):
        return otherwise
    return data, replace(cost, bytes=len(data))


def decode_array(data: memoryview, shape: Shape) -> tuple[NDArray[np.float32], Cost]:
    """The array at the beginning of ``data``, whose cost says how many bytes it took.

    The caller has made sure that memory has room for the shape. Raises ValueError.
    """
    size = prod(shape)
    kind = data[0] if len(data) else -1
    if kind == PLAIN:
        flat = np.frombuffer(_part(data, 1, 4 * size), "<f4").astype(np.float32)
        cost = Cost(size, int(np.count_nonzero(flat.view(np.uint32))), 1 + 4 * size)
    elif kind == CODED:
        flat, cost = _coded(data, size)
    elif kind == SCALED:
        flat, cost = _scaled(data, shape)
    elif kind == BYTES:
        flat = np.frombuffer(_part(data, 1, size), np.int8).astype(np.float32)
        cost = Cost(size, int(np.count_nonzero(flat)), 1 + size, number_bits=8)
    else:
        raise ValueError("an array is of no known kind")
    if not np.isfinite(flat).all():
        raise ValueError("an array contains NaN or infinity")
    return flat.reshape(shape), cost


def _scaled(data: memoryview, shape: Shape) -> tuple[NDArray[np.float32], Cost]:
    (rows,) = _ROWS.unpack(_part(data, 1, _ROWS.size))
    if not shape or rows != shape[0]:
        raise ValueError("an array has not as many scales as rows")
    begin = 1 + _ROWS.size
    scales = np.frombuffer(_part(data, begin, 4 * rows), "<f4").astype(np.float32)
    begin += 4 * rows
    if bytes(data[begin : begin + 1]) == bytes([SCALED]):
        raise ValueError("a scaled array is made of another")
    integers, cost = decode_array(data[begin:], shape)
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise ValueError("a scale is not above 0")
    if (np.abs(integers) > LARGEST).any() or (integers != np.rint(integers)).any():
        raise ValueError("a scaled array is not made of integers")
    with np.errstate(over="ignore"):
        numbers = integers.reshape(rows, -1) * scales[:, None]
    return numbers.ravel(), replace(cost, bytes=begin + cost.bytes)


def _coded(data: memoryview, size: int) -> tuple[NDArray[np.float32], Cost]:
    head = _HEAD.unpack(_part(data, 1, _HEAD.size))
    width, values, listed, entries, gap_bytes, value_bytes = head
    if not 1 <= width <= WIDEST or values > MOST_SYMBOLS or listed > 1 << width or entries > size:
        raise ValueError("the head of an array is not possible")
    at = 1 + _HEAD.size
    book = np.frombuffer(_part(data, at, 4 * values), "<u4")
    at += book.nbytes
    lengths = []
    for count in (listed, values):
        part = _part(data, at, -(-count // 2))
        lengths.append(_from_nibbles(part, count))
        at += len(part)
    gap_text, value_text = _part(data, at, gap_bytes), _part(data, at + gap_bytes, value_bytes)
    gaps = decode(gap_text, entries, lengths[0])
    gap_counts = _counts(gaps, listed)
    places = _places(gaps, gap_counts, (1 << width) - 1, size)
    del gaps
    indices = decode(value_text, len(places), lengths[1])
    if not book.all():
        raise ValueError("a code book contains 0")
    flat = np.zeros(size, np.uint32)
    flat[places] = book[indices] if len(places) else 0
    bits_of = (text_bits(_counts(indices, values), lengths[1]), text_bits(gap_counts, lengths[0]))
    used = at + gap_bytes + value_bytes
    return flat.view(np.float32), Cost(size, len(places), used, values, width, entries, *bits_of)


def _places(gaps: Array, counts: Array, padding: int, size: int) -> Array:
    """Where the numbers of an array of this size are; ``counts``: of each gap.

    As few bytes as can be are taken for each gap: a hostile file has very many.
    """
    if len(gaps) and gaps[-1] == padding:
        raise ValueError("padding ends an array")
    paddings = int(counts[padding]) if padding < len(counts) else 0
    if int((counts * np.arange(len(counts))).sum()) + len(gaps) - paddings > size:
        raise ValueError("an array has more numbers than its shape")
    # No sum is larger than the size.
    places: Array = np.cumsum(gaps, dtype=np.int32 if size < 1 << 31 else np.int64)
    if paddings:
        places = places[gaps != padding]
    places += np.arange(len(places), dtype=places.dtype)
    return places


def _counts(symbols: Array, count: int) -> Array:
    """How often each symbol occurs; ``bincount`` takes 8 bytes for each of a part."""
    found = np.zeros(count, np.int64)
    for begin in range(0, len(symbols), _COUNTED):
        found += np.bincount(symbols[begin : begin + _COUNTED], minlength=count)
    return found


def _gaps(zeros: Array, width: int) -> _Gaps:
    """zeros: (n,) the count of zeros before each entry."""
    padding = (1 << width) - 1
    paddings, rest = np.divmod(zeros, padding)
    ends = np.cumsum(paddings + 1)
    symbols = np.full(int(ends[-1]) if len(ends) else 0, padding, np.intp)
    symbols[ends - 1] = rest
    counts = np.bincount(symbols)
    return _Gaps(width, symbols, counts, word_lengths(counts))


def _part(data: memoryview, begin: int, size: int) -> memoryview:
    if begin + size > len(data):
        raise ValueError("an array ends too early")
    return data[begin : begin + size]


def _nibbles(lengths: Array) -> bytes:
    """Two lengths a byte, the first in its upper half."""
    padded = np.zeros(len(lengths) + len(lengths) % 2, np.uint8)
    padded[: len(lengths)] = lengths
    return (padded[0::2] << 4 | padded[1::2]).tobytes()


def _from_nibbles(data: memoryview, count: int) -> NDArray[np.uint8]:
    packed = np.frombuffer(data, np.uint8)
    if count % 2 and packed[-1] & 15:
        raise ValueError("a table of lengths does not end where it should")
    return np.stack((packed >> 4, packed & 15), 1).ravel()[:count]
