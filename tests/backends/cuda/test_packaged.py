"""The configs that ship, with all that their training compiles at once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.memory_plan import plan_memory
from dnnstack.backends.select import open_backend
from dnnstack.common.errors import BackendUnavailableError
from dnnstack.configs import packaged_configs
from dnnstack.configs.stages import packaged_stages
from dnnstack.graph.rewrites import rewritten

from ...support.whole_sections import packaged_sections, packaged_session

LAYOUTS = (
    {"layout": "nhwc", "pad": "8", "streams": "1"},
    {"layout": "nhwc", "pad": "32", "streams": "2"},
    {"layout": "nchw", "streams": "1"},
)


@lru_cache(maxsize=1)
def sections(name, *overrides):
    found = packaged_sections(name, *overrides)
    return {key: rewritten(graph, CudaBackend.rewrites) for key, graph in found.items()}


def check(bound, choices, precision, name, *overrides):
    graphs = sections(name, *overrides)
    executable, taken = bound(graphs, precision, choices)
    for key in graphs:
        assert executable.calls(key)
    plan = plan_memory(graphs, precision, choices=choices)
    assert plan.total - plan.libraries == taken
    return {call.function for key in graphs for call in executable.calls(key)}


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("choices", LAYOUTS, ids=lambda choices: choices["layout"])
@pytest.mark.parametrize("name", packaged_configs())
def test_every_section_finds_a_place_that_was_counted_and_a_kernel(bound, name, choices, precision):
    check(bound, choices, precision, name)


@pytest.mark.parametrize("choices", LAYOUTS[:2], ids=lambda choices: choices["pad"])
def test_frozen_filters_with_their_activation_on_tensor_cores(bound, choices):
    """In the stretch that trains their bias, in the one behind it, and in validation."""
    first, later = (f"{name}/whitening/forward" for name in ("train", "train-6"))
    own = choices | {first: "d2", later: "d3"}
    names = check(bound, own, "bf16", "cifar10-airbench-muon.yaml")
    assert {"tensor_direct_conv", "tensor_direct_sums"} <= names
    assert not {"wide_activation", "activation_backward_sums", "cudnnActivationForward"} & names
    plain = check(bound, choices, "bf16", "cifar10-airbench-muon.yaml")
    assert plain - names == {"wide_activation", "activation_backward_sums"}


PRUNED = 'prune={keep: {"*.weight": 0.1}}'
SHARED = 'share={bits: {"*.weight": 5, "*.bias": 4}}'
SMALL = {"pruned": (PRUNED,), "shared": (PRUNED, SHARED)}
COMPRESSED = [name for name in packaged_stages() if name in packaged_configs()]


@pytest.mark.parametrize("choices", LAYOUTS, ids=lambda choices: choices["layout"])
@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("name", COMPRESSED)
def test_so_do_those_of_a_compression(bound, name, kind, choices):
    calls = check(bound, choices, "bf16", name, *SMALL[kind])
    wanted = {"pruned": {"mask"}, "shared": {"share_weights", "sum_shared"}}
    assert wanted[kind] <= calls


@pytest.fixture(scope="module")
def cuda():
    try:
        return open_backend("cuda", None, lambda text: None)
    except BackendUnavailableError as error:
        pytest.skip(str(error))


# Until a rate of 0 is passed and lookahead has looked. VGG-16 without batch norm is soon chaos, and
# so is ResNet-18 with statistics of four pictures: the last bits of its weights decide 1% of what
# one step changes, and 9% of what two do.
STEPS = {"vgg16.yaml": 1, "resnet18.yaml": 1, "cifar10-airbench.yaml": 6} | dict.fromkeys(
    ("toy-gradients.yaml", "toy-unroll.yaml", "resnet50.yaml", "vgg16-bn.yaml"), 1
)
STEPS["mobilenet-v2.yaml"] = 1


SMALL_CASES = [(name, given) for name in COMPRESSED for given in SMALL.values()]


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("name", "given"), [*((name, ()) for name in packaged_configs()), *SMALL_CASES]
)
def test_training_and_validation_are_those_of_the_cpu(cuda, name, given):
    found = []
    for backend in (open_backend("cpu", None, lambda text: None), cuda):
        each = packaged_session(name, backend, "run.precision=fp32", *given)
        each.initialize()
        begin = each.snapshot().arrays
        for _ in range(STEPS.get(name, 2)):
            each.run(1)
        held = each.validate() if each.plan.validation.size else None
        end = each.snapshot()
        found.append((end.sums, {k: v - begin[k] for k, v in end.arrays.items()}, held))
        sizes = {key: float(np.linalg.norm(values)) for key, values in begin.items()}
        each.close()
    (wanted, changes, want), (got, changed, have) = found
    np.testing.assert_allclose(got, wanted, rtol=1e-3)
    assert (have is None) == (want is None)
    if have is not None:
        assert have.count == want.count
        np.testing.assert_allclose(have.loss, want.loss, rtol=5e-3)
    # Norms: where a ReLU or a pool decides by the last bit, a few elements differ by more.
    for key, values in changes.items():
        size = max(float(np.linalg.norm(values)), 1e-6 * sizes[key], 1e-9)
        assert np.linalg.norm(changed[key] - values) <= 2e-2 * size, key
