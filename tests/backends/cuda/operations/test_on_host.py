"""What a GPU has no kernel for is computed on the host: operations and formulas of plugins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dnnstack.backends.cuda import executable as executables
from dnnstack.backends.cuda.backend import CudaBackend, _notices
from dnnstack.backends.cuda.binding.bind import KERNELS
from dnnstack.backends.cuda.binding.launch_list import LaunchList
from dnnstack.backends.cuda.memory_plan import plan_memory
from dnnstack.backends.reference.kernels import KERNELS as NUMPY
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.graph.augmentations import AUGMENTATIONS
from dnnstack.graph.graph import In, Op, Tensor
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.build import build_layers
from dnnstack.layers.losses import LOSSES
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers import RULES
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ....support import composed
from ....support.plugin_files import _forgotten, everything
from ....support.specs import layers_of

__all__ = ["_forgotten", "everything"]
pytestmark = pytest.mark.usefixtures("everything")

SHAPE = (3, 12, 12)
LAYOUTS = (
    {"layout": "nhwc", "pad": "8", "streams": "1"},
    {"layout": "nhwc", "pad": "32", "streams": "3"},
    {"layout": "nchw", "streams": "2"},
)


def graphs(loss="log_cosh", rule="sign_sgd", own=True):
    """Training and evaluation, as the backend gets them, with everything of plugins in them."""
    swish = "swish" if own else "silu"
    specs = layers_of(
        f"[conv2d: {{filters: 5, kernel_size: 3}}, {swish}, "
        "conv2d: {filters: 6, kernel_size: 3}, relu, flatten, "
        f"dense: {{units: 10}}, {swish}, dense: {{units: 10}}, softmax]"
    )
    chosen = LOSSES[loss]() if own else CrossEntropyLoss()
    network = Network(build_layers(specs, SHAPE), chosen, SHAPE, 10)
    scaling = Preprocessing.standardize([0.5] * 3, [0.25] * 3)
    update = RULES[rule]() if own else Sgd(momentum=0.9)
    augment = (AUGMENTATIONS["random_flip"](), AUGMENTATIONS["contrast"](0.5)) if own else ()
    found = {
        "train": composed.train_graph(
            network, 4, "data", 16, 4, 8, scaling, update, augment=augment
        ),
        "evaluate": network.evaluate_graph(5, "data", 16, 4, scaling),
    }
    return {name: rewritten(graph, CudaBackend.rewrites) for name, graph in found.items()}


def on_host(executable, section="train"):
    return [call for call in executable.calls(section) if call.library == "numpy"]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("choices", LAYOUTS, ids=lambda each: each["layout"] + each["streams"])
def test_what_is_bound_is_computed_by_the_reference_and_counted(bound, precision, choices):
    made = graphs()
    executable, taken = bound(made, precision, choices)
    plan = plan_memory(made, precision, choices=choices)
    assert plan.total - plan.libraries == taken
    names = [call.op.name for call in on_host(executable)]
    assert names.count("SwishOp") == names.count("SwishBackward") == 2
    reasons = {call.arguments["reason"] for call in on_host(executable)}
    assert reasons == {"the GPU has no kernel for it"}
    assert {"ChangePixels", "LogCosh", "LogCoshBackward", "SignUpdate"} < set(names)
    own = ("SwishOp", "LogCosh")
    assert [call.op.name for call in on_host(executable, "evaluate")] == ["SwishOp", *own]
    executable.run("train")
    executable.close()


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("choices", LAYOUTS, ids=lambda each: each["layout"] + each["streams"])
def test_values_go_there_and_back_in_every_layout(bound, precision, choices):
    """Kernels of the stand-in compute nothing, so that what the host reads is what is written."""
    made = graphs()
    executable, _ = bound(made, precision, choices)
    draw = np.random.default_rng(1)
    binder = executable._sections["train"]
    for step in [step for step in binder.steps if step.on_host]:
        op = step.call.op
        given = [
            [_written(executable, t, draw) for t in op.tensors((field,))]
            for field in (*op.inputs, *op.updates)
        ]
        listed = [isinstance(getattr(op, f), tuple) for f in (*op.inputs, *op.updates)]
        arguments = [tuple(g) if many else g[0] for g, many in zip(given, listed, strict=True)]
        copies = [tuple(map(np.copy, a)) if isinstance(a, tuple) else a.copy() for a in arguments]
        wanted = NUMPY.of(op).compute(op, *copies)
        step.launch()
        fields = (*op.outputs, *op.updates)
        for field, values in zip(fields, wanted if len(fields) > 1 else (wanted,), strict=True):
            each = values if isinstance(values, tuple) else (values,)
            pairs = zip(op.tensors((field,)), each, strict=True)
            for tensor, value in pairs:
                np.testing.assert_allclose(
                    executable.read(tensor), value, rtol=1e-6, err_msg=f"{op.name} {tensor.name}"
                )
    executable.close()


def test_a_parameter_that_the_host_updates_is_copied_anew_in_bfloat16(bound, monkeypatch):
    executable, _ = bound(graphs(), "bf16", LAYOUTS[0])
    renewed = []
    monkeypatch.setattr(
        type(executable._store), "renew", lambda self, tensor, _: renewed.append(tensor)
    )
    steps = [each for each in executable._sections["train"].steps if each.on_host]
    for step in steps:
        step.launch()
    updates = [step.call.op for step in steps if step.call.op.name == "SignUpdate"]
    moved = [t for op in updates for t in op.writes() if t.role == "parameter"]
    assert renewed == moved != []
    executable.close()


def _written(executable, tensor, draw):
    """Random values in the place that the device holds for a tensor."""
    if tensor.role == "data":
        values = np.full(tensor.shape, 0.5, tensor.dtype)
        executable._store.write_data(tensor, values)
        return values
    held = executable._buffer(tensor)
    if held.layout.item[0] in "iu" and held.layout.dtype != "bfloat16":
        values = np.ones(tensor.shape, tensor.dtype)
    else:
        values = draw.uniform(0.25, 1.0, tensor.shape).astype("float32")
    held.array.set(held.layout.pack(values))
    return held.layout.unpack(np.array(held.array))


@pytest.mark.parametrize("choices", LAYOUTS, ids=lambda each: each["layout"] + each["streams"])
def test_a_step_is_captured_around_the_host(bound, choices, monkeypatch):
    """Graph, host, graph: in every graph each stream first waits for the main one, and is waited
    for, and no graph holds what waits for the device."""
    taken = []

    class Graph:
        def __init__(self, number):
            self.number = number

        def launch(self, stream):
            taken.append(self.number)

    count = 0

    def captured(launches, stream):
        nonlocal count
        for launch in launches:
            launch()
        count += 1
        return Graph(count)

    monkeypatch.setattr(executables, "captured", captured)
    executable, _ = bound(graphs(), "tf32", choices, capture=True)
    binder = executable._sections["train"]
    hosts = [step for step in binder.steps if step.on_host]
    for number, step in enumerate(hosts):
        at = binder.steps.index(step)
        launch = replace(step, launch=lambda number=number: taken.append(f"host {number}"))
        binder.steps[at] = launch
    monkeypatch.setattr(executables.CudaExecutable, "_restored", _as_it_is)
    executable.run("train", 2)
    once = [each for each in taken if isinstance(each, str)]
    # Once before the capture, then in each of the two steps.
    assert len(once) == 3 * len(hosts)
    rest = taken[len(hosts) :]
    step = rest[: len(rest) // 2]
    assert rest == step * 2
    assert [each for each in step if isinstance(each, str)] == [
        f"host {i}" for i in range(len(hosts))
    ]
    graphs_of_step = [each for each in step if not isinstance(each, str)]
    assert graphs_of_step == list(range(1, count + 1))
    assert 4 <= count <= len(hosts) + 1
    executable.close()


class _as_it_is:
    def __init__(self, *_):
        pass

    __enter__ = __exit__ = lambda *_: None


@pytest.mark.parametrize("choices", LAYOUTS[1:], ids=lambda each: each["layout"])
def test_streams_fork_and_join_within_each_graph(bound, choices, monkeypatch):
    waits = []
    wait = LaunchList._wait

    def noted(self, behind, ahead):
        made = wait(self, behind, ahead)
        waits.append((made, behind, ahead))
        return made

    monkeypatch.setattr(LaunchList, "_wait", noted)
    executable, _ = bound(graphs(), "tf32", choices)
    steps = executable._sections["train"].steps
    forked, used = {0}, 0
    for step in steps:
        if step.on_host:
            assert not (forked - {0}), "a stream is not waited for before the host"
            continue
        found = [(behind, ahead) for made, behind, ahead in waits if made is step]
        if found:
            ((behind, ahead),) = found
            assert ahead in forked, "waits for a stream that is not part of this graph"
            if behind == 0:
                forked.discard(ahead)
            else:
                forked.add(behind)
        else:
            assert step.stream in forked, "launches on a stream that is not part of this graph"
            used += step.stream > 0
    assert used, "no side stream was used: the test shows nothing"
    assert not (forked - {0})
    executable.close()


def test_a_notice_names_the_operations_once():
    (notice,) = _notices(graphs())
    assert notice.startswith("the GPU has no kernel for ChangePixels(data), SwishOp(swish_1), ")
    assert "several graphs instead of one" in notice
    assert not _notices(graphs(own=False))


def test_our_operations_all_have_kernels_and_formulas_all_have_sources():
    """A GPU that fell back to the host would be slow without a word."""
    for op in (op for graph in graphs(own=False).values() for op in graph.ops):
        assert KERNELS.computes(op), op.name
    for word in (LOSSES, RULES):
        for kind, made in word.items():
            if made.__module__.startswith("dnnstack.") and hasattr(made, "rule"):
                assert made.rule.cuda, kind


def test_an_operation_that_nothing_computes_is_refused():
    class Unknown(Op):
        x: In

    with pytest.raises(BackendUnavailableError, match=r"Unknown.* has no kernel on any device"):
        KERNELS.of(Unknown(x=Tensor("x", (1,))))
