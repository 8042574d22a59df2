"""Names that would take over a terminal or forge a line, and how to find what is left of them."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from pathlib import Path

from dnnstack.training.records.formats.checkpoint import read_checkpoint
from dnnstack.training.records.formats.provenance import Provenance
from dnnstack.training.records.formats.store import FOLDER, write_checkpoint

# A title, a bell, an erased screen, a colour by C1, overrides of direction, DEL, a forged line.
OBEYED = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2066\x7f\u2028\u0085\x0b"
NAME = f"a{OBEYED}\r\nFAKE: accuracy 100%"
# The same in a YAML text, which must escape them.
IN_YAML = '"' + "".join(f"\\U{ord(c):08x}" if not c.isalnum() else c for c in NAME) + '"'
# Without what no name in YAML without quotes can have.
WORD = f"a{OBEYED}"
ALLOWED = "\n"


def left(text: str) -> list[str]:
    """What a terminal would obey, and lines that are not ours."""
    obeyed = {sign for sign in text if sign not in ALLOWED and _is_obeyed(sign)}
    lines = [line for line in text.splitlines() if line.lstrip().startswith("FAKE")]
    return [*map(ascii, sorted(obeyed)), *lines]


def _is_obeyed(sign: str) -> bool:
    # Bidirectional classes by the Unicode database, not by the list in the code.
    overrides = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
    kinds = ("Cc", "Cs", "Zl", "Zp")
    return unicodedata.category(sign) in kinds or unicodedata.bidirectional(sign) in overrides


def spoil(run: Path, name: str = NAME) -> Path:
    """Let the newest checkpoint of a run say ``name`` wherever it can; returns its file."""
    path = max((run / FOLDER).glob("*.safetensors"), key=lambda path: path.stat().st_mtime)
    return rewrite(path, classes=tuple(f"{name}{k}" for k in range(10)), data_folder=name)


def rewrite(path: Path, **changes: object) -> Path:
    """Write a checkpoint again, alone in its folder, with other fields of its provenance."""
    found = read_checkpoint(path)
    provenance: Provenance = replace(found.provenance, **changes)  # type: ignore[arg-type]
    state = replace(found.state, best=None)
    return Path(write_checkpoint(path.parent, dict(found.arrays), state, provenance, keep=1))
