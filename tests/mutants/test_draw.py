"""What finds and tries drawn faults, on small cases."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from ..support.stored import cases
from . import attempt as attempting
from . import covering, draw
from .attempt import Drawn, attempt
from .covering import Map, package_files, record
from .draw import Chosen, attempt_all, table
from .mutant import TESTS, Copy
from .sites import sites


def _changes(text: str) -> list[str]:
    found = sites(textwrap.dedent(text))
    for site in found:
        for after in site.after:
            compile(site.applied(textwrap.dedent(text), after), "", "exec")
    return [f"{site.kind}: {site.before} -> {', '.join(site.after)}" for site in found]


@pytest.mark.parametrize(("code", "changes"), cases(__file__, "what_can_be_changed"))
def test_what_can_be_changed(code, changes):
    assert _changes(code) == changes


def test_what_is_left_alone():
    assert not _changes(
        '''
        """1 < 2"""
        __all__ = ["a", "b"]
        if TYPE_CHECKING:
            x = 1
        y: Annotated[int, 3]
        z = "text" + f"{a + 1}" + "%d" % b
        @dataclass(frozen=True)
        class C:
            def __repr__(self):
                return 1 < 2
        def f(a: Literal[1], b=c) -> d[2]:
            with open(g, encoding="utf-8"):
                return zip(a, b, strict=True)
        '''
    )


def test_the_end_of_a_function_is_no_early_return():
    found = _changes(
        """
        def f():
            if a:
                return b
            for c in d:
                return e
            try:
                g
            except h:
                raise i(1 < 2)
            return j
        """
    )
    assert found == [
        "condition: a -> (not (a))",
        "statement: return b -> pass",
        "statement: return e -> pass",
        "statement: raise i(1 < 2) -> pass",
    ]


def test_a_change_keeps_all_else():
    text = "é = [\n    1,  # a comment\n    ä < 2,\n]\n"
    (site,) = (site for site in sites(text) if site.kind == "comparison")
    assert site.applied(text, site.after[0]) == "é = [\n    1,  # a comment\n    (ä <= 2),\n]\n"


def test_what_runs_once_and_which_lines_show_it():
    text = textwrap.dedent(
        """
        LIMIT = 1
        @cache
        def f():
            return 2
        def g():
            return h(
                i, 3
            )
        """
    )
    found = {site.before: site for site in sites(text) if site.kind == "constant"}
    assert [(s.once, s.where, s.lines) for s in found.values()] == [
        (True, ("LIMIT",), {2}),
        (True, ("f",), {5}),
        (False, ("g",), {8}),
    ]


_HERE = "common/test_printable.py"
_CHILD = "plugins/test_trust.py::test_a_hash_in_the_config_must_be_right"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    tests = [str(TESTS / node) for node in (_HERE, _CHILD)]
    # The second one adds to the first, also when pytest shares tests out.
    assert record(folder, [*tests[:1], "-n1"]) == 0
    assert record(folder, tests[1:]) == 0
    return folder


def _drawn(recorded: Path, before: str, file: str) -> Drawn:
    every = draw.draw(Map.read(recorded), "some seed", 10_000, Chosen([file], None))
    (found,) = {each.site.begin: each for each in every if each.site.before == before}.values()
    return found


def test_who_executes_a_line(recorded):
    here = _drawn(recorded, "code < 256", "common/printable.py")
    assert {node.partition("::")[0] for node in here.tests} == {_HERE}
    assert len(here.tests) > 5
    # Only a process that the test starts gets there.
    child = _drawn(recorded, "sha256 not in (None, code.sha256)", "plugins/loading.py")
    assert child.tests == (_CHILD,)
    # This runs at an import: the tests of the functions that read it.
    once = _drawn(recorded, "1 << 20", "plugins/trust.py")
    assert once.site.once
    assert once.tests == (_CHILD,)


def test_the_same_seed_draws_the_same(recorded):
    covered, chosen = Map.read(recorded), Chosen(["common/*", "plugins/*"], None)
    drawn = [[*map(str, draw.draw(covered, seed, 9, chosen))] for seed in ("1f", "1f", "2f")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({*drawn[0]}) == 9
    assert all(each.startswith(("common/", "plugins/")) for each in drawn[0])


def test_a_map_of_other_code_is_refused(recorded, monkeypatch, capsys):
    arguments = [str(recorded), "--seed", "1f", "--count", "0", "--results", "none"]
    assert draw.main(arguments) == 0
    files = [each for each in package_files() if each[0] != "common/printable.py"]
    monkeypatch.setattr(covering, "package_files", lambda: files)
    with pytest.raises(SystemExit):
        draw.main(arguments)
    assert "1 files have changed since their lines were recorded, common/printable.py for one" in (
        capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        draw.main([str(recorded / "none"), *arguments[1:]])
    assert "No such file" in capsys.readouterr().err


def test_lines_that_have_changed():
    first, second = "@@ -1 +2,2 @@ f\n-a\n+b\n+c\n", "@@ -9,2 +8 @@\n+d\n@@ -7 +6,0 @@\n-e\n"
    diff = f"--- a/x.py\n+++ b/x.py\n{first}{second}"
    assert draw.changed(diff) == {"x.py": {2, 3, 8}}
    chosen = Chosen(["x.*"], None)
    chosen._lines = {"x.py": {3}, "y.py": {1}}
    sites_of = {site.before: site for site in sites("1 < 2\n\n3 < (\n4)\n5 < 6")}
    assert [key for key, site in sites_of.items() if chosen.has("x.py", site)] == ["3 < (\n4)", "3"]
    assert not chosen.has("y.py")


def test_verdicts(recorded, tmp_path, monkeypatch):
    fault = replace(_drawn(recorded, "code < 256", "common/printable.py"), after="code > 256")
    copy = Copy(tmp_path)
    noticed = attempt(copy, fault)
    assert noticed.verdict == "noticed"
    assert noticed.by in fault.tests
    # Some tests may no longer be there, or only under another name.
    other = (f"{_HERE}::test_printable[gone]", f"{_HERE}::test_gone", "common/test_gone.py::test")
    noticed = attempt(copy, replace(fault, tests=other))
    assert (noticed.verdict, noticed.by.partition("[")[0]) == ("noticed", other[0][:-6])
    survived = attempt(copy, replace(fault, after="code < 255 + 1"))
    assert (survived.verdict, survived.ran) == ("survived", len(fault.tests))
    start = replace(fault.site, begin=(1, 0), end=(1, 0))
    broken = attempt(copy, replace(fault, site=start, after="1 / 0\n"))
    assert (broken.verdict, broken.ran) == ("import error", 0)
    monkeypatch.setattr(attempting, "LIMIT", 5)
    endless = attempt(copy, replace(fault, after="[0 for _ in iter(int, 1)]"))
    assert endless.verdict == "timeout"


def test_results_are_kept(recorded, tmp_path):
    into = tmp_path / "results.jsonl"
    fault = replace(_drawn(recorded, "code < 256", "common/printable.py"), after="code > 256")
    drawn = [fault, replace(fault, after="code < 255 + 1")]
    assert attempt_all(drawn, 2, 0, into) == []
    found = attempt_all(drawn, 2, 60, into)
    assert sorted(each.verdict for each in found) == ["noticed", "survived"]
    before = into.read_text("utf-8")
    assert {*attempt_all(drawn, 1, 60, into)} == {*found}
    assert into.read_text("utf-8") == before
    assert [*table(found, 3)] == [
        f"survived, {len(fault.tests)} of {len(fault.tests)} tests: {drawn[1]}",
        "1 noticed, 1 survived",
        "noticed: 1 of 2; drawn: 3",
    ]
