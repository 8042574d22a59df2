"""What there is before a training: networks, their steps, data, weights; and what it says then."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.base import Limits
from dnnstack.backends.select import open_backend
from dnnstack.cli.main import main
from dnnstack.configs import load_config, packaged_configs, parse_config
from dnnstack.datasets import DataFile, DatasetInfo, ImageSet
from dnnstack.datasets.survey import Look, Survey
from dnnstack.reports import doctor
from dnnstack.reports.data_report import DataReport
from dnnstack.reports.data_text import as_text as data_text
from dnnstack.reports.doctor import Finding
from dnnstack.reports.explain import Explanation, WholeStep, explain
from dnnstack.reports.explain_text import as_text as explanation_text
from dnnstack.reports.new_config import new_config
from dnnstack.reports.new_report import NewReport
from dnnstack.reports.new_report import as_text as new_text
from dnnstack.reports.summary import summarize
from dnnstack.reports.summary_text import as_text as summary_text
from dnnstack.reports.training_text import (
    beginning,
    duration,
    initialized,
    short_figures,
    step_line,
    summary,
    validation_line,
)
from dnnstack.reports.weights_report import WeightsReport
from dnnstack.training.listener import Progress, Started, Summary
from dnnstack.training.plan import Plan
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.records.formats.provenance import BegunFrom
from dnnstack.training.records.formats.state import Best, Metrics, State
from dnnstack.training.weights.source import Offered, Source
from dnnstack.training.weights.start import Difference, Start

from ..support.described import as_json, at_widths, joined
from ..support.training_fixtures import TINY


def _summary(name: str, *overrides: str, ranks: int = 1) -> str:
    found = summarize(load_config(name, overrides).config, Path(name), ranks=ranks)
    texts = [summary_text(found), at_widths(lambda width: summary_text(found, width), 50)]
    # Of many layers the text has all figures, too.
    data = [as_json(found.to_json())] if len(found.rows) < 12 else []
    return joined(*texts, *data)


def _summaries() -> str:
    """Of every packaged network, and of what changes the memory that a step takes."""
    varied = (
        ("optimizer.momentum=0", "run.fusion=false"),
        ("optimizer={type: adam, lr: 0.1}", "train.accumulate=4"),
        ("optimizer.ema.decay=0.9", "optimizer.lookahead.every=2"),
    )
    made = [summarize(load_config(name).config, Path(name)) for name in packaged_configs()]
    for changes in varied:
        made.append(summarize(load_config("lenet.yaml", changes).config, Path("lenet.yaml")))
    plain = load_config("lenet.yaml").config
    # No GPU could index a tensor of the last one.
    made += [summarize(plain, Path("lenet.yaml"), count) for count in (1, 100_000, 1_000_000)]
    vgg = load_config("vgg16.yaml", ["run.precision=bf16"]).config
    made.append(summarize(vgg, Path("vgg16.yaml"), batch_size=8))
    figures = [as_json({**each.to_json(), "layers": None}) for each in made[-7:]]
    return joined(*(summary_text(each, 80) for each in made), *figures)


def _explained(*overrides: str) -> Explanation:
    backend = open_backend("numpy", 1, lambda text: None)
    config = parse_config(TINY, "tiny.yaml", overrides)
    found = explain(
        config,
        Path("a-folder/of-networks/whose-name-no-line/holds.yaml"),
        backend,
        False,
        lambda text: None,
    )
    return replace(found, versions={"numpy": "2"})


def _explanation() -> str:
    found = _explained()
    texts = at_widths(lambda width: explanation_text(found, width), 79, 45)
    return joined(texts, explanation_text(found, None))


def _measured_explanation() -> str:
    """Also of an operation with two calls, of one without, and of some faster than the limit."""
    found = _explained("train.accumulate=2", "optimizer={type: adam, lr: 0.1}")
    limits = Limits(gflops=2.0, gbytes=10.0)
    operations = []
    for at, each in enumerate(found.operations):
        calls = tuple(replace(call, seconds=1e-6 * 3**at) for call in each.calls)
        calls = calls * 2 if at == 1 else () if at == 2 else calls
        operations.append(replace(each, calls=calls, limits=limits))
    whole = WholeStep(0.5, 0.4, 0.125)
    found = replace(found, operations=tuple(operations), limits=limits, whole=whole)
    return joined(explanation_text(found), as_json([found.to_json()]))


def _data_report(*, grey: bool = False, scaled: bool = False) -> DataReport:
    draw = np.random.default_rng(2)
    classes = ("red", "green", "a class whose name is long")
    channels = 1 if grey else 3
    images = ImageSet(
        "paint/train", draw.integers(0, 256, (8, channels, 4, 5), np.uint8),
        np.array([0, 1, 0, 1, 0, 1, 0, 0], np.int32), classes, doubts=("two are the same",),
    )  # fmt: skip
    info = DatasetInfo("paint", (channels, 4, 5), classes, 8, 2)
    mean, std = (0.25, -1e-9, 0.5)[:channels], (0.5, 0.0, 1.0)[:channels]
    if scaled:
        info = replace(info, scale=(2.0,) * channels, shift=(-1.0,) * channels)
    scaling = Preprocessing.standardize(mean, [max(each, 0.5) for each in std])
    counts = {"train": np.array([4, 3, 0]), "validation": np.array([1, 0, 0]), "test": np.zeros(3)}
    states = ("verified", "other", "damaged", "missing")
    files = () if grey else tuple(DataFile(Path("data/paint", s), s, "") for s in states)
    whole = {part: found.astype(np.int64) for part, found in counts.items()}
    train = np.arange(7, dtype=np.int32)
    sizes = {part: int(counts.sum()) for part, counts in whole.items()}
    facts = (Path("data"), info, files, "drawn", images, train)
    return DataReport(*facts, whole, sizes, mean, std, scaling)


def _data() -> str:
    first, grey, scaled = _data_report(), _data_report(grey=True), _data_report(scaled=True)
    standard = replace(grey, scaling=Preprocessing.standardize(grey.mean, grey.std))
    texts = [data_text(each) for each in (first, grey, scaled, standard)]
    narrow = at_widths(lambda width: data_text(first, width), 40)
    return joined(*texts, narrow, *(as_json(r.to_json()) for r in (first, scaled)))


def _weights() -> str:
    arrays = {
        "conv.weight": Offered((4, 1, 5, 5), "F32", None),
        "fc.bias": Offered((), "I8", lambda: np.zeros(1, np.float32)),
        "steps": Offered((3,), "I64", None),
    }
    source = Source(Path("net.pt"), "b" * 64, "pytorch", arrays)
    taken = {"conv2d_1.weight": np.zeros((4, 1, 5, 5), np.float32)}
    names = {"conv2d_1.weight": "conv.weight"}
    new = tuple(Difference(f"dense_{n}.bias", (10,), "is not in the file") for n in range(12))
    left = (Difference("steps", (3,), "the network has no place for it"),)
    begun = BegunFrom("net.pt", "b" * 64, "pytorch", 1)
    start = Start(begun, taken, names, new, left)
    more = replace(start, values={**taken, "a": np.zeros(3, np.float32)}, new=new[:1])
    reports = [WeightsReport(source), WeightsReport(source, start), WeightsReport(source, more)]
    return joined(
        *(each.as_text() for each in reports),
        at_widths(reports[1].as_text, 50),
        initialized(start),
        *(as_json(each.to_json()) for each in reports[:2]),
    )


def _survey(counts: tuple[int, ...], sides: list[tuple[int, int]], grey: int = 0) -> Survey:
    """Pictures of these (height, width), as many of them grey."""
    looks = tuple(
        Look(h, w, at < grey, np.cos(np.arange(6.0) * (at + 1)), 4095 if at == 1 else -1)
        for at, (h, w) in enumerate(sides)
    )
    classes = tuple(f"class {n}{', of a long name' * (n == 2)}" for n in range(len(counts)))
    labels = np.arange(len(looks)) % len(counts)
    return Survey(
        Path("pics"), {"train": Path("pics")}, classes, {"train": counts},
        tuple(count * 4 // 5 for count in counts),
        sum(counts), looks, labels, {}, Counter(),
    )  # fmt: skip


def _new() -> str:
    surveys = [
        _survey((100, 100), [(32, 32)] * 8),
        _survey((3, 19), [(20, 40), (22, 40), (21, 40)], grey=2),
        _survey((1999, 200, 20), [(400, 200)] * 6, grey=6),
        _survey((20, 30), [(600, 200), (200, 600), (300, 300)] * 2),
    ]
    folders = {part: Path("pics", part) for part in ("train", "validation", "test")}
    surveys[0] = replace(
        surveys[0], folders={"train": folders["train"], "test": folders["test"]},
        counts=surveys[0].counts | {"test": (9, 8)},
        unused=("notes",), tiny=("a.png",), doubts=("two are the same",), others=Counter(gif=3),
    )  # fmt: skip
    broken = {f"{n}.png": f"pics/{n}.png: is cut off" for n in range(7)}
    surveys[1] = replace(surveys[1], broken=broken, examined=20)
    counts = surveys[3].counts | {"validation": (6, 7), "test": (2, 1)}
    surveys[3] = replace(surveys[3], examined=40, folders=folders, counts=counts)
    many = _survey((5,) * 33, [(16, 16)] * 33, grey=33)
    made = [
        NewReport(s, new_config(s, Path("a b.yaml")), Path("a b.yaml")) for s in (*surveys, many)
    ]
    return joined(
        at_widths(lambda width: new_text(made[0], width), 80),
        *(new_text(each, 80) for each in made[1:]),
        *(each.config.text for each in made),
        *(as_json(each.to_json()) for each in made[:2]),
    )


def _chosen() -> str:
    """At both sides of what new decides by: classes, pictures, and their sides."""
    square = [(32, 32)] * 6
    made = [
        *(_survey((most, 10), square) for most in (1, 14, 15, 100, 101)),
        *(_survey((half, half), square) for half in (1000, 1001, 13_000, 64_000, 65_000)),
        *(_survey((count - 1, 1), square) for count in (9, 10, 19, 20, 79, 80, 159, 160, 639, 640)),
        *(
            _survey((50, 50), [(h, w), (h + 4, w)] * 3)
            for h, w in ((4, 4), (60, 64), (64, 68), (68, 68))
        ),
        *(
            _survey((50, 50), [(40, width), (41, width), (40 - by, width)] * 2)
            for width in (30, 33, 49, 52, 100)
            for by in (1, 4, 8, 12)
        ),
    ]
    texts = []
    for found in made:
        chosen = {c.key.rpartition(".")[2]: c.value for c in new_config(found, Path("a")).choices}
        looks = " ".join(f"{look.height}x{look.width}" for look in found.looks)
        texts.append(f"{found.counts['train']} of {looks}: {chosen}")
    return joined("\n".join(texts))


def _training() -> str:
    index = np.arange(40, dtype=np.int32)
    plan = Plan(index[:32], index[32:], 8, 8, 4, 20, np.ones(20, np.float32), 1, 4, 0)
    state = State(step=6, window_start=4, sums=(1.0, 2.0, 3.0), best=Best(4, 0.5, 0.1))
    new = Started(Path("runs/net"), "numpy", plan, state, None)
    source = Path("runs/net/checkpoints/step-6.safetensors")
    again = Started(
        Path("runs/net"), "numpy", plan, replace(state, rate_factor=0.5), source,
        ((0.5,), (0.25,)),
    )  # fmt: skip
    metrics = Metrics(0.25, 3, 4)
    progress = Progress(6, 20, 1.5, 5.0, metrics, 0.123456, 1234.5, 75.0)
    first = replace(progress, step=0, epoch=0.0, metrics=None, images_per_second=0.0)
    done = Summary(
        "finished", True, None, Path("runs/net"), source, 6, 20, 1.5, metrics, 4, metrics,
        Best(4, 0.5, 0.1), 59.4, 9.95, 1234.5, None, saving_seconds=0.25,
    )  # fmt: skip
    ends = [
        done,
        replace(done, goal=True, training_step=6, best=Best(6, 0.5, 0.1)),
        replace(done, goal=False, early=False, checkpoint=None),
        replace(done, state="interrupted", goal=False, training=None, validation=None, best=None),
        replace(done, images_per_second=0.0, validation_seconds=0.0, saving_seconds=0.0),
    ]
    return joined(
        *("\n".join(beginning(each)) for each in (new, again, replace(again, resumed_from=None))),
        *(step_line(each) for each in (progress, first)),
        *(short_figures(each, wide) for each in (progress, first) for wide in (True, False)),
        *(validation_line(epoch, metrics) for epoch in (1.0, 1.5)),
        *map(summary, ends),
        ", ".join(map(duration, (0.04, 9.94, 9.95, 59.4, 59.5, 60, 3569, 3570, 3600, 86_399))),
    )


def _doctor() -> str:
    """What the command prints of findings of every kind."""
    text = "a processor of which a long text tells, " * 3
    findings = [
        Finding("Python", "version", "3.10.0, /usr/bin/python3"),
        Finding("Python", "numpy", "1.0, tested with <3,>=2.0", "note", "install another"),
        Finding("machine", "processor", text.strip()),
        Finding("folders", "runs", "/runs cannot be written", "missing", "choose another " * 8),
    ]
    told = []
    for some in (findings, findings[:3]):
        for options in ((), ("--json",)):
            with pytest.MonkeyPatch.context() as patch, io.StringIO() as said:
                patch.setattr(doctor, "examine", lambda *folders, some=some: iter(some))
                with contextlib.redirect_stdout(said):
                    status = main(["doctor", *options])
                told.append(f"{said.getvalue()}status {status}")
    return joined(*told)


NETWORKS: dict[str, Callable[[], str]] = {
    "summary": lambda: _summary("lenet.yaml"),
    "summary_of_blocks": lambda: _summary("cifar10-resnet20.yaml", "data.batch_size=8"),
    "summaries": _summaries,
    "summary_of_ranks": lambda: _summary("lenet.yaml", ranks=2),
    "explanation": _explanation,
    "explanation_measured": _measured_explanation,
    "data": _data,
    "weights_of_a_file": _weights,
    "new": _new,
    "new_choices": _chosen,
    "training": _training,
    "doctor": _doctor,
}
