"""The statements, constants and memory of a network in C."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ExportError
from ..graph import ops
from ..graph.geometry import Window
from ..graph.graph import Op, Tensor
from .c_integers import FixedPoint, of_pixels, pixels_as_integers, starts_in_integers
from .plain import AFFINE, Plain

Array = NDArray[Any]
Size = tuple[int, int, int]
_BYTES = {"float": 4, "double": 8, "int8_t": 1, "uint8_t": 1, "int32_t": 4, "window": 48}
_LOWEST = -float(np.finfo(np.float32).max)
# What a function of C takes besides x; None: the operation's alpha.
_SECOND = {"relu": 0.0, "heaviside": 0.0, "leaky_relu": None, "elu": None}
_IN_PLACE = (*AFFINE, ops.Activation, ops.Heaviside, ops.Softmax)


class Writer:
    """What a file says of a network.

    ``lines``: statements; ``constants`` that they name, and their ``bytes``; ``places``: of tensors
    in the arena, None for one that lies where the caller wants the answer; ``arena``: its floats;
    ``most_runs``: as many stretches of numbers as a window has.
    """

    def __init__(self, plain: Plain) -> None:
        self.plain = plain = plain.fused()
        self.lines: list[str] = []
        self.constants: list[str] = []
        self.bytes, self.most_runs = 0, 1
        self.integers = _integers(plain)
        self.pooled = _pooled(plain)
        self.untouched = _untouched(plain)
        taken = {*self.pooled.values(), self.untouched}
        steps = {op: self.made(op) for op in plain.ops if op not in taken}
        self.places, self.arena = _placed(plain, steps, self.integers)
        if plain.x in self.places:
            name, kind = ("pixels", "float") if plain.pixels else ("values", "double")
            scales = [self.stored(v, kind) for v in (plain.scale, plain.shift)]
            sizes = (plain.x.size, plain.scale.size)
            self.call(f"scale_{name}", "given", *scales, self(plain.x), *sizes)
        for op in steps:
            before = len(self.lines)
            _CODE[type(op)](op, self)
            activation = getattr(op, "activation", None)
            # Products have a floor instead.
            if activation and (activation != "relu" or isinstance(op, ops.Add)):
                alpha = getattr(op, "activation_alpha", 0.0)
                self.apply(op, activation, alpha, op.writes()[0])
            if len(self.lines) > before:
                self.lines[-1] += f" /* {comment(op.origin[0].layer)} */"

    def __call__(self, tensor: Tensor | None) -> str:
        """The address of a tensor."""
        if tensor is None:
            return "0"
        if tensor.role in ("parameter", "state"):
            return self.stored(self.plain.constant(tensor))
        if self.untouched and tensor == self.untouched.q:
            return "given"
        place = self.places[tensor]
        at = "answer" if place is None else f"arena + {place}"
        return f"(uint8_t *)({at})" if tensor in self.integers else at

    def call(self, name: str, *given: object) -> None:
        self.lines.append(f"{name}({', '.join(map(str, given))});")

    def apply(self, op: Op, kind: str, alpha: float, x: Tensor) -> None:
        y, second = op.writes()[0], _SECOND.get(kind, 1.0)
        name = "hyperbolic_tangent" if kind == "tanh" else kind
        second = alpha if second is None else second
        self.call("apply", name, number(second), self(x), self(y), x.size)

    def stored(self, array: Array, kind: str = "float") -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(constant(name, array, kind))
        self.bytes += array.size * _BYTES[kind]
        return name

    def window(self, op: Any, x: Tensor, y: Tensor) -> str:
        """The address of what C calls a window; a dense layer has one of a single pixel."""
        (h, w, c), (p, q, o) = size_of(x), size_of(y)
        window, groups = getattr(op, "window", Window((1, 1))), getattr(op, "groups", 1)
        pool: Any = self.pooled.get(op)
        ph, pw = pool.window.kernel if pool else (1, 1)
        # Rows and columns that no window of the pooling reaches are not computed.
        sizes = (c, o, h, w, p // ph * ph, q // pw * pw, *window.kernel, *window.stride)
        numbers = (*sizes, *window.padding[::2], *window.dilation, groups, ph, pw)
        apart = 1 if groups == 1 and window.dilation[1] == 1 else window.kernel[1]
        self.most_runs = max(self.most_runs, window.kernel[0] * apart)
        name = f"c{len(self.constants)}"
        self.constants.append(f"static const window {name} = {{{', '.join(map(str, numbers))}}};")
        self.bytes += _BYTES["window"]
        return f"&{name}"

    def made(self, op: Op) -> Tensor:
        """What an operation writes, after the pooling that it takes along."""
        tensor: Tensor = self.pooled.get(op, op).writes()[0]
        return tensor


def size_of(tensor: Tensor) -> Size:
    """(height, width, channels); of vectors the numbers are channels."""
    c, h, w = (*tensor.shape[1:], 1, 1)[:3]
    return h, w, c


def is_flat(tensor: Tensor) -> bool:
    """Whether channels last is the same order as channels first."""
    h, w, c = size_of(tensor)
    return c == 1 or h * w == 1


def _integers(plain: Plain) -> dict[Tensor, ops.Quantization]:
    """The tensors that are kept in bytes."""
    found: dict[Tensor, ops.Quantization] = {}
    for op in plain.ops:
        to = getattr(op, "to", None) or found.get(op.reads()[0])
        if to and (getattr(op, "to", None) or isinstance(op, ops.Reshape | ops.Pool2d)):
            found[op.writes()[0]] = to
    return found


def _untouched(plain: Plain) -> ops.Quantize | None:
    """What makes integers of pixels, if these are the pixels themselves."""
    op: Any = plain.ops[0] if plain.ops else None
    if not (isinstance(op, ops.Quantize) and starts_in_integers(plain)):
        return None
    raw = np.arange(256)[:, None]
    same = (pixels_as_integers(raw, plain, op.to) == raw).all()
    return op if same else None


def _pooled(plain: Plain) -> dict[Op, Op]:
    """Max-pooling that a convolution takes along, so that the larger picture is never kept."""
    found: dict[Op, Op] = {}
    for op in plain.ops:
        before: Any = plain.graph.producer(op.x) if isinstance(op, ops.Pool2d) else None
        if (
            isinstance(before, ops.Conv2d | ops.QuantizedConv2d)
            and getattr(before, "activation", None) in (None, "relu")
            and isinstance(op, ops.Pool2d)
            and (op.kind, op.window) == ("max", Window(op.window.kernel, op.window.kernel))
            and len(plain.graph.consumers(op.x)) == 1
        ):
            found[before] = op
    return found


def _placed(
    plain: Plain, steps: Mapping[Op, Tensor], integers: Iterable[Tensor]
) -> tuple[dict[Tensor, int | None], int]:
    """Places of tensors in the arena, in floats, and its size; steps: what each operation writes.

    A tensor takes the place of one that is no longer needed: of its own input, where each number
    depends on the same one alone, else of any. The largest are placed first.
    """
    last: dict[Tensor, float] = {plain.x: -1}
    for at, op in enumerate(steps):
        last |= dict.fromkeys((*op.reads(), steps[op]), at)
    last[plain.y] = inf
    homes: dict[Tensor, Tensor] = {}
    lives: dict[Tensor, tuple[float, float]] = {}
    if not starts_in_integers(plain):
        homes[plain.x], lives[plain.x] = plain.x, (-1, last[plain.x])
    for at, (op, made) in enumerate(steps.items()):
        home = homes.get(op.reads()[0], made)
        in_place = isinstance(op, _IN_PLACE) or (isinstance(op, ops.Add) and len(op.terms) == 2)
        if not (_is_renamed(op) or (in_place and home in lives and lives[home][1] <= at)):
            home = made
        homes[made] = home
        begin, end = lives.get(home, (at, at))
        lives[home] = begin, max(end, last[made])
    sizes = {home: -(-home.size // 4) if home in integers else home.size for home in lives}
    # The answer is written where the caller wants it.
    answer = homes[plain.y] if is_flat(plain.y) and plain.y not in integers else None
    places: dict[Tensor, int] = {}
    for home in sorted(lives.keys() - {answer}, key=lambda home: (-sizes[home], lives[home])):
        at = 0
        for other, place in sorted(places.items(), key=lambda item: item[1]):
            meet = lives[other][0] <= lives[home][1] and lives[home][0] <= lives[other][1]
            if meet and place < at + sizes[home]:
                at = max(at, place + sizes[other])
        places[home] = at
    arena = max((place + sizes[home] for home, place in places.items()), default=0)
    return {tensor: places.get(home) for tensor, home in homes.items()}, arena


def _is_renamed(op: Op) -> bool:
    return isinstance(op, ops.Reshape) and is_flat(op.x) and is_flat(op.y)


def comment(text: str) -> str:
    return re.sub(r"\*/|/\*|\?\?", "..", text)


def number(value: float) -> str:
    text = f"{np.float32(value):.9g}"
    return f"{text}{'' if set(text) & set('.e') else '.0'}f"


def constant(name: str, array: Array, kind: str = "float") -> str:
    """The definition of an array. Raises ExportError for numbers that C cannot write."""
    if not np.isfinite(array).all():
        raise ExportError("c: some numbers are not finite; export an earlier checkpoint")
    write: Callable[[Any], str] = {"float": number, "double": repr}.get(kind, lambda v: str(int(v)))
    items = [write(value) for value in array.reshape(-1).tolist()]
    rows = ",\n".join(", ".join(items[at : at + 12]) for at in range(0, len(items), 12))
    return f"static const {kind} {name}[{len(items)}] = {{\n{rows}\n}};"


def _in_blocks(w: Array, groups: int = 1) -> Array:
    """Weights (O, C, kh, kw) as C reads them: those of 16, 4 or 1 outputs side by side."""
    found = []
    for group in w.reshape(groups, -1, *w.shape[1:]):
        while len(group):
            count = next(n for n in (16, 4, 1) if n <= len(group))
            found.append(group[:count].transpose(2, 3, 1, 0).reshape(-1))
            group = group[count:]
    return np.concatenate(found)


def _product(op: Any, of: Writer) -> None:
    if isinstance(op, ops.Conv2d):
        x, w, y = op.x, of.plain.constant(op.w), op.y
    else:
        x, w, y = op.a, of.plain.matrix(op)[:, :, None, None], op.c
    stored = of.stored(_in_blocks(w, getattr(op, "groups", 1)))
    floor = number(0.0 if op.activation == "relu" else _LOWEST)
    given = (of(x), 0, stored, of(op.bias), f"&(result){{.floor = {floor}}}", of(of.made(op)))
    of.call("conv_floats", *given, of.window(op, x, y))


def _integer_product(op: Any, of: Writer) -> None:
    fixed, y = FixedPoint.of(op, of.plain), of(of.made(op))
    w = fixed.w.reshape(*fixed.w.shape[:2], *op.w.shape[2:] or (1, 1))
    stored = of.stored(_in_blocks(w, getattr(op, "groups", 1)), "int8_t")
    given = (of(op.x), 128 * op.given.signed, stored, of.stored(fixed.bias, "int32_t"))
    floor = number(0.0 if op.relu else _LOWEST)
    result = f".scale = {of.stored(fixed.scale)}, .floor = {floor}" if op.to is None else ""
    if op.to is not None:
        scales = of.stored(fixed.multiplier, "int32_t"), of.stored(fixed.shift, "uint8_t")
        result = "{}, {}, 0, {}, {}, 0".format(*scales, fixed.low, fixed.high)
    of.call("conv_integers", *given, f"&(result){{{result}}}", y, of.window(op, op.x, op.y))


def _quantize(op: ops.Quantize, of: Writer) -> None:
    bounds = op.to.bounds
    if op.x in of.places:
        of.call("quantize", of(op.x), number(op.to.scale), *bounds, of(op.q), op.x.size)
        return
    times, plus, shift = of_pixels(of.plain, op.to)
    scales = of.stored(times, "int32_t"), of.stored(plus, "int32_t"), shift
    of.call("quantize_pixels", "given", *scales, *bounds, of(op.q), op.x.size, times.size)


def _affine(op: Any, of: Writer) -> None:
    both = of.plain.affine(op)
    stored = (of.stored(each, "double") for each in both)
    of.call("scale_values", of(op.x), *stored, of(op.y), op.x.size, both[0].size)


def _pool(op: ops.Pool2d, of: Writer) -> None:
    kind, sign = "floats", 0
    if op.x in of.integers:
        kind, sign = "integers", 128 * of.integers[op.x].signed
    mean = int(op.kind == "avg")
    of.call(f"pool_{kind}", of(op.x), sign, mean, of(op.y), of.window(op, op.x, op.y))


def _add(op: ops.Add, of: Writer) -> None:
    for x, term in zip((op.terms[0], *[op.y] * len(op.terms)), op.terms[1:], strict=False):
        of.call("add", of(x), of(term), of(op.y), op.y.size)


def _copy(source: str, x: Tensor, y: Tensor, first: int, count: int, of: Writer) -> None:
    """Channels from a place in x on, or zeros of "0", as those from ``first`` on of y."""
    h, w, to = size_of(y)
    of.call("copy_channels", source, size_of(x)[2], f"{of(y)} + {first}", to, count, h * w)


def _concat(op: ops.Concat, of: Writer) -> None:
    first = 0
    for part in op.parts:
        _copy(of(part), part, op.y, first, part.shape[1], of)
        first += part.shape[1]


def _pad_channels(op: ops.PadChannels, of: Writer) -> None:
    own, all_of_them = op.x.shape[1], op.y.shape[1]
    _copy(of(op.x), op.x, op.y, 0, own, of)
    _copy("0", op.x, op.y, own, all_of_them - own, of)


def _reshape(op: ops.Reshape, of: Writer) -> None:
    if not _is_renamed(op):
        size = 1 if op.x in of.integers else 4
        of.call("reshape", of(op.x), *size_of(op.x), of(op.y), *size_of(op.y), size)


def _norm(op: Any, of: Writer) -> None:
    size, depth = (1, op.size) if isinstance(op, ops.Lrn) else (op.size, 1)
    numbers = map(number, (op.alpha / (size * size * depth), op.beta, op.k))
    of.call("local_norm", of(op.x), *size_of(op.x), size, depth, *numbers, of(op.y))


_CODE: dict[type[Op], Callable[[Any, Writer], None]] = {
    **dict.fromkeys(AFFINE, _affine),
    ops.Activation: lambda op, of: of.apply(op, op.kind, op.alpha, op.x),
    ops.Add: _add,
    ops.Concat: _concat,
    ops.Conv2d: _product,
    ops.DivisiveNorm: _norm,
    ops.Heaviside: lambda op, of: of.apply(op, "heaviside", 0.0, op.x),
    ops.Lrn: _norm,
    ops.MatMul: _product,
    ops.Pad2d: lambda op, of: of.call(
        *("pad", of(op.x), *size_of(op.x), *op.padding[::2], *size_of(op.y)[:2]),
        *(number(op.value), of(op.y)),
    ),
    ops.PadChannels: _pad_channels,
    ops.Pool2d: _pool,
    ops.Quantize: _quantize,
    ops.QuantizedConv2d: _integer_product,
    ops.QuantizedMatMul: _integer_product,
    ops.Rbf: lambda op, of: of.call(
        "rbf", of(op.x), of.stored(np.array(op.centres)), op.x.size, of(op.y), op.y.size
    ),
    ops.Reshape: _reshape,
    ops.Slice: lambda op, of: _copy(f"{of(op.x)} + {op.begin}", op.x, op.y, 0, op.y.shape[1], of),
    ops.Softmax: lambda op, of: of.call(
        "softmax", of(op.x), int(op.log), of(op.y), op.x.size // op.x.shape[1], op.x.shape[1]
    ),
}
OPS = frozenset(_CODE)
