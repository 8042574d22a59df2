"""``dnnstack help``: pages that are installed, sections of them, and a search."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import dnnstack.common.errors as errors
import pytest
from click.testing import CliRunner
from dnnstack.cli import console
from dnnstack.cli.main import dnnstack
from dnnstack.common.errors import DnnstackError, UsageError
from dnnstack.reports import manual

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """Two pages of a folder, and one that is listed and not installed."""
    monkeypatch.setattr(manual, "PAGES", tmp_path)
    (tmp_path / "index.md").write_text(
        "# Index\n\nA [link](one.md): no entry\n\n## First\n\n- [One](one.md): of\n  the first\n"
        "- [Gone](gone.md): not here\n\n## Second\n\n- [Two](sub/two.md): the other\n"
    )
    one = "# One\n\nAlpha.\n\n## `A b`, c-d?\n\nBeta.\n\n### Below\n\nGamma.\n\n## Last\n\nalpha\n"
    (tmp_path / "one.md").write_text(one)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "two.md").write_text("# Two\n\nDelta.\n")
    return one


def test_pages_are_listed_in_the_order_of_the_index(pages):
    assert manual.topics() == [
        ("First", "one", "of the first"),
        ("Second", "sub/two", "the other"),
    ]
    assert manual.contents().splitlines() == [
        *("First", "  one                     of the first", ""),
        *("Second", "  sub/two                 the other", ""),
        "dnnstack help TOPIC shows a page, --search WORD finds one",
    ]


@pytest.mark.parametrize("topic", ["one", "one.md", "docs/one.md"])
def test_a_page_is_found_by_what_messages_call_it(pages, topic):
    assert manual.page(topic) == pages


def test_a_page_is_found_without_its_folder(pages):
    assert manual.page("two") == manual.page("docs/sub/two.md") == "# Two\n\nDelta.\n"


def test_a_section_ends_before_the_next_one_that_is_not_below_it(pages):
    whole = "## `A b`, c-d?\n\nBeta.\n\n### Below\n\nGamma.\n\n"
    assert manual.page("one#a-b-c-d") == manual.page("docs/one.md#a-b-c-d") == whole
    assert manual.page("one#below") == "### Below\n\nGamma.\n\n"
    assert manual.page("one#last") == "## Last\n\nalpha\n"


def test_what_is_not_there_names_what_is_near(pages):
    with pytest.raises(UsageError, match=r"^there is no page 'onr'; did you mean 'one'\? dnnstack"):
        manual.page("onr")
    with pytest.raises(UsageError, match=r"^there is no page 'gone'; did you mean 'one'\?"):
        manual.page("gone")
    with pytest.raises(UsageError, match=r"^there is no page 'xyz'; dnnstack help .*--search xyz"):
        manual.page("xyz")
    with pytest.raises(
        UsageError, match=r"^the page 'one' has no section 'las'; dnnstack help one"
    ):
        manual.page("one#las")
    with pytest.raises(UsageError, match=r"^no page has 'omega'; dnnstack help lists all pages"):
        manual.search("omega")


def test_a_search_finds_each_section_by_its_own_words(pages):
    found = [line.split(None, 1) for line in manual.search("ALPHA").splitlines()]
    assert found == [["one", "One"], ["one#last", "Last"]]
    assert [line.split()[0] for line in manual.search("gamma").splitlines()] == ["one#below"]
    assert [line.split()[0] for line in manual.search("a b").splitlines()] == ["one#a-b-c-d"]


def test_every_page_is_listed_and_installed():
    names = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    listed = [name for _, name, _ in manual.topics()]
    assert sorted(listed) == sorted(names - {"index"})


def test_every_class_of_error_has_its_section():
    classes = [
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, DnnstackError)
    ]
    titles = re.findall(r"^## `(\w+)`$", manual.page("messages"), re.MULTILINE)
    assert sorted(titles) == sorted(classes)
    assert len(manual.page("messages#lockederror").splitlines()) > 3


def test_every_page_that_a_text_of_ours_names_is_there():
    root = DOCS.parent
    named = {
        name
        for path in root.glob("*/**/*.py")
        if path.relative_to(root).parts[0] not in ("tests", "benchmarks", "release", "build")
        for name in re.findall(r"dnnstack help (\w[\w/#-]+)", path.read_text("utf-8"))
    }
    named -= {"TOPIC", "lists"}
    assert {"explain#why-a-call-is-slow", "finetuning"} <= named
    assert all(manual.page(name) for name in named)


def answered(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(dnnstack, ["help", *words])
    return done.exit_code, done.output


def test_the_command_shows_pages_and_options_of_commands(pages):
    assert answered() == (0, f"{manual.contents()}\n")
    assert answered("one#last") == (0, "## Last\n\nalpha\n")
    assert answered("--search", "delta") == (0, f"{manual.search('delta')}\n")
    status, text = answered("runs")
    assert (status, text.splitlines()[0]) == (0, "Usage: dnnstack runs [OPTIONS]")
    status, text = answered("one", "--search", "x")
    assert status == 2
    assert "name a page, or a word to search for, not both" in text


@pytest.mark.parametrize(("lines", "terminal", "paged"), [(24, 1, 1), (23, 1, 0), (24, 0, 0)])
def test_only_what_is_longer_than_a_terminal_is_paged(monkeypatch, lines, terminal, paged):
    shown: list[str] = []
    monkeypatch.setattr(console, "get_terminal_size", lambda: SimpleNamespace(lines=24))
    monkeypatch.setattr(console, "columns", lambda stream: 12)
    monkeypatch.setattr("sys.stdout.isatty", lambda: bool(terminal))
    monkeypatch.setattr(console.click, "echo_via_pager", lambda text: shown.append(f"< {text}"))
    monkeypatch.setattr(console, "tell", lambda text: shown.append(text))
    long = "a word and another"
    console.page(f"{long}\n" + "\x1b\n" * (lines - 2))
    assert shown == (
        ["< a word and\n  another\n" + "\\x1b\n" * (lines - 2)]
        if paged
        else [f"{long}\n" + "\n".join(["\x1b"] * (lines - 2))]
    )
