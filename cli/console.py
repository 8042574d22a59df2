"""What commands say beside their results: notes on stderr, a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import click


def note(text: str) -> None:
    """One line on stderr, out of the way of results."""
    # A terminal that was closed takes no more notes; the work goes on.
    with suppress(OSError):
        click.echo(f"dnnstack: {text}", err=True)


def error(text: str) -> None:
    """An error on stderr, after which the command goes on or ends."""
    click.echo(f"dnnstack: error: {text}", err=True)


@contextmanager
def bar(total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that appears after a second, where stderr is a terminal, and then goes.

    Gives the function that moves it on.
    """
    from tqdm import tqdm

    with tqdm(
        total=total, unit=unit, file=sys.stderr, disable=None, leave=False, delay=1.0
    ) as shown:

        def advance(count: int) -> None:
            shown.update(count)

        yield advance
