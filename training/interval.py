"""How many epochs lie between two checkpoints, where the config does not say it."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from .records.disk_space import checkpoint_bytes
from .sections import saved_tensors
from .setup import Setup

# A machine of an imagined speed: the interval depends neither on the device nor on the clock.
FLOPS_PER_SECOND, STEP_SECONDS = 1e13, 2e-5
BYTES_PER_SECOND, SAVE_SECONDS = 5e8, 1e-2
# Seconds of steps, on that machine, that pay for a second of saving.
STEPS_FOR_SAVING = 20


def epochs_between(flops: int, steps: int, nbytes: int) -> int:
    """ceil(20 (B / 5e8 + 0.01) / (S (F / 1e13 + 2e-5))).

    flops: F, of a step; ``steps``: S, of an epoch; nbytes: B, of a checkpoint.
    """
    epoch = steps * (flops / FLOPS_PER_SECOND + STEP_SECONDS)
    save = nbytes / BYTES_PER_SECOND + SAVE_SECONDS
    return ceil(STEPS_FOR_SAVING * save / epoch)


def with_interval(setup: Setup) -> Setup:
    """The setup with ``checkpoint.every_epochs``, if its config leaves the interval open."""
    config, plan, saving = setup.config, setup.plan, setup.config.checkpoint
    if saving.every_steps or saving.every_epochs:
        return setup
    step = setup.step()
    part = step.plain_graph("train", setup.network)
    flops = step.composition.parts * sum(op.flops() for op in part.ops)
    saved = {tensor.name: tensor.shape for tensor in saved_tensors(config, setup.network)}
    epochs = epochs_between(flops, plan.steps_per_epoch, checkpoint_bytes(saved))
    saving = saving.model_copy(update={"every_epochs": epochs})
    config = config.model_copy(update={"checkpoint": saving})
    return replace(
        setup, config=config, plan=replace(plan, save_every=epochs * plan.steps_per_epoch)
    )
