"""A checkpoint: arrays by name and everything else in one safetensors file.

Names are ``<parameter>`` and, for the optimizer's state, ``momentum/<parameter>``,
``adam_m/<parameter>``, ``ema/<parameter>`` and the like; values float32 in canonical order. The
metadata hold one key, ``dnnstack``: a JSON text with every field of ``State`` and ``Provenance``,
so the file alone is enough to evaluate, predict and resume. The text ends in a SHA-256 over the
whole file with the digest's own 64 characters read as zeros, so a file that was moved or renamed
can still be verified: safetensors itself does not detect a flipped bit. The ``.json`` file beside
it, the manifest, is written afterwards and makes the checkpoint valid (see ``store.py``).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Len
from numpy.typing import NDArray

from ....common.errors import CheckpointError
from ....common.files import read_regular, sha256_bytes
from ....common.records import dataclass
from ....common.typed_json import Count, from_json
from ....graph.graph import Shape
from ....graph.ops import Quantization
from .provenance import OPTIONAL, Provenance
from .record import file_marks, read_whole, settled
from .state import State
from .weight_file import LONGEST_HEADER, header_of

_LOG = logging.getLogger("dnnstack.training")
FORMAT = 1
_KEYS = (
    *("step", "steps_per_epoch", "window_start", "sums", "best", "config", "dataset"),
    *("input_shape", "classes", "preprocessing", "tuning", "versions", "unimproved"),
    *("validation_due", "rate_factor", "rollbacks", "measured", "data_folder"),
)
# State that evaluation takes in place of the weights; a training has one of them at most.
_AVERAGES = ("ema", "swa")
_LISTED = 10
# Bytes of a manifest, and of the reason why a file is neither.
_LONGEST_MANIFEST, _LONGEST_REASON = 1 << 16, 200

_ZEROS = b"0" * 64
# Quotes of the JSON text are escaped inside the metadata's string.
_DIGEST = re.compile(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"')

Arrays = Mapping[str, NDArray[Any]]


class DamagedCheckpointError(CheckpointError):
    """The file is not what was written."""


@dataclass(frozen=True)
class FileMark:
    """What a manifest knows of a file."""

    bytes: Count
    sha256: Annotated[str, Len(64, 64)]


@dataclass(frozen=True)
class _Manifest(FileMark):
    replaces: FileMark | None = None


@dataclass(frozen=True)
class _Format:
    format: Count


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A checkpoint read from ``path``, verified; ``sha256``: of the file.

    ``quantization``: of the inputs of layers that compute with 8-bit integers, by layer.
    ``temperature``: by which scores are divided. Only a compressed network has such.
    """

    path: Path
    state: State
    provenance: Provenance
    arrays: Arrays
    sha256: str = ""
    quantization: Mapping[str, Quantization] = field(default_factory=dict)
    temperature: float = 1.0

    def __repr__(self) -> str:
        return f"<Checkpoint {str(self.path)!r}: step {self.state.step}, {len(self.arrays)} arrays>"

    def parameters(self, shapes: Mapping[str, Shape]) -> dict[str, NDArray[np.float32]]:
        """The arrays with exactly these names and shapes; averages of them if there are any.

        Other optimizer state is ignored. Raises CheckpointError that lists the differences.
        """
        self._compare(shapes, {n: a for n, a in self.arrays.items() if "/" not in n})
        learned = self.learned()
        return {name: learned[name] for name in shapes}

    def learned(self) -> dict[str, NDArray[np.float32]]:
        """All parameters and running statistics by name; averages of them if there are any."""
        names = [name for name in self.arrays if "/" not in name]
        return {name: self._evaluated(name) for name in names}

    def _evaluated(self, name: str) -> NDArray[np.float32]:
        averages = (self.arrays.get(f"{kind}/{name}") for kind in _AVERAGES)
        return next((found for found in averages if found is not None), self.arrays[name])

    def everything(self, shapes: Mapping[str, Shape]) -> dict[str, NDArray[np.float32]]:
        """The same for parameters and optimizer state together."""
        held, needed = _families(self.arrays), _families(shapes)
        if held != needed:
            # The arrays say it less well, as many as there are.
            raise CheckpointError(
                f"{self.path}: its optimizer kept {_named(held)} of each parameter, but that of "
                f"the config needs {_named(needed)}; put 'optimizer' back as it was, or start a "
                f"new run with these weights: --init-from {self.path}"
            )
        self._compare(shapes, self.arrays)
        return {name: self.arrays[name] for name in shapes}

    def _compare(self, shapes: Mapping[str, Shape], arrays: Arrays) -> None:
        found = [f"lacks '{name}' {shape}" for name, shape in shapes.items() if name not in arrays]
        for name, array in sorted(arrays.items()):
            if name not in shapes:
                found.append(f"has '{name}' {array.shape}, which the network does not have")
            elif array.shape != shapes[name]:
                found.append(f"has '{name}' {array.shape}, the network needs {shapes[name]}")
        if found:
            more = [f"and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
            raise CheckpointError(
                f"{self.path} does not fit the config's network or optimizer:",
                *(f"  {line}" for line in (*found[:_LISTED], *more)),
                "use the config with which it was made (config.yaml in its run's folder)",
            )


def _families(names: Iterable[str]) -> list[str]:
    """The kinds of an optimizer's state, such as ``momentum``, that the arrays hold."""
    return sorted({family for family, slash, _ in (name.partition("/") for name in names) if slash})


def _named(families: Sequence[str]) -> str:
    return " and ".join(f"'{family}'" for family in families) or "nothing"


def encode(arrays: Arrays, state: State, provenance: Provenance) -> list[bytes | memoryview]:
    """The pieces of the file in order. arrays: float32, of any memory order."""
    from safetensors.numpy import save

    for name, array in arrays.items():
        if array.dtype != np.float32:
            raise ValueError(f"'{name}' is {array.dtype}, a checkpoint holds float32")
    said = {**state.to_json(), **provenance.to_json()}
    keys = (*_KEYS, *(key for key in ("plateau", *OPTIONAL) if key in said))
    table = {"format": FORMAT, **{key: said[key] for key in keys}, "sha256": _ZEROS.decode()}
    text = json.dumps(table, separators=(",", ":"), allow_nan=False)
    # safetensors writes the memory of a non-contiguous array as if it were contiguous.
    data = save({n: np.ascontiguousarray(a) for n, a in arrays.items()}, {"dnnstack": text})
    at = _digest_place(data)
    if at is None:
        raise ValueError("the header has no digest")
    view = memoryview(data)
    return [view[:at], _own_digest(view, at).encode(), view[at + 64 :]]


def read_checkpoint(path: Path, named: bool = False) -> Checkpoint:
    """The checkpoint at ``path`` (the .safetensors file or its manifest), verified.

    The file must contain its own digest and, if it has a manifest, match its size and SHA-256; all
    its numbers must be finite. A training may replace both meanwhile. ``named``: by the user, who
    may name a link. Raises CheckpointError.
    """
    tensors = path.with_suffix(".safetensors") if path.suffix == ".json" else path
    both = (tensors, path.with_suffix(".json"))
    return settled(
        lambda: [*map(file_marks, both)], lambda tell: _read(*both, named), lambda text: None
    )


def _read(tensors: Path, manifest: Path, named: bool) -> Checkpoint:
    try:
        data = read_whole(tensors.resolve() if named else tensors, LONGEST_HEADER)
        header = header_of(data)
    except FileNotFoundError:
        raise CheckpointError(
            f"{tensors}: no such file; a run's checkpoints are in its folder, runs/NAME/checkpoints"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{tensors}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DamagedCheckpointError(
            f"{tensors}: is damaged, or is not a checkpoint of dnnstack: {error}"
        ) from None
    mark = FileMark(len(data), sha256_bytes(data))
    if manifest.exists():
        _obey(manifest, tensors, mark)
    at = _digest_place(data)
    if at is None:
        raise DamagedCheckpointError(
            f"{tensors}: is damaged, or is not a checkpoint of dnnstack: its header has no digest"
        )
    if data[at : at + 64] != _own_digest(memoryview(data), at).encode():
        raise DamagedCheckpointError(
            f"{tensors}: is damaged: its content does not match its SHA-256"
        )
    checkpoint = replace(_decode(tensors, header, data), sha256=mark.sha256)
    _LOG.info(
        "%s: read and verified, %.1f MB, step %d", tensors, len(data) / 1e6, checkpoint.state.step
    )
    return checkpoint


def _decode(path: Path, header: bytes, data: bytes) -> Checkpoint:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        # safetensors checks the rest of it.
        metadata = from_json(header, dict[str, Any]).get("__metadata__")
        text = from_json(json.dumps(metadata), dict[str, str])["dnnstack"]
        found = from_json(text, _Format).format
        if found != FORMAT:
            raise CheckpointError(
                f"{path}: has format {found}, but this version of dnnstack reads {FORMAT}"
            )
        state, provenance = from_json(text, State), from_json(text, Provenance)
        checkpoint = Checkpoint(path, state, provenance, load(data))
    except (SafetensorError, ValueError, KeyError) as error:
        reason = str(error)[:_LONGEST_REASON]
        raise CheckpointError(f"{path}: is not a checkpoint of dnnstack: {reason}") from None
    for name, array in checkpoint.arrays.items():
        if array.dtype != np.float32:
            raise CheckpointError(f"{path}: '{name}' is not float32")
        if not np.isfinite(array).all():
            raise CheckpointError(
                f"{path}: '{name}' contains NaN or infinity, which dnnstack never saves; use "
                "another checkpoint"
            )
    return checkpoint


def manifest_text(
    step: int,
    tensors: Path | str,
    pieces: list[bytes | memoryview],
    replaces: FileMark | None = None,
) -> bytes:
    """The manifest of a file made of these pieces.

    ``replaces``: size and SHA-256 of the existing file, which is valid until the new one
    replaces it.
    """
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    table: dict[str, Any] = {
        "step": step,
        "file": os.path.basename(tensors),
        "bytes": sum(len(piece) for piece in pieces),
        "sha256": digest.hexdigest(),
    }
    if replaces is not None:
        table["replaces"] = vars(replaces)
    return (json.dumps(table, indent=1) + "\n").encode()


def read_manifest(path: Path) -> list[FileMark]:
    """Size and hash of the valid file, and of the one that it replaces, if any.

    Raises CheckpointError.
    """
    try:
        manifest = from_json(read_regular(path, _LONGEST_MANIFEST), _Manifest)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise DamagedCheckpointError(
            f"{path}: is damaged: not the manifest of a checkpoint"
        ) from None
    own = FileMark(manifest.bytes, manifest.sha256)
    return [own, *([manifest.replaces] if manifest.replaces is not None else [])]


def _obey(manifest: Path, tensors: Path, found: FileMark) -> None:
    known = read_manifest(manifest)
    sizes = [one.bytes for one in known]
    if found.bytes not in sizes:
        raise DamagedCheckpointError(
            f"{tensors}: is damaged: it has {found.bytes} bytes, but its manifest says {sizes[0]}"
        )
    if found not in known:
        raise DamagedCheckpointError(
            f"{tensors}: is damaged: its SHA-256 does not match its manifest"
        )


def _digest_place(data: bytes) -> int | None:
    """The position of the digest's 64 characters in the header."""
    length = int.from_bytes(data[:8], "little")
    found = _DIGEST.search(data, 8, min(8 + length, len(data)))
    return found.start(1) if found else None


def _own_digest(view: memoryview, at: int) -> str:
    digest = hashlib.sha256(view[:at])
    digest.update(_ZEROS)
    digest.update(view[at + 64 :])
    return digest.hexdigest()
