"""The table's part for sums, concatenation and their backward."""

from __future__ import annotations

from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Add, Concat, Conv2d, PadChannels, Slice

from .op_draft import ALPHA, Draft, case


def add(d: Draft, count: int, f: str | None, *shape: int) -> None:
    terms = tuple(d.floats(f"term_{at}", *shape) for at in range(count))
    d.length = count
    alpha = ALPHA.get(f or "", 0.0)
    d.graph.add(Add(terms=terms, y=d.out("y", *shape), activation=f, activation_alpha=alpha))


for shape in ((3, 7), (2, 3, 5, 4), (2, 32, 4, 4), (1, 1)):
    for count in (2, 3, 5):
        case(f"add-{count}-{shape}", add, count, None, *shape)
    for activation in ("relu", "elu", "tanh", "silu", "gelu"):
        case(f"add-{activation}-{shape}", add, 2, activation, *shape)


def twice(d: Draft, *shape: int) -> None:
    x = d.floats("x", *shape)
    d.graph.add(Add(terms=(x, x), y=d.out("y", *shape)))


case("add-twice", twice, 2, 3, 4, 4)


def concat(d: Draft, channels: tuple[int, ...], *rest: int) -> None:
    parts = tuple(d.floats(f"part_{at}", 3, c, *rest) for at, c in enumerate(channels))
    d.graph.add(Concat(parts=parts, y=d.out("y", 3, sum(channels), *rest)))


def cut(d: Draft, channels: int, begin: int, count: int, *rest: int) -> None:
    x = d.floats("x", 3, channels, *rest)
    d.graph.add(Slice(x=x, y=d.out("y", 3, count, *rest), begin=begin))


def pad(d: Draft, channels: int, wanted: int, *rest: int) -> None:
    x = d.floats("x", 3, channels, *rest)
    d.graph.add(PadChannels(x=x, y=d.out("y", 3, wanted, *rest)))


SPLITS: tuple[tuple[int, ...], ...] = ((16, 32), (5, 1, 3), (16, 8, 24, 16), (1, 1))
for rest in ((), (1, 1), (5, 4)):
    for channels in SPLITS:
        case(f"concat-{channels}-{rest}", concat, channels, *rest)
    for channels, begin, count in ((48, 16, 16), (48, 16, 32), (9, 2, 3), (24, 16, 8), (8, 0, 8)):
        case(f"slice-{channels}-{begin}-{count}-{rest}", cut, channels, begin, count, *rest)
    for channels, count in ((16, 32), (3, 7), (5, 6), (24, 64)):
        case(f"pad_channels-{channels}-{count}-{rest}", pad, channels, count, *rest)


# ---------------------------------------------------------------- in a convolution's layout


def laid_out(d: Draft, name: str, channels: int) -> Tensor:
    """A tensor that a convolution made: oneDNN blocks its channels, or puts them last."""
    x = d.floats(f"x_{name}", 2, 5, 4, 3)
    w = d.floats(f"w_{name}", channels, 5, 1, 1, role="parameter")
    y = d.out(name, 2, channels, 4, 3)
    d.graph.add(Conv2d(x=x, w=w, y=y, window=Window((1, 1))))
    d.length = 10
    return y


def add_blocked(d: Draft, channels: int, count: int) -> None:
    terms = tuple(laid_out(d, f"term_{at}", channels) for at in range(count))
    d.graph.add(Add(terms=terms, y=d.out("y", *terms[0].shape)))


def concat_blocked(d: Draft, *channels: int) -> None:
    parts = tuple(laid_out(d, f"part_{at}", count) for at, count in enumerate(channels))
    d.graph.add(Concat(parts=parts, y=d.out("y", 2, sum(channels), 4, 3)))


def cut_blocked(d: Draft, channels: int, begin: int, count: int) -> None:
    x = laid_out(d, "whole", channels)
    d.graph.add(Slice(x=x, y=d.out("y", 2, count, 4, 3), begin=begin))


def pad_blocked(d: Draft, channels: int, wanted: int) -> None:
    """Two runs: what was zero in the first must still be zero in the second."""
    d.steps = 2
    x = laid_out(d, "inner", channels)
    d.graph.add(PadChannels(x=x, y=d.out("y", 2, wanted, 4, 3)))


for channels in (16, 24, 3):
    case(f"add-blocked-{channels}-2", add_blocked, channels, 2)
    case(f"add-blocked-{channels}-3", add_blocked, channels, 3)
for split in ((16, 32), (16, 24, 8), (3, 32)):
    case(f"concat-blocked-{split}", concat_blocked, *split)
for whole, begin, count in ((48, 16, 32), (48, 16, 16), (40, 16, 24), (40, 8, 16), (7, 3, 2)):
    case(f"slice-blocked-{whole}-{begin}-{count}", cut_blocked, whole, begin, count)
for before, wanted in ((16, 32), (24, 48), (3, 20)):
    case(f"pad_channels-blocked-{before}-{wanted}", pad_blocked, before, wanted)
