from __future__ import annotations

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets.idx import read_idx


def idx(array: np.ndarray, *, kind: int = 8, dims: tuple[int, ...] | None = None) -> bytes:
    shape = array.shape if dims is None else dims
    header = bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    return header + array.astype(np.uint8).tobytes()


PICTURES = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 251
GOOD = idx(PICTURES)


DAMAGED = {
    "empty": (b"", "is empty; download the file again"),
    "wrong magic": (b"\x01" + GOOD[1:], "begins with 01 00 08 03, not 00 00 08 03"),
    "signed bytes": (idx(PICTURES, kind=9), "begins with 00 00 09 03"),
    "labels in the place of pictures": (
        idx(np.arange(3)),
        "contains labels, not pictures: it begins with 00 00 08 01, .* swapped",
    ),
    "four dimensions": (b"\0\0\x08\x04" + GOOD[4:], "begins with 00 00 08 04"),
    "three bytes": (GOOD[:3], "begins with 00 00 08, not 00 00 08 03; download the file again"),
    "a web page": (b"<!DOCTYPE html>", "begins with 3c 21 44 4f, .* like a web page"),
    "cut in the header": (GOOD[:10], "ends inside its header"),
    "wrong width": (idx(PICTURES, dims=(3, 28, 27)), "items of 28x27, expected 28x28"),
    "wrong height": (idx(PICTURES, dims=(3, 29, 28)), "items of 29x28, expected 28x28"),
    "no items": (idx(PICTURES[:0]), "announces 0 items"),
    "absurd count": (idx(PICTURES, dims=(2**32 - 1, 28, 28)), "announces 4294967295 items"),
    "truncated": (GOOD[:-1], "is truncated: its header announces 2368 bytes, it has 2367"),
    "trailing byte": (GOOD + b"\0", "has more than the 2368 bytes"),
    "count one too high": (idx(PICTURES, dims=(4, 28, 28)), "is truncated"),
    "count one too low": (idx(PICTURES, dims=(2, 28, 28)), "has more than the 1584 bytes"),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("case", DAMAGED)
def test_refuses_a_damaged_file_and_names_it(tmp_path, case, pack):
    content, message = DAMAGED[case]
    path = tmp_path / "file"
    path.write_bytes(pack(content))
    with pytest.raises(DatasetError, match=message) as caught:
        read_idx(path, (28, 28))
    assert str(caught.value).startswith(f"{path}: ")


GZIPPED = gzip.compress(GOOD, mtime=0)
BROKEN_GZIP = {
    "cut": GZIPPED[:-20],
    "cut in the checksum": GZIPPED[:-3],
    "wrong checksum": GZIPPED[:-8] + b"\0\0\0\0" + GZIPPED[-4:],
    "wrong length": GZIPPED[:-4] + b"\1\0\0\0",
    "damaged inside": GZIPPED[:60] + b"\xff\xff\xff\xff" + GZIPPED[64:],
    "only the magic": GZIPPED[:2],
}


@pytest.mark.parametrize("case", BROKEN_GZIP)
def test_a_broken_gzip_file_is_one_clear_error(tmp_path, case):
    path = tmp_path / "file.gz"
    path.write_bytes(BROKEN_GZIP[case])
    with pytest.raises(DatasetError, match=r"damaged gzip file|truncated|more than the") as caught:
        read_idx(path, (28, 28))
    assert str(path) in str(caught.value)


def test_a_compressed_bomb_costs_no_memory(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(GOOD + bytes(200_000_000), 1))
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match="more than the 2368 bytes"):
            read_idx(path, (28, 28))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_header_that_lies_does_not_reserve_memory(tmp_path):
    path = tmp_path / "lie"
    path.write_bytes(idx(PICTURES, dims=(4_000_000, 28, 28)))
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match="truncated"):
            read_idx(path, (28, 28))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_an_unreadable_file_is_one_clear_error(tmp_path):
    with pytest.raises(DatasetError, match="cannot be read"):
        read_idx(tmp_path, (28, 28))
