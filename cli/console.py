"""What commands say beside their results: notes on stderr, a bar on a terminal.

How much of it is said is one setting of the process: ``--quiet`` leaves errors and warnings,
``--verbose`` adds the facts that the modules log.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

import click

_quiet = False


class _Spoken(logging.Handler):
    """Log records as lines like all others; it finds stderr anew each time, as tests need it."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "warning: " if record.levelno >= logging.WARNING else ""
        _stderr(f"dnnstack: {level}{record.getMessage()}")


_SPOKEN = _Spoken()


def set_loudness(*, quiet: bool = False, verbose: bool = False) -> None:
    """Decide for the process how much is said; the default is neither."""
    global _quiet
    _quiet = quiet
    logging.getLogger("dnnstack").setLevel(logging.INFO if verbose else logging.WARNING)
    if _SPOKEN not in logging.getLogger().handlers:
        logging.getLogger().addHandler(_SPOKEN)


def is_quiet() -> bool:
    """Whether ``--quiet`` was given."""
    return _quiet


def note(text: str) -> None:
    """One line on stderr, out of the way of results."""
    if not _quiet:
        _stderr(f"dnnstack: {text}")


def error(text: str) -> None:
    """An error on stderr, after which the command goes on or ends."""
    _stderr(f"dnnstack: {coloured('error:', 'red', sys.stderr)} {text}")


def drop_output() -> None:
    """Send what standard output still holds to nowhere, or Python would try again at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """The text for ``stream``: coloured on a terminal, unless NO_COLOR or TERM=dumb is set."""
    # https://no-color.org: any value but the empty one.
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return text if plain or not stream.isatty() else click.style(text, fg=colour)


def _stderr(line: str) -> None:
    # A terminal that was closed takes no more notes; the work goes on.
    with suppress(OSError):
        if "tqdm" in sys.modules:
            from tqdm import tqdm

            # Above a bar, if there is one.
            tqdm.write(line, file=sys.stderr)
            sys.stderr.flush()
        else:
            click.echo(line, err=True)


@contextmanager
def bar(total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that appears after a second, where stderr is a terminal, and then goes.

    Gives the function that moves it on.
    """
    from tqdm import tqdm

    with tqdm(
        total=total,
        unit=unit,
        file=sys.stderr,
        disable=True if _quiet else None,
        leave=False,
        delay=1.0,
    ) as shown:

        def advance(count: int) -> None:
            shown.update(count)

        yield advance
