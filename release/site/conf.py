"""Sphinx's settings for the site: ``sphinx-build -W --keep-going -c release/site docs site``.

docs/index.md lists the pages by kind; the site's menu is that list. The pages of docs/reference are
filled in here, from the commands, the schema and the docstrings as they are installed.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import click
import dnnstack
from dnnstack.cli.main import dnnstack as commands
from dnnstack.configs.schema.base import Model, in_order
from dnnstack.configs.schema.extended import config_model
from dnnstack.configs.schema.shape import models_in

project, author = "dnnstack", "the dnnstack authors"
version = release = installed("dnnstack")
copyright = f"{author}, MIT licence"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"dnnstack {version}"
html_show_sphinx = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"

_SECTION = re.compile(r"^## (.*)\n((?:(?!## ).*\n?)*)", re.MULTILINE)
_row = runpy.run_path(str(Path(__file__).parents[1] / "generated.py"))["_row"]


def _menu(index: str) -> Iterator[str]:
    """A hidden table of contents for each section of the index."""
    for title, text in _SECTION.findall(index):
        pages = re.findall(r"^- \[([^\]]*)\]\(([\w/-]+)\.md\)", text, re.MULTILINE)
        entries = [f"{name} <{page}>" for name, page in pages]
        yield from ["```{toctree}", ":hidden:", f":caption: {title}", "", *entries, "```", ""]


def _commands() -> Iterator[str]:
    for name, command in commands.commands.items():
        context = click.Context(command, info_name=f"dnnstack {name}")
        yield from [f"## {name}", "", "```text", command.get_help(context), "```", ""]


def _keys() -> Iterator[str]:
    waiting: list[tuple[str, type[Model]]] = [("", config_model())]
    for place, model in waiting:  # which grows
        yield from [f"## {place or 'Top level'}", "", "| key | default | meaning |"]
        yield "| --- | --- | --- |"
        for key in in_order(model, model.model_fields):
            field = model.model_fields[key]
            yield _row("", key, field).removeprefix("|")
            inner = [] if key in ("layers", "loss") else models_in(field.annotation)
            if len(inner) == 1:
                waiting.append((f"{place}.{key}".lstrip("."), inner[0]))
        yield ""


def _python() -> Iterator[str]:
    for name in dnnstack.__all__:
        kind = "autoclass" if isinstance(getattr(dnnstack, name), type) else "autofunction"
        members = ["   :members:"] if kind == "autoclass" else []
        yield from ["```{eval-rst}", f".. {kind}:: dnnstack.{name}", *members, "```", ""]


_FILLED = {"commands": _commands, "keys": _keys, "python": _python}


def _fill(app: Any, page: str, text: list[str]) -> None:
    if page == "index":
        text[0] += "\n" + "\n".join(_menu(text[0]))
    folder, _, name = page.partition("/")
    if folder == "reference":
        text[0] += "\n" + "\n".join(_FILLED[name]())


def setup(app: Any) -> None:
    app.connect("source-read", _fill)
