"""``image_folder``: pictures of any size, in a folder for each class, scaled to one size.

They are read exactly as ``predict`` reads a picture, decoded once, and cached by the content of the
files, the size and the method of scaling. The version of Pillow is part of the key, because another
version may decode the same file to other pixels.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..common.errors import DatasetError
from ..common.files import sha256_bytes, sha256_file
from .class_folders import PictureFile, class_names, held_out, list_pictures
from .decoded import Arrays, Images, decoded, remembered_for
from .download import Downloads
from .image_set import (
    DatasetInfo,
    ImageSet,
    Options,
    Source,
    Split,
    check_options,
    choice_option,
)
from .picture_files import open_picture
from .pictures import scaled

_LOG = logging.getLogger("dnnstack.datasets")

# To be increased whenever the same file would give other pixels.
_VERSION = 2
_OPTIONS = ("train", "test", "test_fraction", "size", "fit", "mode", "classes", "on_error")
_CHANNELS = {"rgb": 3, "grey": 1}
# Each thread may hold a decoded picture of the largest size that is read.
_THREADS = 4
_CHUNK = 256
_NAMED = 10


def describe(options: Options, root: Path) -> DatasetInfo:
    """Shape and classes; reads no picture, and no folder if ``classes`` are given.

    Raises DatasetError for a wrong option, or for a wrong folder if it is read.
    """
    check_options("image_folder", options, _OPTIONS)
    height, width = _size(options)
    channels = _CHANNELS[choice_option("image_folder", options, "mode", "rgb", tuple(_CHANNELS))]
    _whole(options)
    _skips(options)
    given: Any = options.get("classes")
    if given is None:
        classes = class_names(_folder(options, "train", root))
    elif isinstance(given, int):
        classes = tuple(map(str, range(given)))
    else:
        classes = tuple(given)
    return DatasetInfo("image_folder", (channels, height, width), classes, None, None)


def load(split: Split, root: Path, options: Options, downloads: Downloads) -> ImageSet:
    """The split's pictures, class by class, each class in the order of the files' names.

    Without the option ``test``, the test pictures are held out of those in ``train``. Raises
    DatasetError for an unsuitable folder, and for a file that cannot be read, unless ``on_error``
    is ``skip``: then a warning names the file, and it is left out.
    """
    info = describe(options, root)
    folder = _folder(options, "train", root)
    classes = _classes(options, folder, info)
    if options.get("test") is None:
        rest, held = held_out(list_pictures(folder, classes), _fraction(options))
        pictures = rest if split == "train" else held
    else:
        if split == "train":
            # Report problems of the test pictures before the training, not after it.
            list_pictures(_folder(options, "test", root), classes)
        folder = _folder(options, split, root)
        pictures = [picture for each in list_pictures(folder, classes) for picture in each]
    _check_room(folder, len(pictures), info.shape)
    whole, skip = _whole(options), _skips(options)
    built: list[Arrays] = []

    def look() -> dict[str, str]:
        images = np.empty((len(pictures), *info.shape), np.uint8)
        read = _decode(folder, pictures, images, whole, skip)
        kept = [at for at, digest in enumerate(read) if isinstance(digest, str)]
        labels = np.array([pictures[at].label for at in kept], np.int32)
        for label, name in enumerate(classes):
            if label not in labels:
                raise DatasetError(f"{folder / name}: none of its pictures can be read")
        built.append((images if len(kept) == len(images) else images[kept], labels))
        content = [f"{pictures[at].label} {read[at]}" for at in kept]
        left_out = {
            picture.name: str(error)
            for picture, error in zip(pictures, read, strict=True)
            if isinstance(error, DatasetError)
        }
        return {
            "content": sha256_bytes("\n".join(content).encode()),
            "left_out": json.dumps(left_out),
        }

    stamps = [
        _VERSION,
        str(folder.resolve()),
        skip,
        *([p.name, p.label, p.size, p.time_ns] for p in pictures),
    ]
    found = remembered_for(stamps, ("content", "left_out"), look)
    left_out = json.loads(found["left_out"])
    if not built and (better := [name for name in left_out if _readable(folder / name)]):
        # Permissions, the disk or Pillow have changed, which the stamps do not show.
        found = remembered_for([*stamps, better], ("content", "left_out"), look)
        left_out = json.loads(found["left_out"])

    def build() -> Arrays:
        if not built:
            look()
        return built[-1]

    _tell_left_out(folder, left_out)
    key = f"{_VERSION} {_pillow()} {info.shape} {whole} {found['content']}"
    images, labels = decoded(f"image_folder-{split}", key, build)
    return ImageSet(f"image_folder/{split}", images, labels, classes)


def _decode(
    folder: Path, pictures: Sequence[PictureFile], images: Images, whole: bool, skip: bool
) -> list[str | DatasetError]:
    """Fill ``images``; return the SHA-256 of each file, or the error if it is left out."""
    channels, height, width = images.shape[1:]
    mode = "L" if channels == 1 else "RGB"

    def decode(at: int) -> str | DatasetError:
        path = folder / pictures[at].name
        try:
            image = open_picture(path, [])
            if image.mode != mode:
                image = image.convert(mode)
            images[at] = scaled(image, height, width, whole, [])
            return sha256_file(path)
        except DatasetError as error:
            return error
        except OSError as error:
            return DatasetError(f"{path}: cannot be read ({error.strerror or error})")

    hashes: list[str | DatasetError] = []
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
        for start in range(0, len(pictures), _CHUNK):
            chunk = range(start, min(start + _CHUNK, len(pictures)))
            for answer in threads.map(decode, chunk):
                if isinstance(answer, DatasetError) and not skip:
                    raise DatasetError(
                        f"{answer}. Remove the file, or skip all such files with on_error: skip "
                        "beside 'train' in the config"
                    )
                hashes.append(answer)
    return hashes


def _readable(path: Path) -> bool:
    try:
        open_picture(path, [])
    except (DatasetError, OSError):
        return False
    return True


def _tell_left_out(folder: Path, reasons: dict[str, str]) -> None:
    for name, reason in list(reasons.items())[:_NAMED]:
        why = reason.removeprefix(f"{folder / name}: ")
        _LOG.warning("%s is left out: %s", folder / name, why)
    if len(reasons) > _NAMED:
        _LOG.warning("%s: %d more files are left out", folder, len(reasons) - _NAMED)


def _classes(options: Options, folder: Path, info: DatasetInfo) -> tuple[str, ...]:
    """The names of the classes in the order of their labels, read if only a number is given."""
    if not isinstance(options.get("classes"), int):
        return info.classes
    found = class_names(folder)
    if len(found) != len(info.classes):
        raise DatasetError(
            f"{folder}: contains {len(found)} class folders, but the config says classes: "
            f"{len(info.classes)}"
        )
    return found


def _check_room(folder: Path, count: int, shape: tuple[int, int, int]) -> None:
    wanted = count * int(np.prod(shape))
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if wanted > there:
        raise DatasetError(
            f"{folder}: {count} pictures of {'x'.join(map(str, shape))} take {wanted / 2**30:.0f} "
            f"GiB, and this machine has {there / 2**30:.0f} GiB of memory; choose a smaller size, "
            "or fewer pictures"
        )


def _folder(options: Options, name: str, root: Path) -> Path:
    value = options.get(name)
    if not isinstance(value, str) or not value:
        raise DatasetError(
            f"dataset 'image_folder', option '{name}': expects a folder with a folder of pictures "
            "for each class"
        )
    return root / Path(value).expanduser()


def _size(options: Options) -> tuple[int, int]:
    value: Any = options.get("size")
    sides = (value, value) if isinstance(value, int) else value
    if not sides or len(sides) != 2 or not all(1 <= side <= 4096 for side in sides):
        raise DatasetError(
            "dataset 'image_folder', option 'size': expects a number of pixels from 1 to 4096, or "
            "(height, width)"
        )
    return sides[0], sides[1]


def _whole(options: Options) -> bool:
    return choice_option("image_folder", options, "fit", "crop", ("crop", "resize")) == "resize"


def _skips(options: Options) -> bool:
    return choice_option("image_folder", options, "on_error", "stop", ("stop", "skip")) == "skip"


def _fraction(options: Options) -> float:
    value: Any = options.get("test_fraction", 0.2)
    if not 0 < value < 1:
        raise DatasetError(
            "dataset 'image_folder', option 'test_fraction': expects a number between 0 and 1"
        )
    return float(value)


def _pillow() -> str:
    import PIL

    return PIL.__version__


SOURCE = Source(describe, load, about="the pictures are in the folders that the config names")
