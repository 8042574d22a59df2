"""``dnnstack help``: the pages of the documents, which are installed with the package."""

from __future__ import annotations

import click

from . import console, options


@click.command(
    "help",
    short_help="Show a page of the documents, or find one by a word.",
    epilog=options.examples(
        "dnnstack help",
        "dnnstack help howto",
        "dnnstack help explain#why-a-call-is-slow",
        "dnnstack help --search momentum",
    ),
)
@click.argument("topic", metavar="[TOPIC]", required=False)
@click.option("--search", metavar="WORD", help="List the sections in which this word occurs.")
def help_(topic: str | None, search: str | None) -> None:
    """Show the documents: a list of pages, a page, or a section, as page#section.

    On a terminal, what is longer than the screen is shown by a pager. The name of a command that
    has no page of its own shows its options.
    """
    from ..reports import manual

    if topic is not None and search is not None:
        raise click.UsageError("name a page, or a word to search for, not both")
    context = click.get_current_context()
    command = getattr(context.find_root().command, "commands", {}).get(topic)
    if search is not None:
        text = manual.search(search)
    elif topic is None:
        text = manual.contents()
    elif command is not None and topic not in {each.name for each in manual.topics()}:
        text = command.get_help(click.Context(command, context.parent, info_name=topic))
    else:
        text = manual.page(topic)
    console.page(text)
