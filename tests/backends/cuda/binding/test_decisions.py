"""What a kernel decides shows in what is bound behind it; on the stand-in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.decisions import Operations
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Advance
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ....support import composed

SHAPE, BATCH = (3, 12, 12), 8
CONV = {"filters": 16, "kernel_size": 3, "padding": "same"}
NET = (
    *(LayerSpec("conv2d", options=CONV), LayerSpec("relu"), LayerSpec("max_pool2d")),
    *(LayerSpec("conv2d", options=CONV), LayerSpec("relu"), LayerSpec("max_pool2d")),
    *(LayerSpec("flatten"), LayerSpec("dense", options={"units": 10})),
)


@pytest.fixture
def calls(bound):
    """Binds a step of a small net with these choices; gives its calls."""

    def bind(streams="1", **choices):
        network = Network(build_layers(NET, SHAPE), CrossEntropyLoss(), SHAPE, 10)
        scaling = Preprocessing.standardize([0.5] * 3, [0.2] * 3)
        rule = Sgd(momentum=0.9)
        graph = composed.train_graph(network, BATCH, "data", 64, 4, 20, scaling, rule)
        table = {f"train/conv2d_2/{kind}": choice for kind, choice in choices.items()}
        layout = {"layout": "nhwc", "pad": "8", "streams": streams}
        graphs = {"train": rewritten(graph, CudaBackend.rewrites)}
        executable, _ = bound(graphs, choices={**layout, **table})
        return executable.calls("train"), executable.binders()[0]

    return bind


def of(calls, kind, layer):
    return [c for c in calls if type(c.op).__name__ == kind and c.op.origin[0].layer == layer]


def test_an_update_that_counts_the_step_leaves_no_call_to_do_so(calls):
    made, _ = calls()
    assert [c.function for c in made][-1] == "sgd_update"
    assert "advance" not in {c.function for c in made}


@pytest.mark.parametrize("decay", [0.0, 1e-4])
@pytest.mark.parametrize("fusion", [True, False])
def test_plain_sgd_is_one_launch_or_saxpy(bound, sections, fusion, decay):
    """A small weight decay is no factor, which cublasSscal would need."""
    graphs = {"train": sections("cifar", fusion=fusion, momentum=0.0, weight_decay=decay)["train"]}
    executable, _ = bound(graphs, fusion=fusion)
    made = [call.function for call in executable.calls("train")]
    plain = ["sgd_update", "advance"] if decay else ["sgd_factor", "cublasSaxpy", "advance"]
    assert made[-1:] == ["sgd_update"] if fusion else made[-len(plain) :] == plain
    assert (fusion or decay > 0) != ("cublasSaxpy" in made)


@pytest.mark.parametrize("streams", ["1", "2"])
def test_an_update_adds_up_what_was_left_in_slices(bound, sections, streams):
    choices = {"layout": "nhwc", "pad": "8", "streams": streams}
    executable, _ = bound({"train": sections("lenet")["train"]}, choices=choices)
    calls = executable.calls("train")
    assert "sum_slices" not in {call.function for call in calls}
    assert (calls[-1].function, calls[-1].arguments["sums"]) == ("sgd_update", "3")
    # Behind all that the sums are of.
    steps = executable.binders()[0].steps
    assert (streams == "2") == (steps[-2].call is None)


def test_sums_that_more_than_the_update_reads_have_a_launch_of_their_own(bound, sections):
    network = sections.network("lenet")
    scaling = Preprocessing.standardize([0.5], [0.2])
    rule = Composition(Sgd(momentum=0.9), clip_norm=1.0)
    graph = composed.train_graph(network, BATCH, "data", 64, 4, 20, scaling, rule)
    executable, _ = bound({"train": rewritten(graph, CudaBackend.rewrites)})
    made = [call.function for call in executable.calls("train")]
    assert made.index("sum_slices") < made.index("square_sums") < made.index("sgd_update")
    assert "sums" not in executable.calls("train")[-1].arguments


def test_a_max_pool_keeps_where_its_maxima_were_and_takes_relu_and_bias_sum_along(calls):
    made, _ = calls()
    (pooled,) = of(made, "Pool2dBackward", "max_pool2d_2")
    assert pooled.function == "max_pool_backward_disjoint"
    assert (pooled.arguments["relu"], pooled.arguments["sums"]) == ("True", "conv2d_2.bias.grad")
    assert not of(made, "ActivationBackward", "relu_2")
    filters = of(made, "Conv2dBackwardFilter", "conv2d_2")
    assert {c.library for c in filters} == {"cuDNN"}


def test_a_convolution_leaves_bias_and_relu_to_the_max_pool(calls):
    made, binder = calls(forward="b0")
    ((y, ending),) = binder.decisions.endings.items()
    assert {y} == {call.op.y for call in of(made, "Conv2d", "conv2d_2")}
    (bias,) = (t for t in binder.graph.tensors() if t.name == "conv2d_2.bias")
    assert ending.bias is binder.home(bias).array
    assert ending.relu
    assert not calls()[1].decisions.endings


@pytest.mark.parametrize("streams", ["1", "2"])
def test_filters_are_turned_first_for_a_gradient_that_is_a_forward_convolution(calls, streams):
    made, binder = calls(streams, data="f0")
    assert "rotate_filters" in [c.function for c in made][:2]
    (rotated,) = binder.decisions.rotated.values()
    assert (rotated.ready is not None) == (streams == "2")
    assert "rotate_filters" not in {c.function for c in calls(streams)[0]}


def test_operations_are_known_by_themselves():
    first = Advance(step=Tensor("step", (1,), "int64", "state"))
    second = replace(first)
    known = Operations()
    known.add(first)
    assert first == second
    assert first in known
    assert second not in known


@pytest.mark.parametrize(
    ("streams", "wanted"), [("1", [0, 0, 0]), ("2", [1, 1, 1]), ("3", [1, 2, 1])]
)
def test_gradients_of_parameters_lie_beside_the_rest_of_backward(bound, sections, streams, wanted):
    """In turn on all streams but the first, which waits for them in front of the update."""
    choices = {"layout": "nhwc", "pad": "8", "streams": streams}
    executable, _ = bound(sections("lenet"), "tf32", choices)
    steps = executable.binders()[0].steps
    made = [step for step in steps if step.call is not None]
    aside = [
        step.stream
        for step in made
        if step.call.function == "dense_tail_gradients"
        or step.call.op.name == "Conv2dBackwardFilter"
        or (step.call.op.name == "MatMul" and step.call.op.transpose_a)
    ]
    assert aside == wanted
    rest = sum(step.stream != 0 for step in made)
    assert rest == sum(stream != 0 for stream in wanted)
    # One wait for each stream, between the last launch of backward and the update.
    waits = steps[steps.index(made[-2]) + 1 : -1]
    assert [step.call for step in waits] == [None] * (int(streams) - 1)
    assert made[-1].stream == 0
    executable.close()
