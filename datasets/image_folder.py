"""``image_folder``: pictures of any size, in a folder for each class, scaled to one size.

They are read exactly as ``predict`` reads a picture, decoded once, and cached by the content of the
files, the size and the method of scaling. The version of Pillow is part of the key, because another
version may decode the same file to other pixels. So are the pictures that a table names.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..common.errors import DatasetError
from ..common.files import sha256_bytes, sha256_file
from ..common.machine import available_threads, main_memory
from ..common.printable import printable
from ..common.records import dataclass
from .class_folders import PictureFile, find_classes, held_out, list_pictures
from .decoded import Arrays, Labels, decoded, file_stamp, read_once
from .download import Downloads
from .identity import CONTENT_DIGITS
from .image_set import Dataset, DatasetInfo, ImageSet, Split, own_file, unreadable
from .integer_pixels import Depth, Reading, of_other_depth, told_of
from .mapped import Images, new_pictures
from .picture_files import heic_version, open_picture
from .picture_kinds import passed_over_text
from .pictures import in_channels, scaled
from .repeated import doubts

_LOG = logging.getLogger("dnnstack.datasets")

# To be increased whenever the same file would give other pixels.
_VERSION = 2
# More threads wait for each other at the interpreter; each may hold a picture of the largest size
# that is read, in two forms.
_MOST_THREADS, _THREAD_BYTES = 32, 1 << 29
# Pictures that a thread decodes in a row.
_CHUNK = 16
_NAMED = 10


class Decoded(NamedTuple):
    """The pictures that could be read, ``used``, their labels and contents, and their depth."""

    images: Images
    labels: Labels
    used: list[PictureFile]
    contents: tuple[str, ...]
    bits: Depth | None


@dataclass(frozen=True)
class OwnPictures(Dataset):
    """Options of a data set of own pictures, which the schema of configs describes.

    bits: the depth of integer pixels; by default, that of the pictures in ``train``.
    """

    train: str = ""
    validation: str | None = None
    test: str | None = None
    test_fraction: float = 0.2
    size: int | tuple[int, int] = 0
    fit: Literal["crop", "resize"] = "crop"
    mode: Literal["rgb", "grey"] = "rgb"
    on_error: Literal["stop", "skip"] = "stop"
    draft: bool | None = None
    bits: Depth | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of all pictures."""
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        return 3 if self.mode == "rgb" else 1, height, width

    def source(self, split: Split) -> Split:
        """The split whose files it is in: test pictures may be held out of those to train on."""
        return "train" if split == "test" and self.test is None else split

    def decoded(
        self,
        name: str,
        folder: Path,
        pictures: Sequence[PictureFile],
        trained: Callable[[], ImageSet],
        classes: Sequence[str] = (),
        places: Sequence[str] = (),
    ) -> Decoded:
        """Decode the pictures, or find them in the cache, where the name is that of the split.

        trained: those to train on; classes: the folders of the labels, each of which needs a
        picture; places: what errors of each picture begin with. Raises DatasetError for a file that
        cannot be read, unless it is to be skipped: then a warning names it, and it is left out.
        """
        import PIL

        refused: set[str] = set()

        def look() -> tuple[dict[str, str], Arrays]:
            images = new_pictures(len(pictures), self.shape, str(folder))
            least = self.shape[1:] if self.draft else None
            readings = [Reading(self.bits, least=least) for _ in pictures]
            decode = partial(_decode_files, folder, pictures, images, self, readings, places)
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
                "depth": told_of(named, self.bits),
                "heic": any(each.heic for each in readings),
            }
            for place, at in enumerate(kept):
                if place != at:
                    images[place] = images[at]
            return {"said": json.dumps(said)}, (images[: len(kept)], labels)

        def recalled(*more: object) -> tuple[dict[str, Any], Callable[[], Arrays]]:
            # Not the labels: those are of the folders as they are called now.
            own = ([p.name, *p.stamp] for p in pictures)
            stamps = [_VERSION, str(folder.resolve()), self.on_error, self.bits, *own, *more]
            found, build = read_once(stamps, ("said",), look)
            return json.loads(found["said"]), build

        said, build = recalled()
        asked = said["left_out"].keys() - refused
        if better := [each for each in sorted(asked) if _readable(folder / each)]:
            # Permissions, the disk or Pillow have changed, which the stamps do not show.
            said, build = recalled(better)
        left_out, (bits, told) = said["left_out"], said["depth"]
        if bits is not None and self.bits is None and not name.endswith("train"):
            # As the pictures that are trained on.
            how = replace(self, bits=trained().bits or 16)
            return how.decoded(name, folder, pictures, trained, classes, places)
        for text in told:
            _LOG.warning("%s: %s", folder, text)
        _tell_left_out(folder, left_out)
        used = [picture for picture in pictures if picture.name not in left_out]
        contents = tuple(said["contents"])
        content = sha256_bytes(f"{[p.label for p in used]} {''.join(contents)}".encode())
        key = f"{_VERSION} {PIL.__version__} {self.shape} {self.fit == 'resize'} {content}"
        key += f" {bits} bits" if told and bits != 16 else ""
        key += f" heic {heic_version()}" if said["heic"] else ""
        key += " draft" if self.draft else ""
        images, labels = decoded(name, key, build)
        return Decoded(images, labels, used, contents, bits)


@dataclass(frozen=True)
class ImageFolder(OwnPictures):
    """A config must give ``size`` and ``train``."""

    about = "the pictures are in the folders that the config names"
    classes: int | Sequence[str] | None = None

    def describe(self, root: Path) -> DatasetInfo:
        """Shape and classes; reads no picture, and no folder if ``classes`` are given.

        Raises DatasetError if the folder is wrong, or if no size is given.
        """
        if not self.size:
            raise DatasetError(
                "dataset 'image_folder', option 'size': expects a number of pixels from 1 to 4096, "
                "or (height, width)"
            )
        left_out: tuple[str, ...] = ()
        if self.classes is None:
            folder = self._folder("train", root)
            classes, empty = find_classes(folder)
            left_out = tuple(str(folder / name) for name in empty)
        elif isinstance(self.classes, int):
            classes = tuple(map(str, range(self.classes)))
        else:
            classes = tuple(self.classes)
        return DatasetInfo("image_folder", self.shape, classes, None, None, left_out=left_out)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The split's pictures, class by class, each class in the order of the files' names.

        Without the option ``test``, the test pictures are held out of those in ``train``. Raises
        DatasetError for an unsuitable folder, and for a file that cannot be read, unless
        ``on_error`` is ``skip``: then a warning names the file, and it is left out.
        """
        info = self.describe(root)
        # A test needs no pictures to train on.
        needed = split == "train" or self.test is None or isinstance(self.classes, int)
        folder = self._folder("train", root) if needed else root / Path(self.train).expanduser()
        classes = self._names(folder, info)
        others: Counter[str] = Counter()
        parts: dict[Split, tuple[Path, list[PictureFile]]] = {}
        source = self.source(split)
        for part in get_args(Split):
            # Problems of all pictures are reported before the training, not after it.
            if getattr(self, part) is None or (part != source and split != "train"):
                continue
            above = folder if part == "train" else self._folder(part, root)
            passed = others if part == source else Counter[str]()
            by_class = list_pictures(above, classes, passed, every=part == "train")
            parts[part] = above, [*chain(*by_class)]
            if part == "train" and self.test is None:
                both = held_out(by_class, self.test_fraction)
                parts["train"], parts["test"] = ((above, each) for each in both)
        folder, pictures = parts[split]
        if text := passed_over_text(others):
            _LOG.warning("%s: %s", folder, text)
        name = f"image_folder-{split}"
        trained = partial(self.load, "train", root, downloads)
        found = self.decoded(name, folder, pictures, trained, classes)
        parts[split] = folder, found.used
        doubtful = doubts(classes, parts, found.contents) if split == "train" else ()
        place = folder.absolute()
        return ImageSet(
            f"image_folder/{split}",
            found.images,
            found.labels,
            classes,
            tuple(f"{place}/{p.name}" for p in found.used),
            names=tuple(p.name for p in found.used),
            contents=found.contents,
            doubts=doubtful,
            bits=found.bits,
        )

    def _folder(self, key: Split, root: Path) -> Path:
        return own_file(f"image_folder.{key}", str(getattr(self, key)), root, "folder")

    def _names(self, folder: Path, info: DatasetInfo) -> tuple[str, ...]:
        """The names of the classes in the order of their labels, read if only a number is given."""
        if not isinstance(self.classes, int):
            return info.classes
        found, _ = find_classes(folder)
        if len(found) != len(info.classes):
            raise DatasetError(
                f"{folder}: contains {len(found)} class folders, but the config says classes: "
                f"{len(info.classes)}"
            )
        return found


def _decode_files(
    folder: Path,
    pictures: Sequence[PictureFile],
    images: Images,
    how: OwnPictures,
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
            images[at] = scaled(image, height, width, how.fit == "resize", [])
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
                if isinstance(answer, DatasetError) and how.on_error == "stop":
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
