"""``dnnstack config``: the effective config, or the schema of all configs."""

from __future__ import annotations

from pathlib import Path

import click

from . import console, options, plugins


@click.command(
    epilog=options.examples(
        "dnnstack config --config lenet.yaml",
        "dnnstack config --config lenet.yaml --set train.epochs=2 > mine.yaml",
        "dnnstack config --schema > schema.json",
    )
)
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of configs, for completion in editors."
)
@options.config(required=False)
@options.overrides
@options.plugin
def config(
    schema: bool, reference: str | None, overrides: tuple[str, ...], plugin: tuple[Path, ...]
) -> None:
    """Print a config with every default written out.

    The output is a config itself: save it, change it, train with it.
    """
    from ..common.printable import printable
    from ..configs import effective_yaml, json_schema, load_config

    if schema:
        import json

        if reference is not None or overrides:
            raise click.UsageError("--schema takes no config: it describes every config.")
        plugins.load(plugin)
        console.say(json.dumps(json_schema(), indent=2))
    elif reference is None:
        raise click.UsageError(
            "Missing option '--config' (or '--schema'); name a YAML file, as in dnnstack config "
            "--config digits.yaml"
        )
    else:
        loaded = load_config(reference, overrides, plugins.opened(plugin))
        console.write(f"# {printable(loaded.path)}: as dnnstack reads it")
        console.write(effective_yaml(loaded.config).removesuffix("\n"))
