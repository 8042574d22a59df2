"""Whether a network can be trained: short tests, each with figures and a verdict.

They follow Karpathy, "A recipe for training neural networks" (2019): look at what enters, at the
loss of the first step, overfit one batch, compare with a network that sees nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..backends.base import Backend
from ..backends.reference.backend import ReferenceBackend
from ..backends.reference.kernels import KERNELS
from ..backends.tuning import Tuning
from ..common.printable import paragraph, printable
from ..common.records import dataclass
from ..graph.graph import Op, Tensor
from ..graph.ops import ActivationBackward, MixSamples
from ..training.assemble import is_of_pictures
from ..training.one_batch import first_samples, on_batch
from ..training.session import Session
from ..training.setup import Setup
from .contact_sheet import draw_sheet, write_png
from .step import AFTER, finite, step_on

STEPS = 500
# Of those that are trained on first; and the share of what knowing nothing loses that is enough.
_SAMPLES, _LEARNED = 16, 0.1
# Of central differences, and what they and equal sums in another order may be off.
_STEP, _EXACT = 1e-7, 1e-4
# What an operand may be off: in fp32 for the sake of long sums, else because it is rounded.
_ROUNDED = {"fp32": 2.0**-18, "tf32": 2.0**-9, "bf16": 2.0**-6}
# The steepest slope of functions whose slope vanishes on both sides, and the share that is flat.
_STEEPEST, _FLAT = {"sigmoid": 0.25, "tanh": 1.0, "scaled_tanh": 1.7159 * 2 / 3}, 0.02
# An update of weights, relative to these, that leads nowhere, and one that is rash.
_SLOW, _RASH = 1e-6, 0.3


@dataclass(frozen=True)
class Verdict:
    """What a test found: ``text`` has its ``figures``; ``advice``: what to do unless it is ok."""

    test: str
    verdict: Literal["ok", "look", "wrong", "skipped"]
    figures: Mapping[str, float]
    text: str
    advice: str = ""


@dataclass(frozen=True)
class Check:
    """The verdicts upon a network, in the order of the recipe; ``seen``: pictures by class."""

    config: str
    backend: str
    verdicts: tuple[Verdict, ...]
    seen: tuple[tuple[str, NDArray[np.uint8]], ...]

    @property
    def wrong(self) -> bool:
        return any(each.verdict == "wrong" for each in self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Figures that are no numbers are None."""
        listed = [{**vars(v), "figures": finite(v.figures)} for v in self.verdicts]
        return {"config": self.config, "backend": self.backend, "verdicts": listed}

    def as_text(self) -> str:
        lines = [f"A check of {self.config} on {self.backend}"]
        for each in self.verdicts:
            lines.append(f"{each.test:<11} {each.verdict:<8} {each.text}")
            lines += [f"{'':<20} {each.advice}"] if each.verdict in ("look", "wrong") else []
        return paragraph(lines)

    def draw(self, path: Path) -> list[Path]:
        """Write what the network sees, if these are pictures; returns the files."""
        if self.seen:
            write_png(draw_sheet(f"What {printable(self.config)} sees", self.seen), path)
        return [path] if self.seen else []


def check_network(config: str, setup: Setup, backend: Backend, steps: int = STEPS) -> Check:
    """Test the network of ``setup``, training it ``steps`` at most. Raises DnnstackError."""
    # Where a training diverges, so do its figures.
    with np.errstate(all="ignore"):
        bench = _Bench(setup, backend, steps)
        first = (bench.inputs(), bench.gradients(), bench.device(), bench.samples(), bench.start())
        verdicts = (*first, *bench.activations(), bench.updates(), *bench.trained())
    return Check(config, backend.name, verdicts, bench.seen())


class _Bench:
    """The first samples of a training, the values of a step on them, and the tests."""

    def __init__(self, setup: Setup, backend: Backend, steps: int) -> None:
        self.setup, self.backend, self.steps = setup, backend, steps
        self.network, self.arrays = setup.network, setup.fresh()
        self.rows = first_samples(setup, _SAMPLES)
        # What changes gradients in place would hide how they were computed.
        plain = _with(setup, optimizer={"clip_norm": None})
        config = plain.config.model_copy(update={"prune": None, "share": None})
        self.plain = replace(plain, config=config)
        step = step_on("", self.plain, backend, self.rows)
        self.operations, self.values = step.operations, step.tensors
        loss = [op for op in step.operations if op.origin[0].phase == "loss"]
        self.scores = loss[0].reads()[0].name
        equal = {**self.values, self.scores: 0 * self.values[self.scores]}
        for op in (op for op in loss if not op.updates):
            equal |= _computed(op, equal)
        # What a network loses that knows nothing: often the logarithm of the number of classes.
        self.chance = float(equal["loss"][0])

    def inputs(self) -> Verdict:
        x = self.values["x"]
        found = {"mean": float(x.mean()), "deviation": (deviation := float(x.std()))}
        text = f"mean {found['mean']:.3g}, deviation {deviation:.3g}, as the network sees them"
        off = max(abs(found["mean"]), deviation, 1 / max(deviation, 1e-9))
        return _judged("inputs", off, (20, 1e4), found, text, "scale them: data.normalize")

    def gradients(self) -> Verdict:
        """Backward of the reference against central differences of the loss, in float64."""
        if not all(layer.differentiable for layer in self.network.every_layer()):
            return Verdict("gradients", "skipped", {}, "a layer has no gradient")
        # Of the plain network, whose rule may keep other state.
        arrays = self.plain.fresh()
        session = on_batch(
            self.plain, self.rows, ReferenceBackend(1), arrays, whole=True, precision="fp64"
        )
        executable, stretch, rng = (
            session.executable,
            session.stretches[0],
            np.random.default_rng(1),
        )
        graph, every = stretch.train, [p.tensor for p in self.network.parameters()]
        every = [t for t in every if graph.producer(graph.gradient(t)) is not None]
        ways = {t: (arrays[t.name].std() or 1) * rng.standard_normal(t.shape) for t in every}
        # Off the kinks at which zeros lie, such as biases of a ReLU upon an empty picture.
        values = {t: arrays[t.name] + 0.01 * way[..., ::-1] for t, way in ways.items()}

        def loss(moved: Sequence[Tensor], by: float) -> float:
            for tensor, value in values.items():
                executable.write(tensor, value + by * (tensor in moved) * ways[tensor])
            stretch.go_to(executable, 0)
            executable.run(graph.name)
            return float(executable.read(graph["loss"])[0])

        def off(moved: Sequence[Tensor]) -> float:
            measured = (loss(moved, _STEP) - loss(moved, -_STEP)) / (2 * _STEP)
            terms = np.concatenate([[0.0], *(claimed[t].ravel() for t in moved)])
            return abs(float(terms.sum()) - measured) / (float(abs(terms).sum()) + 1e-9)

        with closing(session):
            session.set_rate_factor(0.0)
            # It writes the order of the samples, too.
            session.run(1)
            loss([], 0.0)
            claimed = {t: executable.read(graph.gradient(t)) * ways[t] for t in every}
            error = off(every)
            worst = "" if error <= _EXACT else max(every, key=lambda t: off([t])).name
        text = f"relative error {error:.1g} against central differences in float64"
        advice = f"check the backward of the layer of '{worst}'"
        return _judged("gradients", error, (_EXACT, _EXACT), {"error": error}, text, advice)

    def device(self) -> Verdict:
        """What each operation made of its inputs against what the reference makes of these."""
        unit = _ROUNDED[self.backend.precision(self.setup.config.run.precision)]
        worst, error, title, count = -1.0, 0.0, "", 0
        for op in self.operations:
            if op.updates or not all(t.name in self.values for t in op.reads()):
                continue
            count += 1
            near = _computed(op, self.values, unit)
            for name, want in _computed(op, self.values).items():
                gap, size = _size(self.values[name] - want), _size(want) + 1e-30
                # What rounded inputs would change says how exact a result can be.
                ratio = gap / (4 * _size(near[name] - want) + 1e-6 * size)
                if not ratio <= worst:
                    worst, error, title = ratio, gap / size, op.label()
        text = f"{count} operations, the largest relative error {error:.1g}, of {title}"
        advice = f"{title} is wrong on {self.backend.name}: compare with device numpy, report it"
        return _judged("device", worst, (1, 1), {"error": error}, text, advice)

    def samples(self) -> Verdict:
        """The scores of the first sample, while the others move up and the second goes."""
        if any(not each.frozen for each in self.network.running_statistics()):
            return Verdict("samples", "skipped", {}, "batch norm computes with all of a batch")
        if any(isinstance(op, MixSamples) for op in self.operations):
            return Verdict("samples", "skipped", {}, "pictures are mixed with others of the batch")
        rows = np.concatenate([self.rows[:1], self.rows[2:], self.rows[2:3]])
        after = step_on("", self.plain, self.backend, rows).tensors[self.scores][0]
        before = self.values[self.scores][0]
        moved = _size(after - before) / (_size(before) + 1e-30)
        text = f"scores of a sample change by {moved:.1g} where the others of its batch do"
        advice = "a layer mixes samples: check what reshapes or transposes the first axis"
        return _judged("samples", moved, (_EXACT, _EXACT), {"moved": moved}, text, advice)

    def start(self) -> Verdict:
        """The loss of the first step against that of equal scores."""
        rbf = any(layer.kind == "rbf" for layer in self.network.every_layer())
        if rbf or (not self.network.has_logits and self.setup.data.kind == "class"):
            return Verdict("start", "skipped", {}, "scores that are equal mean something")
        found = {"loss": (loss := float(self.values["loss"][0])), "chance": self.chance}
        text = f"loss {loss:.4g} before the first step; that of equal scores is {self.chance:.4g}"
        advice = "smaller weights in the last layer, kernel_initializer, or scaled targets"
        return _judged("start", loss / (self.chance + 1e-30), (2, 5), found, text, advice)

    def activations(self) -> tuple[Verdict, Verdict]:
        """Units without a slope for any sample, and slopes near 0 of functions with two ends."""
        dead, flat = {}, {}
        for op in (op for op in self.operations if isinstance(op, ActivationBackward)):
            ones = {**self.values, op.dy.name: np.ones(op.dy.shape)}
            slope, layer = abs(_computed(op, ones)[op.dx.name]), op.origin[0].layer
            units = slope.max(tuple(axis for axis in range(slope.ndim) if axis != 1))
            dead[layer] = float((units == 0).mean())
            if op.kind in _STEEPEST:
                flat[layer] = float((slope < _FLAT * _STEEPEST[op.kind]).mean())
        what = "units pass no gradient for any sample"
        advice = "smaller rates, biases that are not below 0, or leaky_relu"
        first = _largest("dead units", dead, what, advice)
        advice = "smaller first weights: kernel_initializer, or batch_norm before it"
        return first, _largest("saturation", flat, "values are where the slope vanishes", advice)

    def updates(self) -> Verdict:
        """By how much the first step changes weights, relative to their size."""
        values, found = step_on("", self.setup, self.backend, self.rows).tensors, {}
        for name in (p.tensor.name for p in self.network.parameters() if len(p.tensor.shape) > 1):
            if (after := f"{AFTER}{name}") in values and _size(values[name]):
                found[name] = _size(values[after] - values[name]) / _size(values[name])
        if not found:
            return Verdict("updates", "skipped", {}, "no weights are trained that are not 0")
        largest = max(found, key=lambda name: found[name])
        ratio = found[largest]
        text = f"{ratio:.1g} of '{largest}', the most of all; about 1e-3 is usual"
        advice = f"a {'smaller' if ratio > _RASH else 'larger'} optimizer.lr"
        off = max(ratio / _RASH, _SLOW / max(ratio, 1e-30))
        return _judged("updates", off, (1, 10), {"ratio": ratio}, text, advice)

    def trained(self) -> tuple[Verdict, Verdict, Verdict]:
        """Trained on one batch, and on an empty one; and a step repeated from a saved state."""
        calm, images = _with(self.setup, data={"augment": ()}), self.setup.data.images
        enough = _LEARNED * self.chance
        with closing(self._session(calm)) as session:
            losses = _losses(session, self.steps, enough)
            saved = session.snapshot()
            session.run(1)
            ended, tuning = session.arrays(), session.executable.tuning
        with closing(self._session(calm, tuning)) as again:
            again.put(saved)
            again.run(1)
            other = again.arrays()
        differ = [n for n, a in ended.items() if not np.array_equal(a, other[n], equal_nan=True)]
        blank = replace(self.setup.data, images=np.broadcast_to(images.dtype.type(0), images.shape))
        with closing(self._session(replace(calm, data=blank))) as session:
            unseen = _losses(session, len(losses))[-1]
        first, last = losses[0], losses[-1]
        text = f"{len(losses)} steps on {len(self.rows)} samples: loss {first:.4g} to {last:.4g}"
        advice = "another optimizer.lr, or a larger network; see the verdicts above first"
        share, found = 0.0 if last <= enough else last / first, {"first": first, "last": last}
        fitted = _judged("one batch", share, (0.5, 0.99), found, text, advice)
        used = Verdict("input", "skipped", {}, "the batch was not learned")
        if fitted.verdict == "ok":
            text = f"loss {last:.4g} after these steps; on samples of zeros {unseen:.4g}"
            advice = "the network hardly uses its input: check data, labels and dead units"
            share, found = last / unseen if unseen else 1.0, {"last": last, "unseen": unseen}
            used = _judged("input", share, (0.5, 0.9), found, text, advice)
        text = f"'{differ[0]}' is the first that differs" if differ else "the same bits"
        text = f"a step repeated from a saved state: {text}"
        advice = "report it with this config"
        count, most = float(len(differ)), 0.0 if self.setup.config.run.deterministic else inf
        return fitted, used, _judged("resume", count, (most, most), {"differ": count}, text, advice)

    def seen(self) -> tuple[tuple[str, NDArray[np.uint8]], ...]:
        """The pictures as they enter, augmented, by class; mixed ones by the larger share."""
        if not is_of_pictures(self.setup.config) or self.network.floats:
            return ()
        scaling, data = self.setup.scaling, self.setup.data
        scale, shift = (np.array(v)[:, None, None] for v in (scaling.scale, scaling.shift))
        pixels = np.rint(((self.values["x"] - shift) / scale).clip(0, 255)).astype(np.uint8)
        if data.kind != "class":
            return (("", pixels),)
        target = self.values["target"]
        target = target if target.ndim == 1 else target.argmax(1)
        return tuple((printable(data.classes[k]), pixels[target == k]) for k in np.unique(target))

    def _session(self, setup: Setup, tuning: Tuning | None = None) -> Session:
        return on_batch(setup, self.rows, self.backend, self.arrays, self.steps + 1, tuning=tuning)


def _with(setup: Setup, **changes: Mapping[str, Any]) -> Setup:
    """With changed keys in these sections of the config."""
    config = setup.config
    parts = {key: getattr(config, key).model_copy(update=new) for key, new in changes.items()}
    return replace(setup, config=config.model_copy(update=parts))


def _losses(session: Session, steps: int, enough: float = -inf) -> list[float]:
    """The loss of each step, until it is ``enough``."""
    losses: list[float] = []
    while len(losses) < steps and not (losses and losses[-1] <= enough):
        session.set_sums(np.zeros(3))
        session.run(1)
        losses.append(session.training_metrics().loss)
    return losses


def _computed(op: Op, values: Mapping[str, Any], unit: float = 0.0) -> dict[str, NDArray[Any]]:
    """What the reference makes in float64 of inputs that are off by about ``unit``, by name."""
    rng = np.random.default_rng(1)

    def given(tensor: Tensor) -> Any:
        value = values[tensor.name]
        noise = 1.0 + unit * rng.standard_normal(value.shape)
        return value * noise if value.dtype.kind == "f" else value

    fields = [getattr(op, field) for field in op.inputs]
    each = [tuple(map(given, f)) if isinstance(f, tuple) else f and given(f) for f in fields]
    found = KERNELS.of(op).compute(op, *each)
    parts = zip(op.outputs, found if len(op.outputs) > 1 else (found,), strict=True)
    pairs = ((op.tensors((name,)), f if isinstance(f, tuple) else (f,)) for name, f in parts)
    # An optional output that is absent has no tensor.
    return {t.name: array for pair in pairs for t, array in zip(*pair, strict=False)}


def _size(array: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))


def _judged(
    test: str, value: float, bounds: tuple[float, float], figures: Mapping[str, float],
    text: str, advice: str,
) -> Verdict:  # fmt: skip
    """ok up to the first bound, look up to the second; a value that is no number is wrong."""
    verdict: Any = "ok" if value <= bounds[0] else "look" if value <= bounds[1] else "wrong"
    return Verdict(test, verdict, figures, text, advice)


def _largest(test: str, shares: Mapping[str, float], what: str, advice: str) -> Verdict:
    """Of the layer with the largest share."""
    if not shares:
        return Verdict(test, "skipped", {}, "no layer has such a function")
    layer = max(shares, key=lambda name: shares[name])
    share, text = shares[layer], f"of '{layer}', {shares[layer]:.0%} of the {what}"
    return _judged(test, share, (0.5, 0.9), {"share": share}, text, advice)
