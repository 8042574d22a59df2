"""Inputs: bytes of sound files that were changed, and JSON with values that do not belong there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

DEEP = "[" * 20_000
# As JSON texts, so that numbers that no float holds can be among them.
WRONG = (
    *("null", "true", "false", "0", "1", "-1", "0.5", "1e400", "-1e400", "1e-400", "NaN"),
    *("Infinity", "9" * 400, "2147483648", "9007199254740993", "-0", '""', '"text"', "[]", "{}"),
    *("[[]]", "[null]", '["a", 1]', '{"a": null}', '"\\u0000\\n\\u001b[31m"', '"\\ud800"', DEEP),
    *('"' + "x" * 5000 + '"', "[" + "1," * 5000 + "1]", "0x10", "1_000", "'a'", "", "}", '"'),
)
_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


@st.composite
def changed(draw: st.DrawFn, seeds: Callable[[], Sequence[bytes]], most: int = 5) -> bytes:
    """A seed after a few changes: bytes set, bits flipped, parts cut, doubled or put elsewhere."""
    known = seeds()
    data = bytearray(draw(st.sampled_from(known)))
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.integers(0, 7))
        size = draw(st.integers(1, 16)) if kind in (2, 3, 4) else 1
        if kind == 0:
            data[at : at + 1] = bytes([draw(st.integers(0, 255))])
        elif kind == 1 and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = data[at : at + size] * draw(st.integers(1, 20))
        elif kind == 4:
            data[at:at] = draw(st.binary(max_size=size))
        elif kind == 5:
            del data[at:]
        elif kind == 6:
            width = draw(st.sampled_from((1, 2, 4, 8)))
            order = draw(st.sampled_from(("little", "big")))
            number = draw(st.sampled_from(_NUMBERS)) % (1 << 8 * width)
            data[at : at + width] = number.to_bytes(width, order)
        else:
            other = draw(st.sampled_from(known))
            part = draw(st.integers(0, len(other)))
            data[at:] = other[part:]
    return bytes(data)


@cache
def _marked(count: int) -> list[str]:
    return [f"@{number}@" for number in range(count)]


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key in value:
            found += _places(value[key], (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value[:8]):
            found += _places(item, (*path, at))
    return found


@st.composite
def wrong_json(draw: st.DrawFn, table: Any, most: int = 3) -> str:
    """The JSON text of a value in which some parts are replaced, removed, doubled or renamed."""
    value = json.loads(json.dumps(table))
    put: dict[str, str] = {}
    for number in range(draw(st.integers(0, most))):
        places = _places(value)
        *above, last = draw(st.sampled_from(places)) or (None,)
        if last is None:
            text = draw(_TEXTS)
            return text
        inside = value
        for key in above:
            inside = inside[key]
        if not isinstance(inside, (dict, list)):
            continue
        kind = draw(st.integers(0, 5))
        if kind == 0:
            del inside[last]
        elif kind == 1 and isinstance(inside, dict):
            inside[draw(st.sampled_from(("", "x", "sha256", "\n", "k" * 3000)))] = inside.pop(last)
        elif kind == 2 and isinstance(inside, list):
            inside[:] = inside * draw(st.sampled_from((2, 3, 50)))
        else:
            inside[last] = mark = _marked(10)[number]
            put[f'"{mark}"'] = draw(_TEXTS)
    text = json.dumps(value, separators=(",", ":"))
    for mark, wrong in put.items():
        text = text.replace(mark, wrong)
    return text


_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=6,
)
_TEXTS = st.sampled_from(WRONG) | st.sampled_from(WRONG) | _ANY.map(json.dumps)


def encoded(texts: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """As bytes; what UTF-8 has no bytes for becomes bytes that are none of UTF-8."""
    return texts.map(lambda text: text.encode("utf-8", "surrogatepass"))


@st.composite
def lines(
    draw: st.DrawFn, sound: Sequence[str], one: st.SearchStrategy[str], most: int = 4
) -> bytes:
    """Lines, most of them sound, some wrong, the last perhaps torn."""
    text = list(sound)
    for _ in range(draw(st.integers(0, most))):
        text.insert(draw(st.integers(0, len(text))), draw(one))
    data = "".join(f"{line}\n" for line in text).encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        data = data[: draw(st.integers(0, len(data)))]
    return data
