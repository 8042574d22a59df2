"""An executable on the stand-in for CUDA, as canonical text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dnnstack.backends.cuda.binding.bind import Binder
from dnnstack.backends.cuda.binding.launches import JOINS, Step, launches
from dnnstack.backends.cuda.executable import CudaExecutable
from dnnstack.backends.cuda.libraries.candidates import Candidates
from dnnstack.common.errors import CudnnError

from .cuda_tape import Tape
from .described_bytes import call_text, digest


def described(tape: Tape, executable: CudaExecutable) -> Iterator[str]:
    """Every section: where its tensors lie, what is launched, and what else could be."""
    for name, graph in executable.graphs.items():
        binder = executable._sections[name]
        tape.addresses.call(_names(executable, binder))
        yield f"== {name}: {graph.batch_size} samples"
        yield from _tensors(tape, executable, binder)
        yield from _steps(tape, binder)
        yield from _together(tape, binder)
        yield from _others(tape, binder)


def _names(executable: CudaExecutable, binder: Binder) -> dict[int, str]:
    names = dict[int, str]()
    store = executable._store
    for tensor, buffer in (*binder.buffers.items(), *store.buffers.items()):
        names.setdefault(buffer.pointer, tensor.name)
    for tensor, buffer in binder.tensors():
        names.setdefault(buffer.pointer, f"{tensor.name} as {_layout(buffer.layout)}")
    for tensor, buffer in store._bf16_copies.items():
        names.setdefault(buffer.pointer, f"{tensor.name} halved")
    for tensor, array in store.data.items():
        names.setdefault(array.data.ptr, tensor.name)
    return names


def _layout(layout: Any) -> str:
    order = "" if len(layout.shape) < 4 else " nhwc" if layout.nhwc else " nchw"
    picture = f" of {'x'.join(map(str, layout.picture))}" if layout.picture else ""
    return f"{layout.dtype} {'x'.join(map(str, layout.stored))}{order}{picture}"


def _tensors(tape: Tape, executable: CudaExecutable, binder: Binder) -> Iterator[str]:
    held = {**binder.buffers, **executable._store.buffers}
    for tensor, buffer in held.items():
        lies = f"{_layout(buffer.layout)} at {tape.addresses.within(buffer.pointer)}"
        shape = "x".join(map(str, tensor.shape))
        yield f"{tensor.name}: {tensor.role} {tensor.dtype} {shape}, {lies}"


def _steps(tape: Tape, binder: Binder) -> Iterator[str]:
    for number, step in enumerate([*binder.steps]):
        yield f"{number}. {_call(step)}"
        if not step.on_host:
            plain = tape.taken(step.launch)
            yield from (f"    {line}" for line in plain)
            if step.behind is not None:
                behind = tape.taken(step.behind)
                alike = behind == [f"overlapping {line}" for line in plain]
                other = ["    or overlapping"] if alike else [f"    or {line}" for line in behind]
                yield from other
        # Ranks learn at their first launch how they reach each other.
        if binder.steps[number] is not step:
            yield f"    now {_call(binder.steps[number])}"


def _call(step: Step) -> str:
    where = "host" if step.on_host else f"stream {step.stream}"
    return where if step.call is None else f"{where}: {call_text(step.call)}"


def _together(tape: Tape, binder: Binder) -> Iterator[str]:
    """The order of launches in one graph of three steps; those of no step by themselves in full."""
    numbers = {id(step): str(number) for number, step in enumerate(binder.steps)}
    order, further = list[str](), list[str]()
    for step, launch in launches(binder.repeated(3), binder.overlaps == JOINS):
        if id(step) not in numbers:
            numbers[id(step)] = f"+{len(further)}"
            further.append(f"+{len(further)}. {_call(step)}")
            further += [] if step.on_host else [f"    {line}" for line in tape.taken(step.launch)]
        order.append(f"{numbers[id(step)]}{'o' if launch is step.behind else ''}")
    yield f"in one graph: {' '.join(order)}"
    yield from further


def _others(tape: Tape, binder: Binder) -> Iterator[str]:
    """What a search could take for a launch; the launches of the first and the last of each."""
    makers = [(name, mark, make) for name, all_ in binder.variants.items() for mark, make in all_]
    makers += [(name, "at once ", make) for name, make in binder.at_once.items()]
    for name, mark, make in makers:
        yield from _candidates(tape, f"{name} {mark}", make)
    for name, ways in binder.either.items():
        for mark, seconds in ways.items():
            yield from _timed(tape, f"{name} either {mark}", seconds)
    for kind, timed in (("tail", binder.tails), ("spared", binder.spared)):
        for name, seconds in timed.items():
            yield from _timed(tape, f"{name} {kind}", seconds)
    for each in binder.together:
        yield from _timed(tape, f"together {' '.join(each.names)}", each.spared)
    for name, product in binder.products.items():
        yield f"{name} products: {product.count()}"
        for index in range(product.count()):
            yield from (f"    {line}" for line in tape.taken(product.launch(index)))


def _candidates(tape: Tape, name: str, make: Callable[[], Candidates]) -> Iterator[str]:
    try:
        found = make()
        count = found.plans()
    except CudnnError as error:
        yield f"{name}: {error}"
        return
    choices = [found.choice(index) for index in range(count)]
    shown = choices if count <= 6 else [*choices[:3], f"{count}", choices[-1]]
    every = digest(" ".join(choices))
    yield f"{name}: {' '.join(shown)} {every}, sums {found.sums}, order {_order(found)}"
    for index in dict.fromkeys((0, count - 1) if count else ()):
        found.build(index)
        yield f"    {found.name(index)}"
        yield from (f"    {line}" for line in tape.taken(found.launch(index, 0)))


def _order(found: Candidates) -> str:
    order = list(found.order())
    return "as counted" if order == [*range(len(order))] else " ".join(map(str, order))


def _timed(tape: Tape, name: str, seconds: Callable[[int], float]) -> Iterator[str]:
    yield name
    yield from (f"    {line}" for line in tape.taken(lambda: seconds(1)))


def drawn_choices(
    executable: CudaExecutable, seed: str, fixed: Mapping[str, str]
) -> dict[str, str]:
    """For everything that a search may choose something of what it may take, by the seed."""
    choices = dict(fixed)

    def some(name: str, count: int) -> int:
        return int(digest(f"{seed} {name}"), 16) % count

    taken = False
    for binder in executable.binders():
        ways: dict[str, list[str]] = {}
        for name, graph in binder.convolutions.items():
            ways.setdefault(name, []).append(graph.choice(some(f"{name} plan", graph.plans())))
        for name, makers in binder.variants.items():
            for mark, make in makers:
                ways.setdefault(name, []).extend(_one_of(mark, make, some))
        for name, make in binder.at_once.items():
            offered = [] if taken else _one_of("e", make, some)
            if offered:
                ways[name], taken = offered, True
        for name, either in binder.either.items():
            ways.setdefault(name, []).extend(either)
        for name, product in binder.products.items():
            ways.setdefault(f"{name}/gemm", []).append(str(some(name, product.count())))
        choices |= {name: found[some(name, len(found))] for name, found in ways.items()}
    return choices


def _one_of(
    mark: str, make: Callable[[], Candidates], some: Callable[[str, int], int]
) -> list[str]:
    try:
        found = make()
    except CudnnError:
        return []
    count = found.plans()
    return [f"{mark}{found.choice(some(mark, count))}"] if count else []
