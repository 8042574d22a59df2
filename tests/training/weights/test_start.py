"""What fits a network by name and shape is taken, and every difference is listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError, ConfigError
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.records.formats.pytorch_names import has_norms, our_name, their_names
from dnnstack.training.weights.source import open_source
from dnnstack.training.weights.start import Start, alike, begin

from ...support.stored import cases
from .files import entry, raw, written

SHAPES = {
    "conv1.weight": (4, 3, 3, 3),
    "bn1.running_mean": (4,),
    "bn1.running_var": (4,),
    "fc.weight": (2, 4),
    "fc.bias": (2,),
}


def start_of(path: Path, shapes: dict[str, Any] = SHAPES, skip: tuple[str, ...] = ()) -> Start:
    return begin(open_source(str(path), Path("nowhere"), print), shapes, skip)


@pytest.fixture
def file(tmp_path):
    """For three classes, with a layer more."""
    rng = np.random.default_rng(1)
    return written(
        tmp_path / "x.safetensors",
        conv1__weight=rng.normal(size=(4, 3, 3, 3)),
        bn1__running_mean=rng.normal(size=4),
        bn1__running_var=np.ones(4),
        bn1__num_batches_tracked=np.zeros(()),
        fc__weight=rng.normal(size=(3, 4)),
        more__weight=np.zeros((2, 2)),
    )


def test_every_array_is_taken_new_or_left(file):
    start = start_of(file)
    assert set(start.values) == {"conv1.weight", "bn1.running_mean", "bn1.running_var"}
    assert [(each.name, each.shape, each.reason) for each in start.new] == [
        ("fc.weight", (2, 4), "the file has (3, 4)"),
        ("fc.bias", (2,), "the file has none"),
    ]
    assert [(each.name, each.shape) for each in start.left] == [("more.weight", (2, 2))]
    assert start.lines() == [
        f"3 of 5 arrays from {file}",
        "new         fc.weight (2, 4): the file has (3, 4)",
        "new         fc.bias (2,): the file has none",
        "left        more.weight (2, 2): the network has none",
    ]
    table = start.to_json()
    assert (table["path"], table["layout"], table["taken"]) == (str(file), "pytorch", 3)
    assert table["new"][0] == {
        "name": "fc.weight",
        "shape": [2, 4],
        "reason": "the file has (3, 4)",
    }


def test_what_is_skipped_is_initialised(file):
    start = start_of(file, skip=("bn1.*",))
    assert set(start.values) == {"conv1.weight"}
    assert {each.name: each.reason for each in start.new}["bn1.running_var"] == "init_from.skip"


def test_a_pattern_that_matches_nothing_is_a_mistake(file):
    with pytest.raises(ConfigError, match=r"^init_from\.skip: no array of the network matches 'b'"):
        start_of(file, skip=("bn1.*", "b"))


def test_nothing_that_fits_is_an_error_with_both_lists(file):
    with pytest.raises(CheckpointError) as caught:
        start_of(file, {"dense_1.weight": (2, 2)})
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{file}: nothing in it fits the network by name and shape:"
    assert "  dense_1.weight (2, 2): the file has none" in lines
    assert "  more.weight (2, 2): the network has none" in lines


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("conv1.weight", np.nan, "'conv1.weight' contains NaN, infinity"),
        ("bn1.running_mean", np.inf, "'bn1.running_mean' contains NaN, infinity"),
        ("bn1.running_var", -1.0, "'bn1.running_var' contains negative numbers"),
    ],
)
def test_values_that_no_network_has(tmp_path, name, value, said):
    arrays = {key: np.ones(shape) for key, shape in SHAPES.items()}
    arrays[name].flat[1] = value
    given = {key.replace(".", "__"): array for key, array in arrays.items()}
    path = written(tmp_path / "x.safetensors", **given)
    with pytest.raises(CheckpointError, match=said):
        start_of(path)
    assert len(start_of(path, skip=(name,)).values) == 4


def test_integers_are_not_taken(tmp_path):
    header = {"fc.bias": entry("I32", [2], 0, 8), "fc.weight": entry("F32", [2, 4], 8, 40)}
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw(header, bytes(40)))
    start = start_of(path)
    assert set(start.values) == {"fc.weight"}
    bias = next(each for each in start.new if each.name == "fc.bias")
    assert bias.reason == "the file has it as I32, which is no floating-point type"


def test_filters_over_the_whole_picture_are_rows_of_a_matrix(tmp_path):
    values = np.arange(24.0).reshape(2, 3, 2, 2)
    path = written(tmp_path / "x.safetensors", pre_logits__fc1__weight=values)
    start = start_of(path, {"fc6.weight": (2, 12)})
    np.testing.assert_array_equal(start.values["fc6.weight"], values.reshape(2, 12))
    with pytest.raises(CheckpointError, match=r"the file has \(2, 3, 2, 2\)"):
        start_of(path, {"fc6.weight": (3, 8)})


def test_only_the_same_shape_fits(tmp_path):
    path = written(tmp_path / "x.safetensors", fc__weight=np.ones((4, 2)), fc__bias=np.ones(2))
    start = start_of(path)
    assert set(start.values) == {"fc.bias"}
    assert "fc.weight (2, 4): the file has (4, 2)" in map(str, start.new)


def test_two_for_one_place(tmp_path):
    one, two = np.ones(2), np.zeros(2)
    path = written(tmp_path / "x.safetensors", fc__bias=one, module__fc__bias=two)
    start = start_of(path, {"fc.bias": (2,)})
    np.testing.assert_array_equal(start.values["fc.bias"], one)
    assert [each.reason for each in start.left] == ["'fc.bias' has its place"]


@pytest.mark.parametrize(("theirs", "ours"), cases(__file__, "names_of_pytorch"))
def test_names_of_pytorch(theirs, ours):
    assert our_name(theirs) == ours


def test_a_name_of_the_network_itself_comes_first(tmp_path):
    path = written(tmp_path / "x.safetensors", features__0__weight=np.ones((2, 2)))
    taken = start_of(path, {"conv1_1.weight": (2, 2)})
    assert taken.lines() == [f"1 of 1 arrays from {path}, with PyTorch's names"]
    assert set(start_of(path, {"features.0.weight": (2, 2)}).values) == {"features.0.weight"}


def test_vgg16_has_a_place_for_every_array_of_torchvision():
    from dnnstack.configs import load_config
    from dnnstack.training.assemble import build_network, describe_data

    config = load_config("vgg16.yaml").config
    learned = {t.name for t in build_network(config, describe_data(config)).learned()}
    features = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
    layers = [*(f"features.{n}" for n in features), *(f"classifier.{n}" for n in (0, 3, 6))]
    theirs = [f"{layer}.{which}" for layer in layers for which in ("weight", "bias")]
    assert {our_name(name) for name in theirs} == learned


def test_vgg16_with_batch_norms_has_places_of_its_own(tmp_path):
    places = (0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40)
    names = [f"{stage}_{n}" for stage, count in enumerate((2, 2, 3, 3, 3), 1) for n in range(count)]
    ours = {
        f"features.{at + k}": f"{kind}{name[:-1]}{int(name[-1]) + 1}"
        for at, name in zip(places, names, strict=True)
        for k, kind in ((0, "conv"), (1, "bn"))
    }
    theirs = [f"module.{each}.running_mean" for each in ours] + ["module.head.fc.running_mean"]
    assert has_norms(theirs)
    wanted = [f"{each}.running_mean" for each in (*ours.values(), "fc8")]
    assert [our_name(each, True) for each in theirs] == wanted
    back = {f"{our}.weight": f"{place}.weight" for place, our in ours.items()}
    assert their_names(back) == back
    path = written(
        tmp_path / "x.safetensors",
        features__1__running_mean=np.ones(2),
        features__3__weight=np.ones((2, 2)),
    )
    shapes = {"bn1_1.running_mean": (2,), "conv1_2.weight": (2, 2)}
    assert set(start_of(path, shapes).values) == {*shapes}


def test_what_differs_by_a_hundredth_of_black_to_white_is_alike():
    one = Preprocessing((100 / 255,), (0.0,))
    assert [alike(one, Preprocessing((100 / 255,), (by,))) for by in (1.0, 1.1)] == [True, False]
    assert not alike(one, Preprocessing((100 / 255,) * 3, (0.0,) * 3))
