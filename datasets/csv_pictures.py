"""The pictures that a column of a table names: read as those of ``image_folder`` are."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ..common.errors import DatasetError
from ..common.files import sha256_bytes
from .class_folders import PictureFile
from .decoded import Arrays, decoded, file_stamp, read_once
from .identity import CONTENT_DIGITS
from .image_folder import VERSION, decode_files
from .image_set import ImageSet
from .integer_pixels import Depth, Reading, of_other_depth, told_of
from .mapped import new_pictures
from .picture_files import heic_version


def with_pictures(
    rows: ImageSet, table: Path, shape: tuple[int, int, int], whole: bool, bits: Depth | None
) -> ImageSet:
    """``rows``, whose sources are the pictures' paths, with the pictures as images.

    table: the file of the rows; whole, bits: see ``ImageFolder``. Raises DatasetError that names
    the line of a picture that cannot be read.
    """
    import PIL

    pictures = []
    for name, source in zip(rows.names, rows.sources, strict=True):
        try:
            pictures.append(PictureFile(source, 0, file_stamp(os.stat(source))))
        except (OSError, ValueError):
            raise DatasetError(
                f"{table}: {name}: there is no picture '{source}'; a relative path counts from the "
                "folder of the table"
            ) from None

    def look() -> tuple[dict[str, str], Arrays]:
        images = new_pictures(len(pictures), shape, str(table))
        readings = [Reading(bits) for _ in pictures]
        decode = partial(decode_files, Path(), pictures, images, whole, True, readings)
        read = decode(range(len(pictures)))
        read |= decode(of_other_depth(readings))
        for at, found in sorted(read.items()):
            if isinstance(found, DatasetError):
                raise DatasetError(f"{table}: {rows.names[at]}: {found}")
        named = {p.name: each for p, each in zip(pictures, readings, strict=True)}
        said = {
            "contents": [str(read[at])[:CONTENT_DIGITS] for at in range(len(pictures))],
            "depth": told_of(named, bits),
            "heic": any(each.heic for each in readings),
        }
        return {"said": json.dumps(said)}, (images, np.zeros(len(images), np.int32))

    stamps = ["csv", VERSION, shape, whole, bits, *([p.name, *p.stamp] for p in pictures)]
    found, build = read_once(stamps, ("said",), look)
    said = json.loads(found["said"])
    depth, told = said["depth"]
    key = f"{VERSION} {PIL.__version__} {shape} {whole} {said['contents']}"
    key += f" {depth} bits" if told and depth != 16 else ""
    key += f" heic {heic_version()}" if said["heic"] else ""
    images, _ = decoded(rows.name.replace("/", "-"), key, build)
    contents = said["contents"]
    if rows.kind != "class":
        # Their targets belong to it, too.
        both = zip(contents, rows.contents, strict=True)
        contents = [sha256_bytes("".join(each).encode())[:CONTENT_DIGITS] for each in both]
    return replace(rows, images=images, contents=tuple(contents), bits=depth)
