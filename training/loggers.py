"""The packages that the loggers of a config need."""

from __future__ import annotations

from importlib.util import find_spec

from ..common.errors import ConfigError
from ..configs import RunConfig

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}


def check_loggers(config: RunConfig) -> None:
    """Raise ConfigError if the package of a logger is not installed."""
    for name in config.train.loggers or ():
        if name in PACKAGES and find_spec(PACKAGES[name]) is None:
            raise ConfigError(
                f"train.loggers: {name} needs the package {PACKAGES[name]}: "
                f"python3 -m pip install 'dnnstack[{name}]'"
            )
