"""What files are: by their first bytes, whatever their names; pictures of telephones."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections import Counter

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import find_pictures
from dnnstack.datasets.integer_pixels import Reading
from dnnstack.datasets.picture_files import FORMATS, heic_version, open_picture
from dnnstack.datasets.picture_kinds import (
    AVIF,
    HEAD,
    HEIC,
    PICTURE,
    RAW,
    SUFFIXES,
    is_passed_over,
    is_read,
    kind_of,
    of_head,
    passed_over_text,
)
from PIL import Image

pillow_heif = pytest.importorskip("pillow_heif")


def saved(form: str, mode: str = "RGB", **options: object) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (32, 48, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(stream, form, **options)
    return stream.getvalue()


def heic(**options: object) -> bytes:
    assert heic_version() == pillow_heif.__version__
    return saved("HEIF", **options)


def box(brands: bytes) -> bytes:
    return b"\0\0\0\x20ftyp" + brands


@pytest.fixture
def without_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr("dnnstack.datasets.picture_kinds.find_spec", lambda name: None)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("mode", ["RGB", "L", "1"])
def test_every_format_is_known_by_its_first_bytes(form, mode):
    mode = "RGB" if (form, mode) in (("JPEG", "1"), ("WEBP", "1")) else mode
    assert of_head(saved(form, mode)[:HEAD]) == PICTURE


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (box(b"heic\0\0\0\0mif1heic"), HEIC),
        (box(b"heix"), HEIC),
        (box(b"hevc"), HEIC),
        (box(b"mif1\0\0\0\0mif1heic"), HEIC),
        (box(b"avif\0\0\0\0avifmif1"), AVIF),
        (box(b"mif1\0\0\0\0mif1avif"), AVIF),
        (box(b"avis"), AVIF),
        (box(b"qt  "), ""),
        (box(b"isom"), ""),
        (b"MM\0+\0\x08\0\0", PICTURE),
        (b"II*\0\x08\0\0\0", PICTURE),
        (b"II*\1", ""),
        (b"GIF87a", PICTURE),
        (b"GIF88a", ""),
        (b"RIFF\n\0\0\0WEBPVP8 ", PICTURE),
        (b"RIFF\0\0\0\0WAVEfmt ", ""),
        (b"P5\n# made by hand\n2 2", PICTURE),
        (b"P6 2 3 255 ", PICTURE),
        (b"P7\nWIDTH 2\n", ""),
        (b"P1 is the first page", ""),
        (b"P1 2 people, and more of them", ""),
        (b"BMW 3 Series, and what it costs", ""),
        (b"BM" + bytes(12) + b"\x28\0\0\0" + bytes(12), PICTURE),
        (b"BM" + bytes(12) + b"\x29\0\0\0" + bytes(12), ""),
        (b"\xff\xd8\xff\xe1", PICTURE),
        (b"\xff\xd8\xfe", ""),
        (b"\x89PNG\r\n\x1a\n", PICTURE),
        (b"\x89PNG\n\x1a\n", ""),
        (b"%PDF-1.4", ""),
        (b"", ""),
    ],
)
def test_what_begins_so_is(head, kind, tmp_path):
    assert of_head(head) == kind
    for name in ("IMG_1", "IMG_1.jfif", "IMG_1.HEIC"):
        (tmp_path / name).write_bytes(head + bytes(100))
        assert kind_of(tmp_path / name) == of_head((head + bytes(100))[:HEAD])


def test_names_of_pictures_and_of_raw_files_need_no_look(tmp_path):
    for suffix in SUFFIXES:
        assert kind_of(tmp_path / f"none{suffix.upper()}") == PICTURE
    for name in ("a.CR2", "b.nef", "c.dng", "d.arw"):
        (tmp_path / name).write_bytes(b"II*\0\x10\0\0\0CR\2\0")
        assert kind_of(tmp_path / name) == RAW
    assert kind_of(tmp_path / "none") == ""


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "shut").write_bytes(saved("PNG"))
    (tmp_path / "link").symlink_to(tmp_path / "shut")
    found = []
    names = ("pipe", "endless", "dangling", "loop", ".", "link")
    looking = threading.Thread(
        target=lambda: found.extend(kind_of(tmp_path / name) for name in names), daemon=True
    )
    looking.start()
    looking.join(60)
    assert found == ["", "", "", "", "", PICTURE]


def test_a_heic_picture_is_read_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("IMG_1.HEIC", "IMG_1.jpg", "IMG_1"):
        (tmp_path / name).write_bytes(heic(exif=exif.tobytes()))
        reading = Reading()
        found = open_picture(tmp_path / name, [], reading)
        assert (found.mode, found.size, reading.heic) == ("RGB", (32, 48), True)
    (tmp_path / "a.png").write_bytes(saved("PNG"))
    reading = Reading()
    assert open_picture(tmp_path / "a.png", [], reading).size == (48, 32)
    assert not reading.heic
    (tmp_path / "a.heic").write_bytes(heic()[:300])
    with pytest.raises(DatasetError, match=r"a\.heic: .*(damaged|not a picture)"):
        open_picture(tmp_path / "a.heic", [])


@pytest.mark.usefixtures("without_extra")
def test_a_heic_picture_without_its_reader_is_named_with_the_remedy(tmp_path):
    (tmp_path / "IMG_1.jpg").write_bytes(box(b"heic"))
    with pytest.raises(
        DatasetError, match=r"IMG_1\.jpg: is one of the HEIC pictures \(python3 -m pip inst"
    ):
        open_picture(tmp_path / "IMG_1.jpg", [])
    others: Counter[str] = Counter()
    assert not is_read(HEIC, "IMG_1.heic", others)
    assert others == {HEIC: 1}


def test_what_is_read_and_what_is_counted():
    others: Counter[str] = Counter()
    assert is_read(PICTURE, "x.jfif", others)
    assert is_read(HEIC, "x.heic", others)
    assert others == {}
    for kind, name in ((AVIF, "x.avif"), (RAW, "x.nef"), ("", "x.TXT"), ("", "y.txt"), ("", "z")):
        assert not is_read(kind, name, others)
    assert others == {AVIF: 1, RAW: 1, "other files (.txt)": 2, "other files (no suffix)": 1}
    told = passed_over_text(others)
    assert told.startswith(f"passed over: {AVIF}: 1, other files (.txt): 2")
    assert "convert them" in told
    assert passed_over_text(Counter()) == ""


def test_folders_that_systems_make_are_counted_and_hidden_ones_are_not():
    others: Counter[str] = Counter()
    for name in ("@eaDir", "__MACOSX", "@eaDir", "#recycle", ".git", ".DS_Store"):
        assert is_passed_over(name, others)
    for name in ("rose", "eaDir", "MACOSX", "_x", "@home"):
        assert not is_passed_over(name, others)
    assert others == {"folders @eaDir": 2, "folders __MACOSX": 1, "folders #recycle": 1}


def test_a_folder_to_predict_is_its_pictures_whatever_their_names(tmp_path, caplog):
    for name, content in {
        "a.jfif": saved("JPEG"),
        "b": saved("PNG"),
        "c.HEIC": heic(),
        "d.png": b"torn",
        "notes.txt": b"P5 is a format",
        ".hidden": saved("PNG"),
        "@eaDir/a.jfif/SYNOPHOTO_THUMB_M.jpg": saved("JPEG"),
        "deep/__MACOSX/a.png": saved("PNG"),
        "deep/e.bin": saved("BMP"),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    found = [str(path) for path in find_pictures([tmp_path])]
    assert found == [f"{tmp_path}/{name}" for name in ("a.jfif", "b", "c.HEIC", "d.png",
                                                       "deep/e.bin")]  # fmt: skip
    told = "passed over: folders @eaDir: 1, folders __MACOSX: 1, other files (.txt): 1"
    assert caplog.messages == [f"{tmp_path}: {told}"]
    caplog.clear()
    assert list(find_pictures([tmp_path / "deep"])) == [tmp_path / "deep" / "e.bin"]
    assert caplog.messages == [f"{tmp_path / 'deep'}: passed over: folders __MACOSX: 1"]
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "x.txt").write_text("")
    (error,) = find_pictures([tmp_path / "none"])
    assert str(error).endswith("WEBP, PPM, HEIC; passed over: other files (.txt): 1")
