"""Where parameters, gradients and the state of the optimizer lie: side by side, in equal layouts.

So an update is a few calls over long stretches of memory, however many tensors there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product

from ...graph import ops
from ...graph.graph import SHARED, Graph, Tensor
from ...graph.ops.updates import ParameterUpdate
from .convolution import filter_gradient_desc
from .linear import weight_gradient_desc
from .memory import Descriptor, Memory
from .primitive import NoFastKernel
from .store import Store


def plan_arenas(
    store: Store,
    graphs: Mapping[str, Graph],
    choices: Mapping[str, str],
    activations: str = "float32",
) -> dict[str, dict[Tensor, Memory]]:
    """Lay out what the sections train: parameters, gradients, the optimizer's state, averages.

    Returns the memories of the gradients by section.
    """
    listed = [op for graph in graphs.values() for op in graph.ops]
    updates = [op for op in listed if isinstance(op, ParameterUpdate)]
    own = _parameters_of(listed)
    layouts: dict[Tensor, Descriptor] = {}
    for graph in graphs.values():
        for gradient, layout in planned_layouts(graph, choices, activations).items():
            if gradient in own:
                layouts.setdefault(own[gradient], layout)
    trained = _order(updates)
    owners = dict.fromkeys((*trained, *own.values()))
    rank = {owner: position for position, owner in enumerate(owners)}
    for owner in owners:
        layouts.setdefault(owner, Descriptor.of(owner.shape))

    def add(name: str, owners: Mapping[Tensor, Tensor]) -> None:
        """An arena of tensors, given with the parameters whose layout and order they take."""
        if owners and name not in store.arenas:
            tensors = sorted(owners, key=lambda tensor: rank[owners[tensor]])
            store.add_arena(name, tensors, {t: layouts[owners[t]] for t in tensors})

    add("parameters", {parameter: parameter for parameter in trained})
    families: defaultdict[str, dict[Tensor, Tensor]] = defaultdict(dict)
    averages: defaultdict[str, dict[Tensor, Tensor]] = defaultdict(dict)
    for op in listed:
        if isinstance(op, ParameterUpdate):
            for name, tensors in op.families().items():
                families[name].update(zip(tensors, op.parameters, strict=True))
        elif isinstance(op, ops.Average):
            kind = op.averages[0].name.partition("/")[0]
            averages[kind].update(zip(op.averages, op.values, strict=True))
        elif isinstance(op, ops.Mask):
            owners_of = (own.get(value, value) for value in op.values)
            families["mask"].update(zip(op.masks, owners_of, strict=True))
        elif isinstance(op, ops.ShareWeights):
            families["shared"].update(zip(op.parameters, op.parameters, strict=True))
            families["code"].update(zip(op.codes, op.parameters, strict=True))
    for name, members in families.items():
        add(name, members)
    for name, values in averages.items():
        _add_averages(store, name, values, add)
    found: dict[str, dict[Tensor, Memory]] = {}
    for name, graph in graphs.items():
        held = {t: own[t] for t in graph.tensors() if t in own and t.role not in SHARED}
        add(f"{name}.gradients", held)
        found[name] = {t: store.memories[t] for t in held}
    levels: defaultdict[str, dict[Tensor, Tensor]] = defaultdict(dict)
    for tensor, owner in own.items():
        if tensor.role in SHARED:
            levels[tensor.name.partition("/")[0]][tensor] = owner
    for name, sums in levels.items():
        add(name, sums)
    return found


def _parameters_of(listed: Sequence[object]) -> dict[Tensor, Tensor]:
    """The parameter that each gradient, or sum of gradients, is for."""
    own: dict[Tensor, Tensor] = {}
    for op in listed:
        if isinstance(op, ParameterUpdate):
            own.update(zip(op.gradients, op.parameters, strict=True))
    shared = {
        code: parameter
        for op in listed
        if isinstance(op, ops.ShareWeights)
        for code, parameter in zip(op.codes, op.parameters, strict=True)
    }
    for op in listed:
        if isinstance(op, ops.SumShared):
            owners = (shared.get(code, code) for code in op.codes)
            own.update(zip(op.gradients, owners, strict=True))
    for op in listed:
        if isinstance(op, ops.Accumulate):
            for gradient, *levels in zip(op.gradients, *op.slots(), strict=True):
                # A section that only adds up, and no update to tell what for.
                owner = own.setdefault(levels[0], levels[0])
                own |= dict.fromkeys((gradient, *levels), owner)
    return own


def _order(updates: Sequence[ParameterUpdate]) -> list[Tensor]:
    """All trained parameters; neighbours are updated alike, in as many sections as may be."""
    keys = [
        {p: (0.0, -op.weight_decay[i], -op.factor(i)) for i, p in enumerate(op.parameters)}
        for op in updates
    ]
    every = dict.fromkeys(parameter for op in updates for parameter in op.parameters)
    return sorted(every, key=lambda parameter: [key.get(parameter, (1.0,)) for key in keys])


def _add_averages(
    store: Store,
    name: str,
    values: Mapping[Tensor, Tensor],
    add: Callable[[str, Mapping[Tensor, Tensor]], None],
) -> None:
    """Averages of parameters lie as these do; of the rest both lie in rows of their own."""
    trained = {t for t, (arena, _, _) in store.spans.items() if arena == "parameters"}
    add(name, {a: p for a, p in values.items() if p in trained})
    rest = {a: p for a, p in values.items() if p not in trained}
    for family, tensors in (("others", [*rest.values()]), (f"{name} of others", [*rest])):
        if tensors and family not in store.arenas:
            store.add_arena(family, tensors, {t: Descriptor.of(t.shape) for t in tensors})


def stretches(
    store: Store, *families: Sequence[Tensor], alike: Callable[[int], Hashable] = lambda index: None
) -> Iterator[list[int]]:
    """Indices of tensors that lie side by side in every family and are ``alike``."""
    places = [[store.spans[tensor] for tensor in family] for family in families if family]
    order = sorted(range(len(places[0])), key=lambda i: places[0][i])
    stretch: list[int] = []
    for i in order:
        if stretch:
            last = stretch[-1]
            # The end of the last one is the start of this one, in the same arena.
            beside = all((p[last][0], p[last][2]) == p[i][:2] for p in places)
            if not beside or alike(last) != alike(i):
                yield stretch
                stretch = []
        stretch.append(i)
    if stretch:
        yield stretch


def flats(store: Store, members: Sequence[int], *families: Sequence[Tensor]) -> tuple[Memory, ...]:
    """Of each family one row-major memory over these members, which are neighbours."""
    return tuple(store.flat([family[i] for i in members]) for family in families)


def by_stretch(store: Store, *families: Sequence[Tensor]) -> list[tuple[Memory, ...]]:
    """Of each stretch ``flats`` of all families."""
    return [flats(store, members, *families) for members in stretches(store, *families)]


def planned_layouts(
    graph: Graph, choices: Mapping[str, str], activations: str = "float32"
) -> dict[Tensor, Descriptor]:
    """The layout of every gradient in a section, as its operation will write it."""
    planned: dict[Tensor, Descriptor] = {}
    for op, dtype in product(graph.ops, dict.fromkeys((activations, "float32"))):
        with suppress(NoFastKernel):
            if isinstance(op, ops.Conv2dBackwardFilter) and op.dw not in planned:
                desc = filter_gradient_desc(op, choices, dtype)
                planned[op.dw] = desc.descriptor("diff_weights")
            elif isinstance(op, ops.MatMul) and op.c.role == "gradient" and op.c not in planned:
                planned[op.c] = weight_gradient_desc(op, dtype).descriptor("diff_weights")
    return planned
