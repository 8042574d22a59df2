"""What a trained network's answers are worth, in ``step-N.calibration.safetensors`` beside it.

Metadata hold ``dnnstack``, the JSON text of a ``Calibration``, and ``sha256``, a digest of this
text and of all numbers; arrays are those of ``Trust``. Sources: Guo et al. 2017 (temperature), Liu
et al. 2020 (energy), Lee et al. 2018 (distance).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval, Len
from numpy.typing import NDArray

from ....common.errors import CheckpointError, explaining
from ....common.files import atomic_write, sha256_bytes
from ....common.records import dataclass
from ....common.typed_json import Count, Finite, from_json
from .weight_file import read_weight_file

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.float32]]

SUFFIX = "calibration.safetensors"
COLDEST, HOTTEST = 1 / 20, 20.0
"""Temperatures; the cross-entropy of answers that are all right falls without end."""
_LONGEST_HEADER = 1 << 16
_ARRAYS = ("centres", "moments", "whitening")
_Share = Annotated[float, Interval(ge=0, le=1)]


@dataclass(frozen=True)
class Calibration:
    """``temperature``: by which scores are divided. ``checkpoint``: the SHA-256 of its file.

    ``count``: of the validation samples, of which ``keep`` are familiar; ``cross_entropy`` and
    ``calibration_error``: on these, before and after.
    """

    checkpoint: Annotated[str, Len(64, 64)]
    temperature: Annotated[float, Interval(ge=COLDEST, le=HOTTEST)]
    count: Count
    keep: _Share
    cross_entropy: tuple[Finite, Finite]
    calibration_error: tuple[_Share, _Share]

    def __str__(self) -> str:
        (loss, lower), (error, less) = self.cross_entropy, self.calibration_error
        return (
            f"temperature {self.temperature:.3f}: on {self.count} validation samples "
            f"cross-entropy {loss:.4f} -> {lower:.4f}, calibration error {error:.2%} -> {less:.2%}"
        )


@dataclass(frozen=True, eq=False)
class Trust:
    """A calibration, and by ``arrays`` what is familiar, if that was measured.

    whitening: (D, D), makes the covariance of features within classes that of the unit; centres:
    (C, D), the means of C classes after it; moments: (5,), mean and deviation of energy and
    distance over samples that were learned, and the threshold.
    """

    calibration: Calibration
    arrays: Arrays


def familiarity_of(features: NDArray[Any], scores: NDArray[Any], arrays: Arrays) -> Floats:
    """(N,): energy less distance, in deviations, less the threshold: 0 or more if familiar.

    features: (N, D); scores: (N, K), undivided.
    """
    energy, energies, distance, distances, least = arrays["moments"].astype(np.float64)
    high = (energy_of(scores) - energy) / energies
    return np.asarray(high - (distance_of(features, arrays) - distance) / distances - least)


def energy_of(scores: NDArray[Any]) -> Floats:
    """log sum over k of e^s, (N, K) -> (N,)."""
    exact = scores.astype(np.float64)
    most = exact.max(1)
    return np.asarray(most + np.log(np.exp(exact - most[:, None]).sum(1)))


def distance_of(features: NDArray[Any], arrays: Arrays) -> Floats:
    """Mahalanobis' distance from the nearest mean of a class, (N, D) -> (N,)."""
    x = features.astype(np.float64) @ arrays["whitening"].astype(np.float64)
    squares = [((x - centre) ** 2).sum(1) for centre in arrays["centres"].astype(np.float64)]
    return np.asarray(np.sqrt(np.min(squares, 0)))


def trust_path(checkpoint: Path) -> Path:
    """Where the calibration of a checkpoint, or of a compressed network, is."""
    return checkpoint.with_suffix(f".{SUFFIX}")


def write_trust(checkpoint: Path, trust: Trust) -> None:
    """Write or replace it at once. Raises CheckpointError."""
    from safetensors.numpy import save

    path, text = trust_path(checkpoint), json.dumps(vars(trust.calibration), allow_nan=False)
    said = {"dnnstack": text, "sha256": _digest(text, trust.arrays)}
    advice = "free some space, or make the folder writable, then calibrate with "
    with explaining(path, "cannot be written", f"{advice}dnnstack eval --calibrate"):
        atomic_write(path, save(dict(trust.arrays), said))


def read_trust(checkpoint: Path, sha256: str, classes: int, features: int) -> Trust:
    """What lies beside a checkpoint with this SHA-256. Raises CheckpointError.

    classes, features: of the network.
    """
    path = trust_path(checkpoint)
    with explaining(path, "cannot be read"):
        size = path.stat().st_size
    if size > _LONGEST_HEADER + 4 * features * (features + classes):
        raise CheckpointError(f"{path}: is larger than that of any such network")
    stored = read_weight_file(path)
    try:
        text = stored.metadata["dnnstack"]
        arrays = {name: stored.arrays[name].values() for name in _ARRAYS if stored.arrays}
        if stored.metadata["sha256"] != _digest(text, arrays):
            raise ValueError("its content does not match its SHA-256")
        said = from_json(text, Calibration)
        if said.checkpoint != sha256:
            raise ValueError(f"it is of another {checkpoint.name}, which was replaced since")
        shapes = [each.shape for each in arrays.values()]
        count = shapes[0][0] if arrays and arrays["centres"].ndim == 2 else 0
        wanted = [(min(count, classes) or 1, features), (5,), (features, features)]
        if arrays and (shapes != wanted or not min(arrays["moments"][1:4:2]) > 0):
            raise ValueError("its numbers are not of this network")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise ValueError("it has a number that is not finite")
    except KeyError:
        raise CheckpointError(f"{path}: is no calibration of dnnstack") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None
    return Trust(said, arrays)


def _digest(text: str, arrays: Arrays) -> str:
    parts = (arrays[name].tobytes() for name in sorted(arrays))
    return sha256_bytes(b"".join([text.encode(), *parts]))
