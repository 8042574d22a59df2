"""How a search draws values: its key ``sampler``, a word or a mapping with options."""

from __future__ import annotations

from typing import Any

from .block_reader import BlockReader
from .document import Node
from .schema.search import SAMPLERS

DEFAULT = "tpe"
OPTIONS = tuple(option for options in SAMPLERS.values() for option in options)
_TYPE = {"enum": [*SAMPLERS]}


def read_sampler(node: Node | None, reader: BlockReader) -> dict[str, Any]:
    """The fields of a search that ``sampler`` gives; problems are noted by the reader."""
    if node is None:
        return {}
    if not isinstance(node.value, dict):
        word = reader.value(node, "sampler", _TYPE)
        return {"sampler": word} if word else {}
    given = reader.mapping(node, "sampler", ("type", *OPTIONS))
    word = reader.value(given["type"], "sampler.type", _TYPE) if "type" in given else DEFAULT
    found = {"sampler": word} if word else {}
    for owner, options in SAMPLERS.items():
        own = {option: given[option] for option in options if option in given}
        if word in (None, owner):
            found |= reader.values(own, "sampler", options)
            continue
        for option, value in own.items():
            text = f"is an option of {owner}, not of {word}"
            reader.at(value.key_place or value.place, f"sampler.{option}", text)
    return found
