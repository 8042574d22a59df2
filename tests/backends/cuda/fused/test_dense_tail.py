"""The end of a classifier in two kernels, against the reference, whatever its sizes."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.graph.ops import Fused
from dnnstack.layers.build import LayerSpec
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ....support import composed
from ....support.specs import network_of

pytestmark = pytest.mark.cuda

COUNT = 90


def step(backend, precision, hidden, classes, batch, ending="", **dense):
    """One step with a part of the batch missing; the executable and the network."""
    specs = [
        LayerSpec("flatten"),
        LayerSpec("dense", options={"units": hidden, **dense}),
        LayerSpec("relu" if classes % 2 else "tanh"),
        LayerSpec("dense", options={"units": classes, **dense}),
    ]
    shape = (1, 5, 4)
    network = network_of(specs, shape, classes)
    scaling = Preprocessing.standardize([0.5], [0.25])
    graph = composed.train_graph(network, batch, "train", COUNT, 1, 4, scaling, Sgd(momentum=0.9))
    executable = backend.compile({"train": graph}, Options(precision, tune=False))
    if ending:
        known = executable.tuning
        chosen = {**known.choices, "ending": ending}
        table = Tuning("cuda", known.environment, known.graph, chosen)
        executable = backend.compile({"train": graph}, Options(precision, tuning=table))
        assert not executable.notices
        assert executable.calls("train")[-1].function == "step_end"
    draw = np.random.default_rng(hidden + classes)
    executable.write(graph["images"], draw.integers(0, 256, (COUNT, *shape), dtype=np.uint8))
    executable.write(graph["labels"], draw.integers(0, classes, COUNT).astype(np.int32))
    order = draw.permutation(COUNT)[:batch].astype(np.int32)
    order[-1] = -1
    executable.write(graph["order"], order)
    executable.write(graph["rates"], np.full(4, 0.5, np.float32))
    for tensor, values in network.initial_values(1).items():
        executable.write(tensor, values)
    executable.run("train")
    return executable, network


@pytest.mark.parametrize("ending", ["", "tail"])
@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("batch", [3, 70])
@pytest.mark.parametrize(("hidden", "classes"), [(30, 2), (33, 7), (500, 10), (514, 10), (301, 32)])
def test_a_step_follows_the_reference(cuda, hidden, classes, batch, use_bias, ending):
    want, _ = step(ReferenceBackend(1), "fp64", hidden, classes, batch, use_bias=use_bias)
    for precision, tolerance in (("fp32", 2e-6), ("bf16", 2e-2)):
        got, network = step(cuda, precision, hidden, classes, batch, ending, use_bias=use_bias)
        kinds = [op.kind for op in got.graphs["train"].ops if isinstance(op, Fused)]
        assert kinds == ["dense_tail", "dense_tail_gradients"]
        for name in ("loss", "sums", "scores"):
            ours, theirs = (e.read(e.graphs["train"][name]) for e in (got, want))
            size = max(1.0, float(np.abs(theirs).max()))
            if name == "sums" and precision == "bf16":
                continue
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * size, err_msg=name)
        first = network.initial_values(1)
        for parameter in network.parameters():
            ours, theirs = (e.read(parameter.tensor) for e in (got, want))
            # Beside what the step moved, what float32 rounds off.
            near = 1e-6 + 3 * tolerance * float(np.abs(theirs - first[parameter.tensor]).max())
            np.testing.assert_allclose(
                ours, theirs, rtol=0, atol=near, err_msg=parameter.tensor.name
            )
