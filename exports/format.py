"""Formats: each a file of this package with a class that derives from Format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import dataclass_transform

from ..common.errors import ExportError, UsageError
from ..common.options import kinds_in, options_of
from ..common.records import dataclass, record
from ..configs.suggest import expected
from ..graph.graph import Op
from ..graph.ops import Quantize, QuantizedConv2d, QuantizedMatMul
from .plain import Plain

INTEGERS: tuple[type[Op], ...] = (Quantize, QuantizedConv2d, QuantizedMatMul)


@dataclass(frozen=True)
class Twin:
    """What answers as a file does, ``by`` whom: raw (N, C, H, W) -> (N, K), N up to 100."""

    by: str
    answers: Callable[[NDArray[Any]], NDArray[np.floating[Any]]]


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Format(ABC):
    """A kind of file. Fields with a text are its options.

    ``suffix``: of its name; ``ops``: the operations that it can write; ``needs``: an extra of
    dnnstack; ``bound``: the largest difference of an answer that it may have; ``outer``: whether a
    network that is cut within a composite cannot be written.
    """

    kind: ClassVar[str]
    suffix: ClassVar[str]
    ops: ClassVar[frozenset[type[Op]]]
    needs: ClassVar[str] = ""
    bound: ClassVar[float] = 1e-4
    outer: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        record(cls, frozen=True, kw_only=True)

    def check(self, plain: Plain) -> None:
        """Raise ExportError for what the format lacks, before any work."""
        for op in plain.ops:
            if type(op) not in self.ops:
                kinds = {layer.name: layer.kind for layer in plain.trained.network.every_layer()}
                name = op.origin[0].layer
                what = f" ({kinds[name]})" if name in kinds else ""
                integers = " in 8-bit integers" if isinstance(op, INTEGERS) else ""
                raise ExportError(
                    f"layer '{name}'{what}: {self.kind} has no {op.name}{integers}; formats that "
                    f"have it: {', '.join(able(type(op))) or 'none'}"
                )

    @property
    def rounding(self) -> float:
        """The largest difference that weights of fewer bits may make; 0: there are none."""
        return 0.0

    @abstractmethod
    def files(self, plain: Plain) -> Mapping[str, bytes]:
        """The contents by suffix, those of the file itself last under ""; always the same bytes."""

    @abstractmethod
    def twin(self, path: Path, plain: Plain) -> Twin | None:
        """What answers as the files at ``path`` do; None if nothing here can run them."""


@cache
def formats() -> dict[str, type[Format]]:
    """All formats by name."""
    return kinds_in(__package__, Format)


def able(op: type[Op]) -> list[str]:
    """The formats that have an operation."""
    return [name for name, kind in formats().items() if op in kind.ops]


def format_of(path: str, name: str | None, options: Mapping[str, Any]) -> tuple[Format, Path]:
    """The format of this name, else of the path's suffix, with its options. Raises UsageError."""
    suffix = Path(path).suffix
    kinds = formats()
    if name is None:
        name = next((each for each, kind in kinds.items() if kind.suffix == suffix), suffix)
    if name not in kinds:
        raise UsageError(f"format: {expected(tuple(kinds), name, repr(name))}")
    kind = kinds[name]
    known = [each.name for each in options_of(kind)]
    for option in options:
        if option not in known:
            takes = f"takes {' and '.join(known)}" if known else "takes no options"
            raise UsageError(f"{option}: {name} {takes}")
    return kind(**options), Path(path)
