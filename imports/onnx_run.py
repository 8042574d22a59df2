"""A network of an ONNX file as a run: its config, and a checkpoint of step 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.tuning import Tuning
from ..common.errors import CheckpointError, ConfigError, DatasetError, ShapeError, UsageError
from ..common.files import atomic_write, make_folder, writing
from ..common.records import dataclass
from ..common.targets import MEASURES
from ..common.text import cut, listed
from ..configs import effective_yaml, load_mapping
from ..configs.validate import safe_name
from ..datasets import describe
from ..graph.graph import Shape
from ..training.assemble import build_network, describe_data, preprocessing
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
from .patterns import needed
from .report import Imported

_LISTED, _LARGEST = 30, 1 << 20
_ELSEWHERE = "choose another folder with --runs-dir"
_KNOWN = {*HANDLERS, "Concat", "Shape", "Gather", "Unsqueeze"}
_LOSSES = {"class": "cross_entropy", "yes_no": "binary_cross_entropy"}
_LOSSES |= {"numbers": "mse"}


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
    with writing(path, CheckpointError, _ELSEWHERE):
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
    nodes = needed(file.nodes, output)
    _check_known(nodes)
    shape = _shape(file, wishes.size)
    layers = Layers(nodes, file.arrays, given, shape)
    if output not in layers.shapes:
        raise Refused("the whole: its output does not depend on its input")
    stack, ends = stacked(layers, given.name, output), layers.shapes[output]
    pieces, table = [*flat(stack)], written(stack)
    if len(ends) == 3:
        table.append("flatten")
    mean, std = _normalize(layers, given.bytes, wishes)
    kind = "yes_no" if pieces[-1:] and pieces[-1].kind == "sigmoid" else "class"
    kind = "numbers" if kind == "class" and ends[0] == 1 else kind
    config = {
        "name": name,
        "data": {
            "dataset": _dataset(file, shape, kind, ends[0], wishes.classes),
            "normalize": {"mean": mean, "std": std},
        },
        "layers": table,
        "loss": _LOSSES[kind],
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
    with create_run(runs_dir, name, origin.config, notice) as run:
        with writing(run.path, CheckpointError, _ELSEWHERE):
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
    file: OnnxFile, shape: Shape, kind: str, outputs: int, named: Sequence[str] | None
) -> dict[str, Any]:
    """The data set of the config: pictures in folders, or arrays that a program gives."""
    if named and len(named) != outputs:
        raise UsageError(f"--classes: {len(named)} names, but the network has {outputs} outputs")
    names = [*(named or file.classes)]
    names = names if len(names) == outputs else []
    with suppress(DatasetError):
        known = describe(file.data)
        if (known.shape, known.classes, known.kind) == (shape, (*names,), kind):
            return {file.data: {}}
    if kind == "class" and shape[0] in (1, 3) and len(shape) == 3:
        mode = "rgb" if shape[0] == 3 else "grey"
        folders = {"train": "train", "test": "test", "size": [*shape[1:]], "mode": mode}
        return {"image_folder": {**folders, "classes": names or outputs}}
    names = names or [*map(str, range(outputs))]
    like = {"shape": [*shape, 1, 1][:3], "floats": len(shape) == 1}
    return {"arrays": {**like, "kind": kind, "classes": names}}


def _normalize(layers: Layers, of_bytes: bool, wishes: Wishes) -> tuple[list[float], list[float]]:
    """Mean and deviation of the config, of what the user and the first nodes say."""
    shape = next(iter(layers.shapes.values()))
    own = 1.0 if len(shape) == 1 else 255.0
    given = []
    for option, wanted, plain in (("--mean", wishes.mean, 0.0), ("--std", wishes.std, 1.0)):
        numbers = [plain] if wanted is None else [*wanted]
        if not np.isfinite(numbers).all() or (option == "--std" and min(numbers) <= 0):
            raise UsageError(f"{option}: expected finite numbers, and deviations above 0")
        if len(numbers) not in (1, shape[0]):
            raise UsageError(f"{option}: {len(numbers)} numbers for {shape[0]} channels")
        given.append(numbers * (shape[0] // len(numbers)))
    # A network of bytes that nobody says more of takes them as they are.
    unit = 1.0 if of_bytes and wishes.mean is None and wishes.std is None else own
    scale, shift = layers.scale, layers.shift
    if unit == own and (scale == 1).all() and not shift.any():
        return given[0], given[1]
    first = Preprocessing.standardize(given[0], given[1], unit)
    scaled, moved = np.multiply(first.scale, scale), np.multiply(first.shift, scale) + shift
    if not (np.isfinite([scaled, moved]).all() and (scaled > 0).all()):
        raise Refused("the first nodes: turn light into dark, or divide by 0")
    mean, std = Preprocessing((*scaled.tolist(),), (*moved.tolist(),)).mean_and_std(own)
    # Not -0, which is shown.
    return [each + 0.0 for each in mean], [*std]
