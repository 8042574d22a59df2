"""Trackio: experiments that are tracked on this machine, by the interface of wandb."""

from __future__ import annotations

from .wandb import Logger as Logger
