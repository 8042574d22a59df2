"""What a server holds: a part of the parameters, with their state and their update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...backends.base import Backend, Options
from ...common.errors import ConfigError
from ...common.records import dataclass
from ...graph.graph import Graph, Tensor
from ...layers.initializers import ZEROS
from ...layers.layer import Parameter
from ...optimizers.groups import stretches
from ...optimizers.rules import state_of
from ...passes.parts import STATISTICS, SUM
from ...passes.section import Member
from ..assemble import assigned, groups_of, rule_of
from ..sections import saved_tensors
from ..setup import Setup

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Piece:
    """The numbers ``begin`` to ``end`` of a parameter, taken as one row."""

    parameter: Parameter
    begin: int
    end: int

    def of(self, array: Floats) -> Floats:
        return array.reshape(-1)[self.begin : self.end]


def trained(setup: Setup) -> tuple[Parameter, ...]:
    """The parameters that are trained, whose numbers the messages hold in this order."""
    return tuple(one.parameter for one in assigned(setup.config, setup.network))


def pieces(parameters: Sequence[Parameter], server: int, servers: int) -> tuple[Piece, ...]:
    """What of all parameters, one behind the other, a server holds: an equal share."""
    total = sum(p.tensor.size for p in parameters)
    first, last = total * server // servers, total * (server + 1) // servers
    found, at = [], 0
    for parameter in parameters:
        size = parameter.tensor.size
        begin, end = max(first - at, 0), min(last - at, size)
        if begin < end:
            found.append(Piece(parameter, begin, end))
        at += size
    return tuple(found)


def check(setup: Setup, servers: int) -> None:
    """Raise ConfigError for what servers cannot do that each hold a part of the parameters."""
    for layer in setup.network.every_layer():
        if layer.parallel is not None:
            raise ConfigError(
                f"parallel of '{layer.name}': workers of an asynchronous training compute whole "
                "batches of their own; leave it out, or train without --async"
            )
    lengths = (setup.plan.steps_per_epoch, setup.plan.total_steps)
    if len(stretches(groups_of(setup.config), *lengths)) > 1:
        raise ConfigError(
            "optimizer.groups: phases (freeze_until_epoch, freeze_after_epoch) need mode sync, "
            "because workers may be in another phase than the servers"
        )
    if servers > 1 and setup.config.optimizer.clip_norm is not None:
        raise ConfigError(
            "parallel.servers: clip_norm needs the gradients of all parameters in one place; use 1 "
            "server, or remove clip_norm"
        )
    if servers > 1 and any(one.rule.needs_whole for one in assigned(setup.config, setup.network)):
        raise ConfigError(
            f"parallel.servers: {rule_of(setup.config).kind} updates parameters as a whole, which "
            "several servers have in parts; use 1 server"
        )


def layout(setup: Setup, server: int, servers: int) -> dict[str, Piece | None]:
    """The names of what a server holds, each with its piece; None: the whole array.

    The first one holds the running statistics.
    """
    by_name = {p.parameter.tensor.name: p for p in pieces(trained(setup), server, servers)}
    whole = {tensor.name for tensor in setup.network.running()} if server == 0 else set()
    found: dict[str, Piece | None] = {}
    for name in (tensor.name for tensor in saved_tensors(setup.config, setup.network)):
        owner = name.rpartition("/")[2]
        if owner in by_name or owner in whole:
            found[name] = by_name.get(owner)
    return found


class Shard:
    """The pieces of a server, compiled; the first server also moves the running statistics.

    Values have the names of what a checkpoint holds; of a parameter and its state they are the
    pieces alone.
    """

    def __init__(self, setup: Setup, backend: Backend, server: int, servers: int) -> None:
        self._setup = setup
        self.pieces = pieces(trained(setup), server, servers)
        self._parameters = tuple(map(_parameter, self.pieces))
        self._graph = self._update(server)
        self._own = {t.name: t for t in self._graph.tensors() if not t.section}
        self.layout = layout(setup, server, servers)
        options = Options(precision="fp32", fusion=setup.config.run.fusion, tune=False)
        self.executable = backend.compile({self._graph.name: self._graph}, options)
        self._kept = self._own.get(STATISTICS)
        self.size = sum(piece.end - piece.begin for piece in self.pieces)
        self.set_rate_factor(1.0)

    def _update(self, server: int) -> Graph:
        """The update of the pieces; that of the first server moves the running statistics, too."""
        step = self._setup.step()
        _, update, _ = step.composed()
        own = {parameter.tensor.name: parameter for parameter in self._parameters}
        members = tuple(
            _of_piece(m, own[m.tensor.name]) for m in update.members if m.tensor.name in own
        )
        values = tuple(parameter.tensor for parameter in self._parameters)
        if server == 0:
            values += self._setup.network.running()
        else:
            update = replace(update, body=())
        return step.composition.finished(replace(update, members=members), values)

    def set_rate_factor(self, factor: float) -> None:
        for name, table in self._setup.plan.scaled_tables(np.float32(factor)).items():
            if name in self._own:
                self.executable.write(self._own[name], table)

    def put(self, arrays: Mapping[str, Floats], step: int) -> None:
        """Take over the pieces of whole arrays; ``step``: how many updates were done."""
        for name, piece in self.layout.items():
            own, array = self._own[name], arrays[name]
            values = array if piece is None else piece.of(array)
            self.executable.write(own, np.ascontiguousarray(values).reshape(own.shape))
        self.executable.write(self._graph["update.step"], np.array([step], np.int64))

    def values(self) -> dict[str, Floats]:
        """The pieces of everything that changes."""
        return {name: self.executable.read(self._own[name]) for name in self.layout}

    def parameters(self) -> Floats:
        """The pieces of the parameters, one behind the other."""
        read = [self.executable.read(p.tensor).reshape(-1) for p in self._parameters]
        return np.concatenate(read) if read else np.zeros(0, np.float32)

    def update(self, gradient: Floats, statistics: Floats) -> None:
        """Move the pieces by their gradients, and the running statistics by those of a batch."""
        at = 0
        for parameter in self._parameters:
            tensor = state_of(parameter.tensor, SUM)
            self.executable.write(tensor, gradient[at : at + tensor.size].reshape(tensor.shape))
            at += tensor.size
        if self._kept is not None:
            self.executable.write(self._kept, statistics.reshape(self._kept.shape))
        self.executable.run(self._graph.name)

    def close(self) -> None:
        """Free the executable."""
        self.executable.close()


def _parameter(piece: Piece) -> Parameter:
    """The piece as a parameter of its own, of the same name."""
    whole = piece.parameter
    if piece.end - piece.begin == whole.tensor.size:
        return whole
    row = replace(whole.tensor, shape=(piece.end - piece.begin,))
    return replace(whole, tensor=row, initializer=ZEROS)


def _of_piece(member: Member, piece: Parameter) -> Member:
    """The piece as what is trained, by the sums of its own gradients."""
    one, gradient = replace(member.one, parameter=piece), state_of(piece.tensor, SUM)
    return replace(member, one=one, owner=piece, gradient=gradient)


def statistics_of(train: Graph) -> Tensor | None:
    """What a batch leaves for the running statistics, if there are any."""
    held = (t for t in train.tensors() if t.name == STATISTICS)
    return next(held, None)
