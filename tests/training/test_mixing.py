"""Mixed pictures and targets, from the config to the loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.backends.reference.augment import drawn_mixes
from dnnstack.common.errors import ConfigError
from dnnstack.graph.ops import MixSamples
from dnnstack.reports.data_report import report
from dnnstack.reports.data_samples import samples
from dnnstack.training.session import Session
from dnnstack.training.trainer import train

from ..support.augmented import Tiny, with_session

BOTH = "[random_flip, mixup: {alpha: 0.7, probability: 0.4}, cutmix: {probability: 0.5}]"
MIXED, PLAIN = f"data.augment={BOTH}", "data.augment=[random_flip]"
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def epoch_of(
    config: object, backend: Backend, epoch: int = 1, check: Callable[[Session], None] = bool
) -> Batch:
    """The pictures and targets of an epoch in its order, and that order."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    order = np.zeros(0)

    def collect(session: Session) -> None:
        nonlocal order
        stretch, steps = session.stretches[0], session.plan.steps_per_epoch
        session.executable.write(stretch.train["order"], order := session.orders.of(epoch))
        check(session)
        for step in range(epoch * steps, (epoch + 1) * steps):
            session.step = step
            stretch.go_to(session.executable, step)
            for _ in range(stretch.own):
                session.executable.run(stretch.train.name)
                read = session.executable.read
                found.append((read(stretch.train["x"]), read(stretch.train["target"])))

    with_session(config, backend, collect)  # type: ignore[arg-type]
    x, target = (np.concatenate(each) for each in zip(*found, strict=True))
    return x, target, order


def test_pairs_are_mixed_as_their_pictures_would_be_alone(tiny: Tiny, reference: Backend) -> None:
    """Pictures and labels of a training without mixing, mixed by hand as is drawn."""
    fixed = ("data.batch_size=20", "data.validation=0", "optimizer.lr=1e-30")
    x, target, order = epoch_of(tiny(MIXED, *fixed), reference)
    alone_x, alone, alone_order = epoch_of(tiny(PLAIN, *fixed), reference)
    pairs = order.reshape(-1, 2, 20)
    np.testing.assert_array_equal(pairs[:, 0].ravel(), alone_order)
    assert sorted(pairs[:, 1].ravel()) == sorted(alone_order)
    place = {sample: at for at, sample in enumerate(alone_order.tolist())}
    partner = np.array([place[sample] for sample in pairs[:, 1].ravel().tolist()])
    drawn: list[np.ndarray] = []

    def look(session: Session) -> None:
        (op,) = (op for op in session.graph("train").ops if isinstance(op, MixSamples))
        drawn.extend(np.stack(drawn_mixes(op, step), 1) for step in range(10, 20))

    with_session(tiny(MIXED, *fixed), reference, look)
    assert {row[0] < 1 for row in np.concatenate(drawn)} == {False, True}
    for at, (weight, *sides) in enumerate(np.concatenate(drawn)):
        top, left, bottom, right = map(int, sides)
        want = weight * alone_x[at] + (1 - weight) * alone_x[partner[at]]
        want[:, top:bottom, left:right] = alone_x[partner[at], :, top:bottom, left:right]
        np.testing.assert_allclose(x[at], want, atol=1e-6)
        share = weight * (1 - (bottom - top) * (right - left) / 784)
        shares = np.zeros(10)
        shares[alone[at]] += share
        shares[alone[partner[at]]] += 1 - share
        np.testing.assert_allclose(target[at], shares, atol=1e-6)


def test_neither_batches_nor_parts_matter(tiny: Tiny, backend: Backend) -> None:
    # The order of the largest batch is the shortest.
    fixed = (MIXED, "data.validation=20", "train.max_steps=60")
    x, target, _ = epoch_of(tiny(*fixed, "data.batch_size=50"), backend)
    for more in (("data.batch_size=8",), ("data.batch_size=50", "train.accumulate=5")):
        others, wanted, _ = epoch_of(tiny(*fixed, *more), backend)
        np.testing.assert_array_equal(others[: len(x)], x)
        np.testing.assert_array_equal(wanted[: len(x)], target)


@pytest.mark.parametrize("more", [(), ("data.balance=true",), ("data.shuffle=false",)])
def test_partners_are_another_order_of_the_same_epoch(tiny: Tiny, more, reference: Backend) -> None:
    def check(session: Session) -> None:
        first, second = (session.orders.of(epoch).reshape(-1, 2, 20) for epoch in (0, 1))
        one, other = first[:, 0].ravel(), first[:, 1].ravel()
        assert sorted(one) == sorted(other)
        assert (one != other).mean() > 0.9
        assert (other != second[:, 1].ravel()).mean() > 0.9

    config = tiny(MIXED, "data.batch_size=20", "data.validation=0", *more)
    with_session(config, reference, check)


def test_accuracy_is_that_of_the_larger_share(tiny: Tiny, reference: Backend) -> None:
    def check(session: Session) -> None:
        session.run(1)
        read, graph = session.executable.read, session.graph("train")
        right = read(graph["scores"]).argmax(1) == read(graph["target"]).argmax(1)
        assert session.training_metrics().accuracy == pytest.approx(right.mean())
        assert session.graph("evaluate")["target"].dtype == "int32"

    with_session(tiny(MIXED), reference, check)


WRONG = [
    ("[mixup]", ["loss=focal"], r"augment\.0\.mixup: makes shares of classes, which loss 'focal'"),
    ("[cutmix]", ["loss=focal"], "use 'cross_entropy' or 'distill' or 'mse'$"),
    ("[random_flip, cutmix]", ["loss=hinge"], r"augment\.1\.cutmix: makes shares of classes"),
    ("[mixup, random_flip]", [], "'random_flip' cannot follow 'mixup': mixup and cutmix come"),
    ("[mixup, cutmix]", [], "add up to 2, more than 1; .* such as probability: 0.5"),
    ("[mixup: {probability: 0}]", [], "expected a number above 0"),
    ("[random_erasing: {scale: [0.3, 0.2]}]", [], "expected the least and the largest number"),
    ("[random_resized_crop: {scale: [1, 1], ratio: [9, 9]}]", [], "no rectangle .* have 28x28"),
    ("[cutmix: {alpha: 0}]", [], "expected a number above 0"),
]


@pytest.mark.parametrize(("augment", "more", "message"), WRONG, ids=[each[0] for each in WRONG])
def test_what_cannot_be_mixed(tiny: Tiny, reference: Backend, augment, more, message) -> None:
    with pytest.raises(ConfigError, match=message):
        train(tiny(f"data.augment={augment}", *more), reference, Path("unused"))


def test_the_sheet_shows_mixed_pictures(tiny: Tiny) -> None:
    lists = ("data.augment=[random_flip, mixup: {probability: 0.5}]", PLAIN)
    mixed, plain = (samples(report(tiny(each), Path("unused")), 5) for each in lists)
    assert [title for title, _ in mixed] == [title for title, _ in plain]
    for at in range(3):
        differs = [(a != b).any() for a, b in zip(mixed[at][1], plain[at][1], strict=True)]
        assert sum(differs) == 0 if at == 0 else 0 < sum(differs) < len(differs)


def test_the_sheet_mixes_each_picture_with_another(tiny: Tiny) -> None:
    most = "data.augment=[cutmix: {alpha: 1e-3}]"
    rows = [view for _, view in samples(report(tiny(most), Path("unused")), 5)]
    assert not any((a == b).all() for a, b in zip(rows[1], rows[4], strict=False))
