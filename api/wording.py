"""Advice of messages in the words of a program, where the command line would name its options."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import wraps
from re import Match
from typing import ParamSpec, TypeVar

from .common.errors import DnnstackError, Warned

LOG = logging.getLogger("dnnstack")
# What is worth a line of the log is printed only by a program that asks for it.
LOG.addHandler(logging.NullHandler())
P = ParamSpec("P")
T = TypeVar("T")

_SAME = (
    "classes combine config data_dir device folds invert keep mean min_probability name raw resume "
    "run runs_dir seeds size split std threads tta weights workers"
)
ARGUMENTS = {
    "--checkpoint": "run",
    "--data": "dataset",
    "--ensemble": "runs",
    **{f"--{name.replace('_', '-')}": name for name in _SAME.split()},
}
"""The options that functions have as arguments, with the names that they have there."""

_KEYS = {"run.device": "device", "run.dir": "runs_dir", "run.threads": "threads"}
"""The keys of a config that functions set by arguments of their own."""

_VALUE = (
    r"(?: (?P<value>[A-Z]+\b|\d+|cpu|cuda|numpy|test|train|validation|[^\s;,)]*[/.][^\s;,)]*))?"
)
_FOUND = re.compile(
    r"dnnstack train --config (?P<trained>[\w./-]*\w)"
    r"|dnnstack eval --ensemble (?P<several>[^\s;,)]+)"
    r"|(?P<calibrate>dnnstack eval --calibrate)"
    # Other commands stay what they are.
    r"|dnnstack [a-z]+(?: --[a-z-]+)+"
    r"|(?<![^\s(])--set (?P<key>[\w.]+)="
    r'(?P<set>(?:"(?:[^"\\]|\\.)*"|\[.*?\]|\{.*?\})(?=: |; |\)|$)|[^\s;,):]+)'
    r"|(?<![^\s(])--init-from (?P<source>[^\s;,)]+)"
    r"|(?<![^\s(])--plugin (?P<plugin>[^\s;,)]+)"
    r"|(?<![^\s(])--(?P<flag>plugin|same-samples|set|offline|no-graph)(?![\w-])"
    rf"|(?<![^\s(])(?P<option>{'|'.join(sorted(ARGUMENTS, reverse=True))})(?![\w-]){_VALUE}"
)
_FLAGS = {
    "no-graph": "dnnstack train --no-graph",
    "offline": "offline=True",
    "plugin": "dnnstack.load_plugin(...)",
    "same-samples": "same_samples=True",
    "set": "overrides",
}


def as_arguments(text: str) -> str:
    """The text with arguments in place of options: ``resume="runs/a"`` for ``--resume runs/a``."""
    return _FOUND.sub(_replaced, text)


def log_notice(text: str) -> None:
    """Log a notice ``as_arguments``, as a warning if it is one."""
    LOG.log(logging.WARNING if isinstance(text, Warned) else logging.INFO, "%s", as_arguments(text))


def in_python(function: Callable[P, T]) -> Callable[P, T]:
    """The function, whose errors have messages that are ``as_arguments``."""

    @wraps(function)
    def told(*given: P.args, **named: P.kwargs) -> T:
        try:
            return function(*given, **named)
        except DnnstackError as error:
            lines = (as_arguments(str(line)) for line in error.args)
            error.args = tuple(_without_keys(line, named) for line in lines)
            raise

    return told


def _without_keys(line: str, named: Mapping[str, object]) -> str:
    """The line with the arguments that were given, where it has the keys that they set."""
    for key, argument in _KEYS.items():
        if named.get(argument) is not None:
            value = re.escape(json.dumps(named[argument], default=str))
            line = re.sub(
                rf"overrides(?:=\{{\"{key}\": {value}\}}: {key}| {key}={value}: {key})(?=: )",
                argument,
                line,
            )
    return line


def _replaced(found: Match[str]) -> str:
    if found["trained"]:
        return f"dnnstack.train({json.dumps(found['trained'])})"
    if found["several"]:
        return f"dnnstack.load_ensemble({json.dumps(found['several'])})"
    if found["calibrate"]:
        return "Classifier.calibrate()"
    if found["key"]:
        return f'overrides={{"{found["key"]}": {_literal(found["set"])}}}'
    if found["source"]:
        return f'overrides={{"init_from": {_literal(found["source"])}}}'
    if found["plugin"]:
        return f"dnnstack.load_plugin({_literal(found['plugin'])})"
    if found["flag"]:
        return _FLAGS[found["flag"]]
    if found["option"]:
        value = found["value"]
        if not value and found.string[found.end() :].startswith(": "):
            # What the message is about, not what to write.
            return ARGUMENTS[found["option"]]
        return f"{ARGUMENTS[found['option']]}={_literal(value) if value else '...'}"
    return found[0]


def _literal(value: str) -> str:
    """A number as it is, a name in capitals as one to be replaced, everything else as a text."""
    if value in (".nan", ".inf", "-.inf"):
        return f'float("{value.replace(".", "")}")'
    try:
        json.loads(value)
    except ValueError:
        return value if value.isupper() and value.isalpha() else json.dumps(value)
    return value
