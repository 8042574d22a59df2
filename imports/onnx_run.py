"""A network of an ONNX file as a run: its config, and a checkpoint of step 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.tuning import Tuning
from ..common.errors import CheckpointError, ConfigError, ShapeError, UsageError, explaining
from ..common.files import atomic_write, make_folder
from ..common.printable import paragraph
from ..common.records import dataclass
from ..common.targets import MEASURES
from ..common.text import cut, listed, shape_text
from ..configs import effective_yaml, load_mapping
from ..configs.validate import safe_name
from ..graph.graph import Shape
from ..training.assemble import build_network, describe_data
from ..training.normalization import preprocessing
from ..training.preprocessing import Preprocessing
from ..training.records.formats.provenance import BegunFrom, Provenance
from ..training.records.formats.run_log import RunLog
from ..training.records.formats.state import START
from ..training.records.formats.store import tensors_name, write_checkpoint
from ..training.records.numerics import NUMERICS
from ..training.records.runs import create_run
from .blocks import flat, stacked, written
from .onnx_file import Node, OnnxFile, read_onnx
from .onnx_layers import HANDLERS, Layers, Refused
from .patterns import needed, prepared

_LISTED, _LARGEST = 30, 1 << 20
_SHOWN, _WIDEST = 8, 60
_ELSEWHERE = "choose another folder with --runs-dir"
_KNOWN = {*HANDLERS, "Concat"}


@dataclass(frozen=True)
class Imported:
    """The folder of a run, ``written``; or, for ``reasons``, a file with the weights alone.

    ``arrays`` and ``numbers`` count what it holds, ``normalize`` is what is done to pixels.
    """

    source: Path
    written: Path
    arrays: int
    numbers: int
    layers: int = 0
    input_shape: Shape = ()
    classes: tuple[str, ...] = ()
    normalize: Preprocessing | None = None
    reasons: tuple[str, ...] = ()

    @property
    def run(self) -> Path | None:
        """The folder of the run; None if the weights alone were written."""
        return None if self.reasons else self.written

    def to_json(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        return {
            "source": str(self.source),
            "run": str(self.written) if self.run else None,
            "weights": None if self.run else str(self.written),
            "arrays": self.arrays,
            "numbers": self.numbers,
            "layers": self.layers,
            "input_shape": list(self.input_shape),
            "classes": list(self.classes),
            "preprocessing": None if self.normalize is None else vars(self.normalize),
            "not_expressed": list(self.reasons),
        }

    def as_text(self) -> str:
        """What was written, what it takes, and what to do with it."""
        size = f"{self.arrays} arrays, {self.numbers:,} numbers"
        if self.normalize is None:
            lines = [
                f"{self.source}: no layers compute it:",
                *(f"  {reason}" for reason in self.reasons),
                f"{self.written}: the weights alone, {size}, by their names in the file",
                f"to begin a training with them: --init-from {self.written}",
            ]
            return paragraph(lines)
        unit = 255.0 if len(self.input_shape) == 3 and self.input_shape[1:] != (1, 1) else 1.0
        mean, std = (
            listed([f"{each:.4g}" for each in numbers], _SHOWN)
            for numbers in self.normalize.mean_and_std(unit)
        )
        names = listed([cut(name, _WIDEST) for name in self.classes], _SHOWN)
        lines = [
            f"{self.written}: {self.layers} layers, {size}, from {self.source}",
            f"input    {shape_text(self.input_shape)}, normalised with mean {mean}, std {std}; if "
            "it was trained with others: --mean, --std",
            f"outputs  {len(self.classes)}: {names}",
        ]
        return paragraph(lines)


@dataclass(frozen=True)
class Wishes:
    """What the user says of a file; mean, std: of pixels / 255, one number or one per channel."""

    name: str | None = None
    size: tuple[int, int] | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    classes: Sequence[str] | None = None
    overrides: Sequence[str] = ()


def import_network(
    path: Path, wishes: Wishes, runs_dir: Path, notice: Callable[[str], None]
) -> Imported:
    """Write the network of an ONNX file as a run or, if no layers compute it, its weights alone.

    Raises CheckpointError for a file that cannot be read, UsageError and ConfigError for wishes
    that do not fit it.
    """
    file = read_onnx(path)
    name = safe_name(path.stem) if wishes.name is None else wishes.name
    if safe_name(name) != name:
        raise UsageError(f"--name: {name!r} is no name of a run; '{safe_name(name)}' would be one")
    try:
        return _as_run(file, name, wishes, runs_dir, notice)
    except Refused as error:
        return _weights_alone(file, runs_dir / f"{name}.safetensors", error.args)


def _weights_alone(file: OnnxFile, path: Path, reasons: tuple[str, ...]) -> Imported:
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(file.arrays[name]) for name in file.weights}
    with explaining(path, "cannot be written", _ELSEWHERE):
        make_folder(path.parent)
        atomic_write(path, save(arrays, {"format": "pt"}))
    numbers = sum(each.size for each in arrays.values())
    return Imported(file.path, path, len(arrays), numbers, reasons=reasons)


def _as_run(
    file: OnnxFile, name: str, wishes: Wishes, runs_dir: Path, notice: Callable[[str], None]
) -> Imported:
    if len(file.inputs) != 1 or len(file.outputs) != 1:
        raise Refused("the whole: has not one input and one output")
    (given,), (output,) = file.inputs, file.outputs
    start, own = given.name, prepared(file)
    if own is not None:
        start, _, mean, std = own
        wishes = replace(wishes, mean=wishes.mean or mean, std=wishes.std or std)
    nodes = needed(file, start, output)
    _check_known(nodes)
    shape = _shape(file, wishes.size) if own is None else own[1]
    layers = Layers(nodes, file.arrays, start, given.shape[0], shape)
    if output not in layers.shapes:
        raise Refused("the whole: its output does not depend on its input")
    stack, ends = stacked(layers, start, output), layers.shapes[output]
    pieces, table = [*flat(stack)], written(stack)
    if len(ends) == 3:
        table.append("flatten")
    if ends[0] == 1 or (pieces and pieces[-1].kind == "sigmoid"):
        raise Refused("the whole: gives a number, or answers of yes or no, but no classes")
    config = {
        "name": name,
        "data": {
            "dataset": _dataset(file, shape, ends[0], wishes.classes),
            "normalize": _normalize(shape, given.bytes, wishes),
        },
        "layers": table,
        "loss": "cross_entropy",
        "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9},
        "train": {"epochs": 10},
    }
    try:
        made = load_mapping(config, wishes.overrides).config
        info = describe_data(made)
        network = build_network(made, info)
    except (ConfigError, ShapeError) as error:
        if wishes.overrides or wishes.classes:
            raise
        raise Refused(*error.args) from None
    values = [each for piece in pieces for each in piece.parameters]
    values += [each for piece in pieces for each in piece.statistics]
    learned = network.learned()
    if [each.shape for each in values] != [tensor.shape for tensor in learned]:
        raise ConfigError("--set: changes layers, for which the file has other weights")
    arrays = {t.name: np.array(v, np.float32) for t, v in zip(learned, values, strict=True)}
    for key, each in arrays.items():
        if not np.isfinite(each).all() or (key.endswith("running_var") and (each < 0).any()):
            raise CheckpointError(
                f"{file.path}: '{key}' has numbers that are not finite, or variances below 0; "
                "export the network again"
            )
    begun = BegunFrom(str(file.path.absolute()), file.sha256, "onnx", len(arrays))
    origin = Provenance(
        steps_per_epoch=1,
        config=effective_yaml(made),
        dataset=info.name,
        input_shape=network.input_shape,
        classes=info.classes,
        preprocessing=preprocessing(made, info),
        tuning=Tuning(""),
        versions={},
        begun_from=begun,
        numerics=NUMERICS,
        kind=info.kind,
        floats=info.floats,
    )
    run = _write(runs_dir, name, arrays, origin, notice)
    numbers = sum(each.size for each in arrays.values())
    facts = (len(pieces), network.input_shape, info.classes, origin.preprocessing)
    return Imported(file.path, run, len(arrays), numbers, *facts)


def _write(
    runs_dir: Path,
    name: str,
    arrays: Mapping[str, NDArray[np.float32]],
    origin: Provenance,
    notice: Callable[[str], None],
) -> Path:
    """A run of step 0, as if its training had ended there; returns its folder."""
    begun = create_run(runs_dir, name, origin.config, notice)
    with explaining(runs_dir, "cannot be written", _ELSEWHERE), begun as run:
        with explaining(run.path, "cannot be written", _ELSEWHERE):
            make_folder(run.checkpoints)
            write_checkpoint(run.checkpoints, arrays, START, origin, keep=1)
        with RunLog(run.path, MEASURES[origin.kind]) as log:
            log.event("init", 0, **vars(origin.begun_from))
            log.event("checkpoint", 0, file=tensors_name(0))
            log.event("end", 0, state="finished")
        return run.path


def _check_known(nodes: Sequence[Node]) -> None:
    """Raise Refused with all nodes of operators that no layer is."""
    unknown: dict[str, list[str]] = {}
    for node in nodes:
        if node.op not in _KNOWN:
            unknown.setdefault(node.op, []).append(f"'{cut(node.name, 60)}'")
    lines = [f"{cut(op, 60)}, {len(e)}: {listed(e, 8)}" for op, e in unknown.items()]
    if lines:
        more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        raise Refused(*lines[:_LISTED], *more)


def _shape(file: OnnxFile, size: tuple[int, int] | None) -> Shape:
    """That of a sample, as far as the file says it, else the user."""
    given = file.inputs[0].shape
    sides = [*given[1:]]
    if size is not None and len(sides) == 3:
        sides[1:] = size
    found = tuple(side for side in sides if side is not None)
    if len(sides) not in (1, 3) or max(found, default=0) > _LARGEST:
        raise Refused(
            f"the whole: its input of {given} is neither pictures (N, C, H, W) nor rows (N, C)"
        )
    if len(found) < len(sides):
        raise CheckpointError(
            f"{file.path}: leaves open how large its pictures are; say it, as in --size 224, or "
            "48x64 for height x width; the number of channels must be in the file"
        )
    return found


def _dataset(
    file: OnnxFile, shape: Shape, outputs: int, named: Sequence[str] | None
) -> dict[str, Any]:
    """The data set of the config: pictures in folders, or arrays that a program gives."""
    if named and len(named) != outputs:
        raise UsageError(f"--classes: {len(named)} names, but the network has {outputs} outputs")
    names = [*(named or file.classes)]
    names = names if len(names) == outputs else []
    if shape[0] in (1, 3) and len(shape) == 3:
        fit = "resize" if file.said.get("dnnstack.scaled") == "whole" else "crop"
        mode = "rgb" if shape[0] == 3 else "grey"
        folders = {"train": "train", "test": "test", "size": [*shape[1:]], "fit": fit, "mode": mode}
        return {"image_folder": {**folders, "classes": names or outputs}}
    names = names or [*map(str, range(outputs))]
    like = {"shape": [*shape, 1, 1][:3], "floats": len(shape) == 1}
    return {"arrays": {**like, "kind": "class", "classes": names}}


def _normalize(shape: Shape, of_bytes: bool, wishes: Wishes) -> dict[str, list[float]]:
    """Mean and deviation of the config."""
    said = wishes.mean is not None or wishes.std is not None
    found = {}
    # A network of bytes that nobody says more of takes them as they are.
    plain = 1.0 if len(shape) == 1 or said or not of_bytes else 1 / 255
    for key, wanted, usual in (("mean", wishes.mean, 0.0), ("std", wishes.std, plain)):
        numbers = [usual] if wanted is None else [*wanted]
        if not np.isfinite(numbers).all() or (key == "std" and min(numbers) <= 0):
            raise UsageError(f"--{key}: expected finite numbers, and deviations above 0")
        if len(numbers) not in (1, shape[0]):
            raise UsageError(f"--{key}: {len(numbers)} numbers for {shape[0]} channels")
        found[key] = numbers * (shape[0] // len(numbers))
    return found
