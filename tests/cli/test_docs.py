"""What the documents say about commands and configs is so."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from dnnstack.cli.main import dnnstack
from dnnstack.configs import RunConfig, json_schema, load_config
from dnnstack.configs.stages import load_stages
from dnnstack.plugins.loading import load_plugin

from ..support.plugin_files import forgetting
from ..support.rows import rows
from ..support.stored import cases

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "tests" / "support" / "plugins"
DOCUMENTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
]


def test_every_command_that_takes_a_plugin_is_named():
    text = " ".join(_text("docs/plugins.md").split())
    named = re.search(r"cannot be changed\.\) (.*) take `--plugin`", text)
    assert named is not None
    assert set(re.findall(r"`([\w-]+)`", named[1])) == {
        name
        for name, command in dnnstack.commands.items()
        if any("--plugin" in each.opts for each in command.params)
    }


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_code_to_read_is_as_short_as_it_says():
    page = _text("docs/architecture.md")
    text = page.partition("\n## Reading the code\n")[2].partition("\n## ")[0]
    told = re.search(r"(\d+) files of ([\d,]+)\slines", text)
    assert told is not None
    files = re.findall(r"`([\w/]+\.py)`", text)
    lines = sum(len(_text(name).splitlines()) for name in files)
    assert len(files) == int(told[1])
    assert abs(lines - int(told[2].replace(",", ""))) <= 150


def _command_lines() -> Iterator[str]:
    for name in DOCUMENTS:
        for line in _text(name).splitlines():
            ours = "_COMPLETE=" not in line and not line.startswith("    python3 benchmarks/")
            # The batch files are tested as a whole.
            ours = ours and not line.endswith("\\")
            if line.startswith("    ") and "dnnstack " in line and ours:
                yield line[line.index("dnnstack ") :]
    for group in (dnnstack, *dnnstack.commands.values()):
        for line in str(group.epilog).splitlines():
            if "dnnstack " in line:
                yield line[line.index("dnnstack ") :]


@rows("line", sorted(set(_command_lines())))
def test_every_command_line_can_be_typed(line):
    command, *arguments = shlex.split(re.split(r"[|>]", line)[0], comments=True)[1:]
    parsed = dnnstack.commands[command].make_context(command, arguments)
    reference = parsed.params.get("reference")
    if reference is not None and reference.partition(".")[0] in ("digits", "lenet", "mlp"):
        with forgetting():
            for path in parsed.params["plugin"]:
                load_plugin(EXAMPLES / path.name)
            (load_stages if command == "compress" else load_config)(
                reference, parsed.params["overrides"]
            )


def test_every_benchmark_that_is_named_is_there_or_told_to_be_gone():
    there = {path.name for path in (ROOT / "benchmarks").glob("*.py")}
    named = {n for each in DOCUMENTS for n in re.findall(r"benchmarks/(\w+\.py)", _text(each))}
    listed, said, gone = _text("docs/benchmarks.md").partition("These scripts are gone:")
    listed = listed.partition("## The scripts")[2]
    assert said
    assert set(re.findall(r"`(\w+\.py)`", listed)) == there
    assert set(re.findall(r"`(\w+\.py)`", gone)) == named - there


def _anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files_and_headings(name):
    for target in re.findall(r"\]\(([^)\s]+)\)", _text(name)):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            document = (ROOT / name).parent / file if file else ROOT / name
            assert document.is_file(), target
            assert not anchor or anchor in _anchors(document), target


@pytest.mark.parametrize("name", DOCUMENTS)
def test_tests_and_scripts_that_are_named_exist(name):
    for path in re.findall(r"`((?:tests|release)/[\w./*-]+)`", _text(name)):
        assert list(ROOT.glob(path)), path


@pytest.mark.parametrize("name", DOCUMENTS)
def test_prose_fits_on_120_columns(name):
    for line in _text(name).splitlines():
        assert len(line) <= 120 or line.startswith(("|", "    ")), line


def test_every_command_has_an_example():
    for name, command in dnnstack.commands.items():
        assert f"dnnstack {name}" in str(command.epilog)


def test_every_option_and_command_is_described():
    text = _text("docs/commands.md")
    for name, command in dnnstack.commands.items():
        assert f"## `{name}`" in text
        for option in command.params:
            if isinstance(option, click.Option):
                assert re.search(rf"{max(option.opts, key=len)}\b", text)


def _words(schema: Any) -> Iterator[str]:
    """Every key and every kind that a config can name."""
    if isinstance(schema, list):
        for item in schema:
            yield from _words(item)
    elif isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (word for word in schema.get("enum", []) if isinstance(word, str))
        yield from [schema["const"]] if "const" in schema else []
        for value in schema.values():
            yield from _words(value)


@rows("word", sorted(set(_words(json_schema()))))
def test_every_key_and_kind_is_described(word):
    assert re.search(rf"(?<![\w-])`?{re.escape(word)}\b", _text("docs/config.md"))
    assert re.search(rf"`[^`\n]*\b{re.escape(word)}\b[^`\n]*`", _text("docs/config.md"))


def test_the_readme_fits_on_a_screen() -> None:
    first, lines = _text("README.md").partition("\n\n")[2], _text("README.md").splitlines()
    assert first.startswith("dnnstack is free software under the MIT licence.")
    assert len(lines) <= 60


@pytest.mark.parametrize(("section", "path"), cases(__file__, "defaults_are_those_of_the_schema"))
def test_defaults_are_those_of_the_schema(section, path):
    text = _text("docs/config.md").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE))
    model: Any = RunConfig
    for key in path:
        model = model.model_fields[key].annotation
    for key, field in model.model_fields.items():
        # The run's name comes from the file's; the kind of optimizer is described in words.
        if key in ("name", "type"):
            continue
        shown = rows[key].strip("`")
        default = field.default
        if field.is_required():
            assert shown == "required", key
        elif isinstance(default, bool):
            assert shown == str(default).lower(), key
        elif isinstance(default, float):
            assert float(shown) == default, key
        elif isinstance(default, (int, str)):
            assert shown == str(default), key
        else:
            assert shown != "required", key


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_two_lines_in_a_row_are_empty(name):
    """In the code of an example they may be."""
    assert not re.search(r"\n{3,}(?=\S)", _text(name))


def test_tables_of_kinds_are_those_of_the_schema():
    """Write them anew with ``python release/generated.py .``."""
    with_tables = runpy.run_path(str(ROOT / "release" / "generated.py"))["with_tables"]
    text = _text("docs/config.md")
    assert text.count("<!-- table: ") == 5
    assert with_tables(text) == text
