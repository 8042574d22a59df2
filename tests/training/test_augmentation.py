"""Augmentation, from config to result."""

from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.backends.base import Backend
from dnnstack.backends.tuning import fingerprint
from dnnstack.common.errors import ConfigError
from dnnstack.datasets import describe
from dnnstack.graph.augmentations import Elastic, RandomCrop, RandomFlip, Rotate, augmentation_keys
from dnnstack.graph.ops import GatherAugmented, GatherBatch
from dnnstack.optimizers.sgd import Sgd
from dnnstack.reports.data_report import report
from dnnstack.reports.data_samples import samples
from dnnstack.reports.summary import summarize
from dnnstack.training.assemble import build_network
from dnnstack.training.augmentation import augmentations
from dnnstack.training.normalization import preprocessing
from dnnstack.training.records.resume import open_resume
from dnnstack.training.session import Session
from dnnstack.training.trainer import train

from ..support import composed
from ..support.augmented import MEASURED, OPTIONS, Tiny, with_session
from ..support.trainings import end_of

AUGMENT = "data.augment=[random_crop: {padding: 3}, random_flip, rotate: {degrees: 10}, elastic]"


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
    message = r"data\.augment\.1\.cutout: size 29 is larger than a side .* have 28x28 pixels"
    with pytest.raises(ConfigError, match=message):
        train(config, reference, Path("unused"))
    with pytest.raises(ConfigError, match=message):
        summarize(config, Path("x.yaml"))
    with pytest.raises(ConfigError, match=message):
        report(config, Path("unused"))


def test_colours_of_too_many_channels(tiny: Tiny) -> None:
    config = tiny("data.augment=[random_flip, recolour]")
    assert len(augmentations(config, (48, 9, 9))) == 2
    with pytest.raises(ConfigError, match=r"1\.recolour: changes colours of at most 48 channels"):
        augmentations(config, (49, 9, 9))


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
    one, other = end_of(whole).arrays, end_of(resumed).arrays
    for name, array in one.items():
        assert array.tobytes() == other[name].tobytes(), name


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


def test_the_seed_is_no_business_of_tuning(tiny: Tiny) -> None:
    """Choices found by timing are kept for other seeds, not for other augmentations."""
    marks = []
    for overrides in (("seed=1",), ("seed=2",), ("data.augment=[random_flip]",)):
        config = tiny(AUGMENT, *overrides)
        network = build_network(config, describe("strokes", options=OPTIONS))
        scaling = preprocessing(config, describe("strokes", options=OPTIONS))
        graph = composed.train_graph(
            network,
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
