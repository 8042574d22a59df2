"""The record of the plugins that may run, after a fault while an answer is written to it."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

RECORD = Path("state/dnnstack/trusted-plugins")
EARLIER = f"{'0' * 64} '/elsewhere/other.py'"
CONFIG, PLUGIN = "mine.yaml", "mine.py"
QUESTION = "Have you read it, and may it run from now on? [y/N] "
_CODE = """\
from dnnstack.plugins import Schedule

class Flat(Schedule):
    kind = "flat"
    def rates(self, lr, length):
        return lr + 0 * length.t
"""


class Typed(io.StringIO):
    """What a person types on a terminal."""

    def isatty(self) -> bool:
        return True


def prepare(root: Path, work: Path) -> None:
    """A config that names a plugin, and a record that allows another one."""
    text = (work / "net.yaml").read_text("utf-8")
    (work / CONFIG).write_text(f"plugins: {PLUGIN}\nschedule: flat\n{text}", "utf-8")
    (work / PLUGIN).write_text(_CODE, "utf-8")
    record = root / RECORD
    record.parent.mkdir(parents=True, mode=0o700)
    record.write_text(f"{EARLIER}\n", "ascii")
    record.chmod(0o600)


def check_consent(root: Path, work: Path, status: int, err: str) -> None:
    """What was allowed before is allowed, and nothing more than the answer is in the record."""
    code = work / PLUGIN
    own = f"{hashlib.sha256(code.read_bytes()).hexdigest()} {str(code)!a}"
    found = (root / RECORD).read_text("ascii")
    whole = [f"{EARLIER}\n", f"{EARLIER}\n{own}\n"]
    assert found in whole, found
    # One that stands in the record may still be lost with the power, which is said as well.
    if status == 0 and "the answer cannot be remembered: " not in err:
        assert found == whole[1], found
