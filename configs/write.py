"""Writes a config as readable YAML, and lists the differences between two configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from ..common.errors import ConfigError
from .find import LARGEST_FILE, TOO_LARGE
from .scalars import as_yaml
from .schema.layers import NESTED
from .schema.run import RunConfig

_WIDTH = 100


def effective_yaml(config: RunConfig) -> str:
    """The config, all defaults written out, which reads back as equal; ConfigError if too long."""
    lines: list[str] = []
    for key, value in config.model_dump().items():
        _emit(f"{key}:", value, 0, lines)
    text = "\n".join(lines) + "\n"
    if len(text) > LARGEST_FILE:
        raise ConfigError(f"the config with all defaults written out is {TOO_LARGE}")
    return text


def _emit(head: str, value: Any, indent: int, lines: list[str]) -> None:
    """Append ``head`` and its value: on one line if it fits, else one line per entry."""
    margin = " " * indent
    line = f"{margin}{head} {flow(value)}"
    if isinstance(value, dict) and len(line) > _WIDTH:
        lines.append(margin + head)
        for key, inner in value.items():
            _emit(f"{as_yaml(key)}:", inner, indent + 2, lines)
    elif isinstance(value, (list, tuple)) and (indent == 0 or len(line) > _WIDTH):
        lines.append(margin + head)
        _items(value, indent + 2, lines)
    else:
        lines.append(line)


def _items(items: Sequence[Any], indent: int, lines: list[str]) -> None:
    """Append a list, one entry per line; composites and their branches are nested."""
    margin = " " * indent
    for item in items:
        line = f"{margin}- {_written(item)}"
        kind = next(iter(item)) if isinstance(item, dict) and len(item) == 1 else ""
        if isinstance(item, tuple) and len(line) > _WIDTH:
            lines.append(f"{margin}-")
            _items(item, indent + 2, lines)
        elif kind in NESTED and len(line) > _WIDTH:
            lines.append(f"{margin}- {kind}:")
            for key, value in item[kind].items():
                _emit(f"{key}:", value, indent + 4, lines)
        else:
            lines.extend(_wrapped(line))


def _written(item: Any) -> str:
    """One item of a list: a scalar, or a name with its options."""
    if isinstance(item, dict) and len(item) == 1:
        ((name, options),) = item.items()
        return f"{name}: {flow(options)}"
    return flow(item)


def _wrapped(line: str) -> list[str]:
    """A line in flow style, broken after commas and aligned with its first bracket."""
    lines = []
    margin = " " * (line.find("{") + 1)
    while len(line) > _WIDTH and (cut := line.rfind(", ", len(margin), _WIDTH)) > 0:
        lines.append(line[: cut + 1])
        line = margin + line[cut + 2 :]
    return [*lines, line]


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{as_yaml(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return as_yaml(value)


def differences(old: RunConfig, new: RunConfig) -> list[str]:
    """``optimizer.lr: 0.01 -> 0.02`` for every difference between the two."""
    return list(_differing("", old.model_dump(), new.model_dump()))


def _differing(path: str, old: Any, new: Any) -> Iterator[str]:
    """Key by key if both are of the same kind, else as a whole."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and _alike(old, new):
        for key in dict.fromkeys([*old, *new]):
            yield from _differing(f"{path}.{key}" if path else key, old.get(key), new.get(key))
    elif isinstance(old, tuple) and isinstance(new, tuple):
        for index, (left, right) in enumerate(zip_longest(old, new)):
            yield from _differing(f"{path}.{index}", left, right)
    else:
        before, after = ("absent" if v is None else _short(v) for v in (old, new))
        yield f"{path}: {before} -> {after}"


def _short(item: Any) -> str:
    """The item on one line, shortened if it is long."""
    text = _written(item)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _alike(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return old.get("type") == new.get("type") and bool(old.keys() & new.keys())
