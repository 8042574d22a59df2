"""What whole trainings become on a GPU is what is stored: every launch with all that it is given.

The trainings are bound on the stand-in for a device, so no GPU is needed, and one changes nothing.
``tests/support/goldens.py`` says how to store a deliberate change.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends import collectives
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.executable import CudaExecutable
from dnnstack.backends.cuda.fused.first_conv import _tensor_bytes
from dnnstack.backends.cuda.lecture import CHOICES
from dnnstack.backends.cuda.libraries.kernels import source_of
from dnnstack.backends.cuda.tuner import search
from dnnstack.configs import packaged_configs
from dnnstack.graph.ops import GatherAugmented, GatherBatch
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.parallel import SPACE
from dnnstack.optimizers.sgd import Sgd
from dnnstack.passes.bands import stretch
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ...support import composed
from ...support.cuda_tape import files
from ...support.described_bytes import digest
from ...support.described_cuda import described, drawn_choices
from ...support.first_convs import Drawn
from ...support.goldens import compare, names
from ...support.op_cases import CASES
from ...support.whole_sections import (
    DRAWN,
    LARGE,
    drawn_sections,
    large_sections,
    packaged_sections,
)
from .taped import bind, connect, tape

__all__ = ["tape"]
LAYOUTS = (
    {"layout": "nhwc", "pad": "8", "streams": "1"},
    {"layout": "nhwc", "pad": "32", "streams": "2"},
    {"layout": "nchw", "streams": "1"},
    {"layout": "nhwc", "pad": "4", "streams": "3"},
)
# With choices that are drawn: what else a search may take.
FURTHER = (
    {"overlap": "joins", "ending": "tail,batch"},
    {"overlap": "chains", "ending": "batch", "quiet": "tensor_conv,sgd_update"},
    {"overlap": "joins", "apart": "sgd_update,dense_tail,max_pool"},
    {"ending": "tail"},
)
# What ranks share of layers: units, or rows of pictures.
UNITS = {"conv2d": "filters", "dense": "units"}
BANDS = {"conv2d": SPACE, "max_pool2d": SPACE}
PRECISIONS = ("tf32", "bf16", "fp32")


def of_backend(sections, fusion=True):
    rewrites = CudaBackend.rewrites if fusion else {}
    return {name: rewritten(graph, rewrites) for name, graph in sections.items()}


def told(tape, sections, number, fusion=True):
    """The text of sections with the defaults, and with choices that are drawn."""
    graphs = of_backend(sections, fusion)
    for turn in range(2):
        at = number + turn
        layout, precision = LAYOUTS[at % len(LAYOUTS)], PRECISIONS[at % len(PRECISIONS)]
        choices = dict(layout)
        if precision == "bf16" and layout["layout"] == "nchw":
            precision = "tf32"
        executable = bind(graphs, precision, choices, fusion, bool(turn) or at % 5 > 0)
        if turn:
            choices = drawn_choices(executable, str(number), choices | FURTHER[at // 2 % 4])
            executable.close()
            yield f"= choices {' '.join(f'{key}={value}' for key, value in choices.items())}"
            executable = bind(graphs, precision, choices, fusion)
        yield f"= {precision} {'fused' if fusion else 'plain'}"
        yield from described(tape, executable)
        executable.close()


FED = ("lenet.yaml", "cifar10-airbench.yaml", "net-03")
LECTURED = ("mlp.yaml", "lenet.yaml")
RANKS = (("lenet", 2), ("lenet", 5), ("deep", 2), ("deep", 3))
SEARCHES = (
    *(("lenet.yaml", "tf32"), ("lenet.yaml", "bf16"), ("net-03", "fp32")),
    ("cifar10-resnet9.yaml", "bf16"),
)


def test_nothing_is_stored_that_is_not_compared():
    wanted = {*packaged_configs(), *DRAWN, *(f"{name} fed" for name in FED)}
    wanted |= {f"{name} of a lecture" for name in LECTURED}
    wanted |= {f"{name} with {batch}" for name, batch in LARGE.items()}
    wanted |= {f"{net} by {ranks} ranks" for net, ranks in RANKS}
    wanted |= {f"search of {name} in {precision}" for name, precision in SEARCHES}
    wanted |= {"operations", "files", "short orders", "first convolutions"}
    wanted |= {"strided convolutions", "two updates", "sizes of first convolutions"}
    assert names("cuda") == wanted | {"tilings of convolutions", "tilings of products"}


@pytest.mark.parametrize("name", FED)
def test_data_that_stay_in_host_memory(tape, name):
    sections = packaged_sections(name) if name.endswith("yaml") else drawn_sections(name)
    executable = bind(of_backend(sections), "tf32", LAYOUTS[0], streamed=True)
    compare(f"cuda/{name} fed", described(tape, executable))
    executable.close()


@pytest.mark.parametrize("name", packaged_configs())
def test_configs_that_ship(tape, name):
    compare(f"cuda/{name}", told(tape, packaged_sections(name), int(digest(name), 16)))


@pytest.mark.parametrize("name", LECTURED)
def test_the_calls_of_a_lecture(tape, name):
    executable = bind(packaged_sections(name), "fp32", CHOICES, fusion=False, lecture=True)
    compare(f"cuda/{name} of a lecture", described(tape, executable))
    executable.close()


@pytest.mark.parametrize("name", LARGE)
def test_large_batches(tape, name):
    compare(f"cuda/{name} with {LARGE[name]}", told(tape, large_sections(name), len(name)))


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_trainings(tape, name):
    number, fusion = int(name[-2:]), DRAWN[name]["config"]["run"]["fusion"]
    compare(f"cuda/{name}", told(tape, drawn_sections(name), number, fusion))


def test_operations(tape):
    """Each by itself: what whole trainings make of them is not all that they can be."""

    def every():
        # In which order they are entered depends on what was imported first.
        for name, make in sorted(CASES.items()):
            number = int(digest(name), 16)
            yield f"# {name}"
            graphs = {"one": make(np.random.default_rng(1), "normal").graph}
            layout = LAYOUTS[number % len(LAYOUTS)]
            precision = "bf16" if number % 3 == 1 and layout["layout"] == "nhwc" else "fp32"
            executable = bind(graphs, precision, layout)
            yield from described(tape, executable)
            executable.close()

    compare("cuda/operations", every())


def test_fewer_samples_than_a_batch(tape):
    """Data may be exchanged for shorter ones; nothing is counted modulo 0."""

    def every():
        for name, make in sorted(CASES.items()):
            graph = make(np.random.default_rng(1), "normal").graph
            (op,) = graph.ops if len(graph.ops) == 1 else (None,)
            if isinstance(op, GatherBatch | GatherAugmented):
                executable = bind({"one": graph}, "fp32", LAYOUTS[0])
                executable.write(op.order, np.zeros(op.x.shape[0] - 1, np.int32))
                executable.run("one")
                yield f"# {name}"
                yield from described(tape, executable)
                executable.close()

    compare("cuda/short orders", every())


def test_first_convolutions(tape):
    """In geometries that no config has, of few pictures and of many."""

    def every():
        for seed, n in enumerate((0, 64, 128, 129, 132, 133, 264, 265, 396, 397, 1000) * 3):
            drawn = Drawn(seed, n)
            draft, _ = drawn.section()
            graphs = of_backend({"one": draft.graph})
            yield f"# {drawn.values}, {_tensor_bytes(drawn.values)} bytes"
            executable = bind(graphs, "bf16" if drawn.bf16 else "tf32", LAYOUTS[0])
            yield from described(tape, executable)
            executable.close()

    compare("cuda/first convolutions", every())


def test_files_of_kernels():
    """What a compiler gets of each: with a change of a kernel this is the only text to change."""
    compare("cuda/files", (f"{file}: {digest(source_of(file))}" for file in files()))


@pytest.mark.parametrize(("net", "ranks"), RANKS)
def test_ranks(tape, sections, monkeypatch, net, ranks):
    """Two that reach each other's memory, more that do not, and some on several machines."""
    connect(tape, monkeypatch, ranks)
    near = ranks != 3

    def every():
        splits = ((None, 1, {}), (1.0, 3, {}), (None, 1, UNITS), *([(None, 1, BANDS)] * near))
        for clip, buckets, split in splits:
            for parts in (ranks, 2 * ranks):
                graphs = ranked(sections, net, parts, ranks, buckets, clip, split)
                choices = LAYOUTS[(buckets + parts) % len(LAYOUTS)]
                yield f"# {parts} parts, {buckets} pieces, clipped to {clip}, split {(*split,)}"
                executable = bind(of_backend(graphs), "tf32", choices)
                yield from described(tape, executable)
                executable.close()

    collectives.join(SimpleNamespace(rank=1, size=ranks, on_one_machine=near, spread=len))
    try:
        compare(f"cuda/{net} by {ranks} ranks", every())
    finally:
        collectives.join(None)


def ranked(sections, net, parts, ranks, buckets, clip, split):
    channels = 1 if net == "lenet" else 3
    scaling = Preprocessing.standardize([0.5] * channels, [0.2] * channels)
    network = sections.network(net)
    for layer in network.every_layer():
        if layer.name != "dense_1":
            layer.parallel = split.get(layer.kind)
    sgd = Sgd(momentum=0.9, weight_decay=0.01, weight_decay_on="weights")
    bands = ranks if stretch(network.layers) else 1
    # Of bands every rank computes all parts.
    shares = {"parts": parts, "ranks": 1 if bands > 1 else ranks, "bands": bands}
    averages = ("ema",) if buckets > 1 else ()
    chosen = Composition(sgd, clip_norm=clip, averages=averages, buckets=buckets, **shares)
    found = composed.graphs(network, 2 * parts, "data", 8 * parts, 4, 8, scaling, chosen)
    return {each.name: each for each in found}


@pytest.mark.parametrize(("name", "precision"), SEARCHES)
def test_searches(tape, monkeypatch, name, precision):
    """What is tried, one after the other, and what is taken, where times are those of a digest."""
    sections = packaged_sections(name) if name.endswith("yaml") else drawn_sections(name)
    graphs = {key: each for key, each in of_backend(sections).items() if each.training}
    tried = []

    def build(choices):
        tried.append(dict(choices))
        return bind(graphs, precision, {"streams": "1", **choices})

    def seconds(executable, section, repeats):
        # Of every choice a few hundredths, whatever the others are.
        return 1.0 + sum(
            share(f"{item} of {section}") for item in executable.tuning.choices.items()
        )

    monkeypatch.setattr(CudaExecutable, "step_seconds", seconds)
    found, alone = search(build, precision, Options(tune_seconds=float("inf")))
    shown = [" ".join(f"{key}={value}" for key, value in each.items()) for each in (*tried, found)]
    compare(f"cuda/search of {name} in {precision}", [*shown, str(alone)])


def share(text):
    return (int(digest(text), 16) % 101 - 50) / 1000
