"""Files of data sets: IDX, CIFAR and its archive, pictures, and the cache of decoded ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
import zipfile
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Downloads, Preparation, describe, load, picture_files, read_picture
from dnnstack.datasets.array_files import array_in
from dnnstack.datasets.cifar import Part
from dnnstack.datasets.cifar_files import CIFAR_100
from dnnstack.datasets.decoded import decoded, remembered
from dnnstack.datasets.idx import read_idx
from dnnstack.datasets.image_set import ImageSet
from dnnstack.datasets.integer_pixels import Reading
from dnnstack.datasets.label_file import relabelled
from dnnstack.datasets.picture_kinds import is_named_so, is_read, kind_of
from dnnstack.datasets.single_pictures import single_pictures
from hypothesis import strategies as st
from PIL import Image

from ..support.deep_pixels import png_16, tiff_16
from .drawing import WRONG, changed, encoded, wrong_json
from .harness import MEGABYTE, Target

# A picture may have 64 million pixels; here a 64th of that, and of the memory that it takes.
_MOST_PIXELS = 1_000_000


@cache
def _idx() -> list[bytes]:
    pictures = struct.pack(">4B3I", 0, 0, 8, 3, 3, 2, 2) + bytes(range(12))
    labels = struct.pack(">4BI", 0, 0, 8, 1, 3) + bytes(3)
    return [pictures, labels, gzip.compress(pictures, mtime=0), gzip.compress(labels, mtime=0)]


@st.composite
def _drawn_idx(draw: st.DrawFn) -> bytes:
    dimensions = draw(st.integers(0, 4))
    sizes = [draw(st.sampled_from((0, 1, 2, 3, 2**31, 2**32 - 1))) for _ in range(dimensions)]
    magic = bytes((0, 0, draw(st.sampled_from((8, 9, 0x0D))), dimensions))
    data = magic + struct.pack(f">{dimensions}I", *sizes) + draw(st.binary(max_size=30))
    return gzip.compress(data, 1, mtime=0) if draw(st.booleans()) else data


def _read_idx(data: bytes, folder: Path) -> None:
    path = folder / "x-idx"
    path.write_bytes(data)
    try:
        array, digest = read_idx(path, (2, 2))
    except DatasetError:
        array, digest = read_idx(path, ())
    assert array.dtype == np.uint8
    assert array.shape[1:] in ((2, 2), ())
    assert len(digest) == 64


@cache
def _tables() -> list[bytes]:
    text = 'a,"b",y\n1,"x, y",u\n-2.5,z,v\n3,z,u\n,NA,v\n4,z,v\n5,z,u\n'
    found = [text.encode(), text.replace(",", ";").encode("utf-16")]
    return [
        *found,
        gzip.compress(text.encode(), mtime=0),
        text.replace(",", "\t").encode("utf-8-sig"),
    ]


@st.composite
def _drawn_csv(draw: st.DrawFn) -> bytes:
    sign = draw(st.sampled_from((",", ";", "\t", "|")))
    cells = st.sampled_from(
        ("0", "1", "2", "-1e3", "1e99", "1,5", "yes", "", "NA", '"q"', "u", "é")
    )
    rows = draw(st.lists(st.lists(cells, min_size=2, max_size=3), max_size=12))
    lines = [sign.join(row) for row in (["a", "b", "y"], *rows)]
    return draw(st.sampled_from(("\n", "\r\n", "\r"))).join(lines).encode()


def _read_csv(data: bytes, folder: Path) -> None:
    (folder / "x.csv").write_bytes(data)
    options = {"train": "x.csv", "targets": ("y",), "missing": "mean", "unknown": "zeros"}
    info = describe("csv", options=options, root=folder)
    for split in ("train", "test"):
        images = load("csv", split, options=options, root=folder)
        assert images.images.shape == (len(images), *info.shape)
        # Gaps stay, until the means of a training part take their places.
        assert not np.isinf(images.images).any()
        assert images.identity.digest


@cache
def _corrections() -> list[bytes]:
    return [b"index,split,label\n1,test,v\n0,train,u\n", b"path,label\nb.png,v\n'=c,u\n"]


@st.composite
def _drawn_corrections(draw: st.DrawFn) -> bytes:
    head = draw(st.permutations(("index", "path", "label", "split")))[: draw(st.integers(1, 4))]
    cells = st.sampled_from(("0", "2", "3", "-1", "a.png", "=c", "'=c", "u", "v", "test", "", "é"))
    rows = draw(st.lists(st.lists(cells, min_size=len(head), max_size=len(head)), max_size=6))
    return "\n".join(map(",".join, (head, *rows))).encode()


def _read_corrections(data: bytes, folder: Path) -> None:
    (folder / "labels.csv").write_bytes(data)
    names, labels = ("a.png", "b.png", "=c"), np.zeros(3, np.int32)
    images = ImageSet("x/train", np.zeros((3, 1, 2, 2), np.uint8), labels, ("u", "v"), names=names)
    for split in ("train", "test"):
        found = relabelled(images, "labels.csv", split, folder)
        assert set(found.labels.tolist()) <= {0, 1}
        assert found.names == names


_NAMES = ("train.bin", "test.bin")
_RECORD = 3074


@cache
def _records() -> list[bytes]:
    return [bytes((1, 2)) + bytes(3072) + bytes((19, 99)) + bytes(range(256)) * 12]


@st.composite
def _drawn_records(draw: st.DrawFn) -> bytes:
    data = bytearray(_records()[0])
    for at in (0, 1, _RECORD, _RECORD + 1):
        data[at] = draw(st.sampled_from((0, 1, 19, 20, 99, 100, 255)))
    size = len(data) if draw(st.booleans()) else draw(st.integers(0, len(data) + 5))
    return bytes(data[:size].ljust(size, b"\0"))


def _read_cifar(data: bytes, folder: Path) -> None:
    parts = {"train": (Part(_NAMES[0], 2, "0" * 64),), "test": (Part(_NAMES[1], 2, "0" * 64),)}
    tiny = replace(CIFAR_100, parts=parts)
    (folder / tiny.folder).mkdir()
    for name in _NAMES:
        (folder / tiny.folder / name).write_bytes(data)
    found = tiny.load("train", folder, Downloads(offline=True))
    assert found.images.shape == (2, 3, 32, 32)
    assert found.labels.tolist() == [data[1], data[_RECORD + 1]]


def _tar(*members: tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return stream.getvalue()


@cache
def _archives() -> list[bytes]:
    sound = _tar(("set/a.txt", b"x" * 600), ("set/dog/1.png", b"12345"))
    return [sound, gzip.compress(sound, 1, mtime=0), _tar(("../cat/a.jpg", b"1"))]


def _read_archive(data: bytes, folder: Path) -> None:
    """As an archive of pictures, of which only the beginning is looked at."""
    (folder / "a.tar.gz").write_bytes(data)
    found = single_pictures(folder, ("cat", "dog"))
    if found is None:
        raise DatasetError("it has no pictures")
    assert is_named_so(found.sample)


@cache
def _pictures() -> list[bytes]:
    pixels = np.arange(20 * 30 * 3, dtype=np.uint32).reshape(20, 30, 3).astype(np.uint8)
    colour = Image.fromarray(pixels)
    grey, palette, wide = colour.convert("L"), colour.convert("P"), colour.convert("I;16")
    deep = np.arange(20 * 30 * 4, dtype=np.uint16).reshape(20, 30, 4)
    found = [png_16(deep[..., :3]), png_16(deep), png_16(deep[..., :2])]
    found += [tiff_16(deep[..., :3], form) for form in "<d"]
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
        stream = io.BytesIO()
        colour.save(stream, "HEIF", quality=10)
        found.append(stream.getvalue())
    for image, kind, options in (
        *((colour, kind, {}) for kind in ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")),
        *((grey, kind, {}) for kind in ("PNG", "JPEG", "TIFF", "BMP", "GIF", "PPM")),
        *((palette, kind, {}) for kind in ("PNG", "GIF", "BMP", "TIFF")),
        *((wide, kind, {}) for kind in ("PNG", "TIFF")),
        (grey.convert("1"), "TIFF", {"compression": "group4"}),
        (colour, "TIFF", {"compression": "tiff_lzw"}),
        (colour, "TIFF", {"compression": "jpeg"}),
        (colour, "JPEG", {"progressive": True}),
        (grey.convert("F"), "TIFF", {}),
        (colour.convert("LA"), "PNG", {}),
    ):
        stream = io.BytesIO()
        image.save(stream, kind, **options)
        found.append(stream.getvalue())
    return found


@st.composite
def _changed_pictures(draw: st.DrawFn) -> bytes:
    data = draw(changed(_pictures, 4))
    # Otherwise a PNG would end at the first checksum.
    return _with_checksums(data) if data[:4] == b"\x89PNG" and draw(st.booleans()) else data


def _with_checksums(data: bytes) -> bytes:
    out, at = bytearray(data[:8]), 8
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if at + 12 + size > len(data):
            break
        chunk = data[at + 4 : at + 8 + size]
        out += data[at : at + 4] + chunk + zlib.crc32(chunk).to_bytes(4, "big")
        at += 12 + size
    return bytes(out + data[at:])


def _read_picture(data: bytes, folder: Path) -> None:
    path = folder / "x.png"
    path.write_bytes(data)
    before = picture_files._MAX_PIXELS
    picture_files._MAX_PIXELS = _MOST_PIXELS
    try:
        found = read_picture(path, (3, 32, 32), Preparation(digits=False))
        assert found.image.shape == (3, 32, 32)
        assert found.image.dtype == np.uint8
        # Most of them show no digit.
        with suppress(DatasetError):
            assert read_picture(path, (1, 28, 28)).image.shape == (1, 28, 28)
        for bits in (8, 10, 12):
            with suppress(DatasetError):
                how = Preparation(digits=False, bits=bits)
                assert read_picture(path, (1, 5, 6), how).image.shape == (1, 5, 6)
        reading = Reading(None)
        picture_files.open_picture(path, [], reading)
        assert -1 <= reading.largest <= 65535
        # Under a name that says nothing, only what begins as a picture is one.
        path.rename(folder / "IMG_1")
        others: Counter[str] = Counter()
        assert is_read(kind_of(folder / "IMG_1"), "IMG_1", others) == (not others)
    finally:
        picture_files._MAX_PIXELS = before


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


_SPLIT = b"<labels>"


@cache
def _caches() -> list[bytes]:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
    return [
        _npy(images) + _SPLIT + _npy(np.array([1, 0], np.int32)),
        _npy(images) + _SPLIT + _npy(np.array([1.5, 0])),
        _npy(images.astype(np.float64)) + _SPLIT + _npy(np.array([[1, 0]], np.int32)),
        _npy(images[:1]) + _SPLIT + _npy(np.array([1, 0, 0, 1], np.int32)),
    ]


@st.composite
def _drawn_npy(draw: st.DrawFn) -> bytes:
    """Headers are Python, which NumPy parses."""
    kind = draw(st.sampled_from(("'|u1'", "'<i4'", "'|O'", "'<f8'", "[('a','<i4')]", "'V9'", "1")))
    shape = draw(
        st.sampled_from(("(2,3,2,2)", "(2,)", "()", "(-1,)", "(2**70,)", "2", "(9999999999,9999)"))
    )
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"
    text = draw(st.sampled_from((text, "(" * 5000, "-" * 9000, f"{text}#\n", text.upper())))
    header = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) % 65536) + header + bytes(24)


@st.composite
def _drawn_cache(draw: st.DrawFn) -> bytes:
    if draw(st.booleans()):
        return draw(changed(_caches))
    data = draw(_drawn_npy())
    sound, _, labels = _caches()[0].partition(_SPLIT)
    return data + _SPLIT + labels if draw(st.booleans()) else sound + _SPLIT + data


def _npz(x: bytes, y: bytes, packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        archive.writestr("x.npy", x)
        archive.writestr("y.npy", y)
    return stream.getvalue()


@cache
def _arrays() -> list[bytes]:
    x, y = np.arange(24, dtype=np.float32).reshape(2, 12), np.array([1, 0])
    kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    targets = (y, y / 2, y > 0, np.array(["cat", "dog"]))
    found = [_npz(_npy(x), _npy(each), kind) for each, kind in zip(targets, kinds, strict=True)]
    return [*found, _npy(x), _npy(np.asfortranarray(x))]


@st.composite
def _drawn_arrays(draw: st.DrawFn) -> bytes:
    data, sound = draw(_drawn_npy()), _npy(np.array([1, 0], np.uint8))
    return draw(st.sampled_from((data, _npz(data, sound), _npz(sound, data, zipfile.ZIP_STORED))))


def _read_arrays(data: bytes, folder: Path) -> None:
    (folder / "a.npz").write_bytes(data)
    with suppress(DatasetError):
        found = array_in(folder / "a.npz")
        assert found.dtype.kind in "biufU"
        assert found.nbytes <= len(data)
    images = load("npz", "train", root=folder, options={"train": "a.npz"})
    assert images.images.dtype in (np.uint8, np.float32)
    assert images.images.ndim == 4
    assert len(images.images) == len(images.labels)
    assert np.isfinite(images.images).all()


def _build() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((2, 3, 2, 2), np.uint8), np.zeros(2, np.int32)


def _read_decoded(data: bytes, folder: Path, entry: bytes | None = None) -> None:
    decoded("set", "key", _build)
    (place,) = (folder / "cache" / "decoded").glob("set-*")
    images, _, labels = data.partition(_SPLIT)
    (place / "images.npy").write_bytes(images)
    (place / "labels.npy").write_bytes(labels)
    hashes = {
        name: {"sha256": hashlib.sha256(content).hexdigest()}
        for name, content in (("images", images), ("labels", labels))
    }
    (place / "entry.json").write_bytes(json.dumps(hashes).encode() if entry is None else entry)
    found, classes = decoded("set", "key", _build)
    assert found.dtype == np.uint8
    assert found.ndim == 4
    assert classes.dtype == np.int32
    assert classes.shape == found.shape[:1]


def _read_entry(data: bytes, folder: Path) -> None:
    _read_decoded(_caches()[0], folder, data)


def _read_index(data: bytes, folder: Path) -> None:
    sound = {"sha256": "0" * 64}
    remembered(["stamp"], ("sha256",), lambda: sound)
    (file,) = (folder / "cache" / "decoded" / "index").iterdir()
    # Half of them as if they had been written so.
    seal = hashlib.sha256(data).hexdigest().encode() + b"\n" if len(data) % 2 else b""
    file.write_bytes(seal + data)
    found = remembered(["stamp"], ("sha256",), lambda: sound)
    assert isinstance(found["sha256"], str)


_ENTRY = {"images": {"sha256": "0" * 64}, "labels": {"sha256": "1" * 64}}
_INDEX = {"sha256": "0" * 64, "left_out": "{}"}

DATA_FILES = (
    Target("idx", _read_idx, _drawn_idx() | changed(_idx), _idx),
    Target("csv", _read_csv, _drawn_csv() | changed(_tables), _tables),
    Target(
        "corrections", _read_corrections, _drawn_corrections() | changed(_corrections), _corrections
    ),
    Target("cifar", _read_cifar, _drawn_records(), _records),
    Target("archive", _read_archive, changed(_archives), _archives),
    Target("picture", _read_picture, _changed_pictures(), _pictures, 64 * MEGABYTE),
    Target("npz", _read_arrays, _drawn_arrays() | changed(_arrays), _arrays),
    Target("decoded", _read_decoded, _drawn_cache(), _caches),
    Target(
        "decoded-entry",
        _read_entry,
        encoded(wrong_json(_ENTRY) | st.sampled_from(WRONG)),
        lambda: [json.dumps(_ENTRY).encode()],
    ),
    Target(
        "decoded-index",
        _read_index,
        encoded(wrong_json(_INDEX) | st.sampled_from(WRONG)),
        lambda: [json.dumps(_INDEX).encode()],
    ),
)
