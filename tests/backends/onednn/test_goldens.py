"""What whole trainings become on a CPU is what is stored: every call with all that it is given.

They are bound on a stand-in for oneDNN, so that no processor and no timing decides anything.
``tests/support/goldens.py`` says how to store a deliberate change.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from dnnstack.backends.onednn import host_memory, library, memory, selfcheck, tuner
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.onednn.executable import OneDnnExecutable
from dnnstack.backends.onednn.memory import LAYOUTS
from dnnstack.backends.tuning import Tuning
from dnnstack.configs import packaged_configs
from dnnstack.graph.rewrites import rewritten

from ...support.described_bytes import digest
from ...support.described_onednn import described
from ...support.goldens import compare, names
from ...support.onednn_tape import TapedOneDnn
from ...support.op_cases import CASES
from ...support.whole_sections import (
    DRAWN,
    LARGE,
    drawn_sections,
    large_sections,
    packaged_sections,
)

ISAS = ("avx512_core_bf16", "avx2")


@pytest.fixture
def tape(monkeypatch):
    """Makes a stand-in for a processor's instruction set and threads."""

    def make(isa, threads):
        made = TapedOneDnn(isa, threads)

        def noted(nbytes):
            array = reserved(nbytes)
            made.addresses.note(array.ctypes.data, array.nbytes, "zeros", array)
            return array

        prefix = library.__name__.removesuffix("library")
        for name, module in list(sys.modules.items()):
            if name.startswith(prefix) and callable(getattr(module, "library", None)):
                monkeypatch.setattr(module, "library", lambda: made)
        monkeypatch.setattr(memory, "reserved", noted)
        return made

    reserved = memory.reserved
    monkeypatch.setattr(host_memory, "free_bytes", lambda: 1 << 50)
    monkeypatch.setattr(selfcheck, "passes", lambda *_: True)
    monkeypatch.setattr(selfcheck, "_passed", {})
    return make


def told(tape, sections, number, fusion=True):
    """The text of sections with the defaults, and with layouts that are drawn."""
    rewrites = OneDnnBackend.rewrites if fusion else {}
    graphs = {name: rewritten(graph, rewrites) for name, graph in sections.items()}
    for turn in range(2):
        isa, threads = ISAS[(number + turn) % 2], 1 + (number + turn) // 2 % 2
        made = tape(isa, threads)
        choices = dict(tuner.default_choices(graphs.values()))
        if turn:
            choices = {
                name: LAYOUTS[int(digest(f"{number} {name}"), 16) % len(LAYOUTS)]
                for name in choices
            }
        halved = isa == ISAS[0] and number % 3 != 2
        how = ("bfloat16" if halved else "float32", turn == 0 and number % 2 == 0)
        yield f"= {isa}, {threads} threads, {how}, {choices}"
        tuning = Tuning("onednn", choices=choices)
        executable = OneDnnExecutable(graphs, tuning, threads, (), *how)
        yield from described(made, executable)
        executable.close()


# Of the largest the constants take long to write.
FEWER = {name: batch for name, batch in LARGE.items() if batch < 512}
SEARCHES = ("lenet.yaml", "cifar10-resnet20.yaml", "net-03")


def test_nothing_is_stored_that_is_not_compared():
    wanted = {*packaged_configs(), *DRAWN, "operations"}
    wanted |= {f"{name} with {batch}" for name, batch in FEWER.items()}
    assert names("onednn") == wanted | {f"search of {name}" for name in SEARCHES}


@pytest.mark.parametrize("name", packaged_configs())
def test_configs_that_ship(tape, name):
    compare(f"onednn/{name}", told(tape, packaged_sections(name), int(digest(name), 16)))


@pytest.mark.parametrize("name", FEWER)
def test_large_batches(tape, name):
    compare(f"onednn/{name} with {LARGE[name]}", told(tape, large_sections(name), len(name)))


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_trainings(tape, name):
    number, fusion = int(name[-2:]), DRAWN[name]["config"]["run"]["fusion"]
    compare(f"onednn/{name}", told(tape, drawn_sections(name), number, fusion))


def test_operations(tape):
    """Each by itself: what whole trainings make of them is not all that they can be."""

    def every():
        # In which order they are entered depends on what was imported first.
        for name, make in sorted(CASES.items()):
            number = int(digest(name), 16)
            yield f"# {name}"
            made = tape(ISAS[number % 2], 1 + number // 2 % 2)
            graphs = {"one": make(np.random.default_rng(1), "normal").graph}
            dtype = "bfloat16" if number % 3 == 0 else "float32"
            executable = OneDnnExecutable(graphs, Tuning("onednn"), 1, (), dtype)
            yield from described(made, executable)
            executable.close()

    compare("onednn/operations", every())


@pytest.mark.parametrize("name", SEARCHES)
def test_searches(tape, name):
    """What is tried, one after the other, and what is taken, where times are those of a digest."""
    tape(ISAS[0], 2)
    sections = packaged_sections(name) if name.endswith("yaml") else drawn_sections(name)
    graphs = {key: rewritten(each, OneDnnBackend.rewrites) for key, each in sections.items()}
    graph = next(each for each in graphs.values() if each.training)
    tried = []

    def seconds(_, choices, repeats):
        tried.append(f"{repeats}: {' '.join(f'{key}={each}' for key, each in choices.items())}")
        # Of every choice a few hundredths, whatever the others are.
        return 0.1 + sum(int(digest(f"{item}"), 16) % 101 / 9000 for item in choices.items())

    found = tuner.search(graph, tuner.default_choices([graph]), seconds)
    compare(f"onednn/search of {name}", [*tried, str(found)])
