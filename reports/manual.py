"""The pages of the documents that are installed with dnnstack, for ``dnnstack help``."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import NamedTuple

from ..common.errors import UsageError
from ..common.printable import paragraph

PAGES = Path(__file__).parents[1] / "docs"
_ENTRY = re.compile(r"- \[[^]]*\]\(([\w/-]+)\.md\): (.*(?:\n  .*)*)")
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)


class Topic(NamedTuple):
    """A page: the section of index.md that lists it, the name to type, and what it is about."""

    section: str
    name: str
    about: str


class Section(NamedTuple):
    """A part of a page from its heading to the next one that is not below it."""

    topic: str
    title: str
    text: str


def topics() -> list[Topic]:
    """The pages that are installed, in the order in which index.md lists them."""
    found = []
    for section in _sections("index")[1:]:
        for name, about in _ENTRY.findall(section.text):
            if (PAGES / f"{name}.md").is_file():
                found.append(Topic(section.title, name, " ".join(about.split())))
    return found


def contents() -> str:
    """What a person can ask for: the names of all pages under the titles of their sections."""
    lines, title = [], ""
    for section, name, about in topics():
        lines += ["", section] if section != title else []
        lines.append(f"  {name:<24}{about}")
        title = section
    return paragraph([*lines[1:], "", "dnnstack help TOPIC shows a page, --search WORD finds one"])


def page(topic: str) -> str:
    """The text of a page, or of ``page#anchor`` that section alone.

    topic: as the index or a message names it, with or without ``docs/`` and ``.md``.
    UsageError: there is no such page or section; the message says which are near.
    """
    name, _, anchor = topic.removeprefix("docs/").partition("#")
    name = name.removesuffix(".md")
    names = {found: each.name for each in topics() for found in (each.name, Path(each.name).name)}
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UsageError(
            f"there is no page {name!r}; {hint}dnnstack help lists all pages, "
            f"--search {name} the sections with that word"
        )
    sections = _sections(names[name])
    if not anchor:
        return sections[0].text
    for section in sections:
        if section.topic.endswith(f"#{anchor}"):
            return section.text
    raise UsageError(f"the page {name!r} has no section {anchor!r}; dnnstack help {name} shows it")


def search(word: str) -> str:
    """The sections of all pages in which a text occurs, in any case, with what to type for each.

    UsageError: it occurs nowhere.
    """
    lines = []
    for topic in topics():
        for section in _sections(topic.name):
            own = _HEADING.split(section.text, maxsplit=2)
            if word.lower() in "".join(own[2:4]).lower():
                lines.append(f"{section.topic:<48}  {section.title}")
    if not lines:
        raise UsageError(f"no page has {word!r}; dnnstack help lists all pages")
    return paragraph(lines)


def _sections(name: str) -> list[Section]:
    """The whole page, then each of its sections."""
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    heads = list(_HEADING.finditer(text))
    found = []
    for place, head in enumerate(heads):
        after = (each.start() for each in heads[place + 1 :] if len(each[1]) <= len(head[1]))
        anchor = re.sub(r"[^\w -]", "", head[2].lower()).replace(" ", "-")
        topic = f"{name}#{anchor}" if place else name
        found.append(Section(topic, head[2], text[head.start() : next(after, len(text))]))
    return found
