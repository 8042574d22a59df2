"""Augmentation, measured normalisation, whitening and views of a picture, from config to result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.backends.tuning import fingerprint
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.configs import RunConfig, parse_config
from dnnstack.datasets import ImageSet, describe, load, split_validation
from dnnstack.graph.augmentations import Elastic, RandomCrop, RandomFlip, Rotate, augmentation_keys
from dnnstack.graph.ops import GatherAugmented, GatherBatch
from dnnstack.optimizers.sgd import Sgd
from dnnstack.reports.data_report import report
from dnnstack.reports.data_samples import samples
from dnnstack.reports.evaluate_text import as_text
from dnnstack.reports.explain import explain
from dnnstack.reports.summary import summarize
from dnnstack.training.assemble import build_network, preprocessing
from dnnstack.training.augmentation import TEST_TIME, augmentations, mean_pixel
from dnnstack.training.evaluate import evaluate, load_part
from dnnstack.training.listener import Summary
from dnnstack.training.plan import make_plan
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.records.checkpoint import read_checkpoint
from dnnstack.training.records.provenance import Provenance
from dnnstack.training.records.resume import open_resume
from dnnstack.training.records.trained import Trained, find_trained
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup
from dnnstack.training.trainer import train

Tiny = Callable[..., RunConfig]
AUGMENT = "data.augment=[random_crop: {padding: 3}, random_flip, rotate: {degrees: 10}, elastic]"
MEASURED = "data.normalize=measured"
OPTIONS = {"train_count": 200, "test_count": 20}


# ---------------------------------------------------------------- augmentation


def test_the_list_of_a_config(tiny: Tiny) -> None:
    text = "data.augment=[random_crop: {padding: 3, mode: reflect}, random_flip, rotate: " + (
        "{degrees: 10}, elastic: {alpha: 8, sigma: 3}]"
    )
    assert augmentations(tiny(text), (1, 28, 28)) == (
        RandomCrop(3, "reflect"),
        RandomFlip(),
        Rotate(10.0),
        Elastic(8.0, 3.0),
    )
    assert augmentations(tiny(), (1, 28, 28)) == ()


def test_one_that_does_not_fit_the_pictures(tiny: Tiny, reference: Backend) -> None:
    config = tiny("data.augment=[random_flip, cutout: {size: 29}]")
    message = r"data\.augment\.1\.cutout: size 29 is more than a side .* have 28x28 pixels"
    with pytest.raises(ConfigError, match=message):
        train(config, reference, Path("unused"))
    with pytest.raises(ConfigError, match=message):
        summarize(config, Path("x.yaml"))
    with pytest.raises(ConfigError, match=message):
        report(config, Path("unused"))


def test_only_training_is_augmented(tiny: Tiny, reference: Backend) -> None:
    config = tiny(AUGMENT)
    with_session(config, reference, check_gathering)
    with_session(tiny(), reference, lambda session: assert_plain(session.graph("train").ops[0]))


def check_gathering(session: Session) -> None:
    gather = session.graph("train").ops[0]
    assert isinstance(gather, GatherAugmented)
    assert [each.kind for each in gather.augment] == [
        "random_crop",
        "random_flip",
        "rotate",
        "elastic",
    ]
    assert_plain(session.graph("evaluate").ops[0])


def test_another_seed_draws_others(tiny: Tiny, reference: Backend) -> None:
    seen = []

    def collect(session: Session) -> None:
        gather = session.graph("train").ops[0]
        assert isinstance(gather, GatherAugmented)
        seen.append(gather.keys)

    for seed in (7, 8):
        with_session(tiny(AUGMENT, f"seed={seed}"), reference, collect)
        assert seen[-1] == augmentation_keys(augmentations(tiny(AUGMENT), (1, 28, 28)), seed)
    assert not set(seen[0]) & set(seen[1])
    assert len(set(seen[0])) == 4


def assert_plain(op: object) -> None:
    assert type(op) is GatherBatch


def with_session(config: RunConfig, backend: Backend, use: Callable[[Session], None]) -> None:
    info = describe("strokes", options=OPTIONS)
    data = load("strokes", "train", root=Path("unused"), options=OPTIONS)
    network, scaling = build_network(config, info), preprocessing(config, info)
    session = Session(Setup(config, network, scaling, make_plan(config, len(data)), data), backend)
    try:
        session.initialize()
        use(session)
    finally:
        session.close()


def test_a_sample_is_the_same_in_batches_of_any_size(tiny: Tiny, backend: Backend) -> None:
    """In each epoch, whichever batch it is in; and another in the next epoch."""
    seen: dict[int, list[dict[int, bytes]]] = {}

    def collect(session: Session) -> None:
        graph, size = session.graph("train"), session.plan.batch_size
        epochs: list[dict[int, bytes]] = []
        for epoch in range(2):
            found: dict[int, bytes] = {}
            order = session.orders.of(epoch)
            for step in range(session.plan.steps_per_epoch):
                session.run(1)
                x = session.executable.read(graph["x"])
                rows = order[step * size : (step + 1) * size].tolist()
                found.update({row: x[i].tobytes() for i, row in enumerate(rows)})
            epochs.append(found)
        seen[size] = epochs

    for size in (8, 21):
        with_session(
            tiny(AUGMENT, f"data.batch_size={size}", "train.max_steps=50"), backend, collect
        )
    for epoch in range(2):
        shared = seen[8][epoch].keys() & seen[21][epoch].keys()
        assert len(shared) > 150
        assert all(seen[8][epoch][row] == seen[21][epoch][row] for row in shared)
    again = seen[8][0].keys() & seen[8][1].keys()
    assert sum(seen[8][0][row] == seen[8][1][row] for row in again) < 5


@pytest.mark.parametrize("stop", [3, 10, 17])
def test_a_resume_goes_on_to_the_bit(tiny: Tiny, backend: Backend, stop: int) -> None:
    """10 steps are an epoch: within the first, at its end, within the second."""
    options = (AUGMENT, MEASURED, "run.device=numpy", "evaluate.tta=mirror")
    whole = train(tiny(*options, "name=whole"), backend, Path("unused"))
    part = tiny(*options, "name=part", "checkpoint.every_steps=1")
    cut = train(tiny(*options, "name=part", f"train.max_steps={stop}"), backend, Path("unused"))
    resumed = train(part, backend, Path("unused"), resume=open_resume(cut.run, lambda text: None))
    assert resumed.resumed_from is not None
    one, other = _end(whole), _end(resumed)
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


def _end(summary: Summary) -> dict[str, np.ndarray]:
    assert summary.checkpoint is not None
    return dict(read_checkpoint(summary.checkpoint).arrays)


def _provenance(summary: Summary) -> Provenance:
    assert summary.checkpoint is not None
    return read_checkpoint(summary.checkpoint).provenance


def test_the_sheet_shows_epochs(tiny: Tiny) -> None:
    found = report(tiny(AUGMENT, MEASURED), Path("unused"))
    rows = samples(found, 5)
    assert [title for title, _ in rows[:4]] == ["0", "epoch 1", "epoch 2", "1"]
    assert len(rows) == 30
    plain, first, second = (pictures for _, pictures in rows[:3])
    assert plain.shape == first.shape == second.shape
    for one, other in ((plain, first), (first, second)):
        assert (one != other).any(axis=(1, 2, 3)).all()
    # The plain ones are pictures of the data set, as they are there.
    known = {picture.tobytes() for picture in found.images.images}
    assert {picture.tobytes() for picture in plain} <= known


# ---------------------------------------------------------------- normalisation


def test_normalisation_is_measured_on_what_is_trained_on(tiny: Tiny, reference: Backend) -> None:
    config = tiny(MEASURED, "run.device=numpy")
    provenance = _provenance(train(config, reference, Path("unused")))
    data = load("strokes", "train", root=Path("unused"), options=OPTIONS)
    chosen, held = split_validation(200, 32, config.seed)
    pixels = data.images[chosen] / 255.0
    assert len(held) == 32
    scaling = provenance.preprocessing
    assert scaling.scale[0] == pytest.approx(1 / 255 / pixels.std(), rel=1e-12)
    assert scaling.shift[0] == pytest.approx(-pixels.mean() / pixels.std(), rel=1e-12)
    seen = scaling(data.images[chosen])
    assert (seen.mean(), seen.std()) == (pytest.approx(0, abs=1e-4), pytest.approx(1, abs=1e-4))


def test_a_resume_takes_the_measured_values_of_the_checkpoint(
    tiny: Tiny, reference: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dnnstack.training import trainer

    config = tiny(MEASURED, "run.device=numpy", "train.max_steps=3")
    first = train(config, reference, Path("unused"))

    def never(*arguments: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(trainer, "mean_and_deviation", never)
    longer = tiny(MEASURED, "run.device=numpy", "train.max_steps=5")
    source = open_resume(first.run, lambda text: None)
    second = train(longer, reference, Path("unused"), resume=source)
    assert _provenance(first).preprocessing == _provenance(second).preprocessing


def test_a_channel_that_never_changes_is_only_shifted(tiny: Tiny) -> None:
    info = describe("strokes", options=OPTIONS)
    scaling = preprocessing(tiny(MEASURED), info, ((0.5,), (0.0,)))
    assert scaling == Preprocessing.standardize((0.5,), (1.0,))
    # For what asks for shapes alone.
    assert preprocessing(tiny(MEASURED), info) == Preprocessing((1 / 255,), (-0.0,))


def test_the_mean_pixel() -> None:
    scaling = Preprocessing.standardize((0.4914, 0.0, 2.0), (0.25, 1.0, 0.3))
    assert mean_pixel(scaling) == (125, 0, 255)
    near = scaling(np.array(mean_pixel(scaling), np.uint8)[:, None, None])
    assert abs(near[0, 0, 0]) < 0.5 / 255 / 0.25 + 1e-6


# ---------------------------------------------------------------- whitening

WHITE = (
    "layers=[conv2d: {filters: 8, kernel_size: 2, kernel_initializer: {whiten: {samples: 100, "
    "eps: 1e-3}}}, max_pool2d, flatten, dense: {units: 10}]"
)


def test_whitening_filters_decorrelate_the_patches(tiny: Tiny, reference: Backend) -> None:
    def check(session: Session) -> None:
        filters = session.arrays()["conv2d_1.weight"]
        np.testing.assert_array_equal(filters[4:], -filters[:4])
        pictures = session.setup.scaling(session.setup.data.images[session.plan.train[:100]])
        # Plainly: every patch, one after the other.
        patches = [
            picture[0, y : y + 2, x : x + 2].reshape(-1)
            for picture in pictures.astype(np.float64)
            for y in range(27)
            for x in range(27)
        ]
        moments = np.mean([np.outer(patch, patch) for patch in patches], axis=0)
        rows = filters[:4].reshape(4, 4).astype(np.float64)
        through = rows @ moments @ rows.T
        values = np.linalg.eigvalsh(moments)[::-1]
        np.testing.assert_allclose(through, np.diag(values / (values + 1e-3)), atol=1e-4)

    with_session(tiny(WHITE, MEASURED), reference, check)


def test_a_resume_does_not_whiten_again(
    tiny: Tiny, reference: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (WHITE, "run.device=numpy")
    whole = train(tiny(*options, "name=whole", "train.max_steps=6"), reference, Path("unused"))
    first = train(tiny(*options, "name=part", "train.max_steps=3"), reference, Path("unused"))

    def never(setup: Setup, count: int) -> None:
        raise AssertionError("whitened again")

    monkeypatch.setattr(Setup, "_first_pictures", never)
    source = open_resume(first.run, lambda text: None)
    longer = tiny(*options, "name=part", "train.max_steps=6")
    second = train(longer, reference, Path("unused"), resume=source)
    for name, array in _end(whole).items():
        assert array.tobytes() == _end(second)[name].tobytes(), name


WRONG = [
    ("conv2d: {filters: 9, kernel_size: 2, kernel_initializer: whiten}", "1x2x2 have 4 directions"),
    (
        "conv2d: {filters: 8, kernel_size: 2, dilation: 2, kernel_initializer: whiten}",
        "leave out groups, dilation",
    ),
    (
        "max_pool2d, conv2d: {filters: 8, kernel_size: 2, kernel_initializer: whiten}",
        "only a conv2d at the beginning sees",
    ),
    ("conv2d: {filters: 8, kernel_size: 2, bias_initializer: whiten}", "for the filters of a conv"),
    ("conv2d: {filters: 8, kernel_size: 2, bias_initializer: dirac}", "dirac is for weights"),
]


@pytest.mark.parametrize(("layer", "message"), WRONG)
def test_initialisers_that_do_not_fit(tiny: Tiny, layer: str, message: str) -> None:
    config = tiny(f"layers=[{layer}, flatten, dense: {{units: 10}}]")
    with pytest.raises(ShapeError, match=message):
        build_network(config, describe("strokes", options=OPTIONS))


# ---------------------------------------------------------------- views


@pytest.fixture
def trained(tiny: Tiny, reference: Backend, tmp_path: Path) -> Trained:
    train(tiny("run.device=numpy", "evaluate.tta=mirror"), reference, tmp_path)
    return find_trained(None, None, tmp_path / "runs", lambda text: None)


def seen(picture: np.ndarray, flip: bool, by: int) -> np.ndarray:
    """A view of a picture (1, H, W): a window of the picture padded by 1, then perhaps flipped."""
    padded = np.pad(picture, ((0, 0), (1, 1), (1, 1)), "reflect")
    view = padded[:, 1 + by : 29 + by, 1 + by : 29 + by]
    return view[:, :, ::-1] if flip else view


VIEWS = {
    "none": [(False, 0, 1.0)],
    "mirror": [(False, 0, 0.5), (True, 0, 0.5)],
    "mirror+translate": [
        (False, 0, 0.25),
        (True, 0, 0.25),
        (False, -1, 0.125),
        (True, -1, 0.125),
        (False, 1, 0.125),
        (True, 1, 0.125),
    ],
}


@pytest.mark.parametrize("tta", VIEWS)
def test_views_are_averaged_before_the_softmax(
    trained: Trained, backend: Backend, tmp_path: Path, tta: str
) -> None:
    """20 pictures in batches of 12: the last is filled up with masked samples."""
    images, index = load_part(trained, "test", tmp_path)
    found = evaluate(trained, backend, images, index, "test", tta=tta)
    graph = trained.network.infer_graph(1)
    executable = trained.compile(backend, graph)
    scores = np.zeros((len(index), 10))
    for row, picture in enumerate(images.images[index]):
        for flip, by, weight in VIEWS[tta]:
            view = seen(picture, flip, by).astype(np.float32) / np.float32(255)
            executable.write(graph["x"], view[None])
            executable.run("infer")
            scores[row] += weight * executable.read(graph["scores"])[0].astype(np.float64)
    executable.close()
    labels = images.labels[index]
    confusion = np.zeros((10, 10), np.int64)
    np.add.at(confusion, (labels, scores.argmax(1)), 1)
    np.testing.assert_array_equal(found.confusion, confusion)
    shifted = scores - scores.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    assert found.loss == pytest.approx(-log_p[np.arange(len(index)), labels].mean(), rel=1e-5)
    assert (found.tta, found.to_json()["tta"]) == (tta, tta)
    count = len(VIEWS[tta])
    assert (f"scores averaged over {count} views" in as_text(found)) == (tta != "none")


def test_the_config_says_which_views(trained: Trained, backend: Backend, tmp_path: Path) -> None:
    images, index = load_part(trained, "test", tmp_path)
    own = evaluate(trained, backend, images, index, "test")
    assert own.tta == "mirror"
    assert own.loss == evaluate(trained, backend, images, index, "test", tta="mirror").loss
    assert own.loss != evaluate(trained, backend, images, index, "test", tta="none").loss


def test_validation_takes_the_same_views(tiny: Tiny, backend: Backend, tmp_path: Path) -> None:
    config = tiny("run.device=numpy", "evaluate.tta=mirror+translate", "checkpoint.best=true")
    summary = train(config, backend, tmp_path)
    found = find_trained(None, summary.checkpoint, tmp_path / "runs", lambda text: None)
    images, index = load_part(found, "validation", tmp_path)
    result = evaluate(found, backend, images, index, "validation")
    assert summary.validation is not None
    assert result.correct == summary.validation.correct
    assert result.loss == pytest.approx(summary.validation.loss, rel=1e-6)


def test_pictures_too_small_to_be_moved(reference: Backend) -> None:
    text = "data: {dataset: mnist}\nlayers: [flatten, dense: {units: 10}]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    config = parse_config(text + rest, "x.yaml")
    info = describe("mnist")
    network = build_network(config, info)
    network.input_shape = (1, 1, 5)
    with pytest.raises(ShapeError, match=r"by 1 pixel .* have 1x5 pixels; use 'mirror'"):
        network.evaluate_graph(
            2, "x", 2, 1, Preprocessing((1.0,), (0.0,)), TEST_TIME["mirror+translate"]
        )


def test_an_image_set_is_not_changed(tiny: Tiny, onednn: Backend) -> None:
    """Augmentation writes into its own memory."""

    def check(session: Session) -> None:
        data: ImageSet = session.setup.data
        before = data.images.copy()
        session.run(10)
        np.testing.assert_array_equal(data.images, before)

    with_session(tiny(AUGMENT), onednn, check)


def test_explain_shows_the_operation_as_it_is(tiny: Tiny, onednn: Backend) -> None:
    """The seed is in it: another one's would seem to have been rewritten."""
    config = tiny(AUGMENT, "seed=9")
    found = explain(config, Path("x.yaml"), onednn, measured=False, notice=lambda text: None)
    first = found.operations[0]
    assert isinstance(first.op, GatherAugmented)
    assert first.replaced == ()
    assert any("random_flip" in call.bound.arguments.get("augment", "") for call in first.calls)


def test_the_seed_is_no_business_of_tuning(tiny: Tiny) -> None:
    """Choices found by timing are kept for other seeds, not for other augmentations."""
    marks = []
    for overrides in (("seed=1",), ("seed=2",), ("data.augment=[random_flip]",)):
        config = tiny(AUGMENT, *overrides)
        network = build_network(config, describe("strokes", options=OPTIONS))
        scaling = preprocessing(config, describe("strokes", options=OPTIONS))
        graph = network.train_graph(
            4,
            "train",
            8,
            2,
            2,
            scaling,
            Sgd(),
            seed=config.seed,
            augment=augmentations(config, network.input_shape),
        )
        marks.append(fingerprint({"train": graph}))
    assert marks[0] == marks[1] != marks[2]
