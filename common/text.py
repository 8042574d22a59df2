"""Words of messages and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

from .cells import cells
from .printable import printable


def shape_text(shape: Sequence[int]) -> str:
    """``20x24x24``; ``20x24`` for a sequence (20, 1, 24)."""
    if len(shape) == 3 and samples_of(shape) == "sequences":
        shape = shape[0], shape[2]
    return "x".join(map(str, shape))


def samples_of(shape: Sequence[int]) -> str:
    """What samples (C, H, W), or (H, W), are called: rows, sequences or pictures."""
    height, width = shape[-2:] or (2, 2)
    return "pictures" if height > 1 else "sequences" if width > 1 else "rows"


def cut(text: str, width: int, measured: Callable[[str], int] = cells) -> str:
    """The text, made printable; its end is an ellipsis if it takes more than ``width`` columns."""
    text = printable(text)
    if measured(text) <= width:
        return text
    if text.isascii():
        return f"{text[: width - 1]}…"
    from wcwidth import iter_graphemes

    kept, room = "", width - 1
    # What is shown as one sign is not cut in two.
    for sign in iter_graphemes(text):
        room -= measured(sign)
        if room < 0:
            break
        kept += sign
    return f"{kept}…"


def nfc(text: str) -> str:
    """The text in Unicode's composed form, in which names are compared."""
    if text.isascii():
        return text
    from unicodedata import normalize

    return normalize("NFC", text)


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def with_article(word: str) -> str:
    """``a layer``, ``an optimizer``."""
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"


def versions_text(versions: Mapping[str, str]) -> str:
    """``oneDNN 3.2.0, threads 2``."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def suggested(word: str, known: Sequence[str], then: str) -> str:
    """``did you mean 'mnist'? Known``, or only ``known``, which is ``then``."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'? {then.capitalize()}" if close else then
