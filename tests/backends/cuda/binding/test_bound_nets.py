"""Networks of all kinds, bound on the stand-in, which refuses numbers of a type that a kernel does
not take."""

from __future__ import annotations

import random

import numpy as np
import pytest
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.choices import AtEnd
from dnnstack.backends.cuda.fused import first_conv
from dnnstack.backends.cuda.memory_plan import plan_memory
from dnnstack.common.errors import ShapeError
from dnnstack.graph.ops import ACTIVATIONS
from dnnstack.graph.rewrites import rewritten
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ....support import composed
from ....support.op_cases import CASES
from ....support.rows import rows
from ....support.specs import network_of, spec

SHAPES = ((1, 12, 12), (1, 13, 11), (3, 12, 12), (5, 9, 8))
LAYOUTS = (
    {"layout": "nhwc", "pad": "1", "streams": "1"},
    {"layout": "nhwc", "pad": "8", "streams": "2"},
    {"layout": "nhwc", "pad": "32", "streams": "3"},
    {"layout": "nchw", "streams": "1"},
)
SMOOTH = [kind for kind in ACTIVATIONS if kind not in ("relu", "leaky_relu", "gelu_tanh")]


def conv(draw, **options):
    given = {"filters": draw.choice([1, 3, 5, 8, 12, 33]), "kernel_size": draw.choice([1, 2, 3, 5])}
    more = {"padding": draw.choice(["same", "valid"]), "use_bias": draw.random() < 0.6}
    return spec("conv2d", **given | more | options)


def same(draw):
    return conv(draw, padding="same", filters=draw.choice([5, 8, 20]))


def any_layer(draw):
    size = draw.choice([2, 2, 3])
    pool = {"pool_size": size, "stride": draw.choice([1, 2, 3]), "ceil_mode": draw.random() < 0.2}
    return draw.choice(
        [
            *(conv(draw), conv(draw), conv(draw, algorithm="im2col"), same(draw)),
            *(spec("max_pool2d"), spec("max_pool2d", **pool), spec("avg_pool2d", **pool)),
            *(spec("relu"), spec("relu"), spec("leaky_relu"), spec(draw.choice(SMOOTH))),
            *(spec("batch_norm"), spec("batch_norm", scale=False, center=False)),
            *(spec("dropout", rate=0.3), spec("lrn", alpha=0.1), spec("lcn", size=3)),
            *(spec("pad2d", padding=1, value=-0.2), spec("scale", factor=0.5)),
            spec("scaled_subsampling", pool_size=2, stride=1, pooling="average"),
            spec("residual", body=[same(draw), spec("relu"), same(draw)], shortcut="projection"),
            spec("residual", body=[same(draw), spec("batch_norm")], shortcut="padding"),
            spec("concat", branches=[[same(draw), spec("tanh")], [same(draw)], []]),
        ]
    )


def any_rows(draw):
    kinds = [spec("dropout"), spec("relu"), spec("tanh"), spec("batch_norm")]
    kinds.append(spec("scale", factor=0.5))
    return [draw.choice(kinds) for _ in range(draw.choice([0, 1, 2]))]


def any_net(draw):
    specs = [any_layer(draw) for _ in range(draw.randint(1, 7))]
    specs += [spec(draw.choice(["flatten", "flatten", "global_avg_pool2d"])), *any_rows(draw)]
    for _ in range(draw.randint(0, 2)):
        specs += [spec("dense", units=draw.choice([3, 10, 33, 70])), *any_rows(draw)]
    return [*specs, spec("dense", units=10, use_bias=draw.random() < 0.8), spec("softmax")]


def sections(specs, shape, batch=4):
    """Training and evaluation, as the backend gets them after its rewrites."""
    network = network_of(specs, shape)
    scaling = Preprocessing.standardize([0.5] * shape[0], [0.25] * shape[0])
    graphs = {
        "train": composed.train_graph(network, batch, "data", 16, 4, 8, scaling, Sgd(momentum=0.9)),
        "evaluate": network.evaluate_graph(batch + 1, "data", 16, 4, scaling),
    }
    return {name: rewritten(graph, CudaBackend.rewrites) for name, graph in graphs.items()}


def counted(graphs, precision, choices):
    plan = plan_memory(graphs, precision, choices=choices)
    return plan.total - plan.libraries


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_every_kernel_gets_numbers_of_its_types_and_all_memory_is_counted(bound, seed, precision):
    draw = random.Random(seed)
    graphs = None
    while graphs is None:
        try:
            graphs = sections(any_net(draw), draw.choice(SHAPES))
        except ShapeError:
            continue
    choices = dict(draw.choice(LAYOUTS))
    executable, taken = bound(graphs, precision, choices)
    assert counted(graphs, precision, choices) == taken
    assert executable.calls("train")
    # Again with everything in the place of a plan of cuDNN's that can be had.
    for binder in executable.binders():
        for name, variants in binder.variants.items():
            choices[name] = "0"
            if variants:
                mark, make = draw.choice(variants)
                if (candidates := make()).plans():
                    choices[name] = mark + candidates.choice(0)
        # One dense layer's weights updated with their gradient by the update's launch.
        made = {name: make() for name, make in binder.at_once.items()}
        for name in [name for name, candidates in made.items() if candidates.plans()][:1]:
            choices[name] = AtEnd.mark + made[name].choice(0)
    executable.close()
    other, taken = bound(graphs, precision, choices)
    assert counted(graphs, precision, choices) == taken
    # Searches pad to 8 at least, and pass over NCHW where that does not fit.
    if choices.get("pad", "1") != "1":
        plan = plan_memory(graphs, precision)
        assert taken <= plan.total - plan.libraries
    other.close()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@rows("name", CASES)
def test_all_memory_of_an_operation_is_counted(bound, fake_cuda, no_collection, name, precision):
    graphs = {"one": CASES[name](np.random.default_rng(1), "normal").graph}
    executable, taken = bound(graphs, precision, LAYOUTS[1])
    executable.close()
    assert counted(graphs, precision, LAYOUTS[1]) == taken
    assert fake_cuda.held == 0


AROUND = {
    "before": [spec("pad2d", padding=1), spec("conv2d", filters=8, kernel_size=3)],
    "behind": [spec("conv2d", filters=8, kernel_size=3)],
}


@pytest.mark.parametrize("where", AROUND)
def test_a_fused_convolution_reads_and_writes_numbers_of_one_type(bound, where):
    """Where its pictures, or what reads its result, are float32 among bfloat16."""
    end = {"before": [same(random.Random(1))], "behind": [spec("pad2d", padding=1)]}[where]
    specs = [*AROUND[where], spec("relu"), spec("max_pool2d"), *end, spec("flatten")]
    graphs = sections([*specs, spec("dense", units=10), spec("softmax")], (1, 12, 12))
    executable, _ = bound(graphs, "bf16")
    assert first_conv.TENSOR_FORWARD in {call.function for call in executable.calls("train")}
    executable.close()


def test_the_stand_in_refuses_numbers_of_another_type(bound, sections, monkeypatch):
    from dnnstack.backends.cuda.operations import linear

    monkeypatch.setattr(linear, "i64", np.float32)
    with pytest.raises(AssertionError, match=r"argument \d, i64"):
        bound(sections("cifar"))
