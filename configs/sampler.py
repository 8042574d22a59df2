"""How a search draws values: its key ``sampler``, a word or a mapping with options."""

from __future__ import annotations

from typing import Any

from .block_reader import BlockReader
from .document import Node

SAMPLERS: dict[str, tuple[str, ...]] = {
    "tpe": ("startup_trials", "multivariate"),
    "random": (),
    "nsga2": ("population",),
    "grid": (),
}
"""The options of each."""
DEFAULT = "tpe"
OPTIONS = tuple(option for options in SAMPLERS.values() for option in options)
_LEAST = {"startup_trials": 1, "population": 2}


def read_sampler(node: Node | None, reader: BlockReader) -> dict[str, Any]:
    """The fields of a search that ``sampler`` gives; problems are noted by the reader."""
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        word = reader.word(node, "sampler", (*SAMPLERS,))
        return {"sampler": word} if word else {}
    given = reader.mapping(node, "sampler", ("type", *OPTIONS))
    word = reader.word(given["type"], "sampler.type", (*SAMPLERS,)) if "type" in given else DEFAULT
    found: dict[str, Any] = {"sampler": word}
    for option in [option for option in given if option in OPTIONS]:
        value, path = given[option], f"sampler.{option}"
        owner = next(name for name, options in SAMPLERS.items() if option in options)
        if word is not None and word != owner:
            place = value.key_place or value.place
            reader.at(place, path, f"is an option of {owner}, not of {word}")
        elif option in _LEAST:
            found[option] = reader.number(value, path, _LEAST[option], whole=True)
        else:
            found[option] = reader.flag(value, path)
    return {key: value for key, value in found.items() if value is not None}
