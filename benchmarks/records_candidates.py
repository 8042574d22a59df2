"""Recipes that are compared: their trainings, and the table of what these found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import Any

from records_parts import Part

# What seeds differ by: a deviation, which counts as much as that of so many further trainings.
GUESS, GUESSES = 0.002, 4


@dataclass
class Candidate:
    """A recipe: its settings over the config, and its trainings."""

    name: str
    config: str
    settings: tuple[str, ...]
    runs: list[dict[str, Any]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        return mean(run["accuracy"] for run in self.runs)

    @property
    def error(self) -> float:
        """Standard error of the mean; a few trainings that happen to agree do not make it small."""
        count = len(self.runs)
        spread = stdev(run["accuracy"] for run in self.runs) if count > 1 else 0.0
        known = (count - 1) * spread**2 + GUESSES * GUESS**2
        return (known / (count - 1 + GUESSES) / count) ** 0.5

    @property
    def seconds(self) -> float:
        return median(run["seconds"] for run in self.runs)

    def over(self, other: Candidate) -> tuple[float, float]:
        """The mean difference of the accuracies on the same seeds, and its standard error.

        The error is without end for fewer than three seeds.
        """
        theirs = {run["seed"]: run["accuracy"] for run in other.runs}
        both = [run for run in self.runs if run["seed"] in theirs]
        differences = [run["accuracy"] - theirs[run["seed"]] for run in both]
        if len(differences) < 3:
            return (mean(differences) if differences else 0.0), float("inf")
        return mean(differences), stdev(differences) / len(differences) ** 0.5


def show(part: Part, compared: Sequence[Candidate]) -> None:
    """A line for each recipe: its accuracy on the test set, and its seconds."""
    from dnnstack.training.intervals import wilson

    first, last = compared[0], compared[-1]
    goal = part.tested or part.goal or first.accuracy
    print(
        "\n| recipe | seeds | test accuracy, mean | deviation | least, most | of the first seed, "
        f"95% interval | at least {100 * goal:.2f}% | seconds, median | least, most | whitening, "
        "training, evaluation |"
    )
    print("| --- " * 10 + "|")
    for each in compared:
        accuracies = [100 * run["accuracy"] for run in each.runs]
        seconds = [run["seconds"] for run in each.runs]
        one = each.runs[0]
        low, high = (100 * end for end in wilson(one["correct"], one["count"]))
        parts = [f"{median(r['parts'][name] for r in each.runs):.4f}" for name in one["parts"]]
        deviation = stdev(accuracies) if len(accuracies) > 1 else 0.0
        cells = [each.name, str(len(each.runs)), f"{mean(accuracies):.3f}%", f"{deviation:.3f}"]
        cells += [f"{min(accuracies):.2f}, {max(accuracies):.2f}"]
        cells += [f"{accuracies[0]:.2f}%, {low:.2f} to {high:.2f}"]
        cells += [str(sum(run["accuracy"] >= goal for run in each.runs))]
        cells += [f"{median(seconds):.4f}", f"{min(seconds):.4f}, {max(seconds):.4f}"]
        print(f"| {' | '.join([*cells, ', '.join(parts)])} |", flush=True)
    if len(compared) > 1 and len(first.runs) > 2:
        difference, error = (100 * number for number in last.over(first))
        print(f"\nseed by seed: {difference:+.3f} points, standard error {error:.3f}", flush=True)
