"""What each command says of itself and of its options, however click prints it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
from dnnstack.cli.main import dnnstack

from ..support.described import as_json


def _kind(kind: click.ParamType) -> str:
    bounds = [getattr(kind, name, None) for name in ("min", "max", "min_open", "max_open")]
    choices = [str(each) for each in getattr(kind, "choices", ())]
    said = [each for each in (bounds, choices) if any(each)]
    return " ".join([type(kind).__name__, *map(str, said)])


def _parameter(one: click.Parameter) -> dict[str, Any]:
    completed = one._custom_shell_complete
    found = {
        "names": [*one.opts, *one.secondary_opts],
        "type": _kind(one.type),
        "metavar": one.metavar,
        "required": one.required,
        "several": one.nargs != 1 or getattr(one, "multiple", False),
        "flag": getattr(one, "is_flag", False),
        "eager": one.is_eager,
        "hidden": getattr(one, "hidden", False),
        "environment": one.envvar,
        "completed": getattr(completed, "__name__", None),
        "help": getattr(one, "help", None),
    }
    return {key: value for key, value in found.items() if value not in (None, False, [])}


def _command(name: str, command: click.Command) -> str:
    short, long = command.get_short_help_str(200), " ".join((command.help or "").split())
    described = {
        "command": name,
        "short": short,
        "help": long,
        "epilog": command.epilog,
        "hidden": command.hidden,
        "settings": command.context_settings,
        "parameters": [_parameter(one) for one in command.params],
    }
    return as_json(described)


def _commands() -> Iterator[str]:
    yield _command("dnnstack", dnnstack)
    for name in dnnstack.list_commands(click.Context(dnnstack)):
        command = dnnstack.commands[name]
        yield _command(name, command)


COMMANDS: dict[str, Callable[[], str]] = {"commands": lambda: "".join(_commands())}
