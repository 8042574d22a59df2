"""Code and tables of a document."""

from __future__ import annotations

from itertools import groupby


def blocks(text: str) -> list[str]:
    """What is indented by four spaces, without them."""
    lines = text.splitlines()
    groups = groupby(lines, lambda line: not line or line.startswith("    "))
    found = ["\n".join(line[4:] for line in group).strip("\n") for code, group in groups if code]
    return [f"{block}\n" for block in found if block]
