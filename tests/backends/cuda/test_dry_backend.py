"""A card that is not there gets a device's calls, and what timing may choose is told."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from dnnstack.backends.base import Limits, Options
from dnnstack.backends.cuda import tuned
from dnnstack.backends.cuda.cards import CARDS, USUAL
from dnnstack.backends.cuda.dry_backend import ENGINE, PRECISIONS, UNDECIDED, DryBackend
from dnnstack.backends.cuda.libraries import runtime
from dnnstack.backends.cuda.tuner import LAYOUTS
from dnnstack.common.errors import BackendUnavailableError, ConfigError
from dnnstack.configs import load_config, packaged_configs, placed
from dnnstack.reports.explain import calls_of, explain
from dnnstack.reports.foreseen import ELSEWHERE, TOGETHER, rivals_of

from ...support.described_bytes import digest
from ...support.described_cuda import drawn_choices
from ...support.whole_sections import packaged_sections
from .taped import bind, tape

__all__ = ["tape"]
H200 = CARDS["h200"]
FEW = (
    *("lenet.yaml", "mlp.yaml", "lenet5.yaml", "digits.yaml", "ecg.yaml", "cifar10-quick.yaml"),
    *("cifar10-resnet20.yaml", "cifar10-airbench-muon.yaml", "lenet-space.yaml"),
)
WAYS = (
    {"overlap": "joins", "ending": "tail,batch"},
    {"overlap": "chains", "ending": "batch", "quiet": "tensor_conv,sgd_update", "streams": "2"},
    {"ending": "tail", "apart": "sgd_update", "streams": "3"},
)
# How often each is bound; where that is more than usual, all packaged configs are.
TURNS = int(os.environ.get("DNNSTACK_DRAWS", "2"))
# It adds up for several, and is said to be of the first that waits.
SUMS = "sum_slices"
TUNED = defaultdict(list)
for path in tuned._FOLDER.glob("*.json"):
    found = tuned.from_json(path.read_bytes(), tuned.Card)
    for table in found.tables:
        TUNED[table.config, table.precision].append((found.environment["GPU"], table))


def told(executable):
    """Every call, but for what only the library says."""
    for section in executable.graphs:
        for call in executable.calls(section):
            shown = {key: text for key, text in call.arguments.items() if key != "workspace"}
            own = "" if call.function == ENGINE else call.implementation
            yield section, call.op, call.library, call.function, own, shown


def missing(executable, rivals):
    """What operations became that is not among what they may become."""
    for section, graph in executable.graphs.items():
        calls = {op: set() for op in graph.ops}
        for op, call in calls_of(executable, section):
            calls[op].add(call.function)
        for op in graph.ops if section.startswith("train") else ():
            known = {name for way in rivals[op] for name in way.split(TOGETHER)} | {SUMS}
            yield from ((op.label(), name) for name in (calls[op] or {ELSEWHERE}) - known)


@pytest.mark.parametrize("name", packaged_configs() if TURNS > 2 else FEW)
def test_a_card_gets_the_calls_of_a_device(tape, name):
    """With the defaults, and with choices that are drawn: these are among the candidates."""
    sections, number = packaged_sections(name), int(digest(name), 16)
    precision, backend = PRECISIONS[number % 3], DryBackend(H200)
    dry = backend.compile(sections, Options(precision, tune=False))
    assert list(told(dry))
    rivals, layout = rivals_of(backend), LAYOUTS[precision][number // 3 % 2]
    choices = {"streams": "1", **layout}
    for turn in range(TURNS):
        real = bind(dry.graphs, precision, choices)
        assert list(told(backend.made.bound(dry.graphs, choices))) == list(told(real))
        assert list(missing(real, rivals)) == []
        choices = {"streams": "1", **layout, **WAYS[(number + turn) % 3]}
        choices = drawn_choices(real, f"{name} {turn}", choices)
        real.close()


@pytest.mark.parametrize("name", packaged_configs())
def test_every_config_can_be_foreseen(name):
    """In every precision; a table that ships is for what a config is now."""
    tables = [(precision, *each) for precision in PRECISIONS for each in TUNED[name, precision]]
    sections, backend = given(name) if tables else packaged_sections(name), DryBackend(H200)
    for precision in PRECISIONS:
        for graph in backend.compile(sections, Options(precision)).graphs.values():
            assert backend.made.calls(graph.name)
        found = [(card, table) for at, card, table in tables if at == precision]
        for card, table in found:
            assert table.graph == backend.mark, "release/tuned.py --renew"
            # Networks that differ in nothing that matters share tables.
            assert backend.shipped or card != H200.name


@pytest.mark.parametrize("precision", PRECISIONS)
def test_inference_can_be_foreseen(sections, precision):
    backend = DryBackend(H200)
    backend.compile({"infer": sections.network("deep").infer_graph(3)}, Options(precision))
    functions = [call.function for call in backend.made.calls("infer")]
    assert functions.count(ENGINE) == 2
    assert not any("backward" in name or "update" in name for name in functions)
    assert next(backend.made.others(precision)).graphs == {}


def given(name):
    """What a backend is given for a packaged config, with its own batch."""

    class Keeping(DryBackend):
        def compile(self, sections, options=None):
            self.sections = sections
            return super().compile(sections, options)

    loaded, backend = load_config(name), Keeping(H200)
    with placed(loaded):
        explain(loaded.config, loaded.path, backend, False, lambda text: None)
    return backend.sections


def test_what_ships_for_a_card_is_shown():
    """Its plans by name, its kernels; other cards, and a search that is asked for, go without."""
    sections, backend = given("cifar10-resnet20.yaml"), DryBackend(H200)
    backend.compile(sections, Options("tf32"))
    assert backend.shipped.tables[0].config == "cifar10-resnet20.yaml"
    assert backend.versions()["cuDNN"] == "9.19"
    calls = backend.made.calls("train")
    engines = [call.implementation for call in calls if call.function == ENGINE]
    assert engines
    assert set(engines) <= set(backend.made.plans.values())
    for card, options in (
        ("a100", Options("tf32")),
        ("h200", Options("tf32", tune=False)),
        ("h200", Options("tf32", tune_seconds=float("inf"))),
        ("h200", Options("tf32", deterministic=False)),
    ):
        other = DryBackend(CARDS[card])
        calls = other.compile(sections, options).calls("train")
        engines = {call.implementation for call in calls if call.function == ENGINE}
        assert (other.shipped, engines) == (None, {UNDECIDED})
        assert other.versions() == {"GPU": CARDS[card].name}


def test_a_card_is_what_its_maker_states():
    """The page says the same; and some of it holds for all cards."""
    page = (Path(__file__).parents[3] / "docs/explain.md").read_text("utf-8")
    for name, card in CARDS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        rates = [*card.tflops, None, None][:3]
        stated = [*rates, card.bandwidth, card.gigabytes, card.count]
        cells = [cell.strip() for cell in row.split("|")[2:-1]]
        assert [float(cell) if cell else None for cell in cells] == stated
    assert H200.processors == runtime.H200
    assert USUAL in CARDS
    for card in CARDS.values():
        rates, processors = card.tflops, card.processors
        assert sorted(rates) == list(rates), "fp32, tf32, bf16"
        assert card.has_tf32 == (card.capability >= (8, 0)) == (len(rates) == 3)
        assert processors.shared_of_block <= processors.shared == card.shared[0] * 1024
    h100, t4 = DryBackend(CARDS["h100"]), DryBackend(CARDS["t4"])
    assert h100.limits("bf16") == Limits(989.4e3, 3350)
    assert (h100.precision("auto"), t4.precision("auto")) == ("tf32", "fp32")
    assert t4.limits() == Limits(8.1e3, 320)
    with pytest.raises(BackendUnavailableError, match=r"Tesla T4 has no tensor cores"):
        t4.precision("bf16")


def test_what_no_card_holds_is_refused(sections):
    graphs, card = sections("cifar", 4096), CARDS["t4"]
    backend = DryBackend(card)
    backend.compile(graphs)
    assert 1e9 < backend.needed < card.gigabytes * 1e9
    with pytest.raises(ConfigError, match=r"Tesla T4 has .* GB free"):
        DryBackend(replace(card, gigabytes=backend.needed / 2e9)).compile(graphs)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize(
    "name", ["lenet.yaml", "mlp.yaml", "cifar10-resnet20.yaml", "cifar10-resnet9.yaml"]
)
def test_a_gpu_gets_what_was_foreseen(cuda, name, precision):
    """Call by call with the same choices; and what a search finds is among the candidates."""
    sections = given(name)
    there = next((c for c in CARDS.values() if c.name == cuda.device.name), H200)
    properties = cuda.device.processors
    own = (properties.shared >> 10, properties.shared_of_block >> 10)
    card = replace(there, capability=cuda.device.capability, count=properties.count, shared=own)
    backend = DryBackend(card)
    backend.compile(sections, Options(precision, tune=False))
    rivals = rivals_of(backend)
    for tune in (False, True):
        with closing(cuda.compile(sections, Options(precision, tune=tune))) as real:
            again = backend.made.bound(real.graphs, real.tuning.choices)
            assert list(told(again)) == list(told(real))
            assert list(missing(real, rivals)) == []
