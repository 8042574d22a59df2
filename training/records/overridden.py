"""The overrides with which a run was started, and what follows if a resume does not repeat them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ...common.records import dataclass
from ...configs import RunConfig, differences, effective_yaml, parse_config
from ...configs.layer_places import shown_path
from .formats.checkpoint import Checkpoint

# What may be another in each process, or, as the first weights, comes with the run.
_OF_THE_PROCESS = (
    *("name", "run.device", "run.threads", "run.dir"),
    *("data.root", "data.evaluation_batch_size", "data.residency", "init_from"),
)
_LENGTH = ("train.epochs", "train.max_steps")


@dataclass(frozen=True)
class Forgotten:
    """Overrides of a run that were not repeated, and how the config differs for want of them."""

    overrides: tuple[str, ...]
    changes: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(f"--set {shlex.quote(text)}" for text in self.overrides)


def recorded(
    checkpoint: Checkpoint | None, config: RunConfig, overrides: Sequence[str]
) -> tuple[str, ...]:
    """The overrides that a checkpoint is to name: those that say how to train, not where.

    checkpoint: the one that training went on from, whose overrides hold unless they were forgotten.
    """
    own = tuple(text for text in overrides if not is_under(text, _OF_THE_PROCESS))
    if checkpoint is None:
        return own
    lost = forgotten(checkpoint, config, overrides).overrides
    return (*(text for text in _missing(checkpoint, overrides) if text not in lost), *own)


def forgotten(checkpoint: Checkpoint, config: RunConfig, overrides: Sequence[str]) -> Forgotten:
    """Those of the checkpoint's overrides that nothing replaces and that changed the config."""
    missing, written = _missing(checkpoint, overrides), checkpoint.provenance.config
    if not missing or written == effective_yaml(config):
        return Forgotten((), ())
    lines = differences(parse_config(written, str(checkpoint.path)), config)
    found = {}
    for text in missing:
        keys = _LENGTH if _key(text) in _LENGTH else (_key(text),)
        if own := [line for line in lines if any(_may_have_set(key, line) for key in keys)]:
            found[text] = own
    changes = dict.fromkeys(line for own in found.values() for line in own)
    return Forgotten(tuple(found), tuple(changes))


def not_repeated(
    checkpoint: Checkpoint | None, config: RunConfig, overrides: Sequence[str], total_steps: int
) -> str:
    """What goes on otherwise because overrides of the run were not repeated; "" if nothing does."""
    if checkpoint is None:
        return ""
    found = forgotten(checkpoint, config, overrides)
    if not found.overrides:
        return ""
    others = [line for line in found.changes if not is_under(line, _LENGTH)]
    what = [f"goes on to step {total_steps}"] * (len(others) < len(found.changes))
    what += [f"changes {', '.join(map(shown_change, others))}"] * bool(others)
    it = "it" if len(found.overrides) == 1 else "them"
    return (
        f"the run was started with {found}; without {it} this {' and '.join(what)}: repeat the "
        "--set, or press Ctrl-C"
    )


def shown_change(line: str) -> str:
    """The difference with layers counted as in all messages."""
    path, colon, change = line.partition(": ")
    return f"{shown_path(path.split('.'))}{colon}{change}"


def _missing(checkpoint: Checkpoint, overrides: Sequence[str]) -> list[str]:
    """The overrides of the checkpoint whose keys no override of now sets."""
    given = [_key(text) for text in overrides]
    given += _LENGTH if any(key in _LENGTH for key in given) else ()
    return [text for text in checkpoint.provenance.overrides if not is_under(text, given)]


def _may_have_set(key: str, line: str) -> bool:
    """Whether the override of this key may have made the difference.

    A key may leave out parts, and name a layer where the difference has its index.
    """
    parts = key.split(".")
    if parts[0] == "layers" and len(parts) > 1 and not parts[1].isdigit():
        del parts[1]
    path = iter(_key(line).split("."))
    return all(part in path for part in parts)


def _key(text: str) -> str:
    return re.split("[:=]", text, maxsplit=1)[0].strip()


def is_under(text: str, keys: Sequence[str]) -> bool:
    """Whether a difference or an override is of one of these keys, or of what is below one."""
    own = _key(text)
    return any(own == key or own.startswith(f"{key}.") for key in keys)
