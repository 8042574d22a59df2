"""Weights from a hub of models: downloaded once, verified, and pinned by their SHA-256.

A hub answers for ENDPOINT/ORG/MODEL/resolve/REVISION/FILE, and its headers say the commit of the
model, and the SHA-256 and the size of a large file. Source:
https://huggingface.co/docs/huggingface_hub/package_reference/file_download.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from annotated_types import Len

from ...common.errors import CheckpointError, DatasetError, explaining
from ...common.files import atomic_write, cache_dir, read_regular, sha256_file, temporary_name
from ...common.machine import main_memory
from ...common.records import dataclass
from ...common.typed_json import Count, Finite, from_json
from ...datasets.download import Downloads, Origin, RemoteFile, obtain
from ..preprocessing import Preprocessing

_ENDPOINT = "https://huggingface.co"
_FILE, _CARD, _PIN = "model.safetensors", "config.json", "pin.json"
_MOST_CARD = 1 << 20
_MODEL = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_FILES = (".safetensors", ".dnnz", ".pth", ".pt", ".bin", ".ckpt", ".onnx", ".yaml")
_RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
_VGGS = [f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")]
TORCHVISION = {f"torchvision/{name}": f"timm/{name}.tv_in1k" for name in (*_RESNETS, *_VGGS)}
"""The models that hold the weights of torchvision's networks."""


@dataclass(frozen=True)
class _Pin:
    """What a name has meant since it was first used: the commit, and the file of that commit."""

    commit: str
    sha256: str
    bytes: Count

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{40} [0-9a-f]{64}", f"{self.commit} {self.sha256}"):
            raise ValueError("it has no commit or no SHA-256")


_Channels = Annotated[tuple[Finite, ...], Len(1, 3)]


@dataclass(frozen=True)
class Pretrained:
    """What weights were trained on: channels of this mean and deviation, pictures of this size."""

    mean: _Channels
    std: _Channels
    input_size: Annotated[tuple[Count, ...], Len(3, 3)]

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing.standardize(self.mean, self.std)

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise ValueError("no mean and deviation of each channel")


@dataclass(frozen=True)
class _Card:
    pretrained_cfg: Pretrained


def pretrained_beside(weights: Path) -> Pretrained | None:
    """What timm's ``config.json`` in the folder of a file says; None if there is none of timm."""
    try:
        text = read_regular(weights.with_name(_CARD), _MOST_CARD)
        return from_json(text, _Card).pretrained_cfg
    except (OSError, ValueError):
        return None


def names_model(reference: str) -> bool:
    """Whether a name can be that of a model of a hub."""
    return bool(_MODEL.fullmatch(reference)) and not reference.endswith(_FILES)


def from_hub(reference: str, downloads: Downloads) -> Path:
    """The file of the model's weights in the cache, which is downloaded if it is not there.

    What a name means is asked once, and pinned; ``HF_ENDPOINT`` names another hub, and ``HF_TOKEN``
    is sent to the hub alone. Raises CheckpointError, also for bytes of another SHA-256.
    """
    name = TORCHVISION.get(reference, reference)
    folder = cache_dir() / "weights" / name
    pin = _pinned(folder / _PIN)
    if pin is None and downloads.offline:
        raise CheckpointError(
            f"{reference}: no such file or run, and {folder} has no weights of this name; "
            "downloads are switched off (--offline or DNNSTACK_OFFLINE)"
        )
    begun = pin or _asked(name, downloads)
    path = folder / begun.commit / _FILE
    if not path.exists():
        _download(name, begun, path, downloads)
    with explaining(path, "cannot be read"):
        if sha256_file(path) != begun.sha256:
            raise CheckpointError(
                f"{path}: is not the file that was pinned, of SHA-256 {begun.sha256}; remove it, "
                "and it is downloaded anew"
            )
    if pin is None:
        with explaining(folder / _PIN, "cannot be written"):
            atomic_write(folder / _PIN, json.dumps(vars(begun)).encode())
    return path


def _pinned(path: Path) -> _Pin | None:
    try:
        return from_json(read_regular(path, 4096), _Pin)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: is damaged: {error}; remove it, and the name means what the hub has now"
        ) from None


def _asked(name: str, downloads: Downloads) -> _Pin:
    """What the hub has by this name now."""
    # Imported only for downloads, because they slow down every start.
    from ...datasets.transfer import TransferError, headers_of, patiently

    mirror, secret = _folder_of(name, "main")
    url = f"{mirror}{_FILE}"
    ask = partial(headers_of, url, "X-Repo-Commit", downloads.timeout, secret)
    try:
        said = patiently(ask, downloads.listener.waiting)
        digest = said.get("X-Linked-Etag") or said.get("ETag") or ""
        size = said.get("X-Linked-Size") or said.get("Content-Length") or ""
        pin = _Pin(said.get("X-Repo-Commit", ""), digest.removeprefix("W/").strip('"'), int(size))
    except (TransferError, ValueError) as error:
        # Such as the page on which a network wants one to log in.
        why = error if isinstance(error, TransferError) else "does not answer as a hub does"
        raise CheckpointError(
            f"{name}: no such file or run, and no weights of a hub: {url} {why}; check the name "
            "and the network; a model that is not public needs a token in HF_TOKEN"
        ) from None
    if pin.bytes > main_memory():
        raise CheckpointError(f"{name}: has {pin.bytes:,} bytes, more than this machine's memory")
    return pin


def _download(name: str, pin: _Pin, path: Path, downloads: Downloads) -> None:
    from ...datasets.transfer import TransferError, transfer

    mirror, secret = _folder_of(name, pin.commit)
    origin = Origin((mirror,), (RemoteFile(_FILE, pin.bytes, pin.sha256),), secret)
    advice = f"If it has changed there, remove {path.parents[1] / _PIN}, which says what it was."
    try:
        obtain(name, path.parent, [_FILE], origin, downloads, advice)
    except DatasetError as error:
        raise CheckpointError(*error.args) from None
    part = Path(temporary_name(path.with_name(_CARD)))
    with explaining(part, "cannot be written"):
        try:
            transfer(mirror + _CARD, part, _MOST_CARD, downloads.timeout, lambda n: None, secret)
            os.replace(part, path.with_name(_CARD))
        except TransferError as error:
            why = f"{mirror}{_CARD} {error}"
            downloads.listener.notice(f"the normalisation of {name} is not known: {why}")
        finally:
            part.unlink(missing_ok=True)


def _folder_of(name: str, revision: str) -> tuple[str, Mapping[str, str]]:
    """Where the files of a model are, and the headers that the hub alone may see."""
    endpoint = (os.environ.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")
    if not endpoint.startswith("https://"):
        raise CheckpointError(f"HF_ENDPOINT: expected https://HOST (got '{endpoint}')")
    token = os.environ.get("HF_TOKEN", "").strip()
    if not re.fullmatch("[!-~]*", token):
        raise CheckpointError("HF_TOKEN: has characters that no token has; set it anew")
    secret = {"Authorization": f"Bearer {token}"} if token else {}
    return f"{endpoint}/{name}/resolve/{revision}/", secret
