"""A config for a folder of pictures: what is chosen, why, and the text with comments."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..common.errors import DatasetError
from ..common.printable import UTF8_LOCALE, misread, printable
from ..common.records import dataclass
from ..common.text import cut, listed
from ..configs.scalars import as_yaml
from ..configs.validate import safe_name
from ..configs.write import flow
from ..datasets.survey import Survey, colours_tell
from .new_tuned import Tuned
from .tables import CLASS

TEST_FRACTION = 0.2
# Sides of the network's input; from scratch and on a CPU, more pixels rarely pay.
_LARGEST_SIDE, _SMALLEST_SIDE = 64, 8
# Of the pictures to train on, what is held back for validation.
_HELD_BACK = 0.1
# More pictures than this show by themselves whether colours matter.
_MANY = 2000
# From these ratios of the largest to the smallest class on, losses are weighed, or samples drawn.
_UNEVEN, _UNEQUAL = 1.5, 10.0
# Steps of a small set and a large one, and the most epochs; with trained weights less will do.
_STEPS, _MOST_STEPS, _MOST_EPOCHS = 4000, 20_000, 320
_TUNED_SHARE, _FEWEST_TUNED, _MOST_TUNED, _LARGEST_TUNED_BATCH = 4, 5, 40, 32
_LISTED = 6


@dataclass(frozen=True)
class Choice:
    """A key of the config, what was chosen, and why."""

    key: str
    value: Any
    why: str


@dataclass(frozen=True)
class NewConfig:
    """The text of a config, and the choices that are worth a word, by their keys."""

    text: str
    choices: tuple[Choice, ...]


def new_config(found: Survey, output: Path, tuned: Tuned | None = None) -> NewConfig:
    """A config for the pictures of ``found`` that is to be written to ``output``.

    tuned: the network that has weights, by default a new one. Raises DatasetError for a folder
    whose name no config can hold.
    """
    chosen = {choice.key: choice for choice in _choices(found, output, tuned)}
    return NewConfig(_text(found, output, chosen, tuned), tuple(chosen.values()))


def _choices(found: Survey, output: Path, tuned: Tuned | None) -> list[Choice]:
    whole, held = sum(found.training), _held_back(found)
    train = whole - held
    size, fit = _size(found, tuned)
    most = 64 if tuned is None else _LARGEST_TUNED_BATCH
    batch = next(n for n in (64, 32, 16, 8, 4, 2, 1) if n <= min(max(whole // 10, 1), most))
    choices = [
        Choice("data.dataset.image_folder.train", path_beside(found.folders["train"], output), ""),
        *_own_parts(found, output),
        size,
        fit,
        *_colours(found, tuned),
    ]
    if found.broken or found.partial:
        why = (
            f"{len(found.broken)} of the {found.examined:,} pictures looked at cannot be read"
            if found.broken
            else f"only {found.examined:,} of {found.count:,} pictures were looked at"
        )
        choices.append(Choice("data.dataset.image_folder.on_error", "skip", why))
    choices += _balance(found)
    choices.append(Choice("data.batch_size", batch, f"of {train:,} pictures to train on"))
    if held:
        why = f"{held:,} pictures are held back, to watch the accuracy during training"
        choices.append(Choice("data.validation", _HELD_BACK, why))
        why = "the same share of each class, and at least one picture if it has two"
        choices.append(Choice("data.stratified", "each", why))
    elif "validation" not in found.folders:
        choices.append(Choice("data.validation", 0, "each class has one picture to train on"))
    steps = min(max(_STEPS, 10 * whole // batch), _MOST_STEPS)
    per_epoch = max(train // batch, 1)
    epochs = min(max(round(steps / per_epoch), 1), _MOST_EPOCHS)
    if tuned is not None:
        epochs = min(max(epochs // _TUNED_SHARE, _FEWEST_TUNED), _MOST_TUNED)
        choices.append(Choice("init_from", *tuned.start))
    choices.append(
        Choice("train.epochs", epochs, f"{epochs * per_epoch:,} steps of {batch} pictures")
    )
    return choices


def _held_back(found: Survey) -> int:
    """How many pictures of train are validated on."""
    share = int(sum(found.training) * _HELD_BACK)
    least = sum(count > 1 for count in found.training)
    return 0 if "validation" in found.folders else max(share, least)


def _own_parts(found: Survey, output: Path) -> list[Choice]:
    """What to validate on, if it has a folder, and what to test on."""
    key, choices = "data.dataset.image_folder", []
    for part in [each for each in found.folders if each != "train"]:
        verb = {"validation": "validate"}.get(part, part)
        why = f"{sum(found.counts[part]):,} pictures of their own, to {verb} on"
        choices.append(Choice(f"{key}.{part}", path_beside(found.folders[part], output), why))
    if "test" not in found.folders:
        why = "of each class in train, a fifth is held out to test on"
        choices.append(Choice(f"{key}.test_fraction", TEST_FRACTION, why))
    return choices


def _size(found: Survey, tuned: Tuned | None) -> tuple[Choice, Choice]:
    """The size of the input, and what becomes of pictures of other proportions."""
    heights, widths = np.array([(look.height, look.width) for look in found.looks]).T
    short = int(np.median(np.minimum(heights, widths)))
    ratios = np.sort(widths / heights)
    low, ratio, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    if tuned is not None:
        sides, why = tuned.shape[1:], "the size that the weights were trained on"
    elif short <= _LARGEST_SIDE and len({*heights}) == len({*widths}) == 1:
        sides = int(heights[0]), int(widths[0])
        why = "the size of all pictures"
    else:
        side = max(min(short, _LARGEST_SIDE) // 4 * 4, _SMALLEST_SIDE)
        # Pictures that are all wide, or all high, lose less if the input is so, too.
        alike = high / low < 1.15 and not 0.8 < ratio < 1.25
        wide = min(max(round(side * max(ratio, 1 / ratio) / 4) * 4, side), 2 * side)
        sides = (side, side) if not alike else (side, wide) if ratio > 1 else (wide, side)
        why = "more pixels show finer detail, and take longer in proportion"
    target = sides[1] / sides[0]
    value: Any = sides[0] if sides[0] == sides[1] else list(sides)
    size = Choice("data.dataset.image_folder.size", value, why)
    key = "data.dataset.image_folder.fit"
    if target / 1.35 <= low and high <= target * 1.35:
        return size, Choice(key, "crop", "proportions are similar; the middle is taken")
    why = "proportions differ; to crop them would cut off what is at a border"
    return size, Choice(key, "resize", why)


def _colours(found: Survey, tuned: Tuned | None) -> list[Choice]:
    """One channel or three, and whether colours are to be learned."""
    key, augment = "data.dataset.image_folder.mode", "data.augment.recolour"
    if tuned is not None:
        return [Choice(key, "grey" if tuned.shape[0] == 1 else "rgb", "as the weights expect")]
    if all(look.grey for look in found.looks):
        return [Choice(key, "grey", "all pictures are grey")]
    rgb = Choice(key, "rgb", "the pictures are in colour")
    if found.count > _MANY:
        return [rgb]
    share, needed = colours_tell(found)
    if share > needed:
        told = f"the colours alone tell the class of {share:.0%} of the pictures"
        return [Choice(key, "rgb", told)]
    why = f"the colours alone tell the class of {share:.0%}; from {needed:.0%} on they would matter"
    return [rgb, Choice(augment, True, why)]


def _balance(found: Survey) -> list[Choice]:
    most, least = max(found.counts["train"]), min(found.counts["train"])
    why = f"the largest class has {most / least:.1f} times as many pictures as the smallest"
    if most > _UNEQUAL * least:
        return [Choice("data.balance", True, why)]
    if most >= _UNEVEN * least:
        return [Choice("loss.class_weights", "balanced", why)]
    return []


def path_beside(folder: Path, output: Path) -> str:
    """A path as the config that is written to ``output`` names it: from its own folder."""
    name = os.path.relpath(folder.absolute(), output.absolute().parent)
    for path in (name, str(output.absolute().parent)):
        if not path.isprintable() and (meant := misread(path)):
            raise DatasetError(
                f"{meant!a}: the name is UTF-8, but the encoding of this locale is "
                f"{sys.getfilesystemencoding()}; {UTF8_LOCALE}"
            )
        if not path.isprintable():
            raise DatasetError(
                f"{path!a}: the name has control characters or bytes that are not text, which a "
                "config cannot hold; rename the folder"
            )
    return name


# ---------------------------------------------------------------- the text

_OPTIMIZER = (
    "optimizer: {type: adamw, lr: 0.003, weight_decay: 0.05}\n"
    "schedule: one_cycle # the rate rises for a third of the training, then falls to 0\n"
)


def _text(found: Survey, output: Path, chosen: dict[str, Choice], tuned: Tuned | None) -> str:
    def line(indent: int, key: str) -> str:
        choice = chosen.get(key)
        if choice is None:
            return ""
        why = f" # {choice.why}" if choice.why else ""
        return f"{' ' * indent}{key.rpartition('.')[2]}: {_value(choice.value)}{why}\n"

    folder = "data.dataset.image_folder"
    size = chosen[f"{folder}.size"].value
    height, width = size if isinstance(size, list) else (size, size)
    options = "".join(
        line(6, f"{folder}.{key}")
        for key in (
            "train",
            "validation",
            "test",
            "test_fraction",
            "size",
            "fit",
            "mode",
            "on_error",
        )
    )
    epochs = chosen["train.epochs"].value
    weights = line(2, "loss.class_weights")
    loss = f"loss:\n  type: cross_entropy\n{weights}" if weights else "loss: cross_entropy\n"
    name = printable(shlex.quote(output.name))
    validated = "validation" in found.folders or "data.stratified" in chosen
    network, optimizer = _network(height, width, len(found.classes)), _OPTIMIZER
    normalize = "measured # mean 0 and deviation 1, as the training pictures need"
    if tuned is not None:
        network, optimizer = tuned.layers, tuned.optimizer
        mean, std = ([round(each, 4) for each in side] for side in (tuned.mean, tuned.std))
        normalize = f"{{mean: {mean}, std: {std}}} # those that the weights were trained with"
    return (
        f"# For {found.count:,} pictures of {len(found.classes)} classes: {_classes(found)}.\n"
        "# Written by dnnstack new; every key can be changed: dnnstack help config.\n"
        "#\n"
        f"#   dnnstack train --config {name}\n"
        "#   dnnstack eval\n"
        "\n"
        f"name: {as_yaml(safe_name(output.stem))}\n"
        "seed: 1\n"
        f"{line(0, 'init_from')}"
        "\n"
        "data:\n"
        "  dataset:\n"
        "    image_folder: # paths count from the folder of this file\n"
        f"{options}"
        f"{line(2, 'data.batch_size')}"
        "  evaluation_batch_size: 100\n"
        f"{line(2, 'data.validation')}"
        f"{line(2, 'data.stratified')}"
        f"{line(2, 'data.balance')}"
        f"  normalize: {normalize}\n"
        "  augment: # every picture is seen a little differently in every epoch\n"
        f"{_augment(height, width, chosen.get('data.augment.recolour'))}"
        "\n"
        f"{network}"
        "\n"
        f"{loss}"
        f"{optimizer}"
        f"train:\n{line(2, 'train.epochs')}"
        + (f"  validate_every_epochs: {max(epochs // 20, 1)}\n" if validated else "")
        + f"checkpoint: {{every_epochs: {max(epochs // 10, 1)}}}\n"
    )


def _classes(found: Survey) -> str:
    shown = [
        f"{cut(name, CLASS)} ({count:,})"
        for name, count in zip(found.classes, found.counts["train"], strict=True)
    ]
    return listed(shown, _LISTED)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, dict):
        return flow(value)
    if isinstance(value, str) and value.isprintable() and not value.isascii():
        # Legible, unlike the escapes of as_yaml.
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return as_yaml(value)


def _augment(height: int, width: int, recolour: Choice | None) -> str:
    pixels = max(round(min(height, width) / 10), 1)
    return (
        "    - random_flip # left and right; remove it where they matter, as in letters\n"
        "    - rotate: {degrees: 15}\n"
        "    - scale: {min: 0.8, max: 1.25}\n"
        f"    - shift: {{pixels: {pixels}}}\n"
        + (f"    - recolour # {recolour.why}\n" if recolour else "")
    )


def _network(height: int, width: int, classes: int) -> str:
    """Stages that halve the sides, until at most 7 pixels are left."""
    lines = [
        "blocks:\n"
        "  conv:\n"
        "    parameters: {filters: }\n"
        "    layers:\n"
        "      - conv2d: {filters: $filters, kernel_size: 3, padding: 1, use_bias: false}\n"
        "      - batch_norm\n"
        "      - relu\n"
        "\n"
        "layers:\n"
    ]
    filters, side = 16, min(height, width)
    while side >= 8:
        lines.append(f"  - conv: {{filters: {filters}}}\n  - max_pool2d\n")
        filters, side = min(2 * filters, 128), side // 2
    lines.append(f"  - conv: {{filters: {filters}}}\n")
    lines.append("  - global_avg_pool2d\n")
    lines.append(f"  - dense: {{units: {classes}}} # an output for each class\n  - softmax\n")
    return "".join(lines)


def as_lines(choices: Sequence[Choice]) -> list[tuple[str, str, str]]:
    """(key without its section, value, why) of what is worth a word."""
    return [(c.key.rpartition(".")[2], _value(c.value), c.why) for c in choices if c.why]
