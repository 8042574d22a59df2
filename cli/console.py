"""What commands print besides their results: notes on stderr, and a progress bar on a terminal.

How much is printed is one setting of the process: ``--quiet`` leaves only errors and warnings,
``--verbose`` adds what the modules log.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import Any, TextIO

import click

_quiet = False


class _Spoken(logging.Handler):
    """Prints log records like other notes; looks up stderr each time, because tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "warning: " if record.levelno >= logging.WARNING else ""
        _stderr(f"dnnstack: {level}{record.getMessage()}")


_SPOKEN = _Spoken()


def set_loudness(*, quiet: bool = False, verbose: bool = False) -> None:
    """Set how much this process prints; by default neither quiet nor verbose."""
    global _quiet
    _quiet = quiet
    logging.getLogger("dnnstack").setLevel(logging.INFO if verbose else logging.WARNING)
    if _SPOKEN not in logging.getLogger().handlers:
        logging.getLogger().addHandler(_SPOKEN)


def is_quiet() -> bool:
    """Whether ``--quiet`` was given."""
    return _quiet


def note(text: str) -> None:
    """Print one line on stderr, apart from the results."""
    if not _quiet:
        _stderr(f"dnnstack: {text}")


def error(text: str) -> None:
    """Print an error on stderr; the command may continue or end."""
    _stderr(f"dnnstack: {coloured('error:', 'red', sys.stderr)} {text}")


def drop_output() -> None:
    """Discard what standard output has buffered, or Python would try to write it again at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """Colour the text if ``stream`` is a terminal, unless NO_COLOR or TERM=dumb is set."""
    # https://no-color.org: any value but the empty one.
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb"
    return text if plain or not stream.isatty() else click.style(text, fg=colour)


def _stderr(line: str) -> None:
    # If the terminal was closed, notes are lost and the work continues.
    with suppress(OSError):
        if "tqdm" in sys.modules:
            from tqdm import tqdm

            # Above a bar, if there is one.
            tqdm.write(line, file=sys.stderr)
            sys.stderr.flush()
        else:
            click.echo(line, err=True)


def tqdm_bar(stream: TextIO, free: int = 0, **given: Any) -> Any:
    """A progress bar, if ``stream`` is a terminal, that leaves ``free`` columns."""
    from tqdm import tqdm

    # tqdm itself shows nothing on a terminal that does not report its size.
    size = get_terminal_size()
    disable = True if _quiet else None
    room = size.columns - free
    return tqdm(file=stream, disable=disable, leave=False, ncols=room, nrows=size.lines, **given)


@contextmanager
def bar(total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on stderr, if that is a terminal, from the first second to the end.

    Yields the function that advances it.
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
        yield shown.update
