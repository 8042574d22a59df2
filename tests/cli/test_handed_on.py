"""How far each option of a command, or argument of a call, goes: stored lists.

Below a line "$ dnnstack ..." or ">>> ..." stand the functions that it has called with something
else than their defaults, with these parameters. With ``DNNSTACK_STORE=1`` they are stored anew,
after a deliberate change; the difference that git shows is to be read.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import dnnstack
import pytest
from dnnstack.cli.main import main
from dnnstack.common import records

from ..support.described import differences

STORED = Path(__file__).with_name("handed_on")
# What begins here says how to do a thing, and below it what is done.
FLOORS = ("cli", "datasets", "exports", "many", "plugins", "reports", "training")
# What these are given is text, or has been measured.
TEXTS = ("__main__", "main", "explain_text", "outcome", "svg")
Defaults = Mapping[str, Any]


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    for thing in [*vars(module).values()]:
        for each in [*vars(thing).values()] if isinstance(thing, type) else [thing]:
            plain = inspect.unwrap(getattr(each, "__func__", each))
            if isinstance(plain, FunctionType) and plain.__module__ == module.__name__:
                yield plain


@functools.cache
def _defaults(function: Callable[..., Any]) -> Defaults:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


@pytest.fixture(scope="module")
def known() -> dict[CodeType, tuple[str, Defaults]]:
    """By code: names of functions, and what they need not be given."""
    found = {}
    for info in pkgutil.walk_packages(dnnstack.__path__, "dnnstack."):
        names = info.name.split(".")
        # The modules of the interface lie in the package itself.
        is_known = names[1] in FLOORS or (len(names) == 2 and not info.ispkg)
        if is_known and names[-1] not in TEXTS:
            for function in _functions(importlib.import_module(info.name)):
                name = f"{function.__module__}.{function.__qualname__}".removeprefix("dnnstack.")
                if defaults := _defaults(function):
                    found[function.__code__] = name, defaults
    return found


def _word(value: Any) -> str:
    """A value; of what is large, or has been computed, the type."""
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{32,}", value):
        return "SUM"
    if isinstance(value, bool | int | str | None) or (
        isinstance(value, float) and value == round(value, 1)
    ):
        return repr(value)
    if isinstance(value, list | tuple) and len(value) < 5:
        return f"[{', '.join(map(_word, value))}]"
    if isinstance(value, Path):
        return str(value)
    return "function" if callable(value) else type(value).__name__


def handed_on(
    run: Callable[[], object], known: Mapping[CodeType, tuple[str, Defaults]]
) -> set[str]:
    """The calls while it runs, in this thread, with those of their parameters that got a value."""
    lines = set()

    def called(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call":
            return
        if code in known:
            (name, defaults), given = known[code], frame.f_locals
        elif code.co_name == "initialise" and code.co_filename == records.__file__:
            kind, given = type(frame.f_locals["self"]), frame.f_locals["named"]
            name = f"{kind.__module__}.{kind.__name__}".removeprefix("dnnstack.")
            defaults = _defaults(kind.__init__) if name.split(".")[0] in FLOORS else {}
        else:
            return
        words = {key: _word(given.get(key, default)) for key, default in defaults.items()}
        other = [f"{k}={words[k]}" for k, default in defaults.items() if words[k] != _word(default)]
        if other and name.split(".")[-2] not in TEXTS:
            lines.add(f"{name}({', '.join(other)})")

    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(None)
    return lines


@pytest.mark.usefixtures("rendered")
@pytest.mark.parametrize("name", sorted(path.stem for path in STORED.glob("*.txt")))
def test_options_reach_what_they_are_for(name, here, cache, known, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("DNNSTACK_PLOTS_FORMAT", "png")
    # What is in the cache already is not made again.
    main(["data", "--config", "tiny.yaml", "--no-sheet"])
    file, found, status = STORED / f"{name}.txt", [], []
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("$ "):
            words = shlex.split(line)[2:]
            lines = handed_on(lambda words=words: status.append(main(words)), known)
        elif line.startswith(">>> "):
            lines = handed_on(lambda code=line[4:]: exec(code, {"dnnstack": dnnstack}), known)
        else:
            continue
        assert not any(status), capsys.readouterr().err
        told = "".join(f"  {each}\n" for each in sorted(lines))
        told = told.replace(str(here), "HERE").replace(str(cache), "CACHE")
        found.append(f"{line}\n{told}")
    if os.environ.get("DNNSTACK_STORE") == "1":
        file.write_text("".join(found), "utf-8")
    assert differences("".join(found), file.read_text("utf-8")) == []
