"""Numbers, questions of yes or no, and distributions, from the config to the last step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError, DatasetError, ShapeError
from dnnstack.common.targets import check_targets, spread_of
from dnnstack.configs import RunConfig, load_config, parse_config
from dnnstack.datasets import ImageSet
from dnnstack.training.assemble import build_network, check_data, describe_data
from dnnstack.training.records.formats.state import START, Metrics, shown
from dnnstack.training.setup import class_weights
from dnnstack.training.trainer import train

from ..support.trainings import NOWHERE, go, session_of


def table_of(config: RunConfig) -> tuple[np.ndarray, np.ndarray]:
    """The inputs with a column of ones, and the targets."""
    chosen = config.data.dataset.options()
    x = np.array(chosen["inputs"], np.float64)
    return np.c_[x, np.ones(len(x))], np.array(chosen["targets"], np.float64)


def weights_of(arrays: Any) -> np.ndarray:
    return np.append(arrays["dense_1.weight"][0], arrays["dense_1.bias"])


def packaged(name: str, tmp_path: Path) -> RunConfig:
    return load_config(name, [f"run.dir={tmp_path}"]).config


def test_linear_regression_ends_in_the_closed_solution(backend, tmp_path):
    config = packaged("linear-regression.yaml", tmp_path)
    a, y = table_of(config)
    found = weights_of(go(config, backend).arrays)
    np.testing.assert_allclose(found, np.linalg.solve(a.T @ a, a.T @ y), rtol=0, atol=1e-4)


def test_logistic_regression_ends_where_newton_does(backend, tmp_path):
    config = packaged("logistic.yaml", tmp_path)
    a, y = table_of(config)
    w = np.zeros(3)
    for _ in range(30):
        q = 1.0 / (1.0 + np.exp(-a @ w))
        w -= np.linalg.solve((a * (q * (1.0 - q))[:, None]).T @ a, a.T @ (q - y))
    found = weights_of(go(config, backend).arrays)
    np.testing.assert_allclose(found, w, rtol=0, atol=1e-4)


def test_a_hidden_layer_bends_the_line(tmp_path):
    config = packaged("mlp-regression.yaml", tmp_path)
    done = train(config, ReferenceBackend(1), NOWHERE)
    assert done.training is not None
    assert done.training.accuracy > 0.99
    rows = (done.run / "metrics.csv").read_text().splitlines()
    assert rows[0] == "step,epoch,split,loss,r2,learning_rate"
    assert float(rows[-1].split(",")[4]) == done.training.accuracy


@pytest.mark.parametrize("wanted", [[1, 1, 1, 0], [0, 1, 1, 1]])
def test_one_unit_learns_as_the_slide_says(backend, wanted):
    """w += (wanted - y) x after each row of the truth table, in its order."""
    config = load_config("perceptron.yaml", [f"data.dataset.table.targets={wanted}"]).config
    a, y = table_of(config)
    session, w = session_on(config, backend), np.zeros(3)
    for step in range(40):
        row = step % 4
        w += (y[row] - (a[row] @ w > 0)) * a[row]
        session.run(1)
        np.testing.assert_array_equal(weights_of(session.arrays()), w)
    session.close()
    assert not ((a @ w > 0) != y).any()


def session_on(config: RunConfig, backend: Any) -> Any:
    """A session on the config's own table."""
    from dnnstack.datasets import Downloads
    from dnnstack.training.assemble import load_data
    from dnnstack.training.normalization import preprocessing
    from dnnstack.training.plan import make_plan
    from dnnstack.training.session import Session
    from dnnstack.training.setup import Setup

    info = describe_data(config)
    data = load_data(config, "train", NOWHERE, Downloads())
    scaling, plan = preprocessing(config, info), make_plan(config, len(data))
    session = Session(Setup(config, build_network(config, info), scaling, plan, data), backend)
    session.initialize()
    return session


def test_the_net_of_the_lecture_has_its_parameters():
    net = "[{dense: {units: 3}}, sigmoid, {dense: {units: 4}}, sigmoid, {dense: {units: 1}}]"
    config = of_kind(
        "yes_no", "binary_cross_entropy", "[0, 1]", net, "[[1, 2, 3, 4], [5, 6, 7, 8]]"
    )
    sizes: dict[str, int] = {}
    for each in build_network(config, describe_data(config)).parameters():
        layer = each.tensor.name.partition(".")[0]
        sizes[layer] = sizes.get(layer, 0) + each.tensor.size
    assert sizes == {"dense_1": 15, "dense_2": 16, "dense_3": 5}


def of_kind(kind: str, loss: str, targets: str, layers: str, inputs: str, *more: str) -> RunConfig:
    table = f"{{inputs: {inputs}, targets: {targets}, kind: {kind}}}"
    text = (
        f"data: {{dataset: {{table: {table}}}, batch_size: 1, validation: 0}}\n"
        f"layers: {layers}\nloss: {loss}\n"
        "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    )
    return parse_config(text, "x.yaml", more)


ONE, TWO, INPUTS = "[{dense: {units: 1}}]", "[{dense: {units: 2}}]", "[[0, 1], [1, 0.5]]"
MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("numbers", "cross_entropy", "[1, 2]", ONE), "'cross_entropy' is not for numbers, which are "
     "the targets of 'table'; use 'huber' or 'mae' or 'mse'"),
    (("class", "mae", "[0, 1]", TWO), "'mae' is not for classes"),
    (("yes_no", "huber", "[0, 1]", ONE), "use 'binary_cross_entropy' or 'mse' or 'perceptron'"),
    (("class", "cross_entropy", "[0, 1]", ONE), "the data has 2 classes; end .*units: 2"),
    (("numbers", "mse", "[1, 2]", TWO), "the data has 1 numbers; end .*units: 1"),
    (("yes_no", "binary_cross_entropy", "[0, 2]", ONE), "sample 1 has the target 2, but yes is 1"),
    (("distribution", "mse", "[[0.5, 0.6], [1, 0]]", TWO), "sample 0: the shares add up to 1.1"),
    (("distribution", "mse", "[[-0.5, 1.5], [1, 0]]", TWO), "the target -0.5, but shares are 0 or"),
    (("numbers", "mse", "[[1, 2], [1]]", TWO), "rows of different lengths"),
    (("yes_no", "binary_cross_entropy", "[[0, 1], [1, 1]]", f"{TWO[:-1]}, softmax]"),
     r"layer 'softmax_1' \(softmax\) makes shares of one whole"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), MISTAKES)
def test_what_does_not_fit_is_told(given, message):
    config = of_kind(*given, INPUTS)

    def build() -> None:
        build_network(config, describe_data(config))

    with pytest.raises((ConfigError, DatasetError, ShapeError), match=message):
        build()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("data.balance=true", "data.balance: the targets are numbers, not a class"),
        ("data.stratified=true", "data.stratified: the targets"),
        ("data.fold={index: 1, count: 2, stratified: true}", "data.fold.stratified: the targets"),
        ("evaluate={tta: mirror, tta_share: 0.5}", "evaluate.tta_share: the targets"),
        ("train.goal={accuracy: 0.5}", "train.goal.accuracy: .* numbers; use r2 or loss"),
        ("data.augment=[random_flip]", "data.augment: changes pictures of bytes"),
    ],
)
def test_what_a_kind_has_no_meaning_for_is_told(more, message):
    config = of_kind("numbers", "mse", "[1, 2, 3]", ONE, "[[0], [1e-5], [1]]", more)
    with pytest.raises(ConfigError, match=message):
        check_data(config, describe_data(config))


def test_classes_have_a_goal_of_accuracy():
    more = ("train.goal={r2: 0.5}", "data.balance=true", "data.shuffle=false")
    config = of_kind("class", "mse", "[0, 1]", TWO, INPUTS, more[0])
    with pytest.raises(ConfigError, match=r"train.goal.r2: .* classes; use accuracy or loss"):
        check_data(config, describe_data(config))
    with pytest.raises(ConfigError, match=r"data.shuffle: data.balance draws another order"):
        check_data(of_kind("class", "mse", "[0, 1]", TWO, INPUTS, *more[1:]), describe_data(config))


@pytest.mark.parametrize("kind", ["numbers", "yes_no", "distribution"])
def test_targets_that_are_no_numbers_are_told_with_their_sample(kind):
    labels = np.array([[0.0, 1.0], [1.0, np.nan]], np.float32)
    with pytest.raises(DatasetError, match=r"^here: sample 1 has the target nan"):
        check_targets("here", kind, labels, 2)
    with pytest.raises(DatasetError, match=r"the shape \(2, 2\), but 3 names"):
        check_targets("here", kind, labels, 3)
    with pytest.raises(DatasetError, match=r"the shape \(2,\), but 2 names"):
        check_targets("here", kind, labels[:, 0], 2)


def test_r2_is_what_the_mean_explains():
    """Of several columns, that of each weighted by its variance."""
    y = np.array([[1.0, 10.0], [2.0, 30.0], [4.0, 20.0]], np.float32)
    answers = y + np.array([[0.5, 1.0], [0.0, -2.0], [-0.5, 0.0]])
    error = ((answers - y) ** 2).mean(1).sum()
    found = Metrics.from_sums([0.0, error, 3.0], spread_of(y))
    sst = ((y - y.mean(0, np.float64)) ** 2).sum(0)
    each = 1.0 - ((answers - y) ** 2).sum(0) / sst
    assert found.accuracy == pytest.approx((each * sst).sum() / sst.sum(), rel=1e-12)
    assert (found.measure, shown("r2", 0.43123), shown("accuracy", 0.5)) == (
        *("r2", "R2 0.4312", "50.00%"),
    )
    assert Metrics.from_sums([0.0, 0.0, 3.0], 0.0).accuracy == 1.0
    assert Metrics.from_sums([0.0, 0.1, 3.0], 0.0).accuracy == 0.0
    assert np.isnan(Metrics.from_sums([0.0, 0.0, 0.0], 1.0).accuracy)
    half = Metrics.from_sums([3.0, 1.5, 3.0])
    assert (half.correct, half.accuracy, half.measure) == (1.5, 0.5, "accuracy")


def test_the_best_is_by_accuracy_or_by_loss():
    first, second = Metrics(1.0, 6, 10), Metrics(2.0, 7, 10)
    by_accuracy = START.validated(first).validated(second)
    by_loss = START.validated(first, True).validated(second, True)
    assert by_accuracy.best is not None
    assert by_loss.best is not None
    assert (by_accuracy.best.loss, by_loss.best.loss, by_loss.unimproved) == (2.0, 1.0, 1)
    numbers = START.validated(Metrics(1.0, 0.5, 10, 2.0))
    stored = json.loads(json.dumps(numbers.to_json()))["best"]
    assert stored == {"step": 0, "accuracy": 0.975, "loss": 1.0, "measure": "r2"}
    assert "measure" not in by_loss.to_json()["best"]


def weighed(kind: Any, labels: Any, asked: Any, loss: str = "cross_entropy") -> tuple[float, ...]:
    labels = np.array(labels, np.float32)
    images = np.zeros((len(labels), 1, 1, 1), np.uint8)
    data = ImageSet("x/train", images, labels, ("a", "b"), kind=kind)
    config = of_kind("class", loss, "[0, 1]", TWO, INPUTS, f"loss.class_weights={asked}")
    return class_weights(config, data, np.arange(len(labels) - 1, dtype=np.int32))


def test_weights_of_classes_are_for_what_has_classes():
    shares = [[0.75, 0.25], [1.0, 0.0], [0.25, 0.75], [0.0, 1.0]]
    assert weighed("distribution", shares, "balanced") == (3 / (2 * 2.0), 3 / (2 * 1.0))
    answers, bce = [[1, 0], [0, 0], [0, 0], [1, 1]], "binary_cross_entropy"
    assert weighed("yes_no", answers, "balanced", bce) == (2.0, 1.0)
    assert weighed("yes_no", answers, "[2, 3]", bce) == (2.0, 3.0)
    with pytest.raises(ConfigError, match="'mse' does not weigh answers of yes"):
        weighed("yes_no", answers, "balanced", "mse")
    with pytest.raises(ConfigError, match="numbers, which have no classes"):
        weighed("numbers", answers, "balanced", "mse")


def test_samples_in_their_own_order_are_trained_on_again_and_again(tiny, backend):
    session = session_of(tiny("data.shuffle=false", "data.validation=3"), backend)
    order = session.orders.of(0)
    np.testing.assert_array_equal(order, session.plan.train[: len(order)])
    np.testing.assert_array_equal(session.orders.of(5), order)
    session.close()
