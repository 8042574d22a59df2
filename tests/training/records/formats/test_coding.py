"""Huffman's codes and the coding of arrays: any numbers come back bit for bit."""

from __future__ import annotations

import heapq
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.training.records.formats import dnnz_arrays as arrays_module
from dnnstack.training.records.formats import huffman
from dnnstack.training.records.formats.dnnz_arrays import (
    PLAIN,
    WIDEST,
    WORKING_BYTES,
    decode_array,
    encode_array,
)
from dnnstack.training.records.formats.huffman import (
    LONGEST,
    MOST_SYMBOLS,
    decode,
    encode,
    text_bits,
    word_lengths,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

COUNTS = st.lists(st.integers(0, 9) | st.integers(0, 1 << 40), max_size=40).map(np.array)


def shortest(counts: np.ndarray) -> int:
    """Bits by Huffman's own algorithm, without a limit of the length of a word."""
    heap = [int(count) for count in counts if count]
    heapq.heapify(heap)
    bits = 0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        bits += both
        heapq.heappush(heap, both)
    return bits


@given(COUNTS)
def test_lengths_make_a_complete_code_and_the_shortest_text(counts):
    lengths = word_lengths(counts)
    assert ((lengths > 0) == (counts > 0)).all()
    assert lengths.max(initial=0) <= LONGEST
    if np.count_nonzero(counts) > 1:
        assert (0.5 ** lengths[lengths > 0].astype(float)).sum() == 1.0
    best = shortest(counts)
    assert text_bits(counts, lengths) >= best
    if lengths.max(initial=0) < LONGEST:
        assert text_bits(counts, lengths) == best


def test_words_are_limited_and_every_symbol_gets_one():
    fibonacci = np.array(
        [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987, 1597, 2584]
    )
    assert word_lengths(fibonacci).max() == LONGEST
    most = word_lengths(np.ones(MOST_SYMBOLS, np.int64))
    assert set(most.tolist()) == {12}


def test_canonical_words_are_those_of_deflate():
    """The example of RFC 1951, 3.2.2: words 010 to 111 of A to E, G 1110 and H 1111, F 00."""
    lengths = np.array([3, 3, 3, 3, 3, 2, 4, 4], np.uint8)
    words = [2, 3, 4, 5, 6, 0, 14, 15]
    assert huffman._words(lengths).tolist() == words
    assert encode(np.array([5, 0, 7]), lengths) == bytes([0b00010111, 0b10000000])


@given(st.lists(st.integers(0, 300), max_size=600), st.integers(1, 9))
def test_symbols_come_back(symbols, block):
    """Whatever the size of a block is, which words and gaps between them may cross."""
    given_, before = np.array(symbols, np.int64), huffman._BLOCK
    lengths = word_lengths(np.bincount(given_, minlength=1))
    text = encode(given_, lengths)
    huffman._BLOCK = block
    try:
        assert decode(text, len(symbols), lengths).tolist() == symbols
    finally:
        huffman._BLOCK = before


@pytest.mark.parametrize(
    ("text", "count", "lengths"),
    [
        (b"\xff", 3, [1, 2, 2]),  # ten bits are missing or too many
        (b"\x00\x00", 3, [1, 1]),  # a byte too many
        (b"\x01", 4, [1, 1]),  # the filling is not zeros
        (b"", 1, [1, 1]),
        (b"", 1, [0, 0]),
        (b"\x00", 1, [1]),  # a single word takes no bits
        (b"\x00", 1, [1, 2]),  # bits without a meaning
        (b"\x00", 1, [1, 1, 1]),
        (b"\x00", 1, [16] * 2),
    ],
)
def test_other_texts_are_refused(text, count, lengths):
    with pytest.raises(ValueError, match="word"):
        decode(text, count, np.array(lengths, np.uint8))


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
FEW = st.sampled_from((0.0, 0.0, 0.0, 0.0, -0.0, 0.5, -1.25, 1e-40))


@settings(max_examples=300)
@given(
    st.one_of(
        arrays(np.float32, array_shapes(min_dims=0, max_dims=3, min_side=0), elements=FINITE),
        arrays(np.float32, st.integers(0, 3000), elements=FEW, fill=st.just(0.0)),
    ),
    st.lists(st.integers(1, WIDEST), max_size=3).map(tuple),
)
def test_any_array_comes_back_bit_for_bit(array, widths):
    data, cost = encode_array(array, widths)
    assert cost.bytes == len(data) <= 1 + array.nbytes
    assert not cost.is_coded or not widths or cost.width in widths
    found, told = decode_array(memoryview(data + b"rest"), array.shape)
    assert found.tobytes() == array.tobytes()
    assert found.shape == array.shape
    assert told == cost
    # No part of it is another array.
    with pytest.raises(ValueError, match=r"array|word"):
        decode_array(memoryview(data)[:-1], array.shape)


def test_gaps_are_padded_where_they_are_wider_than_their_symbols():
    array = np.zeros(100, np.float32)
    array[[0, 20, 99]] = 2.0, 3.0, 2.0
    # 19 zeros are 6 paddings of 3 and 1; 78 are 26 and none: 35 entries of 3 numbers.
    data, cost = encode_array(array, (2,))
    assert (cost.kept, cost.values, cost.width, cost.entries) == (3, 2, 2, 35)
    assert cost.value_bits == 3
    assert decode_array(memoryview(data), (100,))[0].tolist() == array.tolist()


@pytest.mark.parametrize("zeros", [0, 1, 3, 4])
def test_decoding_takes_as_many_bytes_as_it_says(zeros):
    """Also where a number, a gap or padding takes no bits in the file."""
    array = np.zeros(1 << 21, np.float32)
    array[zeros :: zeros + 1] = 1.0
    data, cost = encode_array(array, (2,))
    assert cost.bytes < array.size / 8
    tracemalloc.start()
    try:
        found, _ = decode_array(memoryview(data), array.shape)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tobytes() == array.tobytes()
    assert most < WORKING_BYTES * array.size


def test_many_different_numbers_stay_as_they_are():
    array = np.arange(1, MOST_SYMBOLS + 2, dtype=np.float32)
    assert encode_array(array)[0][0] == PLAIN
    assert encode_array(np.tile(array[:-1], 9))[1].values == MOST_SYMBOLS


def test_the_widest_gaps_are_tried():
    """2,100 zeros are one symbol of 12 bits, and two of 11, whose table is hardly smaller."""
    array = np.zeros(2101 * 1500, np.float32)
    array[2100::2101] = 1.0
    data, cost = encode_array(array)
    assert (cost.width, cost.entries) == (WIDEST, 1500)
    assert decode_array(memoryview(data), array.shape)[0].tobytes() == array.tobytes()


HEADS = ("width", "values", "listed", "entries", "gap_bytes", "value_bytes")
HEAD = struct.Struct("<BHHIII")


def test_a_head_at_its_bounds_and_beyond():
    array = np.ones(10, np.float32)
    array[3] = 0.0
    data, cost = encode_array(np.tile(array, 20), (1,))
    head = dict(zip(HEADS, HEAD.unpack_from(data, 1), strict=True))
    # Every bound but that of the numbers of a code book is reached here or in the other tests.
    assert (head["width"], head["listed"], head["entries"]) == (1, 2, cost.entries)
    for key, value in (
        ("width", 0),
        ("width", WIDEST + 1),
        ("values", MOST_SYMBOLS + 1),
        ("listed", 3),
        ("entries", 201),
    ):
        wrong = data[:1] + HEAD.pack(*(head | {key: value}).values()) + data[1 + HEAD.size :]
        with pytest.raises(ValueError, match="head of an array is not possible"):
            decode_array(memoryview(wrong), (200,))
    full = encode_array(np.ones(200, np.float32), (1,))[0]
    assert HEAD.unpack_from(full, 1)[3] == 200
    assert decode_array(memoryview(full), (200,))[0].tolist() == [1.0] * 200
    with pytest.raises(ValueError, match="head of an array is not possible"):
        decode_array(memoryview(full), (199,))


def test_places_fill_an_array_to_its_last_number_and_no_further():
    gaps = np.array([1, 0, 3, 2])  # 3 is padding
    counts = np.bincount(gaps)
    assert arrays_module._places(gaps, counts, 3, 9).tolist() == [1, 2, 8]
    for size in (8, 7, 3):
        with pytest.raises(ValueError, match="more numbers than its shape"):
            arrays_module._places(gaps, counts, 3, size)
    ended = np.array([1, 3])
    with pytest.raises(ValueError, match="padding ends an array"):
        arrays_module._places(ended, np.bincount(ended), 3, 99)
    # A symbol that never occurs, and is no padding.
    assert arrays_module._places(gaps[:2], np.bincount(gaps[:2]), 3, 3).tolist() == [1, 2]


def test_what_an_array_costs():
    plain = encode_array(np.array([0.0, 1.5, -2.0], np.float32))[1]
    assert (plain.size, plain.kept, plain.bytes, plain.number_bits) == (3, 2, 13, 32)
    assert not plain.is_coded
    widths = [replace(plain, values=values).index_width for values in (0, 1, 2, 3, 4, 5, 256, 257)]
    assert widths == [0, 0, 1, 2, 2, 3, 8, 9]
