"""Groups of parameters: which parameters they contain, their settings, and when they train."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from itertools import accumulate

from ..common.errors import ConfigError
from ..common.records import dataclass
from ..common.text import listed
from ..layers.layer import Parameter
from .rules import Rule
from .schedules.schedule import in_steps

RATES = "rates"
_NAMED = 8


@dataclass(frozen=True)
class Group:
    """Parameters whose name matches one of ``names`` (globs) and whose kind is one of ``kinds``.

    An empty tuple matches all. ``lr_factor`` multiplies the rates of the table ``rates``; None,
    here and for ``weight_decay``, keeps the value of the rule. The parameters are trained from
    epoch ``freeze_until`` up to epoch ``freeze_after``; 0 is never.
    """

    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    lr_factor: float | None = None
    weight_decay: float | None = None
    freeze_until: float = 0.0
    freeze_after: float | None = None
    rates: str = RATES

    @property
    def frozen(self) -> bool:
        """Whether its parameters are never trained."""
        return self.freeze_after == 0

    def takes(self, parameter: Parameter) -> bool:
        named = any(fnmatchcase(parameter.tensor.name, name) for name in self.names or "*")
        return named and (not self.kinds or parameter.kind in self.kinds)

    def span(self, steps_per_epoch: int) -> tuple[int, float]:
        """The first step in which it is trained, and the first in which it no longer is."""
        first = in_steps(self.freeze_until, steps_per_epoch) if self.freeze_until else 0
        if self.freeze_after is None:
            return first, float("inf")
        return first, in_steps(self.freeze_after, steps_per_epoch) if self.freeze_after else 0


@dataclass(frozen=True)
class Assigned:
    """A parameter, its rule, and its group.

    Its rate is ``lr_factor`` times that of the table ``rates``; ``scale`` is the share of the
    factor that is its layer's.
    """

    parameter: Parameter
    rule: Rule
    rates: str
    lr_factor: float
    weight_decay: float
    group: Group
    scale: float = 1.0


def assign(
    rule: Rule,
    groups: Sequence[Group],
    parameters: Sequence[Parameter],
    layer_decay: float | None = None,
) -> tuple[Assigned, ...]:
    """Every parameter that is trained at some time, with the first group that it matches or none.

    parameters: all, in the order of the layers; layer_decay: multiplies the rates once for each of
    the ``depths``. Raises ConfigError for a group that is left without parameters.
    """
    found = []
    used = set()
    every, down = (*groups, Group()), depths(parameters)
    for parameter in (each for each in parameters if not each.frozen):
        index = next(i for i, group in enumerate(every) if group.takes(parameter))
        used.add(index)
        scale = 1.0 if layer_decay is None else layer_decay ** down[_layer(parameter)]
        found.append(assigned_to(every[index], rule, parameter, scale))
    for index, group in enumerate(groups):
        if index not in used:
            raise ConfigError(_empty(index, group, parameters))
    return tuple(one for one in found if not one.group.frozen)


def depths(parameters: Sequence[Parameter]) -> dict[str, int]:
    """How far below the last layer each is, by name; a composite is one layer.

    Those without a kernel, such as a normalisation, count with the one before them. Source: Bao et
    al. 2022, "BEiT", whose layers are blocks.
    """
    kernels = {_layer(parameter) for parameter in parameters if parameter.kind == "kernel"}
    names = dict.fromkeys(map(_layer, parameters))
    levels = accumulate(name in kernels for name in names)
    return {name: len(kernels) - level for name, level in zip(names, levels, strict=True)}


def _layer(parameter: Parameter) -> str:
    """The outermost layer of a parameter."""
    return parameter.tensor.name.partition(".")[0]


def assigned_to(group: Group, rule: Rule, parameter: Parameter, scale: float = 1.0) -> Assigned:
    """A parameter of a group; the optimizer's rule says which of its rules is the parameter's."""
    own, rates, factor, decay = (
        rule.rule_of(parameter),
        group.rates,
        group.lr_factor,
        group.weight_decay,
    )
    if factor is None:
        rates, factor = rule.rate_of(parameter, rates)
    if decay is None:
        decay = own.decay_of(parameter)
    return Assigned(parameter, own, rates, scale * factor, decay, group, scale)


def stretches(groups: Sequence[Group], steps_per_epoch: int, total_steps: int) -> tuple[int, ...]:
    """The first steps of the stretches of training in which the same parameters are trained.

    Raises ConfigError for a group that is never trained although it is not frozen.
    """
    begins = {0}
    for index, group in enumerate(groups):
        start, stop = group.span(steps_per_epoch)
        if start >= total_steps:
            raise ConfigError(
                f"optimizer.groups.{index}.freeze_until_epoch: epoch {group.freeze_until:g} is "
                f"never reached, training ends after {total_steps} steps ({steps_per_epoch} "
                "steps per epoch); train longer, or set 'frozen: true'"
            )
        if start and start >= stop:
            raise ConfigError(
                f"optimizer.groups.{index}.freeze_after_epoch: epochs {group.freeze_until:g} "
                f"and {group.freeze_after:g} are both step {start}, so the group is never "
                f"trained ({steps_per_epoch} steps per epoch); leave a step between them, or "
                "set 'frozen: true'"
            )
        begins.update(int(step) for step in (start, stop) if step < total_steps)
    return tuple(sorted(begins))


def _empty(index: int, group: Group, parameters: Sequence[Parameter]) -> str:
    where = f"optimizer.groups.{index}"
    taken = [parameter for parameter in parameters if group.takes(parameter)]
    if taken and all(parameter.frozen for parameter in taken):
        return f"{where}: all of its parameters are frozen by 'freeze'; remove the group"
    if taken:
        return f"{where}: earlier groups match all of its parameters; move it before them"
    wanted = ", ".join((*group.names, *(f"kind {kind}" for kind in group.kinds)))
    likely = list(parameters)
    if len(likely) > _NAMED:
        likely.sort(key=lambda parameter: -_likeness(parameter.tensor.name, group.names))
    names = listed([f"{p.tensor.name} ({p.kind})" for p in likely], _NAMED)
    return f"{where}: no parameter matches {wanted}; the network has {names}"


def _likeness(name: str, patterns: Sequence[str]) -> float:
    return max((SequenceMatcher(None, name, each).ratio() for each in patterns), default=0.0)
