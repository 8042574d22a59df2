"""Searches for recipes, each chosen on held-out training pictures and judged once on the test set.

    python3 benchmarks/records.py lenet --folder records --data-dir ~/data
    python3 benchmarks/records.py mnist --folder records --data-dir ~/data
    python3 benchmarks/records.py cifar10 --folder records --data-dir ~/data

``lenet``: the most accurate lenet.yaml; ``mnist``: the fastest way to 99.0% of the test set, for
which 98.8% of the held-out pictures are wanted, because these are harder by a quarter of a point;
``cifar10``: the accuracy of cifar10-airbench-muon.yaml in fewer seconds. Each takes ``--seconds``,
in shares:

1. warm: choose the fastest calls for every combination of shapes, so that no trial has to;
2. search: ``dnnstack sweep``;
3. choose: the best trials, of CIFAR-10 what a function fitted to all of them says is best (see
   records_fit.py), and the present recipe, are trained again with other seeds, and their means on
   the held-out pictures compared; of CIFAR-10 the fastest wins whose differences from the present
   recipe, seed by seed, do not show it to be less accurate by MARGIN;
4. judge: the chosen one is trained on all training pictures with fresh seeds, in turn with the
   present recipe, and evaluated on the test set.

Seconds are of training, with whitening and with evaluation, measured as in airbench.py. A step that
runs out of time ends with what it has. FOLDER gets the trials, every training as a line of JSON,
and the chosen config; a table is printed. ``--chosen FOLDER/cifar10-chosen.yaml`` judges alone,
with all of the time, for instance further seeds with ``--first``. ``--compare FILE...`` chooses
among configs that were written by hand, without warming or a search.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from records_candidates import Candidate, show
from records_fit import fitted
from records_parts import PARTS, TINY, noise, shapes, small_set

# Of the seconds of a part, when each step ends at the latest.
ENDS = {"warm": 0.2, "search": 0.55, "choose": 0.75, "judge": 1.0}
# As accurate as the present recipe is what is not shown to be less accurate by more than this.
MARGIN = 0.0005
# Trials that a function of all keys can be fitted to.
FITTED = 60
# Seeds of the repeated trainings; the searches have their own.
CHOOSING = 1001


class Bench:
    """One part: its config, its data, and the trainings of this process."""

    def __init__(self, name: str, options: argparse.Namespace, begin: float, config: Path) -> None:
        from dnnstack.backends.keeping import Keeping
        from dnnstack.backends.select import open_backend
        from dnnstack.datasets import data_root, load

        self.part, self.options, self.name = PARTS[name], options, name
        if options.goal is not None:
            self.part = replace(self.part, goal=options.goal)
        self.config = config
        self._begin = begin
        config.write_text("\n".join(path.read_text() for path in self.part.search))
        self.machine = [f"run.device={options.device}"]
        self.machine += [f"run.precision={options.precision}"] if options.precision else []
        self.machine += [*self.part.tiny] if options.tiny else []
        self.machine += options.overrides
        self.backend = Keeping(open_backend(options.device))
        chosen = "cifar10" if name == "cifar10" else "mnist"
        if options.tiny:
            self.data = [noise(chosen, count) for count in TINY]
        else:
            root = data_root(options.data_dir, None)
            self.data = [load(chosen, split, root=root) for split in ("train", "test")]
        self._record = options.folder / f"{name}-trainings.jsonl"

    def ends(self, step: str) -> float:
        """When a step of this part ends, by the clock."""
        return self._begin + ENDS[step] * self.options.seconds

    def divided(self) -> tuple[Any, Any]:
        """The training pictures without the held-out ones, and these; not as the sweep divides."""
        import numpy as np

        images = self.data[0]
        held = 100 if self.options.tiny else self.part.held_out
        order = np.random.default_rng(2).permutation(len(images))
        parts = [order[held:], order[:held]]
        one, two = (
            replace(images, images=images.images[rows], labels=images.labels[rows])
            for rows in parts
        )
        return one, two

    def loaded(self, candidate: Candidate, seed: int) -> Any:
        """The config of a candidate, without validation samples."""
        from dnnstack.configs.load import load_beside

        settings = [*candidate.settings, *self.machine, f"seed={seed}", "data.validation=0"]
        return load_beside(candidate.config, "search", settings)[0].config

    def train(self, candidate: Candidate, seed: int, step: str, trainings: Any) -> dict[str, Any]:
        """Train a candidate once; the figures go to its runs and to the record."""
        found = trainings.run(self.loaded(candidate, seed))
        found.pop("tuning")
        found["seed"] = seed
        candidate.runs.append(found)
        line = {"step": step, "candidate": candidate.name, **found}
        with self._record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return found

    def present(self) -> list[Candidate]:
        part = self.part
        # Steps, not epochs: with fewer pictures the recipe is the same.
        return (
            [Candidate("present", part.present, ("train.max_steps=200",))] if part.present else []
        )

    def warm(self) -> None:
        """Compile every combination of shapes."""
        from dnnstack.configs.search import assignment, load_search
        from timed import Trainings

        _, search = load_search(self.config, [*self.machine, "data.validation=10"])
        shaped = [each for each in search.dimensions if each.values and shapes(each.key)]
        seen = set()
        trainings = Trainings(self.backend, *self.divided())
        for values in product(*(each.values for each in shaped)):
            chosen: dict[str, Any] = {}
            for each, value in zip(shaped, values, strict=True):
                if each.holds(chosen):
                    chosen[each.key] = value
            settings = tuple(assignment(key, value) for key, value in chosen.items())
            if settings in seen:
                continue
            seen.add(settings)
            if time.monotonic() > self.ends("warm"):
                say("warm: the time is up; trials of other shapes will search for themselves")
                return
            begin = time.monotonic()
            made = Candidate("warm", str(self.config), settings)
            trainings.session(self.loaded(made, 1)).close()
            say(f"warm: {chosen or 'one shape'}: {time.monotonic() - begin:.1f} s")

    def search(self, runs: Path) -> list[dict[str, Any]]:
        """The complete trials of a sweep that ends with the time of the step."""
        settings = [*self.machine]
        held = 100 if self.options.tiny else self.part.held_out
        settings += [f"data.validation={held}"]
        words = ["--config", str(self.config), "--json", "--runs-dir", str(runs), "--workers"]
        words += [str(self.options.workers or self.part.workers)]
        for each in settings:
            words += ["--set", each]
        if self.options.tiny:
            words += ["--set", f"data.dataset={small_set(self.name, runs.parent)}"]
        elif self.options.data_dir:
            words += ["--data-dir", str(self.options.data_dir)]
        begin = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "dnnstack.cli", "sweep", *words], stdout=subprocess.PIPE
        )
        try:
            out, _ = process.communicate(timeout=max(1.0, self.ends("search") - begin))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                out, _ = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
        if not out.strip():
            say(f"search: nothing came back, exit status {process.returncode}")
            return []
        (self.options.folder / f"{self.name}-trials.json").write_bytes(out)
        trials = json.loads(out)["trials"]
        complete = [trial for trial in trials if trial["state"] == "complete"]
        seconds = time.monotonic() - begin
        trained = sum(trial["seconds"] for trial in trials)
        say(
            f"search: {len(trials)} trials, {len(complete)} of them complete, in {seconds:.0f} s; "
            f"{trained:.0f} s of these were training"
        )
        return complete

    def promising(self, trials: Sequence[dict[str, Any]]) -> list[Candidate]:
        """The trials that may be what is looked for."""
        from dnnstack.configs.search import assignment

        def accuracy(trial: dict[str, Any]) -> float:
            # The first objective of every search here.
            return float(trial["values"][0])

        ranked = sorted(trials, key=accuracy, reverse=True)
        if self.part.fits and len(trials) >= FITTED:
            points, told = fitted(trials, self.options.candidates, self.part.costs)
            say(f"fit: {len(trials)} trials, {told}")
            found = []
            for number, params in enumerate(points, 1):
                settings = tuple(assignment(key, value) for key, value in params.items())
                found.append(Candidate(f"fit-{number}", str(self.config), settings))
            return found
        if self.part.fastest and ranked:
            goal = self.part.goal or accuracy(ranked[len(ranked) // 10])
            near = [trial for trial in ranked if accuracy(trial) >= goal - 0.0015]
            # Fast ones and accurate ones: the fastest of a noisy measurement are those with luck.
            fast = sorted(near, key=lambda trial: trial["seconds"])[: self.options.candidates // 2]
            ranked = [*fast, *(trial for trial in ranked if trial not in fast)]
        found = []
        for trial in ranked[: self.options.candidates]:
            params = tuple(assignment(key, value) for key, value in trial["params"].items())
            shown = f"{trial['run']}"
            found.append(Candidate(shown, str(self.config), params))
        return found

    def choose(self, candidates: list[Candidate]) -> Candidate | None:
        """The candidate that is best by the mean of several trainings on other seeds."""
        from timed import Trainings

        trainings = Trainings(self.backend, *self.divided())
        present = self.present()
        alive, longest = [*present, *candidates], 0.0
        for seed in range(CHOOSING, CHOOSING + self.options.rounds):
            begin = time.monotonic()
            if begin + longest > self.ends("choose"):
                break
            for each in alive:
                self.train(each, seed, "choose", trainings)
            longest = time.monotonic() - begin
            alive = [*present, *self._kept(alive[len(present) :], present)]
            say(f"choose: round {seed - CHOOSING + 1}, {longest:.0f} s, {len(alive)} left")
        trained = [each for each in candidates if each.runs]
        for each in [*present, *sorted(trained, key=lambda each: -each.accuracy)]:
            beside = ""
            if present and each is not present[0]:
                difference, error = (100 * number for number in each.over(present[0]))
                beside = f" ({difference:+.3f} +- {error:.3f})"
            say(
                f"choose: {each.name:10} {100 * each.accuracy:.3f}% +- {100 * each.error:.3f}"
                f"{beside}, {each.seconds:.4f} s, {len(each.runs)} seeds: {' '.join(each.settings)}"
            )
        most = max((len(each.runs) for each in trained), default=0)
        last = [each for each in trained if len(each.runs) == most]
        if self.part.fastest:
            reaching = [each for each in last if self._reaches(each, present)]
            if reaching:
                return min(reaching, key=lambda each: each.seconds)
            say("choose: no candidate reaches the goal; the most accurate one is judged")
        return max(last, key=lambda each: each.accuracy, default=None)

    def _reaches(self, each: Candidate, present: Sequence[Candidate]) -> bool:
        """Whether it is as accurate as is wanted."""
        if self.part.goal is not None or not present:
            return each.accuracy - each.error / 2 >= (self.part.goal or 0.0)
        difference, error = each.over(present[0])
        return difference - error >= -MARGIN

    def _kept(
        self, candidates: Sequence[Candidate], present: Sequence[Candidate]
    ) -> Iterator[Candidate]:
        """Those that can still win, after three rounds."""
        for each in candidates:
            if len(each.runs) < 3:
                yield each
            elif self.part.fastest and self.part.goal is None and present:
                difference, error = each.over(present[0])
                if difference + 2 * error >= -MARGIN:
                    yield each
            else:
                most = max(other.accuracy for other in candidates)
                goal = (self.part.goal or 0.0) if self.part.fastest else most
                if each.accuracy + (2 if self.part.fastest else 3) * each.error >= goal:
                    yield each

    def judge(self, chosen: Candidate) -> list[Candidate]:
        """The chosen and the present recipe on the test set, in turn, with fresh seeds."""
        from timed import Trainings

        trainings = Trainings(self.backend, *self.data)
        compared = [replace(each, runs=[]) for each in (*self.present(), chosen)]
        longest = 0.0
        first = self.options.first
        for seed in range(first, first + (self.options.judged or self.part.judged)):
            begin = time.monotonic()
            if seed > first and begin + longest > self.ends("judge"):
                say("judge: the time is up")
                break
            shown = [self.train(each, seed, "judge", trainings) for each in compared]
            longest = max(longest, time.monotonic() - begin)
            text = ", ".join(f"{100 * r['accuracy']:.2f}% {r['seconds']:.4f} s" for r in shown)
            say(f"judge: seed {seed}: {text}")
        return compared

    def write(self, chosen: Candidate) -> Path:
        """The chosen recipe as a config, ready to train."""
        from dnnstack.configs import effective_yaml

        path = self.options.folder / f"{self.name}-chosen.yaml"
        path.write_text(effective_yaml(self.loaded(chosen, 1)))
        return path


def say(text: str) -> None:
    print(f"  {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--folder", type=Path, required=True, help="for the results")
    parser.add_argument("--seconds", type=float, default=220, help="for everything together")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16", help="'' for that of the config")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--workers", type=int, help="of the sweep, in place of the part's own")
    parser.add_argument("--candidates", type=int, default=10, help="trials to be trained again")
    parser.add_argument("--rounds", type=int, default=10, help="of choosing, a seed each")
    parser.add_argument("--judged", type=int, help="seeds on the test set")
    parser.add_argument("--first", type=int, default=1, help="the first of these")
    parser.add_argument("--goal", type=float, help="accuracy on held-out pictures to be reached")
    parser.add_argument("--chosen", type=Path, help="a config to judge, without a search")
    parser.add_argument(
        "--compare", type=Path, nargs="+", help="configs to choose from, without a search"
    )
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE",
        help="change a key of the config, or of the search: search.keys.data.batch_size=[512]",
    )  # fmt: skip
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # What whitens has threads of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    options.folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.part, options, begin, Path(folder) / f"{options.part}.yaml")
        say(", ".join(f"{name} {version}" for name, version in bench.backend.versions().items()))
        if options.chosen is not None:
            chosen: Candidate | None = Candidate("chosen", str(options.chosen), ())
        elif options.compare:
            chosen = bench.choose([Candidate(f.stem, str(f), ()) for f in options.compare])
        else:
            bench.warm()
            trials = bench.search(Path(folder) / "runs")
            chosen = bench.choose(bench.promising(trials))
        if chosen is not None and options.chosen is None:
            say(f"chosen: {chosen.name}, {bench.write(chosen)}")
        if chosen is None:
            sys.exit("nothing was found; the messages above say how far it came")
        show(bench.part, bench.judge(chosen))
    print(f"\nseconds in all: {time.monotonic() - begin:.0f}")


if __name__ == "__main__":
    main()
