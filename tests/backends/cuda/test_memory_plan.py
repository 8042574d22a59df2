"""The plan of the device's memory, and what is bound against it, without a device."""

from __future__ import annotations

import sys
from itertools import chain

import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.dry_run import ALIGNMENT
from dnnstack.backends.cuda.fused import tensor_conv, tensor_filter
from dnnstack.backends.cuda.libraries import runtime
from dnnstack.backends.cuda.memory_plan import FURTHEST, check_fits, choose_residency, plan_memory
from dnnstack.backends.cuda.operations import losses
from dnnstack.backends.cuda.tuner import LAYOUTS, STREAMS
from dnnstack.common.errors import ConfigError
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ...support import composed

# The plan of one layer's gradient, which makes its filters exist a second time.
ROTATED = {"train/conv2d_2/data": "f0"}


def bytes_of(plan):
    """What a plan says that binding takes."""
    return plan.total - plan.libraries


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("name", ["lenet", "cifar", "deep"])
def test_what_is_counted_is_what_is_bound(bound, sections, name, fusion, precision, streamed):
    graphs = sections(name, fusion=fusion)
    plan = plan_memory(graphs, precision, streamed, fusion)
    layouts = [*LAYOUTS[precision], {**LAYOUTS[precision][0], **ROTATED}]
    for layout, streams in zip(layouts, chain(STREAMS, STREAMS[::-1]), strict=False):
        choices = {**layout, "streams": streams}
        executable, taken = bound(graphs, precision, choices, streamed, fusion=fusion)
        executable.close()
        assert bytes_of(plan_memory(graphs, precision, streamed, fusion, choices)) == taken
        # A search passes over NCHW where that is short of memory.
        assert taken <= bytes_of(plan) or layout["layout"] == "nchw"


@pytest.mark.parametrize("name", ["lenet", "cifar", "deep"])
def test_variants_that_a_search_tries_are_counted(bound, fake_cuda, sections, name):
    graphs = sections(name)
    executable, taken = bound(graphs, choices=FURTHEST)
    before = fake_cuda.allocated
    for binder in executable.binders():
        for _, make in chain.from_iterable(binder.variants.values()):
            make()
    tried = fake_cuda.allocated - before
    # A rule and a count of blocks for each product that may update weights.
    tried += sum(2 * ALIGNMENT * len(binder.at_once) for binder in executable.binders())
    executable.close()
    assert tried > 0
    assert bytes_of(plan_memory(graphs, "tf32")) == taken + tried


def test_counting_memory_looks_for_no_tilings(sections, monkeypatch):
    """Only a search needs them, and to find them takes longer than all the rest."""
    graphs = sections("cifar")
    wanted = plan_memory(graphs, "tf32")

    def asked(*_):
        raise AssertionError("the model is asked for tilings")

    for name in ("tilings", "warpgroup_tilings"):
        monkeypatch.setattr(tensor_conv, name, asked)
    for name in ("filter_tilings", "warpgroup_filter_tilings"):
        monkeypatch.setattr(tensor_filter, name, asked)
    assert plan_memory(graphs, "tf32") == wanted


def test_scratch_that_nobody_announced_is_counted(sections, monkeypatch):
    """However a kernel comes by it, it is in the plan, and belongs to its section."""
    graphs = sections("lenet")
    plan = plan_memory(graphs)
    before = losses._reduce

    def greedy(b, *arguments):
        b.scratch(5000, "float64")
        b.keep(b.cuda.zeros(600, "uint8"))
        b.numbers(1.0, 2.0, dtype="float32")
        b.store.zeros(b.home(b.graph["loss"]).layout)
        before(b, *arguments)

    monkeypatch.setattr(losses, "_reduce", greedy)
    more = plan_memory(graphs)
    # In whole blocks of 512 bytes: 79, 2, 1 and 1.
    gaps = [more.sections[n].activations - plan.sections[n].activations for n in plan.sections]
    fused = [n == "train" for n in plan.sections]
    assert gaps == [0 if each else 83 * 512 for each in fused]
    assert more.total - plan.total == sum(gaps)


def test_a_dry_run_asks_for_neither_cupy_nor_a_device(sections, monkeypatch):
    def asked():
        raise AssertionError("a dry run has no device")

    prefix = runtime.__package__.removesuffix("libraries")
    for module in [m for name, m in sys.modules.items() if name.startswith(prefix)]:
        for name in {"cuda_api", "cupy", "cupy_on", "device", "frontend"} & vars(module).keys():
            monkeypatch.setattr(module, name, asked)
    for streamed in (False, True):
        plan_memory(sections("deep"), streamed=streamed)


def test_a_network_that_cannot_fit_is_refused_with_the_largest_batch_that_can(sections):
    plan = plan_memory(sections("cifar", 512))
    check_fits(plan, plan.total, "GPU")
    free = plan.total - 1
    with pytest.raises(ConfigError) as caught:
        check_fits(plan, free, "GPU X")
    text = str(caught.value)
    assert "data.batch_size of at most 511 fits: --set data.batch_size=511" in text
    assert f"needs {plan.total / 1e9:.2f} GB of memory, but GPU X has {free / 1e9:.2f} GB" in text
    half = plan.total - plan.sections["train"].activations // 2
    batch = plan.largest_batch("train", half)
    assert 240 <= batch <= 256
    assert plan_memory(sections("cifar", batch)).total <= half
    assert plan_memory(sections("cifar", batch + 8)).total > half


@pytest.mark.parametrize("share", [0.9, 0.5, 0.1])
@pytest.mark.parametrize("name", ["lenet", "cifar", "deep"])
def test_the_largest_batch_fits_and_hardly_a_larger_one_does(sections, name, share):
    plan = plan_memory(sections(name, 4096))
    free = plan.total - int((1 - share) * plan.sections["train"].activations)
    batch = plan.largest_batch("train", free)
    assert plan_memory(sections(name, batch)).total <= free
    assert plan_memory(sections(name, batch + batch // 50)).total > free


def test_the_larger_section_is_the_one_that_must_shrink(sections):
    plan = plan_memory(sections("cifar", 2))
    with pytest.raises(ConfigError, match=r"data\.evaluation_batch_size of at most 127 fits"):
        check_fits(plan, plan.total - 1, "GPU")


def test_a_batch_in_parts_is_named_as_a_whole(sections):
    rule = Composition(Sgd(), parts=4)
    scaling = Preprocessing.standardize([0.5], [0.2])
    graph = composed.train_graph(sections.network("lenet"), 256, "data", 640, 2, 4, scaling, rule)
    plan = plan_memory({"train": graph})
    with pytest.raises(ConfigError, match=r"data\.batch_size of at most 252 fits"):
        check_fits(plan, plan.total - 1, "GPU")


def test_where_no_batch_fits_the_message_says_so(sections):
    plan = plan_memory(sections("lenet", count=60_000))
    with pytest.raises(ConfigError, match=r"workspaces .*\); no batch size fits; use a smaller"):
        check_fits(plan, plan.parameters + plan.gradients + plan.optimizer + plan.workspaces, "GPU")
    with pytest.raises(ConfigError, match=r"data\.residency: auto or stream keeps the data"):
        check_fits(plan, plan.total - 1, "GPU")


def test_data_sets_stay_where_they_fit_the_share(sections):
    graphs = sections("lenet", count=60_000)
    size = 60_000 * 788

    def streams(residency, free):
        streamed, plan = choose_residency(graphs, "tf32", Options(residency=residency), free)
        assert plan == plan_memory(graphs, "tf32", streamed)
        return streamed

    resident = plan_memory(graphs, "tf32").total
    assert [streams("auto", free) for free in (resident, resident - 1)] == [False, True]
    assert streams("stream", 1 << 50)
    assert not streams("device", size)
    # Much data, next to which all else is small: they may fill half of what is free.
    graphs = sections("lenet", count=2_000_000)
    half = 2 * plan_memory(graphs, "tf32").data
    assert [streams("auto", free) for free in (half, half - 1)] == [False, True]


def test_a_section_that_gathers_nothing_streams_nothing(sections):
    graphs = {"infer": sections.network("lenet").infer_graph(1)}
    assert choose_residency(graphs, "tf32", Options(residency="stream"), 0)[0] is False
    assert plan_memory(graphs).gradients == 0
