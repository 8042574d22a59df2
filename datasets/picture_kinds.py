"""What the files of a folder are: pictures that are read, or why they are passed over.

Their first bytes decide. What has the suffix of a picture is one without a look, so that a damaged
one is an error.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from ..common.files import open_regular
from ..common.text import listed

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
)
PICTURE, AVIF = "pictures", "AVIF pictures (not read: convert them)"
HEIC = "HEIC pictures (python3 -m pip install 'dnnstack[heic]' reads them)"
RAW = "raw files of cameras (not read: convert them)"
NO_PICTURE = "no picture in this folder; looked for PNG, JPEG, GIF, BMP, TIFF, WEBP, PPM, HEIC"
HEAD, _LISTED = 32, 8
_SIGNATURES = re.compile(
    rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|II[*+]\0|MM\0[*+]|RIFF.{4}WEBP"
    # Texts may begin with the same letters as BMP and PPM, but not go on as their headers do.
    rb"|BM.{4}\0{4}.{4}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0|P[1-6]\s+(#|\d+\s+\d+\s)",
    re.DOTALL,
)
_BOX = re.compile(rb".{4}ftyp(hei[cxms]|hev[cxms]|mif1|msf1|avi[fs])", re.DOTALL)
# They begin as TIFF does, and hold a thumbnail.
_RAW = re.compile(r".*\.(3fr|arw|cr2|dcr|dng|erf|kdc|mef|nef|nrw|orf|pef|rw2|sr2|srw)", re.I)
# Folders of thumbnails, of an archive's attributes, of what was deleted.
_OF_SYSTEMS = ("@eadir", "@__thumb", "__macosx", "#recycle", "@recycle", "$recycle.bin")


def is_named_so(name: str) -> bool:
    """Whether the name of a file is that of a picture."""
    return name.lower().endswith(SUFFIXES)


def of_head(head: bytes) -> str:
    """PICTURE, HEIC, AVIF or "", by the first bytes of a file."""
    if not _BOX.match(head):
        return PICTURE if _SIGNATURES.match(head) else ""
    # Whichever of its brands comes first.
    return AVIF if b"avif" in head or b"avis" in head else HEIC


def kind_of(path: Path) -> str:
    """PICTURE, HEIC, AVIF, RAW or ""; only a regular file is opened."""
    if is_named_so(path.name):
        return PICTURE
    if _RAW.fullmatch(path.name):
        return RAW
    try:
        with os.fdopen(open_regular(path.resolve()), "rb") as file:
            return of_head(file.read(HEAD))
    except (OSError, RuntimeError):
        return ""


def is_read(kind: str, name: str, others: Counter[str]) -> bool:
    """Whether a file of this kind is a picture that can be read; else it is counted."""
    if kind == PICTURE or (kind == HEIC and find_spec("pillow_heif") is not None):
        return True
    others[kind or f"other files ({Path(name).suffix.lower() or 'no suffix'})"] += 1
    return False


def is_passed_over(name: str, others: Counter[str]) -> bool:
    """Whether this is hidden, or a folder that systems make, which is counted."""
    if name.lower() in _OF_SYSTEMS:
        others[f"folders {name}"] += 1
        return True
    return name.startswith(".")


def passed_over_text(others: Counter[str]) -> str:
    """What was counted, as a list; "" if nothing was."""
    told = listed([f"{what}: {count}" for what, count in sorted(others.items())], _LISTED)
    return f"passed over: {told}" if told else ""
