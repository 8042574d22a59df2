"""A plugin of every kind, in the catalogues, the messages, and in trainings on every backend."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.onednn.backend import OneDnnBackend
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, json_schema, parse_config
from dnnstack.configs.schema.extended import WORDS
from dnnstack.graph.graph import Graph
from dnnstack.layers.build import LAYERS
from dnnstack.plugins.loading import load_plugin, read_plugin
from dnnstack.reports.explain import explain
from dnnstack.training.augmentation import gather
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

from ..support.plugin_files import EVERYTHING, PLUGINS, SWISH
from ..support.resuming import NOWHERE, Ear, assert_equal, go, records
from ..support.stored import stored
from ..support.trainings import end_of

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


def config(tmp_path: Path, *overrides: str) -> RunConfig:
    return parse_config(EVERYTHING, "all.yaml", [f"run.dir={tmp_path / 'runs'}", *overrides])


def test_there_is_an_example_of_every_kind_in_the_documentation():
    bases = ("SingleLayer", "Loss", "ElementwiseRule", "Schedule", "OwnAugmentation", "Dataset")
    text = PAGE.read_text(encoding="utf-8")
    assert len(PLUGINS) == len(bases) == len(WORDS)
    for path in PLUGINS:
        code = path.read_text(encoding="utf-8")
        assert len(code.splitlines()) <= 40, path.name
        shown = "".join(f"    {line}".rstrip() + "\n" for line in code.splitlines())
        assert shown in text, f"{path.name} is not in {PAGE.name} word for word"
    assert read_plugin(SWISH).sha256 in text
    whole = "".join(path.read_text(encoding="utf-8") for path in PLUGINS)
    for base in bases:
        assert re.search(rf"^class \w+\({base}\):$", whole, re.MULTILINE), base


@pytest.mark.usefixtures("everything")
def test_a_training_with_everything_is_resumed_to_the_bit(tmp_path, backend):
    made = config(tmp_path, f"run.tune={'false' if backend.name == 'cuda' else 'auto'}")
    whole, half = go(made, backend), go(made, backend, stop_at=7)
    ear = Ear()
    done = train(made, backend, NOWHERE, resume=open_resume(half.run, ear.notice), listener=ear)
    assert len(ear.notices) == (backend.name != "numpy"), ear.notices
    assert (whole.state, half.state, done.state) == ("finished", "interrupted", "finished")
    assert_equal(end_of(whole), end_of(done))
    assert records(whole.run) == records(done.run)


@pytest.mark.usefixtures("everything")
def test_backends_train_alike(tmp_path, onednn, reference):
    """Signs of gradients are the same unless a gradient is nearly zero: so with SGD."""
    made = config(tmp_path, "optimizer={type: sgd, lr: 0.1}")
    one, other = (end_of(go(made, backend)) for backend in (onednn, reference))
    for name, values in one.arrays.items():
        np.testing.assert_allclose(values, other.arrays[name], rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.usefixtures("everything")
def test_accumulation_draws_the_same_pictures(tmp_path, reference):
    plain = ("optimizer={type: sgd, lr: 0.1}", "loss={type: log_cosh, reduction: mean}")
    one = end_of(go(config(tmp_path, *plain), reference))
    two = end_of(go(config(tmp_path, *plain, "train.accumulate=2"), reference))
    for name, values in one.arrays.items():
        np.testing.assert_allclose(values, two.arrays[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.usefixtures("everything")
def test_a_notice_names_what_numpy_computes_for_onednn(onednn, tmp_path):
    notices: list[str] = []
    explanation = explain(config(tmp_path), Path("all.yaml"), onednn, False, notices.append)
    (notice,) = [text for text in notices if "no kernel" in text]
    assert "SwishOp(swish_1)" in notice
    assert "ChangePixels(data)" in notice
    assert "Conv2d" not in notice
    calls = [call.bound for each in explanation.by_layer()["swish_1"] for call in each.calls]
    own = [call for call in calls if call.library == "numpy"]
    assert [call.function for call in own] == ["exp", "exp"]
    assert own[0].arguments["reason"] == "oneDNN has no fast kernel for it"


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(("override", "message"), stored(__file__, "kind_errors.txt"))
def test_mistakes_are_explained_as_those_of_our_kinds(override, message):
    with pytest.raises(ConfigError) as caught:
        parse_config(EVERYTHING, "all.yaml", [override])
    assert message in str(caught.value)


def test_without_the_plugin_its_kinds_are_unknown():
    assert "swish" not in LAYERS
    with pytest.raises(ConfigError, match="unknown layer 'swish'"):
        parse_config(EVERYTHING, "all.yaml")


@pytest.mark.usefixtures("everything")
def test_kinds_are_in_groups_composites_and_the_schema():
    changed = parse_config(
        EVERYTHING,
        "all.yaml",
        [
            "layers.1={residual: {body: [swish, {sequential: {layers: [swish]}}]}}",
            "optimizer.groups=[{kind: bias, schedule: {type: triangle, period: 3}}]",
            "optimizer={type: muon, lr: 0.1, rest: {type: sign_sgd, lr: 0.1}}",
        ],
    )
    again = parse_config(effective_yaml(changed), "again.yaml")
    assert effective_yaml(again) == effective_yaml(changed)
    definitions = json_schema()["$defs"]
    assert "swish" in definitions["layer"]["anyOf"][1]["properties"]
    assert (
        definitions["SwishConfig"]["properties"]["beta"]["description"] == "How sharply it bends."
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_an_augmentation_in_bytes(threads):
    """The same pixels on both backends, near those of the formula."""
    load_plugin(next(path for path in PLUGINS if path.stem == "contrast"))
    from dnnstack.graph.augmentations import AUGMENTATIONS

    each = AUGMENTATIONS["contrast"](strength=0.5)  # type: ignore[call-arg]
    images = np.random.default_rng(1).integers(0, 256, (6, 2, 4, 5), np.uint8)
    scaling = Preprocessing.standardize([0.5, 0.4], [0.2, 0.3])
    found = []
    for backend in (ReferenceBackend(1), OneDnnBackend(threads)):
        graph = Graph("samples", 3, seed=5)
        shapes = {"images": images.shape, "labels": (6,), "order": (6,)}
        dtypes = {"images": "uint8", "labels": "int32", "order": "int32"}
        tensors = {k: graph.tensor(k, s, dtypes[k], "data") for k, s in shapes.items()}  # type: ignore[arg-type]
        tensors["step"] = graph.tensor("step", (1,), "int64", "state")
        tensors["x"] = graph.tensor("x", (3, 2, 4, 5))
        tensors["target"] = graph.tensor("target", (3,), "int32")
        gather(graph, tensors, scaling, [each])
        executable = backend.compile({"samples": graph}, Options())
        executable.write(tensors["images"], images)
        executable.write(tensors["labels"], np.zeros(6, np.int32))
        executable.write(tensors["order"], np.arange(6, dtype=np.int32))
        executable.write(tensors["step"], np.array([1], np.int64))
        executable.run("samples")
        found.append(executable.read(tensors["x"]))
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    mean, std = (np.array(v).reshape(-1, 1, 1) for v in ([0.5, 0.4], [0.2, 0.3]))
    pixels = (found[0] * std + mean) * 255
    for seen, picture in zip(pixels, images[3:], strict=True):
        middle = picture.mean()
        inner = (seen > 0.5) & (seen < 254.5)
        factors = ((seen - middle) / (picture - middle))[inner]
        assert 0.5 <= np.median(factors) <= 1.5
        np.testing.assert_allclose(factors, np.median(factors), rtol=2e-2)
    assert len({round(float(v), 3) for v in pixels[:, 0, 0, 0]}) == 3
