"""The pictures that a column of a table names: read as those of ``image_folder`` are."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..common.errors import DatasetError
from ..common.files import sha256_bytes
from .class_folders import PictureFile
from .decoded import file_stamp
from .decoding import Decoding, decoded_pictures
from .identity import CONTENT_DIGITS
from .image_set import ImageSet
from .integer_pixels import Depth

_LOG = logging.getLogger("dnnstack.datasets")


def with_pictures(
    rows: ImageSet, table: Path, how: Decoding, trained: Callable[[], Depth | None] | None
) -> ImageSet:
    """``rows``, whose sources are the pictures' paths, with the pictures as images.

    table: the file of the rows; how, trained: see ``decoded_pictures``. Raises DatasetError that
    names the line of a picture that cannot be read.
    """
    pictures = []
    for line, source in zip(rows.names, rows.sources, strict=True):
        try:
            pictures.append(PictureFile(source, 0, file_stamp(os.stat(source))))
        except (OSError, ValueError):
            text = f"{table}: {line}: there is no picture '{source}'"
            if not how.skip:
                raise DatasetError(
                    f"{text}; a relative path counts from the folder of the table"
                ) from None
            _LOG.warning("%s: it is left out", text)
    there = {picture.name for picture in pictures}
    places = [
        f"{table}: {n}: " for n, s in zip(rows.names, rows.sources, strict=True) if s in there
    ]
    name, folder = rows.name.replace("/", "-"), table.absolute().parent
    found = decoded_pictures(name, folder, pictures, how, trained, (), places)
    used = {picture.name for picture in found.used}
    index = np.array([at for at, s in enumerate(rows.sources) if s in used], np.int32)
    rows = rows.taken(index, rows.labels[index], rows.classes)
    contents = found.contents
    if rows.kind != "class":
        # Their targets belong to it, too.
        both = zip(contents, rows.contents, strict=True)
        contents = tuple(sha256_bytes("".join(each).encode())[:CONTENT_DIGITS] for each in both)
    return replace(rows, images=found.images, contents=contents, bits=found.bits)
