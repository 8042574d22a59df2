"""Counts the words that people wrote by hand: ``python3 release/words.py`` prints a row a page.

What a script writes does not count: tables between ``<!-- table: name -->`` and ``<!-- end -->``,
and docs/licences.md. Nor do lines of code, which are indented by four columns.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_GENERATED = re.compile(r"<!-- table: \w+ -->\n.*?<!-- end -->", re.DOTALL)
_CODE = re.compile(r"^    [^\n]*$|^```.*?^```$", re.MULTILINE | re.DOTALL)


def words(text: str) -> int:
    return len(_CODE.sub("", _GENERATED.sub("", text)).split())


def pages() -> dict[str, int]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {
        path.relative_to(ROOT).as_posix(): words(path.read_text(encoding="utf-8"))
        for path in found
        if path.name != "licences.md"
    }


if __name__ == "__main__":
    counted = pages()
    for name, count in counted.items():
        print(f"{count:7,} {name}")
    print(f"{sum(counted.values()):7,} in all")
