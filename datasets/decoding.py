"""Pictures of any size, decoded to one size and cached.

They are read exactly as ``predict`` reads a picture, decoded once, and cached by the content of the
files, the size and the method of scaling. The version of Pillow is part of the key, because another
version may decode the same file to other pixels.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..common.errors import DatasetError
from ..common.files import sha256_bytes, sha256_file
from ..common.machine import available_threads, main_memory
from ..common.printable import printable
from ..common.records import dataclass
from .class_folders import PictureFile
from .decoded import Arrays, Labels, decoded, file_stamp, read_once
from .identity import CONTENT_DIGITS
from .image_set import unreadable
from .integer_pixels import Depth, Reading, of_other_depth, told_of
from .mapped import Images, new_pictures
from .picture_files import heic_version, open_picture
from .pictures import in_channels, scaled

_LOG = logging.getLogger("dnnstack.datasets")

# To be increased whenever the same file would give other pixels.
_VERSION = 2
# More threads wait for each other at the interpreter; each may hold a picture of the largest size
# that is read, in two forms.
_MOST_THREADS, _THREAD_BYTES = 32, 1 << 29
# Pictures that a thread decodes in a row.
_CHUNK = 16
_NAMED = 10


@dataclass(frozen=True)
class Decoding:
    """To which shape (C, H, W), and how: see the schema of configs; whole: the fit is ``resize``.

    bits: the depth of integer pixels; by default, that of the pictures to train on.
    """

    shape: tuple[int, int, int]
    whole: bool
    skip: bool
    draft: bool | None
    bits: Depth | None


class Decoded(NamedTuple):
    """The pictures that could be read, ``used``, their labels and contents, and their depth."""

    images: Images
    labels: Labels
    used: list[PictureFile]
    contents: tuple[str, ...]
    bits: Depth | None


def decoded_pictures(
    name: str,
    folder: Path,
    pictures: Sequence[PictureFile],
    how: Decoding,
    trained: Callable[[], Depth | None] | None = None,
    classes: Sequence[str] = (),
    places: Sequence[str] = (),
) -> Decoded:
    """Decode the pictures, or find them in the cache, where ``name`` is readable.

    trained: the depth of those to train on, None for these themselves; classes: the folders of the
    labels, each of which needs a picture; places: of each picture, what its errors begin with.
    Raises DatasetError for a file that cannot be read, unless it is to be skipped: then a warning
    names it, and it is left out.
    """
    import PIL

    refused: set[str] = set()

    def look() -> tuple[dict[str, str], Arrays]:
        images = new_pictures(len(pictures), how.shape, str(folder))
        least = how.shape[1:] if how.draft else None
        readings = [Reading(how.bits, least=least) for _ in pictures]
        decode = partial(_decode_files, folder, pictures, images, how, readings, places)
        read = decode(range(len(pictures)))
        read |= decode(of_other_depth(readings))
        kept = [at for at, digest in read.items() if isinstance(digest, str)]
        labels = np.array([pictures[at].label for at in kept], np.int32)
        for label, own in enumerate(classes):
            if label not in labels and any(label == each.label for each in pictures):
                raise DatasetError(f"{folder / own}: none of its pictures can be read")
        if pictures and not kept:
            raise DatasetError(f"{folder}: none of the pictures can be read")
        failed = {
            pictures[at].name: str(error)
            for at, error in read.items()
            if isinstance(error, DatasetError)
        }
        refused.update(failed)
        named = {p.name: each for p, each in zip(pictures, readings, strict=True)}
        said = {
            "contents": [str(read[at])[:CONTENT_DIGITS] for at in kept],
            "left_out": failed,
            "depth": told_of(named, how.bits),
            "heic": any(each.heic for each in readings),
        }
        for place, at in enumerate(kept):
            if place != at:
                images[place] = images[at]
        return {"said": json.dumps(said)}, (images[: len(kept)], labels)

    def recalled(*more: object) -> tuple[dict[str, Any], Callable[[], Arrays]]:
        # Not the labels: those are of the folders as they are called now.
        own = ([p.name, *p.stamp] for p in pictures)
        stamps = [_VERSION, str(folder.resolve()), how.skip, how.bits, *own, *more]
        found, build = read_once(stamps, ("said",), look)
        return json.loads(found["said"]), build

    said, build = recalled()
    asked = said["left_out"].keys() - refused
    if better := [each for each in sorted(asked) if _readable(folder / each)]:
        # Permissions, the disk or Pillow have changed, which the stamps do not show.
        said, build = recalled(better)
    left_out, (bits, told) = said["left_out"], said["depth"]
    if bits is not None and how.bits is None and trained is not None:
        # As the pictures that are trained on.
        how = replace(how, bits=trained() or 16)
        return decoded_pictures(name, folder, pictures, how, None, classes, places)
    for text in told:
        _LOG.warning("%s: %s", folder, text)
    _tell_left_out(folder, left_out)
    used = [picture for picture in pictures if picture.name not in left_out]
    contents = tuple(said["contents"])
    content = sha256_bytes(f"{[p.label for p in used]} {''.join(contents)}".encode())
    key = f"{_VERSION} {PIL.__version__} {how.shape} {how.whole} {content}"
    key += f" {bits} bits" if told and bits != 16 else ""
    key += f" heic {heic_version()}" if said["heic"] else ""
    key += " draft" if how.draft else ""
    images, labels = decoded(name, key, build)
    return Decoded(images, labels, used, contents, bits)


def _decode_files(
    folder: Path,
    pictures: Sequence[PictureFile],
    images: Images,
    how: Decoding,
    readings: Sequence[Reading],
    places: Sequence[str],
    wanted: Sequence[int],
) -> dict[int, str | DatasetError]:
    """Fill ``images[wanted]``; return the SHA-256 of each file, or the error if it is left out."""
    channels, height, width = images.shape[1:]

    def decode(at: int) -> str | DatasetError:
        path = folder / pictures[at].name
        try:
            image = in_channels(open_picture(path, [], readings[at]), channels, [])
            images[at] = scaled(image, height, width, how.whole, [])
            content = sha256_file(path)
            # Otherwise it may be of another file than the pixels. A number of a file is not as
            # steady everywhere as its times.
            if file_stamp(path.stat())[:3] != pictures[at].stamp[:3]:
                return DatasetError(f"{path}: was changed while it was read; start again")
            return content
        except DatasetError as error:
            return error
        except OSError as error:
            return unreadable(path, error)

    def several(some: Sequence[int]) -> dict[int, str | DatasetError]:
        return {at: decode(at) for at in some}

    chunks = (wanted[at : at + _CHUNK] for at in range(0, len(wanted), _CHUNK))
    hashes: dict[int, str | DatasetError] = {}
    threads = decoding_threads()
    with ThreadPoolExecutor(threads, "dnnstack-decode") as pool:
        # So many that no thread waits while the answers of another are looked at.
        ahead = deque(pool.submit(several, each) for each in islice(chunks, 2 * threads))
        while ahead:
            found = ahead.popleft().result()
            for at, answer in found.items():
                if isinstance(answer, DatasetError) and not how.skip:
                    pool.shutdown(wait=False, cancel_futures=True)
                    where = places[at] if places else ""
                    raise DatasetError(
                        f"{where}{answer}. Remove the file, or skip all such files with on_error: "
                        "skip beside 'train' in the config"
                    )
            hashes |= found
            ahead.extend(pool.submit(several, each) for each in islice(chunks, 1))
    return hashes


def decoding_threads() -> int:
    """How many threads decode: one for each core, as far as memory allows for huge pictures."""
    room = main_memory() // (4 * _THREAD_BYTES)
    return max(1, min(available_threads(), _MOST_THREADS, room))


def _readable(path: Path) -> bool:
    with suppress(DatasetError, OSError):
        open_picture(path, [])
        return True
    return False


def _tell_left_out(folder: Path, reasons: dict[str, str]) -> None:
    for name, reason in list(reasons.items())[:_NAMED]:
        why = reason.removeprefix(f"{printable(folder / name)}: ")
        _LOG.warning("%s is left out: %s", folder / name, why)
    if len(reasons) > _NAMED:
        _LOG.warning("%s: %d more files are left out", folder, len(reasons) - _NAMED)
